//! More links beside the first: each is dialed, lost and resumed like that one. A lane of the session ends with it; a
//! relay lane, which ends at another replica, is a session of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_proto::hello::{Join, RelayTicket, Welcome};
use tunnel_proto::limit::LANES_MAX;

use super::active_session::ActiveSession;
use super::network::Network;
use super::served::ServedLink;
use super::{Agent, AgentEvent, CLOSE_TIMEOUT};

/// Lane that an agent is.
#[derive(Clone, Debug)]
pub enum LaneKind {
    /// One more link of a session, with which it ends.
    Session(Join),
    /// A link that ends at another replica than the one that is dialed.
    Relay(RelayTicket),
}

impl LaneKind {
    /// Returns the session to join.
    pub(super) fn join(&self) -> Option<Join> {
        match self {
            Self::Session(join) => Some(join.clone()),
            Self::Relay(_) => None,
        }
    }

    /// Returns the ticket of a relay lane.
    pub(super) fn relay(&self) -> Option<RelayTicket> {
        match self {
            Self::Session(_) => None,
            Self::Relay(ticket) => Some(ticket.clone()),
        }
    }
}

/// Relay lanes of an agent. They outlive its sessions, and end with it.
#[derive(Debug, Default)]
pub struct RelayLanes {
    tasks: JoinSet<()>,
    end: CancellationToken,
}

impl RelayLanes {
    /// Returns the number of the next lane; `None` if there are as many as may be.
    pub(super) fn room(&mut self) -> Option<u32> {
        while self.tasks.try_join_next().is_some() {}
        u32::try_from(self.tasks.len()).ok().filter(|number| *number < LANES_MAX)
    }

    /// Starts a lane.
    pub(super) fn spawn(&mut self, lane: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(lane));
    }

    /// Returns the token that ends them.
    pub(super) fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// Ends them, after they have said so to their replicas.
    pub(super) async fn close(&mut self) {
        self.end.cancel();
        let said = async { while self.tasks.join_next().await.is_some() {} };
        drop(tokio::time::timeout(CLOSE_TIMEOUT, said).await);
        self.tasks.shutdown().await;
    }
}

impl<N: Network> Agent<N> {
    /// Starts the lanes that the gateway allows for a new session.
    pub(super) fn add_lanes(&mut self, carried: &mut ActiveSession, welcome: &Welcome, stop: &CancellationToken) {
        let more = self.lanes.min(welcome.lanes).saturating_sub(1);
        for number in 1..=more {
            let join = Join { session: welcome.session, secret: welcome.join_secret.clone() };
            let session = carried.session.clone();
            let lane = self.lane(LaneKind::Session(join), number).running(stop.clone());
            drop(carried.tasks.spawn(async move {
                tokio::select! {
                    () = session.ended() => {}
                    () = lane => {}
                }
            }));
        }
    }

    /// Starts a relay lane that the gateway wants, unless there are as many as may be. It does not end with the session
    /// that asked for it: users of another replica are on it.
    pub(super) fn add_relay(&mut self, wanted: RelayTicket) {
        let Some(number) = self.relays.room() else {
            debug!(replica = wanted.replica, "relay lane not added: there are enough");
            return;
        };
        let lane = self.lane(LaneKind::Relay(wanted), number).running(self.relays.end());
        self.relays.spawn(lane);
    }

    /// Returns whether this agent has nothing to do once its session is over: a ticket is good for one.
    pub(super) fn ends_with_its_session(&self) -> bool {
        matches!(self.lane, Some(LaneKind::Relay(_)))
    }

    /// Makes the agent of one more lane.
    pub(super) fn lane(&mut self, kind: LaneKind, number: u32) -> Self {
        // A random generator of its own: lanes that break together must not come back together.
        let mut rolls = SmallRng::seed_from_u64((self.roll)().to_bits());
        Self {
            network: self.network.clone(),
            token: self.token.clone(),
            role: self.role,
            without: self.without,
            ports: self.ports.clone(),
            transport: self.transport,
            memory: self.memory.clone(),
            backoff: self.backoff,
            roll: Box::new(move || rolls.random()),
            instance: self.instance,
            lanes: 1,
            lane: Some(kind),
            relays: RelayLanes::default(),
            seal: self.seal.clone(),
            budget: Arc::clone(&self.budget),
            replay: Arc::clone(&self.replay),
            observer: Box::new(move |event| match event {
                AgentEvent::Connected { .. } => info!(lane = number, "lane connected"),
                AgentEvent::SessionEnded { error } => debug!(lane = number, %error, "lane ended"),
                AgentEvent::Dialing | AgentEvent::Redialing { .. } => {}
            }),
        }
    }

    /// Boxed, because a lane is an agent that is started by an agent.
    fn running(self, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.running_from(None, stop)
    }

    /// The same, from a link on that is served already.
    pub(super) fn running_from(
        self,
        served: Option<ServedLink>,
        stop: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if let Err(error) = self.run_from(served, stop).await {
                debug!(%error, "lane given up");
            }
        })
    }
}
