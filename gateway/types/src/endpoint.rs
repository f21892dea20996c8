//! Addresses of servers that the operator names: an identity provider, a cluster's API.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use url::{Host, Url};

/// Longest address, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 2048;

/// The address of a server, in the spelling in which it was given: issuers are compared character by character
/// (`OpenID` Connect Core 1.0, section 3.1.3.7).
///
/// # Invariants
///
/// An absolute `https` URL, or an `http` one of a loopback host; no user information, no fragment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    text: Arc<str>,
    url: Arc<Url>,
}

/// Reason why a text is not an [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    /// No absolute URL with a host.
    #[error("not an absolute URL")]
    Url,
    /// Longer than [`ENDPOINT_BYTES_MAX`].
    #[error("longer than {ENDPOINT_BYTES_MAX} bytes")]
    TooLong,
    /// Another scheme, or plain text to another machine.
    #[error("the scheme must be https; http is for localhost, 127.0.0.1 and [::1] only")]
    Scheme,
    /// A user name or password in front of the host.
    #[error("it must not contain a user or password")]
    Credentials,
    /// A `#`.
    #[error("it must not contain a fragment")]
    Fragment,
}

impl Endpoint {
    /// Returns the text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address, parsed.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns scheme, host and port: the displayable part of any endpoint.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns whether it is on this machine, where no proxy is asked.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// Returns the address with `tail` after it, which begins with a slash; a slash at the end of the address counts once.
    ///
    /// # Errors
    ///
    /// [`BadEndpoint`] when the result is not an endpoint.
    pub fn join(&self, tail: &str) -> Result<Self, BadEndpoint> {
        format!("{}{tail}", self.text.strip_suffix('/').unwrap_or(&self.text)).parse()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > ENDPOINT_BYTES_MAX {
            return Err(BadEndpoint::TooLong);
        }
        // The parser would repair these, and the text would no longer equal the compared one.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
            return Err(BadEndpoint::Url);
        }
        let url = Url::parse(text).map_err(|_| BadEndpoint::Url)?;
        if url.host().is_none() {
            return Err(BadEndpoint::Url);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadEndpoint::Credentials);
        }
        if url.fragment().is_some() {
            return Err(BadEndpoint::Fragment);
        }
        let is_private = match url.scheme() {
            "https" => true,
            "http" => is_loopback(&url),
            _ => false,
        };
        if !is_private {
            return Err(BadEndpoint::Scheme);
        }
        Ok(Self { text: text.into(), url: Arc::new(url) })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Endpoint({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_https_or_on_this_machine() {
        for text in [
            "https://id.example.com",
            "https://id.example.com/realms/dev/",
            "https://id.example.com:8443/a?b=c",
            "http://localhost:3000",
            "http://127.0.0.1:1/x",
            "http://127.9.9.9",
            "http://[::1]:1",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.as_str(), text);
        }
        for (text, expected) in [
            ("", BadEndpoint::Url),
            ("id.example.com", BadEndpoint::Url),
            ("https://", BadEndpoint::Url),
            ("https://a b", BadEndpoint::Url),
            ("https://a\\b", BadEndpoint::Url),
            ("https:// a", BadEndpoint::Url),
            ("https://ä.example", BadEndpoint::Url),
            ("http://id.example.com", BadEndpoint::Scheme),
            ("http://localhost.example.com", BadEndpoint::Scheme),
            ("http://10.0.0.1", BadEndpoint::Scheme),
            ("ftp://localhost", BadEndpoint::Scheme),
            ("file://localhost/etc/passwd", BadEndpoint::Url),
            ("https://u@id.example.com", BadEndpoint::Credentials),
            ("https://u:p@id.example.com", BadEndpoint::Credentials),
            ("https://id.example.com/#a", BadEndpoint::Fragment),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(expected), "{text:?}");
        }
        assert_eq!(format!("https://a/{}", "x".repeat(3000)).parse::<Endpoint>(), Err(BadEndpoint::TooLong));
    }

    #[test]
    fn slash_at_the_end_counts_once_and_the_origin_shows_no_path() {
        for base in ["https://id.example.com/realm", "https://id.example.com/realm/"] {
            let joined = base.parse::<Endpoint>().unwrap().join("/.well-known/x").unwrap();
            assert_eq!(joined.as_str(), "https://id.example.com/realm/.well-known/x");
            assert_eq!(joined.origin(), "https://id.example.com");
        }
    }
}
