//! A move to another replica: the agent has a new session there before the gateway ends the one that it has, which goes on as a
//! relay lane for as long as users have streams on it.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::backoff::Backoff;
use tunnel_link::grpc::{ConnectError, DialedLink};
use tunnel_proto::hello::RelayTicket;

use super::credential::read_token;
use super::lane::LaneKind;
use super::link::{self, Greeting, LinkConnection};
use super::network::Network;
use super::served::ServedLink;
use super::{Agent, DialFailure, WELCOME_TIMEOUT, with_sources};

/// A dial for the new session.
pub(super) struct Moving {
    dial: Pin<Box<dyn Future<Output = Dialed> + Send>>,
    failures: u32,
}

/// A link for the new session, or why there is none yet.
type Dialed = Result<(LinkConnection, DialedLink), DialFailure>;

/// Waits for the link of a move; for ever without one.
///
/// Cancel safety: safe.
pub(super) async fn next(moving: &mut Option<Moving>) -> Dialed {
    match moving {
        Some(moving) => moving.dial.as_mut().await,
        None => pending().await,
    }
}

impl<N: Network> Agent<N> {
    /// Begins a move after a random part of `within`, so that agents that are asked at once do not come at once. `None` if
    /// this agent has as many lanes as may be: it then stays until its session is ended.
    pub(super) fn begin_move(&mut self, within: Duration, stop: &CancellationToken) -> Option<Moving> {
        self.relays.room()?;
        info!("the gateway asks this agent to move to another replica");
        let after = within.mul_f64((self.roll)());
        Some(Moving { dial: self.dial_after(after, stop), failures: 0 })
    }

    /// Dials again after a failure. The replica that asks may be dialed too, for as long as a balancer leads there: it
    /// refuses, and says when to come back.
    pub(super) fn move_again(&mut self, before: Moving, failure: &DialFailure, stop: &CancellationToken) -> Moving {
        let failures = before.failures.saturating_add(1);
        let refused = if let DialFailure::Rpc(ConnectError::Refused(refused)) = failure { Some(refused) } else { None };
        let hint = refused.and_then(|refused| refused.retry_after).unwrap_or_default();
        let bounds: Backoff = self.backoff.in_absence();
        let after = bounds.delay(failures, (self.roll)()).max(hint.mul_f64((self.roll)()));
        debug!(cause = with_sources(failure), ?after, "not moved yet, dialing again");
        Moving { dial: self.dial_after(after, stop), failures }
    }

    fn dial_after(&self, after: Duration, stop: &CancellationToken) -> Pin<Box<dyn Future<Output = Dialed> + Send>> {
        let (network, plan, hello) = (self.network.clone(), self.memory.plan(self.transport), self.hello(None));
        let (source, stop) = (self.token.clone(), stop.clone());
        Box::pin(async move {
            tokio::time::sleep(after).await;
            let unread = |error| DialFailure::Connect(std::io::Error::other(error));
            let token = read_token(&source).await.map_err(unread)?;
            let greeting = Greeting { token, hello, patience: WELCOME_TIMEOUT };
            match link::dial(&*network, plan, greeting, &stop).await {
                Some(dialed) => dialed,
                // The session that it has says goodbye.
                None => pending().await,
            }
        })
    }

    /// Lets the session that it had go on as a relay lane, which ends where it is.
    pub(super) fn hand_over(&mut self, served: ServedLink) {
        // There was room when the move began. Without it now, the session ends.
        let Some(number) = self.relays.room() else { return };
        let ticket = RelayTicket { replica: served.id.replica(), ticket: Bytes::new() };
        let lane = self.lane(LaneKind::Relay(ticket), number).running_from(Some(served), self.relays.end());
        self.relays.spawn(lane);
    }
}
