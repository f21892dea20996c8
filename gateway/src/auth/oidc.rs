//! Sign-in with an `OpenID` Connect provider: what is sent, what comes back, and what of it counts.
//!
//! ```text
//! public host   /.gateway/sign-in, or /.gateway/authorize without a session
//!                   remember where the browser wants to go, a nonce and a secret; redirect      (pending, request)
//! provider          signs the user in, redirects back with a code
//! public host   /.gateway/oidc/callback
//!                   the state is known, and this browser began it; code for ID token, checked   (answer, provider)
//!                   the user and their groups, by the rules of the configuration                (identity)
//! public host   /.gateway/oidc/backchannel-logout
//!                   the provider ends sessions on its own                                        (logout)
//! ```
//!
//! Everything that decides is a function without I/O; [`provider`] asks the network. The code flow of Core 1.0, section
//! 3.1, always with `state`, `nonce` and PKCE (RFC 7636). The ID token says who it is; the access token is used once, to ask for
//! claims that the ID token leaves out, and kept nowhere.

pub mod answer;
pub mod failure;
pub mod identity;
pub mod logout;
pub mod metadata;
pub mod pending;
pub mod provider;
pub mod request;

use std::fmt;

/// The public host's page where the provider sends browsers back to.
pub const CALLBACK_PATH: &str = "/.gateway/oidc/callback";
/// The public host's address for messages of the provider about sessions that ended; takes `POST` only.
pub const BACKCHANNEL_LOGOUT_PATH: &str = "/.gateway/oidc/backchannel-logout";
/// The public host's page where the provider sends browsers that it signed out.
pub const SIGNED_OUT_PATH: &str = "/.gateway/signed-out";

/// Longest ID token that is kept for signing out, in bytes. One session keeps one; with a longer one the provider asks the
/// user whether they really want to go.
pub const HINT_BYTES_MAX: usize = 4096;

/// Our side of the agreement with the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// `client_id`: how the provider knows this gateway.
    pub id: String,
    /// `scope`: what is asked for.
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
    /// Makes one of the subject, the provider's `sid` if it said one, and the ID token.
    #[must_use]
    pub fn new(subject: &str, session: Option<&str>, id_token: &str) -> Self {
        let id_token = (1..=HINT_BYTES_MAX).contains(&id_token.len()).then(|| id_token.into());
        Self { subject: subject.into(), session: session.map(Into::into), id_token }
    }

    /// Takes one that was stored, without its ID token: signing out at the provider then asks the user.
    #[must_use]
    pub fn restored(subject: &str, session: Option<&str>) -> Self {
        Self { subject: subject.into(), session: session.map(Into::into), id_token: None }
    }

    /// Returns whom the provider signed in.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the provider's name of its session.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the ID token, which tells the provider who wants to sign out. Every caller is a place to review.
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
