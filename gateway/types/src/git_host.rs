//! Hosts of git servers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use tunnel_proto::git::GIT_HOST_BYTES_MAX;
use url::Url;

/// The host of a git server, in the spelling in which git names it: in lower case, with a port unless that is 443. Credentials belong
/// to one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GitHost(Arc<str>);

/// The text is not a host of a git server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a git host is a name such as git.example.com, with a port if it is not 443, and no scheme or path")]
pub struct BadGitHost;

impl GitHost {
    /// Returns the host as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GitHost {
    type Err = BadGitHost;

    fn from_str(text: &str) -> Result<Self, BadGitHost> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if text.is_empty() || text.len() > GIT_HOST_BYTES_MAX || !text.bytes().all(is_plain) {
            return Err(BadGitHost);
        }
        let url = Url::parse(&format!("https://{text}/")).map_err(|_| BadGitHost)?;
        let host = url.host_str().ok_or(BadGitHost)?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        // A number that the parser reads as an address is not what git would send.
        let spelled = text.to_ascii_lowercase();
        if spelled != host && spelled.strip_suffix(":443") != Some(&host) {
            return Err(BadGitHost);
        }
        Ok(Self(host.into()))
    }
}

impl fmt::Display for GitHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_has_one_spelling() {
        for (text, host) in [
            ("git.example.com", "git.example.com"),
            ("Git.Example.COM:443", "git.example.com"),
            ("localhost:8080", "localhost:8080"),
            ("10.0.0.7:80", "10.0.0.7:80"),
            ("[::1]:3000", "[::1]:3000"),
        ] {
            assert_eq!(text.parse::<GitHost>().map(|host| host.to_string()).as_deref(), Ok(host), "{text}");
        }
        for text in [
            "",
            "https://git.example.com",
            "git.example.com/team",
            "a b",
            "user@host",
            "a:b:c",
            "a:99999",
            "1",
            "ä.example",
        ] {
            assert_eq!(text.parse::<GitHost>(), Err(BadGitHost), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered_and_a_host_stays_what_it_is(text in "[ -~]{0,40}") {
            if let Ok(host) = text.parse::<GitHost>() {
                prop_assert_eq!(host.as_str().parse::<GitHost>(), Ok(host.clone()));
            }
        }
    }
}
