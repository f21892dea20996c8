//! What a sign-in page did, for the audit log. It travels beside the answer, as one of its extensions: these pages know
//! neither the log nor who asks.

use crate::auth::browser::SessionName;
use crate::model::UserName;

/// What happened on a sign-in page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInEvent {
    /// Somebody signed in.
    SignedIn {
        /// Who.
        user: UserName,
        /// How: `dev_link`, `oidc`.
        how: &'static str,
        /// The session that was opened.
        session: SessionName,
    },
    /// Somebody could not.
    Failed {
        /// How it was tried.
        how: &'static str,
        /// Why not.
        reason: &'static str,
        /// Who, as far as the provider's word goes.
        user: Option<String>,
    },
    /// Somebody signed out.
    SignedOut {
        /// Who.
        user: UserName,
        /// The sessions that ended.
        sessions: Vec<SessionName>,
    },
}
