//! The call by which a program in a workspace gets its owner's credential for a git server, beside the tunnel.

use std::fmt;

use bytes::Bytes;
use prost::Message as _;
use thiserror::Error;

use crate::wire;

/// Path of the call: `/package.Service/Method`.
pub const GIT_CREDENTIALS_PATH: &str = "/tunnel.v1.GitCredentials/Get";

/// Largest encoded message of the call, in bytes, either way: tokens of providers of identities take a few KiB.
pub const GIT_MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Longest name of a host with its port, in bytes: DNS has 253, and a port five.
pub const GIT_HOST_BYTES_MAX: usize = 260;

/// The bytes are no message of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a message about git credentials that cannot be read")]
pub struct BadGitMessage;

/// Scheme of a git server's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitProtocol {
    /// `https`.
    Https,
    /// `http`: the credential is readable on its way.
    Http,
}

impl GitProtocol {
    /// Returns the scheme, as URLs have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// Reads the scheme of a URL.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Https, Self::Http].into_iter().find(|one| one.as_str() == text)
    }
}

/// Question for a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCredentialRequest {
    /// Scheme of the server.
    pub protocol: GitProtocol,
    /// The server, with its port unless that is the scheme's own. At most [`GIT_HOST_BYTES_MAX`] bytes, and not checked further.
    pub host: String,
    /// The server refused the last answer.
    pub is_refused: bool,
}

/// Credential for a git server. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct GitCredential {
    /// Name of the user.
    pub user: String,
    /// Password or token. Empty in the answer to a refusal.
    pub password: String,
    /// Unix seconds from which it does not count.
    pub expires_at: Option<u64>,
}

impl fmt::Debug for GitCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GitCredential").field("user", &self.user).finish_non_exhaustive()
    }
}

impl GitCredentialRequest {
    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self { protocol, host, is_refused } = self;
        let message = wire::GitCredentialRequest {
            protocol: protocol.as_str().to_owned(),
            host: host.clone(),
            refused: *is_refused,
        };
        message.encode_to_vec().into()
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`BadGitMessage`] for other bytes, another scheme, and a host that is too long or missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadGitMessage> {
        let message: wire::GitCredentialRequest = decoded(bytes)?;
        let protocol = GitProtocol::parse(&message.protocol).ok_or(BadGitMessage)?;
        if !(1..=GIT_HOST_BYTES_MAX).contains(&message.host.len()) {
            return Err(BadGitMessage);
        }
        Ok(Self { protocol, host: message.host, is_refused: message.refused })
    }
}

impl GitCredential {
    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self { user, password, expires_at } = self;
        let message = wire::GitCredential {
            user: user.clone(),
            password: password.clone(),
            expires_at: expires_at.unwrap_or_default(),
        };
        message.encode_to_vec().into()
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`BadGitMessage`] for other bytes, and for texts with control characters: what reads them is a protocol of lines.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadGitMessage> {
        let wire::GitCredential { user, password, expires_at } = decoded(bytes)?;
        if [&user, &password].into_iter().any(|text| text.contains(char::is_control)) {
            return Err(BadGitMessage);
        }
        Ok(Self { user, password, expires_at: Some(expires_at).filter(|time| *time > 0) })
    }
}

fn decoded<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, BadGitMessage> {
    if bytes.len() > GIT_MESSAGE_BYTES_MAX {
        return Err(BadGitMessage);
    }
    M::decode(bytes).map_err(|_| BadGitMessage)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answer_cannot_add_lines_to_what_git_reads() {
        let answer = |user: &str, password: &str| {
            let credential = GitCredential { user: user.to_owned(), password: password.to_owned(), expires_at: None };
            GitCredential::decode(&credential.encode())
        };
        assert!(answer("ann", "p w=ä").is_ok());
        for (user, password) in [("ann\nhost=x", "p"), ("ann", "p\nquit=1"), ("ann", "p\0")] {
            assert_eq!(answer(user, password), Err(BadGitMessage));
        }
        let shown = format!("{:?}", answer("ann", "hunter2").unwrap());
        assert!(shown.contains("ann") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn request_is_for_a_host_over_http() {
        let decode = |protocol: &str, host: &str| {
            let message = wire::GitCredentialRequest { protocol: protocol.into(), host: host.into(), refused: false };
            GitCredentialRequest::decode(&message.encode_to_vec())
        };
        assert!(decode("https", "git.example.com:8443").is_ok() && decode("http", "localhost").is_ok());
        assert_eq!(decode("ssh", "git.example.com"), Err(BadGitMessage));
        assert_eq!(decode("https", ""), Err(BadGitMessage));
        assert_eq!(decode("https", &"a".repeat(GIT_HOST_BYTES_MAX + 1)), Err(BadGitMessage));
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(user in "[^\\p{Cc}]{0,40}", password in "[^\\p{Cc}]{0,80}", time: u32) {
            let expires_at = Some(u64::from(time)).filter(|time| *time > 0);
            let credential = GitCredential { user, password, expires_at };
            prop_assert_eq!(GitCredential::decode(&credential.encode()), Ok(credential));
        }

        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            if let Ok(request) = GitCredentialRequest::decode(&bytes) {
                prop_assert_eq!(GitCredentialRequest::decode(&request.encode()), Ok(request));
            }
            drop(GitCredential::decode(&bytes));
        }
    }
}
