//! The gateway's cookies: their exact names, strict reading, and the lines that set them.

use http::header::{COOKIE, HeaderMap, HeaderValue};

use gateway_types::opaque::Opaque;

/// The names of the gateway's cookies, which depend on the public scheme.
///
/// Over TLS they carry the `__Host-` prefix (RFC 6265bis, section 4.1.3.2), so that no other host can set or widen them.
/// Over plain HTTP a browser refuses that prefix and never returns a `Secure` cookie, so both are left away.
#[derive(Clone, Copy, Debug)]
pub struct CookieNames {
    /// Holds a session id: on the public host of a public session, on a workspace host of that host's session.
    pub session: &'static str,
    /// Holds the nonce that ties one sign-in on a workspace host to the browser that began it.
    pub pre: &'static str,
    is_secure: bool,
}

impl CookieNames {
    /// Returns the names for a gateway behind TLS, or for a plain one.
    #[must_use]
    pub fn new(is_https: bool) -> Self {
        if is_https {
            Self { session: "__Host-gateway_session", pre: "__Host-gateway_pre", is_secure: true }
        } else {
            Self { session: "gateway_session", pre: "gateway_pre", is_secure: false }
        }
    }

    /// Returns the `Set-Cookie` value that keeps `secret` under `name`: until the browser closes, or for `seconds`.
    #[must_use]
    pub fn set(&self, name: &str, secret: &Opaque, seconds: Option<u64>) -> Option<HeaderValue> {
        self.line(name, &secret.reveal(), seconds)
    }

    /// Returns the `Set-Cookie` value that makes the browser drop `name`.
    #[must_use]
    pub fn clear(&self, name: &str) -> Option<HeaderValue> {
        self.line(name, "", Some(0))
    }

    fn line(&self, name: &str, value: &str, seconds: Option<u64>) -> Option<HeaderValue> {
        let age = seconds.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        let secure = if self.is_secure { "; Secure" } else { "" };
        let mut line =
            HeaderValue::try_from(format!("{name}={value}; Path=/{age}; HttpOnly; SameSite=Lax{secure}")).ok()?;
        line.set_sensitive(true);
        Some(line)
    }
}

/// Result of looking up one name in the `Cookie` fields.
#[derive(Debug, PartialEq, Eq)]
pub enum CookieLookup {
    /// The name does not occur.
    Nothing,
    /// It occurs once, with a well-formed id.
    One(Opaque),
    /// It occurs twice, or is malformed: another party planted a cookie of this name, and ours cannot be told apart.
    Unusable,
}

/// Looks for `name`, exact and case-sensitive, in all `Cookie` fields together (HTTP/2 may split them: RFC 9113,
/// section 8.2.3). Allocates nothing.
#[must_use]
pub fn find(headers: &HeaderMap, name: &str) -> CookieLookup {
    let mut found = CookieLookup::Nothing;
    let pairs = headers.get_all(COOKIE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    for pair in pairs {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let matches = halves.next().is_some_and(|text| text.trim_ascii() == name.as_bytes());
        if !matches {
            continue;
        }
        if found != CookieLookup::Nothing {
            return CookieLookup::Unusable;
        }
        let text = halves.next().map(<[u8]>::trim_ascii).and_then(|value| str::from_utf8(value).ok());
        found = text.and_then(Opaque::parse).map_or(CookieLookup::Unusable, CookieLookup::One);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[&str]) -> HeaderMap {
        fields.iter().map(|field| (COOKIE, HeaderValue::from_bytes(field.as_bytes()).unwrap())).collect()
    }

    #[test]
    fn cookie_is_found_by_its_exact_name_among_others() {
        let text = Opaque::random().unwrap().reveal();
        let id = Opaque::parse(&text).unwrap();
        let line = format!("a=1; xgateway_session=z; gateway_session={text}; Gateway_Session=q;;=; b");
        assert_eq!(find(&headers(&["c=d", &line]), "gateway_session"), CookieLookup::One(id));
        assert_eq!(find(&headers(&[&line]), "gateway_pre"), CookieLookup::Nothing);
        assert_eq!(find(&headers(&[]), "gateway_session"), CookieLookup::Nothing);
    }

    #[test]
    fn cookie_that_occurs_twice_is_refused_wherever_the_second_one_is() {
        let text = Opaque::random().unwrap().reveal();
        let pair = format!("gateway_session={text}");
        for fields in [
            vec![format!("{pair}; {pair}")],
            vec![pair.clone(), pair.clone()],
            vec![format!("{pair}; gateway_session=")],
            vec![format!("gateway_session=junk; {pair}")],
            vec![format!("gateway_session; {pair}")],
            vec![format!("{pair};  gateway_session =x")],
        ] {
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            assert_eq!(find(&headers(&fields), "gateway_session"), CookieLookup::Unusable, "{fields:?}");
        }
    }

    #[test]
    fn cookie_without_the_prefix_counts_for_nothing_over_tls() {
        let names = CookieNames::new(true);
        let (ours, planted) = (Opaque::random().unwrap(), Opaque::random().unwrap());
        // Any page of a neighbouring host can set the second one for the whole zone, and cannot set the first one.
        let line = format!("{}={}; gateway_session={}", names.session, ours.reveal(), planted.reveal());
        assert_eq!(find(&headers(&[&line]), names.session), CookieLookup::One(Opaque::parse(&ours.reveal()).unwrap()));
        let alone = format!("gateway_session={}; __host-gateway_session={0}", planted.reveal());
        assert_eq!(find(&headers(&[&alone]), names.session), CookieLookup::Nothing);
    }

    #[test]
    fn malformed_value_is_refused_rather_than_ignored() {
        for line in ["gateway_session=short", "gateway_session=", "gateway_session", "gateway_session=\u{ff}"] {
            assert_eq!(find(&headers(&[line]), "gateway_session"), CookieLookup::Unusable, "{line}");
        }
    }

    #[test]
    fn cookie_lines_are_host_only_and_secure_exactly_over_tls() {
        let id = Opaque::parse(&"A".repeat(43)).unwrap();
        let text = |names: CookieNames| {
            let line = names.set(names.session, &id, None).unwrap();
            assert!(line.is_sensitive());
            line.to_str().unwrap().replace(&id.reveal(), "ID")
        };
        assert_eq!(text(CookieNames::new(false)), "gateway_session=ID; Path=/; HttpOnly; SameSite=Lax");
        assert_eq!(text(CookieNames::new(true)), "__Host-gateway_session=ID; Path=/; HttpOnly; SameSite=Lax; Secure");
        let names = CookieNames::new(false);
        let cleared = names.clear(names.pre).unwrap();
        assert_eq!(cleared.to_str().unwrap(), "gateway_pre=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    }
}
