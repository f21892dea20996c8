//! Events of the sign-in pages, for the audit log. An event is an extension of the answer, because these pages know
//! neither the log nor the client.

use crate::browser::SessionName;
use gateway_types::UserName;

/// Event on a sign-in page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInEvent {
    /// A user signed in.
    SignedIn {
        /// The user.
        user: UserName,
        /// Way of the sign-in: `dev_link`, `oidc`.
        how: &'static str,
        /// The session that was opened.
        session: SessionName,
    },
    /// A sign-in failed.
    Failed {
        /// Way of the attempt.
        how: &'static str,
        /// Reason of the failure.
        reason: &'static str,
        /// The user as claimed by the provider, if known.
        user: Option<String>,
    },
    /// A user signed out.
    SignedOut {
        /// The user.
        user: UserName,
        /// The sessions that ended.
        sessions: Vec<SessionName>,
    },
}
