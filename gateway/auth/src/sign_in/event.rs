//! Events of the sign-in pages, for the audit log. An event is an extension of the answer, because these pages know
//! neither the log nor the client.

use crate::browser::SessionName;
use gateway_types::UserName;
use gateway_types::failed_request::Side;

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

/// A page of the sign-in that reports a failure, in the extensions of its answer: the caller counts and logs it, and gives it a trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedPage {
    /// Code of the answer.
    pub code: &'static str,
    /// Which case of it.
    pub reason: &'static str,
    /// The side that it is of.
    pub side: Side,
    /// What happened, as the page says it.
    pub text: &'static str,
}
