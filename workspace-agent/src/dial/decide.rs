//! Pure decision about the next step after a link ended or did not come up.

use std::time::Duration;

use thiserror::Error;
use tunnel_link::backoff::Backoff;
use tunnel_link::causes;
use tunnel_link::grpc::{Code, ConnectError};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;

use super::DialEnded;
use super::credential::BadClientFiles;

/// Reason why there is no link.
#[derive(Debug, Error)]
pub enum DialFailure {
    /// The name could not be resolved or no address answered.
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    /// Nothing answered in time.
    #[error("no answer to a connection attempt in time")]
    ConnectTimedOut,
    /// TLS failed.
    #[error("the TLS handshake failed")]
    Tls(#[source] std::io::Error),
    /// The client certificate cannot be used now: its replacement may be on its way.
    #[error("the client certificate cannot be used")]
    Certificate(#[source] BadClientFiles),
    /// A proxy did not lead to the gateway.
    #[error("the proxy {proxy} {cause}")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// Step that failed, and the remedy.
        cause: String,
    },
    /// The RPC failed.
    #[error(transparent)]
    Rpc(ConnectError),
    /// Neither HTTP/2 nor a WebSocket got through.
    #[error("nothing gets through. HTTP/2: {http2}. WebSocket: {websocket}")]
    Neither {
        /// Failure over HTTP/2.
        http2: String,
        /// Failure with a WebSocket.
        websocket: String,
    },
    /// The gateway did not answer the Hello.
    #[error("the gateway did not answer in time")]
    WelcomeTimedOut,
    /// The gateway drained and closed the session.
    #[error("the gateway is shutting down")]
    Drained {
        /// Earliest redial.
        redial_after: Duration,
    },
    /// The link broke; the session waits for the next one.
    #[error("the link broke")]
    LinkLost,
    /// A session was up and ended.
    #[error("the session ended: {0}")]
    Session(SessionError),
}

impl DialFailure {
    /// Returns whether the failure is the break of a link that had held for a while.
    pub(super) fn is_of_link_that_held(&self, up: Duration) -> bool {
        matches!(self, Self::LinkLost) && up >= LINK_HELD
    }

    /// Returns whether the gateway itself was not heard: it is away, or something on the way to it is.
    fn is_absence(&self) -> bool {
        match self {
            Self::Connect(_) | Self::ConnectTimedOut | Self::Tls(_) | Self::Proxy { .. } | Self::Neither { .. } => true,
            // A balancer without a gateway behind it answers in its own words, or closes.
            Self::Rpc(error) => !matches!(error, ConnectError::Refused(_)),
            Self::LinkLost => true,
            Self::Certificate(_) | Self::WelcomeTimedOut | Self::Drained { .. } | Self::Session(_) => false,
        }
    }
}

/// Shortest life of a link that held: one that broke sooner counts as one that did not come up.
const LINK_HELD: Duration = Duration::from_millis(250);

/// Spread of the redials after links broke together, because something between the agents and the gateway was
/// restarted: shorter than what people notice, and long enough for thousands of handshakes.
const RESUME_SPREAD: Duration = Duration::from_millis(200);

/// Next step after a failure.
#[derive(Debug)]
pub enum AfterFailure {
    /// Time may heal it.
    Redial {
        /// Wait before the dial.
        after: Duration,
        /// Cause, for the log.
        cause: String,
    },
    /// Only a person can heal it.
    Stop(DialEnded),
}

/// Failures in a row, of one kind: an absence that is over does not make the gateway's first refusal a long wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    failures: u32,
    absent: bool,
}

impl Streak {
    /// Counts a failure after a link that was up for so long.
    pub(super) fn count(&mut self, failure: &DialFailure, up: Duration, backoff: &Backoff) {
        let absent = failure.is_absence();
        if failure.is_of_link_that_held(up) || matches!(failure, DialFailure::Drained { .. }) {
            // The gateway was reached; later failures are counted anew.
            *self = Self::default();
            return;
        }
        let before = if absent == self.absent { backoff.failures_after(self.failures, up) } else { 0 };
        *self = Self { failures: before.saturating_add(1), absent };
    }

    /// Returns the number of failures in a row.
    pub(super) fn failures(self) -> u32 {
        self.failures
    }

    /// Returns the bounds of the next wait; `waits` says that a session waits for the link.
    pub(super) fn bounds(self, backoff: &Backoff, waits: bool) -> Backoff {
        // Lower bounds while connections of users wait, and so that a gateway that comes back is found at once.
        if waits || self.absent { backoff.in_absence() } else { *backoff }
    }
}

