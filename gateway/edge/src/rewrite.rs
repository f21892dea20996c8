//! Host rewriting for dev servers that insist on `localhost`, and the way back for their redirects.
//!
//! Apps get the original Host by default. For a port set to `localhost`, fields that name the workspace's own host are
//! rewritten, and nothing else: an Origin of another site must stay foreign to the app's own check (docs/defences.md,
//! traps 34 and 35).

use http::header::{HOST, LOCATION, ORIGIN, REFERER};
use http::{HeaderMap, HeaderName, HeaderValue};

use gateway_http::host;
use gateway_types::{Port, Scheme};

/// Host that an app sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMode {
    /// The one the user asked for.
    Original,
    /// `localhost:{port}`, under the scheme that the app speaks.
    Localhost(Scheme),
}

/// The origin under which a user reaches a port: the scheme of the connection, the authority of the request.
#[derive(Clone, Copy, Debug)]
pub struct OwnOrigin<'a> {
    /// The scheme the browser used.
    pub scheme: Scheme,
    /// The authority, as the browser wrote it.
    pub authority: &'a str,
}

/// Sets the Host that the app gets, and in [`HostMode::Localhost`] rewrites Origin and Referer of the same host.
pub fn request(headers: &mut HeaderMap, mode: HostMode, own: OwnOrigin<'_>, port: Port) {
    match mode {
        // A client's own Host field that equals the authority is right already.
        HostMode::Original if headers.get(HOST).is_some_and(|host| host == own.authority) => {}
        HostMode::Original => put(headers, HOST, own.authority.as_bytes().to_vec()),
        HostMode::Localhost(scheme) => {
            put(headers, HOST, format!("localhost:{port}").into_bytes());
            for name in [ORIGIN, REFERER] {
                let rewritten = headers.get(&name).and_then(|value| {
                    let (url, rest) = split_url(value.as_bytes())?;
                    let is_own = host::authorities_agree(url.scheme, url.authority, own.authority);
                    is_own.then(|| [format!("{}://localhost:{port}", scheme.as_str()).as_bytes(), rest].concat())
                });
                if let Some(value) = rewritten {
                    put(headers, name, value);
                }
            }
        }
    }
}

/// Maps a redirect to the app's own loopback address back to the address the user knows; any other stays as it is.
pub fn response(headers: &mut HeaderMap, own: OwnOrigin<'_>, port: Port) {
    let rewritten = headers.get(LOCATION).and_then(|value| {
        let (url, rest) = split_url(value.as_bytes())?;
        let loopback = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .any(|name| host::authorities_agree(url.scheme, url.authority, &format!("{name}:{port}")));
        loopback.then(|| [own.scheme.as_str().as_bytes(), b"://", own.authority.as_bytes(), rest].concat())
    });
    if let Some(value) = rewritten {
        put(headers, LOCATION, value);
    }
}

/// Splits an absolute URL into its origin and the rest, which is empty or begins with `/`, `?` or `#`. A `\` ends an
/// authority too, because browsers read it as `/`; such a URL is not split.
pub(crate) fn split_url(url: &[u8]) -> Option<(OwnOrigin<'_>, &[u8])> {
    let scheme_end = url.windows(3).position(|window| window == b"://")?;
    let (scheme, rest) = url.split_at_checked(scheme_end)?;
    let scheme = Scheme::from_text(std::str::from_utf8(scheme).ok()?)?;
    let after = rest.strip_prefix(b"://")?;
    let end = after.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(after.len());
    let (authority, rest) = after.split_at_checked(end)?;
    Some((OwnOrigin { scheme, authority: std::str::from_utf8(authority).ok()? }, rest))
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Vec<u8>) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: OwnOrigin<'static> = OwnOrigin { scheme: Scheme::Https, authority: "3000-app.ws.example.com" };

    fn port() -> Port {
        Port::new(3000).unwrap()
    }

    #[track_caller]
    fn check_request(mode: HostMode, name: HeaderName, value: &str, expected: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(name.clone(), value.parse().unwrap());
        request(&mut headers, mode, OWN, port());
        assert_eq!(headers.get(name).unwrap(), expected);
    }

    #[test]
    fn original_host_reaches_the_app_by_default() {
        check_request(HostMode::Original, HOST, "evil", "3000-app.ws.example.com");
        for name in [ORIGIN, REFERER] {
            check_request(
                HostMode::Original,
                name,
                "https://3000-app.ws.example.com",
                "https://3000-app.ws.example.com",
            );
        }
    }

    #[test]
    fn localhost_mode_rewrites_what_names_the_own_host_only() {
        let check = |name, value, expected| check_request(HostMode::Localhost(Scheme::Http), name, value, expected);
        check(HOST, "3000-app.ws.example.com", "localhost:3000");
        check(ORIGIN, "https://3000-app.ws.example.com", "http://localhost:3000");
        check(ORIGIN, "HTTPS://3000-APP.ws.example.com:443", "http://localhost:3000");
        check(REFERER, "https://3000-app.ws.example.com/a/%2F?b#c", "http://localhost:3000/a/%2F?b#c");
        check(REFERER, "https://3000-app.ws.example.com?b", "http://localhost:3000?b");
        let tls = HostMode::Localhost(Scheme::Https);
        check_request(tls, ORIGIN, "https://3000-app.ws.example.com", "https://localhost:3000");
        for foreign in [
            "null",
            "",
            "https://evil.org",
            "https://3001-app.ws.example.com",
            "https://3000-app.ws.example.com.evil.org",
            "https://3000-app.ws.example.com:444",
            "https://3000-app.ws.example.com@evil.org",
            "https://u@3000-app.ws.example.com",
            "https://evil.org/https://3000-app.ws.example.com/",
            "ftp://3000-app.ws.example.com",
            "//3000-app.ws.example.com",
            "https://3000-app.ws.example.com\\@evil.org/",
        ] {
            check(ORIGIN, foreign, foreign);
            check(REFERER, foreign, foreign);
        }
    }

    #[track_caller]
    fn check_location(value: &str, expected: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, value.parse().unwrap());
        response(&mut headers, OWN, port());
        assert_eq!(headers.get(LOCATION).unwrap(), expected);
    }

    #[test]
    fn redirect_to_the_apps_own_loopback_address_is_mapped_back() {
        for scheme in ["http", "https", "HTTP"] {
            for name in ["localhost", "LocalHost", "127.0.0.1", "[::1]"] {
                check_location(
                    &format!("{scheme}://{name}:3000/a?b=http://x#c"),
                    "https://3000-app.ws.example.com/a?b=http://x#c",
                );
                check_location(&format!("{scheme}://{name}:3000"), "https://3000-app.ws.example.com");
            }
        }
    }

    #[test]
    fn other_redirects_are_untouched() {
        for location in [
            "/login",
            "",
            "login",
            "//localhost:3000/",
            "http://localhost/",
            "http://localhost:3001/",
            "http://localhost:30000/",
            "http://localhost:3000@evil.org/",
            "http://localhost:3000.evil.org/",
            "http://localhost:3000\\x",
            "http://127.0.0.2:3000/",
            "https://idp.example.org/?return=http://localhost:3000/",
            "ws://localhost:3000/",
            "http://localhost.evil.org:3000/",
            "http://user@localhost:3000/",
        ] {
            check_location(location, location);
        }
    }

    #[test]
    fn default_port_of_the_scheme_counts_as_the_port() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_static("http://localhost/x"));
        response(&mut headers, OWN, Port::new(80).unwrap());
        assert_eq!(headers.get(LOCATION).unwrap(), "https://3000-app.ws.example.com/x");
    }
}
