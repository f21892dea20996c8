//! Answers the CORS preflight that a browser sends before one port of a workspace calls another (Fetch, section 4.8).
//!
//! A preflight carries no cookie, so it can never be authorised, and without an answer the page on port 3000 could not
//! call the API on port 8080. The answer lets the browser *ask*: the request that follows carries the cookie, is
//! authorised like any other, and whether its answer may be read is still the app's own word.
//!
//! The answer depends on names alone, not on what the store or an agent knows, so it does not tell whether the
//! workspace exists. No byte of a preflight reaches the app.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use gateway_auth::policy::RequestSource;
use gateway_http::fields::tokens;

/// Longest list of field names that is answered, in bytes. Browsers send a few dozen.
const NAMES_BYTES_MAX: usize = 4096;

/// Time that a browser may remember the answer, in seconds: short, because sharing can end.
const MAX_AGE: HeaderValue = HeaderValue::from_static("60");

const VARIES: HeaderValue =
    HeaderValue::from_static("origin, access-control-request-method, access-control-request-headers");

/// Answers a preflight from another port of the same workspace; `None` for any other request, which goes on to be
/// authorised and, without a token, is refused like every other anonymous request.
///
/// `source` is where the request comes from by the browser's own account; only [`RequestSource::SameWorkspace`] is answered,
/// so the origin that is repeated as allowed was recognised as one of the workspace's own.
#[must_use]
pub fn answer(method: &Method, headers: &HeaderMap, source: RequestSource) -> Option<Response<Bytes>> {
    if method != Method::OPTIONS || source != RequestSource::SameWorkspace {
        return None;
    }
    let origin = single(headers, &ORIGIN)?;
    let wanted = single(headers, &ACCESS_CONTROL_REQUEST_METHOD).filter(|wanted| is_token(wanted.as_bytes()))?;
    let names = names(headers)?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, wanted.clone());
    if let Some(names) = names {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    answer.insert(VARY, VARIES);
    Some(response)
}

/// Returns the field names that are asked for, written anew: `None` if one of them is no name, `Some(None)` if there are
/// none.
fn names(headers: &HeaderMap) -> Option<Option<HeaderValue>> {
    let mut joined = Vec::new();
    for name in tokens(headers, &ACCESS_CONTROL_REQUEST_HEADERS) {
        if !is_token(name) || joined.len() + name.len() > NAMES_BYTES_MAX {
            return None;
        }
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(name);
    }
    if joined.is_empty() {
        return Some(None);
    }
    HeaderValue::from_bytes(&joined).ok().map(Some)
}

/// Says whether bytes are a token (RFC 9110, section 5.6.2), as methods and field names are.
fn is_token(bytes: &[u8]) -> bool {
    let in_grammar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(in_grammar)
}

fn single<'map>(headers: &'map HeaderMap, name: &HeaderName) -> Option<&'map HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter().map(field) {
            headers.append(name, value);
        }
        headers
    }

    const FULL: [(&str, &str); 3] = [
        ("origin", "http://3000-app.zone"),
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "content-type,  X-Own"),
    ];

    #[test]
    fn preflight_of_a_neighbour_is_answered_for_what_it_asks() {
        let answer = answer(&Method::OPTIONS, &asked(&FULL), RequestSource::SameWorkspace).unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        let headers = answer.headers();
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "http://3000-app.zone");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_METHODS], "PUT");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_HEADERS], "content-type, X-Own");
        assert_eq!(headers[VARY], VARIES);
    }

    #[test]
    fn preflight_without_names_allows_none() {
        let answer = answer(&Method::OPTIONS, &asked(&FULL[..2]), RequestSource::SameWorkspace).unwrap();
        assert!(!answer.headers().contains_key(ACCESS_CONTROL_ALLOW_HEADERS));
    }

    #[test]
    fn every_other_source_is_left_to_the_decision() {
        for source in
            [RequestSource::SameOrigin, RequestSource::UserInitiated, RequestSource::Foreign, RequestSource::Unstated]
        {
            assert!(answer(&Method::OPTIONS, &asked(&FULL), source).is_none(), "{source:?}");
        }
    }

    #[test]
    fn what_is_no_preflight_is_left_alone() {
        let ask = |method: Method, headers: &HeaderMap| answer(&method, headers, RequestSource::SameWorkspace);
        assert!(ask(Method::GET, &asked(&FULL)).is_none());
        assert!(ask(Method::OPTIONS, &asked(&FULL[..1])).is_none(), "no method is asked for");
        assert!(ask(Method::OPTIONS, &asked(&FULL[1..])).is_none(), "no origin");
        for method in ["", "P UT", "PUT, GET", "P\u{e4}"] {
            let mut headers = asked(&FULL);
            headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_str(method).unwrap());
            assert!(ask(Method::OPTIONS, &headers).is_none(), "{method:?}");
        }
        for names in ["a b", "a;b", "a,b:c", "\"a\""] {
            let mut headers = asked(&FULL);
            headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static(names));
            assert!(ask(Method::OPTIONS, &headers).is_none(), "{names:?}");
        }
        let mut headers = asked(&FULL);
        headers.append(ORIGIN, HeaderValue::from_static("http://3000-app.zone"));
        assert!(ask(Method::OPTIONS, &headers).is_none(), "two origins");
        let mut headers = asked(&FULL);
        headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::try_from("a".repeat(5000)).unwrap());
        assert!(ask(Method::OPTIONS, &headers).is_none(), "too long");
    }
}
