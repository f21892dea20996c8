//! The origin at which users reach the gateway.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use super::{Port, Scheme, Zone};

/// A web origin (RFC 6454): scheme, lower-case host, port; no user, path, query or fragment.
///
/// It displays as browsers write the `Origin` header: without a slash at the end and without the scheme's own port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl PublicUrl {
    /// Makes the default: the zone `localhost` on the given port.
    #[must_use]
    pub fn on_localhost(scheme: Scheme, port: u16) -> Self {
        Self { scheme, host: "localhost".to_owned(), port }
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host in lower case; an IPv6 address keeps its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, also where it is the scheme's own. 0 only for the default with `listen.public` on port 0: the
    /// caller that binds the listener then replaces it by [`PublicUrl::with_port`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the same origin on another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }

    /// Reads an origin.
    ///
    /// # Errors
    /// Says in words what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("not a URL")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err("the scheme must be http or https".to_owned()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '\\']) {
            return Err("it must end after host and port".to_owned());
        }
        if authority.contains('@') {
            return Err("it must not contain a user or password".to_owned());
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => scheme.default_port(),
            Some(digits) => parse_port(digits)?,
        };
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err("the host is neither a DNS name nor an IP address".to_owned());
        }
        Ok(Self { scheme, host, port })
    }
}

/// The text is not an origin that users could reach a gateway at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}; write an http or https URL without a path such as `https://gateway.example.com`")]
pub struct BadOrigin(String);

impl FromStr for PublicUrl {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).map_err(BadOrigin)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.scheme.as_str(), self.host)?;
        if self.port != self.scheme.default_port() {
            write!(formatter, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// Splits at the colon before the port; the colons inside an IPv6 address's brackets do not count.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((_, tail)) if tail.contains(']') => (authority, None),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

fn parse_port(digits: &str) -> Result<u16, String> {
    let port: Result<Port, _> = digits.parse();
    port.map(Port::get).map_err(|_| "the port is not a number from 1 to 65535".to_owned())
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    // Browsers read a name whose last label is a number as an IPv4 address, in many spellings; only the plain one counts.
    let ends_in_number = host.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    if ends_in_number {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    // A zone has the grammar of a DNS name, and so has a host.
    host.parse::<Zone>().is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        assert_eq!(PublicUrl::parse(text).map(|url| url.to_string()), Ok(shown.to_owned()), "{text:?}");
    }

    #[test]
    fn public_url_displays_as_browsers_write_origins() {
        check("http://localhost:8080", "http://localhost:8080");
        check("https://gateway.example.com/", "https://gateway.example.com");
        check("HTTPS://Gateway.Example.COM:443", "https://gateway.example.com");
        check("http://gateway.example.com:443", "http://gateway.example.com:443");
        check("http://127.0.0.1:80", "http://127.0.0.1");
        check("http://[::1]:8080", "http://[::1]:8080");
        check("http://[::1]", "http://[::1]");
    }

    #[test]
    fn public_url_refuses_all_that_is_not_an_origin() {
        for text in [
            "",
            "localhost:8080",
            "ftp://localhost",
            "http://",
            "http:///",
            "http://a/b",
            "http://a//",
            "http://a?b",
            "http://a#b",
            "http://u:p@a",
            "http://a\\b",
            "http://a:0",
            "http://a:080",
            "http://a:65536",
            "http://a:",
            "http://a b",
            "http://-a",
            "http://1.2.3",
            "http://1.2.3.256",
            "http://[::1",
            "http://::1",
            "http://[::1]x",
            "http://ä",
        ] {
            assert!(PublicUrl::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_reads_back_the_same(text in "https?://[a-z0-9.:@/\\[\\]-]{0,20}") {
            if let Ok(url) = PublicUrl::parse(&text) {
                prop_assert_eq!(PublicUrl::parse(&url.to_string()), Ok(url));
            }
        }
    }
}
