//! Logs requests that failed: their user, target and duration. The path is left out, because paths carry secrets, and
//! so is every host that is none of this gateway's.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;
use tracing::{debug, info};

use super::{Edge, Origin};
use crate::edge::address::Address;
use crate::edge::respond::Failure;
use crate::model::{Port, UserName};
use crate::telemetry::AnsweredBy;

/// Facts known of a request by the time it fails.
#[derive(Debug)]
pub(crate) struct Known {
    /// Time at which its head was there.
    pub(super) began: Instant,
    /// Target: `None` for the public host, and while nothing is known yet.
    pub(super) address: Option<Arc<Address>>,
    /// The port that its address means.
    pub(super) port: Option<Port>,
    /// User who asked.
    pub(super) user: Option<UserName>,
}

impl Known {
    /// Begins with nothing known.
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, address: None, port: None, user: None }
    }

    /// Returns the side that answers a request that did not fail: only apps have addresses.
    pub(super) fn answered_by(&self) -> AnsweredBy {
        if self.address.is_some() { AnsweredBy::App } else { AnsweredBy::Gateway }
    }
}

/// A failure as the log has it.
pub(super) struct Line<'a> {
    pub(super) message: &'static str,
    pub(super) code: &'static str,
    pub(super) detail: Option<&'static str>,
    pub(super) status: StatusCode,
    pub(super) trace: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn of(failure: Failure, trace: &'a str) -> Self {
        let (code, detail, status) = (failure.code(), failure.detail(), failure.status());
        Self { message: "request failed", code, detail, status, trace }
    }
}

impl Edge {
    /// Writes one line about a request that failed; strangers' lines are bounded in number.
    pub(super) fn tell(&self, line: &Line<'_>, known: &Known, origin: &Origin) {
        let Line { message, code, detail, status, trace } = line;
        let now = Instant::now();
        let host = known.address.as_ref().map(|address| &*address.host);
        let workspace = known.address.as_ref().map(|address| tracing::field::display(&address.name));
        let port = known.port.map(Port::get);
        let user = known.user.as_ref().map(UserName::as_str);
        let took_ms = u64::try_from(now.saturating_duration_since(known.began).as_millis()).unwrap_or(u64::MAX);
        let (status, peer) = (status.as_u16(), origin.peer);
        if origin.guest.may_be_told_of(now.into_std()) {
            info!(code, status, host, workspace, port, user, detail, took_ms, trace, %peer, "{message}");
        } else {
            debug!(code, status, host, workspace, port, user, detail, took_ms, trace, %peer, "{message}");
        }
    }
}
