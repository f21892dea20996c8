//! Meaning of an answer of the API server, and the decision to retry. Pure.

use std::time::Duration;

use thiserror::Error;
use work_queue::RetryDelays;

/// Attempts at one request, the first included.
pub(crate) const ATTEMPTS_MAX: u32 = 5;

/// Waits between attempts. The server's own wish has the same ceiling: a server that wants a longer wait is asked again by
/// the next pass.
const WAITS: RetryDelays = RetryDelays { first: Duration::from_millis(250), max: Duration::from_secs(8) };

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ApiError {
    /// 404 that names the object which was asked for: it is not there.
    #[error("not found: {0}")]
    Absent(String),
    /// 404 that names another object, which is missing; or the server says that it has no such kind.
    #[error("not found: {0}")]
    NotFound(String),
    /// 404 that names nothing: the server does not serve the path any more, or something in between answered. It says nothing
    /// about the object.
    #[error("the Kubernetes API does not know the path: {0}")]
    NotServed(String),
    /// 409: it was changed meanwhile, or it is there already.
    #[error("conflict: {0}")]
    Conflict(String),
    /// 403.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// 400, 422 and their like: the same request would get the same answer.
    #[error("invalid: {0}")]
    Invalid(String),
    /// 429, 5xx, a timeout, or no connection: asking again may help. Also 401, which is never about the object: a token
    /// that is being replaced, or a server that cannot identify its owner at the moment.
    #[error("the Kubernetes API is not available: {message}")]
    Unavailable {
        /// Description of the failure.
        message: String,
        /// Wait that the server asks for.
        after: Option<Duration>,
    },
    /// The answer is not wanted any more.
    #[error("superseded")]
    Superseded,
}

impl ApiError {
    /// Reads an answer's status code, with the message of its body. The body tells what a 404 is about.
    pub(crate) fn of(code: u16, message: String, after: Option<Duration>) -> Self {
        match code {
            404 => Self::NotServed(message),
            409 => Self::Conflict(message),
            403 => Self::Forbidden(message),
            401 | 408 | 425 | 429 | 500..=599 => Self::Unavailable { message: format!("{message} ({code})"), after },
            _ => Self::Invalid(format!("{message} ({code})")),
        }
    }

    /// Returns whether time may heal it.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotServed(_))
    }
}

/// Returns how long to wait before a request is repeated; `None` to give it up. `roll` is uniform in `0.0..1.0`.
pub(crate) fn wait(error: &ApiError, attempts: u32, roll: f64) -> Option<Duration> {
    let ApiError::Unavailable { after, .. } = error else { return None };
    if attempts >= ATTEMPTS_MAX {
        return None;
    }
    let jittered = WAITS.after(attempts, roll);
    Some(after.map_or(jittered, |after| after.min(WAITS.max) + jittered))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_that_time_heals_are_asked_for_again() {
        for code in [401, 408, 429, 500, 502, 503, 504] {
            let error = ApiError::of(code, "no".into(), None);
            assert!(error.is_temporary(), "{code}");
            assert!(wait(&error, 1, 0.5).is_some());
            assert_eq!(wait(&error, ATTEMPTS_MAX, 0.5), None, "not for ever");
        }
        for code in [400, 403, 404, 405, 409, 410, 415, 422] {
            let error = ApiError::of(code, "no".into(), None);
            assert_eq!(error.is_temporary(), code == 404, "{code}");
            assert_eq!(wait(&error, 1, 0.5), None, "{code}");
        }
        assert_eq!(wait(&ApiError::Superseded, 1, 0.5), None);
    }

    proptest! {
        #[test]
        fn wait_is_bounded_and_no_less_than_the_server_asks_for_within_that(
            attempts in 1..ATTEMPTS_MAX, roll in 0.0..1.0_f64, after in proptest::option::of(0..1_000_u64),
        ) {
            let after = after.map(Duration::from_secs);
            let error = ApiError::of(429, "slow down".into(), after);
            let wait = wait(&error, attempts, roll).expect("again");
            prop_assert!(wait <= WAITS.max * 2);
            prop_assert!(wait >= after.unwrap_or_default().min(WAITS.max));
        }
    }
}
