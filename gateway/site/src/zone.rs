//! Tells programs the domain under which workspaces live: `gateway forward` and `gateway ssh` know the public address only,
//! and the two need not have anything in common. Needs no sign-in, because every address of a workspace says as much.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, Method, Response};

use gateway_http::respond::Failure;
use gateway_types::Zone;

/// Path on the public host that tells the zone.
pub(crate) const PATH: &str = "/.gateway/zone";

/// Answers a request for the zone; `None` for any other path.
#[must_use]
pub(crate) fn answer(parts: &Parts, zone: &Zone) -> Option<Result<Response<Bytes>, Failure>> {
    if parts.uri.path() != PATH {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Err(Failure::MethodNotAllowed));
    }
    let mut response = Response::new(Bytes::from(serde_json::json!({ "zone": zone.as_str() }).to_string()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Some(Ok(response))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn asked(method: Method, path: &str) -> Option<Result<String, Failure>> {
        let (parts, ()) = Request::builder().method(method).uri(path).body(()).expect("a request").into_parts();
        let zone = "ws.example.com".parse().expect("a zone");
        let text = |answer: Response<Bytes>| String::from_utf8(answer.into_body().to_vec()).expect("text");
        answer(&parts, &zone).map(|answer| answer.map(text))
    }

    #[test]
    fn zone_is_told_to_whoever_reads() {
        assert_eq!(asked(Method::GET, PATH), Some(Ok("{\"zone\":\"ws.example.com\"}".to_owned())));
        assert_eq!(asked(Method::POST, PATH), Some(Err(Failure::MethodNotAllowed)));
        assert_eq!(asked(Method::GET, "/"), None);
        assert_eq!(asked(Method::GET, "/.gateway/zone/"), None);
    }
}
