//! Addresses of gateways and workspaces in their usual notation.

use std::str::FromStr;

use gateway_types::Scheme;
use http::Uri;
use thiserror::Error;

/// Failure to read an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadAddress {
    /// It cannot be read at all.
    #[error("not a URL such as http://127.0.0.1:8080 or https://3000-my-app.ws.example.com")]
    Unreadable,
    /// Neither http nor https.
    #[error("the scheme must be http or https")]
    Scheme,
    /// There is more after the host.
    #[error("only scheme, host and port: the profile knows the path")]
    Path,
}

/// Scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether it speaks TLS.
    pub scheme: Scheme,
    /// Name or address, an IPv6 address in brackets.
    pub name: String,
    /// The port that the URL names.
    port: Option<u16>,
}

impl Address {
    /// Returns the address to connect to: `host:port`.
    #[must_use]
    pub fn dialed(&self) -> String {
        format!("{}:{}", self.name, self.port.unwrap_or(self.scheme.default_port()))
    }

    /// Returns the value of `Host`.
    #[must_use]
    pub fn host(&self) -> String {
        self.port.map_or_else(|| self.name.clone(), |port| format!("{}:{port}", self.name))
    }

    /// Returns the name that the certificate has to cover.
    #[must_use]
    pub fn certified(&self) -> &str {
        self.name.trim_start_matches('[').trim_end_matches(']')
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let uri: Uri = text.parse().map_err(|_| BadAddress::Unreadable)?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) => return Err(BadAddress::Scheme),
            None => return Err(BadAddress::Unreadable),
        };
        let authority = uri.authority().ok_or(BadAddress::Unreadable)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(BadAddress::Unreadable);
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(BadAddress::Path);
        }
        let port = authority.port().map(|port| port.as_u16());
        Ok(Self { scheme, name: authority.host().to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gives_where_to_connect_and_what_to_ask_for() {
        for (text, dialed, host, certified) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1"),
            ("https://3000-a.example.com/", "3000-a.example.com:443", "3000-a.example.com", "3000-a.example.com"),
            ("http://[::1]", "[::1]:80", "[::1]", "::1"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (address.dialed().as_str(), address.host().as_str(), address.certified()),
                (dialed, host, certified)
            );
        }
    }

    #[test]
    fn what_is_no_url_of_a_host_is_refused() {
        for (text, expected) in [
            ("", BadAddress::Unreadable),
            ("127.0.0.1:8080", BadAddress::Unreadable),
            ("example.com", BadAddress::Unreadable),
            ("http://user:secret@example.com", BadAddress::Unreadable),
            ("ftp://example.com", BadAddress::Scheme),
            ("http://example.com/bytes/1", BadAddress::Path),
            ("http://example.com/?a=b", BadAddress::Path),
        ] {
            assert_eq!(text.parse::<Address>(), Err(expected), "{text:?}");
        }
    }
}
