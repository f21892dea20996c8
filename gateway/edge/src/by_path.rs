//! Way of requests and answers of a port that users reach by path, `/NAME/PORT/…` on the origin of `paths_url`.
//!
//! The app gets the path without that prefix, and `X-Forwarded-Prefix` beside it. What an answer says about paths gets the
//! prefix: redirects, the paths of cookies, the scope of service workers. Links inside pages are the app's business; relative
//! ones work. All pages of one user's workspaces share the origin, so an answer neither clears its storage nor sets a cookie
//! beyond its host. Decision record: docs/decisions/2026-11-28-workspaces-by-path.md.

use http::header::{ALT_SVC, LOCATION, SET_COOKIE, STRICT_TRANSPORT_SECURITY};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::cookies::{HOST_PREFIX, domain_of, pair_name, pairs};
use crate::rewrite::{OwnOrigin, split_url};
use gateway_http::host::authorities_agree;

/// Field that tells an app the beginning of its paths, which the user's browser knows and the app does not see.
pub(crate) const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

const SERVICE_WORKER_ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");

/// Fields that act on all of an origin or host: they clear it, have its addresses reported elsewhere, or say how to reach it.
const OF_THE_ORIGIN: [HeaderName; 5] = [
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    STRICT_TRANSPORT_SECURITY,
    ALT_SVC,
];

/// Takes the prefix off a target. A target without it, which the parser of paths lets nowhere, stays as it is.
pub(crate) fn to_app(target: &mut Uri, prefix: &str) {
    let rest = target.path_and_query().and_then(|whole| whole.as_str().strip_prefix(prefix));
    let Some(rest) = rest.and_then(|rest| PathAndQuery::try_from(rest).ok()) else { return };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(rest);
    if let Ok(stripped) = Uri::from_parts(parts) {
        *target = stripped;
    }
}

/// Puts the prefix before the paths of an answer, and takes out what would reach other workspaces of the origin.
pub(crate) fn to_user(headers: &mut HeaderMap, own: OwnOrigin<'_>, prefix: &str) {
    for name in &OF_THE_ORIGIN {
        headers.remove(name);
    }
    let led = headers.get(LOCATION).and_then(|value| with_prefix(value.as_bytes(), own, prefix));
    if let Some(value) = led.and_then(|value| HeaderValue::try_from(value).ok()) {
        headers.insert(LOCATION, value);
    }
    // A browser resolves the value as a URL, in which `..` and more lead out of the prefix: whatever it is, it is replaced.
    if headers.remove(SERVICE_WORKER_ALLOWED).is_some()
        && let Ok(most) = HeaderValue::try_from(format!("{prefix}/"))
    {
        headers.insert(SERVICE_WORKER_ALLOWED, most);
    }
    if headers.contains_key(SET_COOKIE) {
        let bound: Vec<_> = headers.get_all(SET_COOKIE).iter().filter_map(|value| bound(value, prefix)).collect();
        headers.remove(SET_COOKIE);
        for value in bound {
            headers.append(SET_COOKIE, value);
        }
    }
}

/// Returns a URL of the own origin with the prefix before its path; `None` for a relative path, another origin, and for one that
/// has the prefix: the app has read `X-Forwarded-Prefix`.
fn with_prefix(url: &[u8], own: OwnOrigin<'_>, prefix: &str) -> Option<Vec<u8>> {
    let (origin, path) = match split_url(url) {
        Some((origin, rest)) => {
            let is_own = origin.scheme == own.scheme && authorities_agree(own.scheme, origin.authority, own.authority);
            let path = is_own.then_some(if rest.is_empty() { b"/" } else { rest })?;
            (url.get(..url.len() - rest.len())?, path)
        }
        // A browser reads `/\` as `//`, another origin.
        None if matches!(url, [b'/', b'/' | b'\\', ..]) => return None,
        None => (&[][..], url),
    };
    let has_prefix =
        path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/' | b'?' | b'#', ..]));
    (path.first() == Some(&b'/') && !has_prefix).then(|| [origin, prefix.as_bytes(), path].concat())
}

