//! Reasons for a failed sign-in and for a refused message of the provider.

use thiserror::Error;

use super::answer::OtherProvider;
use super::identity::NotAdmitted;
use super::logout::BadNotice;
use crate::jwt::TokenRefused;

/// Reason of a failed sign-in. For the log; the user sees one of a few pages.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignInError {
    /// The provider's description or keys are not known.
    #[error("the identity provider cannot be reached, or its description cannot be used")]
    Unavailable,
    /// Its description lacks what sign-in needs.
    #[error("the identity provider's description has no `{0}`")]
    Lacks(&'static str),
    /// The maximum number of concurrent code exchanges is reached.
    #[error("too many codes are being exchanged")]
    Busy,
    /// The redirect came from another provider.
    #[error(transparent)]
    OtherProvider(#[from] OtherProvider),
    /// The provider refused, or the user did.
    #[error("the identity provider answered `{0}`")]
    Denied(String),
    /// The code could not be exchanged.
    #[error("the code was not exchanged: {0}")]
    Exchange(String),
    /// The provider refused the code.
    #[error("the identity provider refused the code with status {status}, `{error}`")]
    Code {
        /// Its status.
        status: u16,
        /// Its error code, cut to what can be logged.
        error: String,
    },
    /// The provider's user info could not be fetched.
    #[error("the request to userinfo failed: {0}")]
    UserInfo(String),
    /// The ID token is invalid.
    #[error("the ID token is refused: {0}")]
    Token(#[from] TokenRefused),
    /// The ID token answers another sign-in.
    #[error("the ID token's nonce is of another sign-in")]
    Nonce,
    /// The user is not admitted.
    #[error("{why}")]
    NotAdmitted {
        /// The reason.
        why: NotAdmitted,
        /// Their name, if the provider gave one that can be shown.
        user: Option<String>,
    },
}

impl SignInError {
    /// Returns the user's name as claimed by the provider, if known.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::NotAdmitted { user, .. } => user.as_deref(),
            Self::Unavailable
            | Self::Lacks(_)
            | Self::Busy
            | Self::OtherProvider(_)
            | Self::Denied(_)
            | Self::Exchange(_)
            | Self::Code { .. }
            | Self::UserInfo(_)
            | Self::Token(_)
            | Self::Nonce => None,
        }
    }
}

/// Reason why a message about ended sessions is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoticeRefused {
    /// The token is invalid.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// The token is no such message.
    #[error(transparent)]
    Notice(#[from] BadNotice),
}
