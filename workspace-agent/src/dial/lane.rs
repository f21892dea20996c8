//! More links for one session: each is dialed, lost and resumed like the first, and ends with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_proto::hello::{Join, Welcome};

use super::active_session::ActiveSession;
use super::network::Network;
use super::{Agent, AgentEvent};

impl<N: Network> Agent<N> {
    /// Starts the lanes that the gateway allows for a new session.
    pub(super) fn add_lanes(&mut self, carried: &mut ActiveSession, welcome: &Welcome, stop: &CancellationToken) {
        let more = self.lanes.min(welcome.lanes).saturating_sub(1);
        for number in 1..=more {
            let join = Join { session: welcome.session, secret: welcome.join_secret.clone() };
            let session = carried.session.clone();
            let lane = self.lane(join, number).running(stop.clone());
            drop(carried.tasks.spawn(async move {
                tokio::select! {
                    () = session.ended() => {}
                    () = lane => {}
                }
            }));
        }
    }

    /// Makes the agent of one more lane.
    fn lane(&mut self, join: Join, number: u32) -> Self {
        // A random generator of its own: lanes that break together must not come back together.
        let mut rolls = SmallRng::seed_from_u64((self.roll)().to_bits());
        Self {
            network: self.network.clone(),
            token: self.token.clone(),
            role: self.role,
            ports: self.ports.clone(),
            transport: self.transport,
            memory: self.memory.clone(),
            backoff: self.backoff,
            roll: Box::new(move || rolls.random()),
            instance: self.instance,
            lanes: 1,
            join: Some(join),
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
        Box::pin(async move {
            if let Err(error) = self.run(stop).await {
                debug!(%error, "lane given up");
            }
        })
    }
}