/// Returns a cookie that belongs to the prefix and to no other host. One whose name begins with [`HOST_PREFIX`] keeps its path,
/// because a browser takes it with no other.
fn bound(value: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let mut parts = pairs(value);
    let pair = parts.next().unwrap_or_default();
    let keeps_path = pair.trim_ascii_start().starts_with(HOST_PREFIX.as_bytes());
    let mut line = pair.to_vec();
    for part in parts.filter(|part| domain_of(part).is_none()) {
        line.push(b';');
        let path = part.splitn(2, |byte| *byte == b'=').nth(1).map(<[u8]>::trim_ascii).unwrap_or_default();
        let is_path = pair_name(part).is_some_and(|name| name.eq_ignore_ascii_case(b"path"));
        let has_prefix = path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        if is_path && path.first() == Some(&b'/') && !keeps_path && !has_prefix {
            line.extend_from_slice(b" Path=");
            line.extend_from_slice(prefix.as_bytes());
            line.extend_from_slice(path);
        } else {
            line.extend_from_slice(part);
        }
    }
    // Bytes taken from field values and a path of names and digits are a field value again.
    HeaderValue::from_bytes(&line).ok()
}

#[cfg(test)]
mod tests {
    use gateway_types::Scheme;

    use super::*;

    const OWN: OwnOrigin<'static> = OwnOrigin { scheme: Scheme::Https, authority: "paths.example.com" };

    #[test]
    fn app_gets_its_path_without_the_prefix_and_byte_for_byte() {
        for (target, expected) in [
            ("/app/8080/", "/"),
            ("/app/8080/a/../%2F?b=/app/8080/", "/a/../%2F?b=/app/8080/"),
            ("/app/8080//evil.org/x", "//evil.org/x"),
            ("https://paths.example.com/app/8080/x?y", "https://paths.example.com/x?y"),
            ("/other/1/", "/other/1/"),
        ] {
            let mut uri: Uri = target.parse().unwrap();
            to_app(&mut uri, "/app/8080");
            assert_eq!(uri.to_string(), expected, "{target}");
        }
    }

    #[track_caller]
    fn check(name: HeaderName, value: &str, expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert(name.clone(), value.parse().unwrap());
        to_user(&mut headers, OWN, "/app/8080");
        assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), expected, "{value}");
    }

    #[test]
    fn redirects_of_the_app_stay_below_its_prefix() {
        for (value, expected) in [
            ("/login", "/app/8080/login"),
            ("/", "/app/8080/"),
            ("/app", "/app/8080/app"),
            ("/app/80801/x", "/app/8080/app/80801/x"),
            ("https://paths.example.com/login?x#y", "https://paths.example.com/app/8080/login?x#y"),
            ("HTTPS://PATHS.example.com:443/login", "HTTPS://PATHS.example.com:443/app/8080/login"),
            ("https://paths.example.com", "https://paths.example.com/app/8080/"),
        ] {
            check(LOCATION, value, Some(expected));
        }
        for same in [
            "login",
            "",
            "?q",
            "../x",
            "/app/8080/login",
            "/app/8080",
            "https://paths.example.com/app/8080/x",
            "//evil.org/x",
            "/\\evil.org/x",
            "https://evil.org/login",
            "http://paths.example.com/login",
            "https://paths.example.com:444/login",
            "https://paths.example.com@evil.org/login",
        ] {
            check(LOCATION, same, Some(same));
        }
    }

    #[test]
    fn cookies_belong_to_the_prefix_and_to_no_other_host() {
        for (value, expected) in [
            ("a=b", "a=b"),
            ("a=b; Path=/; HttpOnly", "a=b; Path=/app/8080/; HttpOnly"),
            ("a=b; PATH = /x ;Secure", "a=b; Path=/app/8080/x;Secure"),
            ("a=b; Domain=example.com; path=/", "a=b; Path=/app/8080/"),
            ("a=b;domain=.paths.example.com", "a=b"),
            ("a=b; Path=/app/8080/x", "a=b; Path=/app/8080/x"),
            ("a=b; Path=/app/80801", "a=b; Path=/app/8080/app/80801"),
            ("a=b; Path=x", "a=b; Path=x"),
            ("__Host-a=b; Path=/; Secure", "__Host-a=b; Path=/; Secure"),
            ("a=/; Path=\"/x\"", "a=/; Path=\"/x\""),
        ] {
            check(SET_COOKIE, value, Some(expected));
        }
    }

    #[test]
    fn no_answer_reaches_the_storage_or_the_pages_of_another_workspace() {
        for scope in
            ["/", "/app/8080/x", "../../", "//paths.example.com/", "/\\paths.example.com/", "/app/8080/%2e%2e/../"]
        {
            check(SERVICE_WORKER_ALLOWED, scope, Some("/app/8080/"));
        }
        for name in OF_THE_ORIGIN {
            check(name, "\"*\"", None);
        }
    }
}
