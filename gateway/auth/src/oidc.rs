//! Sign-in with an `OpenID` Connect provider: requests, answers, and their evaluation.
//!
//! ```text
//! public host   /.gateway/sign-in, or /.gateway/authorize without a session
//!                   remember the browser's destination, a nonce and a secret; redirect          (pending, request)
//! provider          signs the user in, redirects back with a code
//! public host   /.gateway/oidc/callback
//!                   the state is known, and this browser began it; code for ID token, checked   (answer, provider)
//!                   the user and their groups, by the rules of the configuration                (identity)
//! public host   /.gateway/oidc/backchannel-logout
//!                   the provider ends sessions on its own                                        (logout)
//! ```
//!
//! All decisions are functions without I/O; [`provider`] does the network requests. Implements the code flow of Core
//! 1.0, section 3.1, always with `state`, `nonce` and PKCE (RFC 7636). The ID token identifies the user; the access
//! token is used once, to ask for claims that the ID token leaves out, and kept nowhere.

pub mod answer;
pub mod failure;
pub mod identity;
pub mod logout;
pub mod metadata;
pub mod pending;
pub mod provider;
pub mod request;

use std::fmt;

/// Page of the public host to which the provider sends browsers back.
pub const CALLBACK_PATH: &str = "/.gateway/oidc/callback";
/// The public host's address for messages of the provider about sessions that ended; takes `POST` only.
pub const BACKCHANNEL_LOGOUT_PATH: &str = "/.gateway/oidc/backchannel-logout";
/// Page of the public host to which the provider sends browsers that it signed out.
pub const SIGNED_OUT_PATH: &str = "/.gateway/signed-out";

/// Longest ID token that is kept for signing out, in bytes. One session keeps one; with a longer one the provider asks
/// the user to confirm the sign-out.
pub const HINT_BYTES_MAX: usize = 4096;

/// This gateway's registration with the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRegistration {
    /// `client_id`: this gateway's name at the provider.
    pub id: String,
    /// `scope`: the requested scopes.
    pub scopes: String,
    /// `redirect_uri`: the public address followed by [`CALLBACK_PATH`].
    pub redirect_uri: String,
    /// The public address followed by [`SIGNED_OUT_PATH`].
    pub signed_out_uri: String,
}

/// The provider's session behind one of ours. `Debug` shows no part of the ID token.
pub struct ProviderSession {
    subject: Box<str>,
    session: Option<Box<str>>,
    id_token: Option<Box<str>>,
}

impl ProviderSession {
    /// Creates a session of the subject, the provider's `sid` if there is one, and the ID token.
    #[must_use]
    pub fn new(subject: &str, session: Option<&str>, id_token: &str) -> Self {
        let id_token = (1..=HINT_BYTES_MAX).contains(&id_token.len()).then(|| id_token.into());
        Self { subject: subject.into(), session: session.map(Into::into), id_token }
    }

    /// Restores a stored session, without its ID token: signing out at the provider then asks the user.
    #[must_use]
    pub fn restored(subject: &str, session: Option<&str>) -> Self {
        Self { subject: subject.into(), session: session.map(Into::into), id_token: None }
    }

    /// Returns the subject that the provider signed in.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the provider's name of its session.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the ID token, which identifies the user to the provider at sign-out. Every caller is a place to review.
    #[must_use]
    pub fn reveal_id_token(&self) -> Option<&str> {
        self.id_token.as_deref()
    }
}

impl fmt::Debug for ProviderSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProviderSession").field("subject", &self.subject).finish_non_exhaustive()
    }
}