/// Decides the next step after a link that was up for so long. `roll` is uniform in `0.0..1.0`.
#[must_use]
pub fn decide(failure: DialFailure, up: Duration, failures: u32, roll: f64, backoff: &Backoff) -> AfterFailure {
    let jittered = backoff.delay(failures, roll);
    match failure {
        // A link that held for a while and broke is replaced at once; one that breaks again and again waits longer.
        failure @ DialFailure::LinkLost if failure.is_of_link_that_held(up) => {
            AfterFailure::Redial { after: RESUME_SPREAD.mul_f64(roll), cause: failure.to_string() }
        }
        DialFailure::Rpc(ConnectError::Refused(refused)) if refused.code == Code::Aborted => {
            AfterFailure::Stop(DialEnded::Displaced)
        }
        DialFailure::Rpc(ConnectError::Refused(refused)) if refused.code == Code::NotFound => {
            AfterFailure::Stop(DialEnded::WorkspaceStopped { message: refused.message })
        }
        // A retry hint says that a person can help from elsewhere, or that the credential is renewed by itself.
        DialFailure::Rpc(ConnectError::Refused(refused))
            if !refused.code.is_temporary() && refused.retry_after.is_none() =>
        {
            AfterFailure::Stop(DialEnded::Refused { message: refused.message })
        }
        DialFailure::Rpc(ConnectError::Refused(refused)) => {
            // The gateway's hint is the minimum; the jitter on top keeps a herd apart.
            let after = refused.retry_after.unwrap_or_default() + jittered;
            AfterFailure::Redial { after, cause: refused.message }
        }
        failure @ DialFailure::Drained { redial_after } => {
            AfterFailure::Redial { after: redial_after + jittered, cause: failure.to_string() }
        }
        DialFailure::Session(SessionError::Closed { reason: Reason::Displaced, .. }) => {
            AfterFailure::Stop(DialEnded::Displaced)
        }
        DialFailure::Session(SessionError::Closed { reason: Reason::Revoked, detail }) => {
            AfterFailure::Stop(DialEnded::Revoked { message: detail })
        }
        DialFailure::Session(SessionError::Closed { reason: Reason::WorkspaceStopped, detail }) => {
            AfterFailure::Stop(DialEnded::WorkspaceStopped { message: detail })
        }
        failure @ (DialFailure::Connect(_)
        | DialFailure::ConnectTimedOut
        | DialFailure::Tls(_)
        | DialFailure::Certificate(_)
        | DialFailure::Proxy { .. }
        | DialFailure::Rpc(_)
        | DialFailure::Neither { .. }
        | DialFailure::WelcomeTimedOut
        | DialFailure::LinkLost
        | DialFailure::Session(_)) => AfterFailure::Redial { after: jittered, cause: with_sources(&failure) },
    }
}

/// Joins an error with its causes and what to do about it: the innermost one is usually what a person needs.
pub(crate) fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    causes::with_remedy(error, "--ca-file")
}

#[cfg(test)]
mod tests {
    use tunnel_link::grpc::RpcRefused;

    use super::*;

    fn closed(reason: Reason) -> DialFailure {
        DialFailure::Session(SessionError::Closed { reason, detail: "why".into() })
    }

    fn refused(code: Code, retry_after: Option<Duration>) -> DialFailure {
        DialFailure::Rpc(ConnectError::Refused(RpcRefused { code, message: "no".into(), retry_after }))
    }

    #[track_caller]
    fn check_stops(failure: DialFailure) {
        let next = decide(failure, Duration::ZERO, 1, 0.5, &Backoff::default());
        assert!(matches!(next, AfterFailure::Stop(_)), "{next:?}");
    }

    #[track_caller]
    fn check_redials(failure: DialFailure) -> Duration {
        match decide(failure, Duration::ZERO, 1, 0.5, &Backoff::default()) {
            AfterFailure::Redial { after, .. } => after,
            AfterFailure::Stop(ended) => panic!("stopped: {ended}"),
        }
    }

    #[test]
    fn agent_stops_only_when_a_person_has_to_act() {
        check_stops(refused(Code::Unauthenticated, None));
        check_stops(refused(Code::FailedPrecondition, None));
        check_stops(refused(Code::Aborted, Some(Duration::from_secs(1))));
        check_stops(closed(Reason::Displaced));
        check_stops(closed(Reason::Revoked));
        check_stops(closed(Reason::WorkspaceStopped));
        check_stops(refused(Code::NotFound, Some(Duration::from_secs(1))));
        for reason in Reason::ALL {
            if !matches!(reason, Reason::Displaced | Reason::Revoked | Reason::WorkspaceStopped) {
                check_redials(closed(*reason));
            }
        }
        check_redials(DialFailure::Connect(std::io::ErrorKind::ConnectionRefused.into()));
        check_redials(DialFailure::ConnectTimedOut);
        check_redials(DialFailure::WelcomeTimedOut);
        check_redials(DialFailure::Session(SessionError::KeepaliveTimedOut));
    }

    fn absent() -> DialFailure {
        DialFailure::Connect(std::io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn gateway_that_was_away_for_minutes_is_found_again_within_seconds() {
        let (backoff, mut streak, mut away) = (Backoff::default(), Streak::default(), Duration::ZERO);
        while away < Duration::from_secs(120) {
            streak.count(&absent(), Duration::ZERO, &backoff);
            let bounds = streak.bounds(&backoff, false);
            let AfterFailure::Redial { after, .. } = decide(absent(), Duration::ZERO, streak.failures(), 1.0, &bounds)
            else {
                panic!("an absence stops nothing");
            };
            assert!(after <= Duration::from_secs(4), "{after:?} after {away:?}");
            away += after;
        }
        // The gateway that is back asks for patience: its first refusal is counted as the first.
        let refusal = refused(Code::Unavailable, None);
        streak.count(&refusal, Duration::ZERO, &backoff);
        assert_eq!(streak.failures(), 1);
        // A gateway that refuses again and again is asked less and less often.
        for _ in 0..10 {
            streak.count(&refusal, Duration::ZERO, &backoff);
        }
        assert_eq!(streak.bounds(&backoff, false), backoff);
        assert_eq!(streak.failures(), 11);
    }

    #[test]
    fn gateways_hint_is_the_least_to_wait() {
        let hint = Duration::from_secs(7);
        assert!(check_redials(refused(Code::Unavailable, Some(hint))) >= hint);
        // A credential that is renewed by others, or that a changed rule lets in.
        assert!(check_redials(refused(Code::Unauthenticated, Some(hint))) >= hint);
        assert!(check_redials(DialFailure::Drained { redial_after: hint }) >= hint);
    }
}
