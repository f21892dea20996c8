//! Tells the app who asked and how: `X-Forwarded-*` and `Forwarded` (RFC 7239), made fresh for every request.
//!
//! Fields that arrive under these names were written by the client, so none of them is passed on or added to. The `_`
//! spellings go too: many app servers read `X_Forwarded_For` and `X-Forwarded-For` as one variable.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::by_path::X_FORWARDED_PREFIX;
use crate::headers::spelled;
use gateway_types::Scheme;

const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Says whether a field name claims to tell where a request came from, in any spelling with `-` or `_`.
#[must_use]
pub fn is_forwarding_field(name: &str) -> bool {
    // Almost every name is settled by its first letter.
    if !matches!(name.as_bytes().first(), Some(b'f' | b'x' | b't')) {
        return false;
    }
    let exact = ["forwarded", "forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip"];
    spelled(name, "x-forwarded") || exact.iter().any(|known| known.len() == name.len() && spelled(name, known))
}

/// Facts that the gateway knows of a user, as fields: the address, the scheme, and the authority asked for.
#[derive(Clone, Debug)]
pub struct ForwardedFields {
    /// Names and values. Text that is no field value cannot come from an accepted authority, and is left out.
    values: [(HeaderName, Option<HeaderValue>); 6],
}

impl ForwardedFields {
    /// Writes the fields. `host` is an authority that the host parser accepted.
    #[must_use]
    pub fn new(peer: IpAddr, scheme: Scheme, host: &str) -> Self {
        let [proto, port, peer, host, forwarded] = values(peer, scheme, host);
        let values = [
            (X_FORWARDED_PROTO, proto),
            (X_FORWARDED_PORT, port),
            (X_FORWARDED_FOR, peer),
            (X_FORWARDED_HOST, host),
            (FORWARDED, forwarded),
            (X_FORWARDED_PREFIX, None),
        ];
        Self { values }
    }

    /// Adds the beginning of the paths that the user's browser knows, which the app does not see.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        let [.., (_, value)] = &mut self.values;
        *value = HeaderValue::from_str(prefix).ok();
        self
    }

    /// Replaces every forwarding field of a request by these.
    ///
    /// Runs after hop-by-hop fields are out, so that a Connection field cannot take these away.
    pub fn apply(&self, headers: &mut HeaderMap) {
        while let Some(name) = headers.keys().find(|name| is_forwarding_field(name.as_str())).cloned() {
            headers.remove(name);
        }
        for (name, value) in &self.values {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

fn values(peer: IpAddr, scheme: Scheme, host: &str) -> [Option<HeaderValue>; 5] {
    let peer = peer.to_canonical();
    let port =
        host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or_else(|| scheme.default_port());
    // An IPv6 address is not a token: RFC 7239, section 6, wants it bracketed and quoted.
    let node = match peer {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    // A host with a port would have to be quoted, and widely used apps (code-server among them) take the quotes for a
    // part of it, so that it never equals `Origin` and every WebSocket is refused. The parameter is optional.
    let named = if host.contains(':') { String::new() } else { format!("host={host};") };
    [
        Some(HeaderValue::from_static(scheme.as_str())),
        Some(HeaderValue::from(port)),
        HeaderValue::try_from(peer.to_string()).ok(),
        HeaderValue::from_str(host).ok(),
        HeaderValue::try_from(format!("for={node};{named}proto={}", scheme.as_str())).ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(peer: &str, scheme: Scheme, host: &str, expected: [&str; 5]) {
        let mut headers = HeaderMap::new();
        ForwardedFields::new(peer.parse().unwrap(), scheme, host).apply(&mut headers);
        let names = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, FORWARDED];
        let found: Vec<_> = names.iter().map(|name| headers.get(name).unwrap().to_str().unwrap()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn fields_tell_address_scheme_host_and_port() {
        check(
            "192.0.2.7",
            Scheme::Https,
            "8080-app.ws.example.com",
            [
                "192.0.2.7",
                "https",
                "8080-app.ws.example.com",
                "443",
                "for=192.0.2.7;host=8080-app.ws.example.com;proto=https",
            ],
        );
        check(
            "2001:db8::1",
            Scheme::Http,
            "app.localhost:8080",
            ["2001:db8::1", "http", "app.localhost:8080", "8080", "for=\"[2001:db8::1]\";proto=http"],
        );
        check(
            "::ffff:192.0.2.7",
            Scheme::Http,
            "a.b",
            ["192.0.2.7", "http", "a.b", "80", "for=192.0.2.7;host=a.b;proto=http"],
        );
    }

    #[test]
    fn inbound_claims_are_dropped_in_every_spelling() {
        let mut headers = HeaderMap::new();
        for name in [
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded_for",
            "x-forwarded-server",
            "x-forwarded-prefix",
            "x-forwarded",
            "forwarded",
            "x-real-ip",
            "x_real_ip",
            "x-client-ip",
            "true-client-ip",
            "forwarded-for",
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("evil"));
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("evil too"));
        }
        headers.insert("x-forward", HeaderValue::from_static("app's own"));
        ForwardedFields::new("192.0.2.7".parse().unwrap(), Scheme::Http, "a.b").apply(&mut headers);
        assert!(headers.values().all(|value| !value.as_bytes().starts_with(b"evil")), "{headers:?}");
        assert_eq!(headers.len(), 6);
        assert_eq!(headers.get("x-forward").unwrap(), "app's own");
    }
}
