//! Fleet of thousands of real agents in one process, as tasks.
//!
//! Each is the agent's own library with a token of its own, so it dials, shakes hands, serves channels and redials as the
//! program does; only the process, the runtime and the TLS settings are shared. One agent is one file descriptor.

mod roster;
pub mod sockets;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace_agent::dial::Observer;
use workspace_agent::{Agent, AgentEvent, Gateway, MEMORY_BUDGET_BYTES, Options, Ports, TokenSource, Transport};

use self::roster::Roster;

/// Settings of a fleet's dials.
#[derive(Clone, Debug, Default)]
pub struct FleetOptions {
    /// Ports that each agent exposes; the default is every loopback port.
    pub ports: Ports,
    /// PEM file of certificates to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// The first dials are spread evenly over this; zero dials all at once.
    pub spread: Duration,
    /// Whether times without a session are kept, for [`Fleet::take_gaps`]. They grow until they are taken.
    pub keeps_gaps: bool,
}

/// Time in which an agent that had a session had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index of the agent's token.
    pub agent: usize,
    /// Time at which its next session came up.
    pub ended: Instant,
    /// Length, from the moment at which the agent noticed the end of its session.
    pub lasted: Duration,
}

/// State of a fleet's agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Agents that were started.
    pub agents: usize,
    /// Agents with a session.
    pub up: usize,
    /// Sessions that came up since the start.
    pub connects: u64,
    /// Failed dials and ended links since the start, each followed by a redial.
    pub redials: u64,
    /// Agents that gave up, by reason.
    pub ended: BTreeMap<String, u64>,
}

/// Running agents. Dropping it ends them at once; [`Fleet::stop`] lets them say goodbye.
#[derive(Debug)]
pub struct Fleet {
    roster: Arc<Roster>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks, not only their sessions, when the fleet is dropped.
    cut: tokio_util::sync::DropGuard,
}

impl Fleet {
    /// Starts one agent per token.
    ///
    /// # Errors
    /// The gateway's URL or the certificates cannot be used.
    pub fn start(gateway_url: &str, tokens: Vec<String>, options: &FleetOptions) -> anyhow::Result<Self> {
        // Parsed once: the TLS settings, the roots above all, are shared by every clone.
        let gateway = Gateway::parse(gateway_url, options.ca_file.as_deref()).context("the fleet's gateway")?;
        let ports = Arc::new(options.ports.clone());
        let roster = Arc::new(Roster::new(tokens.len(), Instant::now(), options.keeps_gaps));
        let (tasks, stop, cut) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let pause = options.spread.div_f64(tokens.len().max(1) as f64);
        for (number, token) in tokens.into_iter().enumerate() {
            let options = Options {
                gateway: gateway.clone(),
                transport: Transport::default(),
                token: TokenSource::Value(token.into()),
                ports: ports.clone(),
                lanes: 1,
                memory_budget: MEMORY_BUDGET_BYTES,
                terminal: None,
                ssh: None,
                inspector: None,
                logs: None,
            };
            let agent = Agent { observer: entering(number, roster.clone()), ..options.agent() };
            let (roster, stop, cut) = (roster.clone(), stop.clone(), cut.clone());
            let first_dial = roster.started() + pause.mul_f64(number as f64);
            let life = async move {
                tokio::time::sleep_until(first_dial).await;
                match agent.run(stop).await {
                    Ok(()) => roster.stopped(number),
                    Err(ended) => roster.gave_up(number, &ended.to_string()),
                }
            };
            // The task's own future stays small, and the large one is not moved through its layers.
            let life = Box::pin(life);
            drop(tasks.spawn(async move { cut.run_until_cancelled(life).await.unwrap_or_default() }));
        }
        tasks.close();
        Ok(Self { roster, tasks, stop, cut: cut.drop_guard() })
    }

    /// Returns how many agents were started.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roster.len()
    }

    /// Returns whether it has no agents.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the state of the agents.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.roster.counts()
    }

    /// Returns how many agents have a session.
    #[must_use]
    pub fn up(&self) -> usize {
        self.roster.up()
    }

    /// Returns whether one agent has a session.
    #[must_use]
    pub fn is_up(&self, agent: usize) -> bool {
        self.roster.is_up(agent)
    }

    /// Returns whether one agent has a session that came up after `since`.
    #[must_use]
    pub fn is_up_since(&self, agent: usize, since: Instant) -> bool {
        self.roster.is_up_since(agent, since)
    }

    /// Waits until `wanted` agents have a session. `false` if that did not happen within `patience`.
    ///
    /// Cancel safety: safe.
    pub async fn wait_up(&self, wanted: usize, patience: Duration) -> bool {
        self.wait(patience, |up| *up >= wanted).await
    }

    async fn wait(&self, patience: Duration, is_it: impl FnMut(&usize) -> bool) -> bool {
        let mut up = self.roster.watch();
        tokio::time::timeout(patience, up.wait_for(is_it)).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Returns, in order, how long after `since` each agent's present session came up; agents whose session is older
    /// or that have none are left out.
    #[must_use]
    pub fn ups_since(&self, since: Instant) -> Vec<Duration> {
        self.roster.ups_since(since)
    }

    /// Returns the times without a session that have ended since the last call, in their order.
    #[must_use]
    pub fn take_gaps(&self) -> Vec<Gap> {
        self.roster.take_gaps()
    }

    /// Lets every agent close its session, and waits for that up to `grace`. Returns how many had to be cut.
    pub async fn stop(self, grace: Duration) -> usize {
        self.stop.cancel();
        let stopped = tokio::time::timeout(grace, self.tasks.wait()).await;
        let left = if stopped.is_ok() { 0 } else { self.tasks.len() };
        drop(self.cut);
        self.tasks.wait().await;
        left
    }
}

/// Makes the observer that enters an agent's events into the roster.
fn entering(agent: usize, roster: Arc<Roster>) -> Observer {
    Box::new(move |event| match event {
        AgentEvent::Connected { .. } => roster.connected(agent, Instant::now()),
        AgentEvent::Redialing { .. } => roster.redials(agent, Instant::now()),
        // Each dial ends in one of the two above, or in the end of the agent, which its task enters.
        AgentEvent::Dialing | AgentEvent::SessionEnded { .. } => {}
    })
}

/// Returns how many came up in each second: the result of [`Fleet::ups_since`] as a curve.
#[must_use]
pub fn per_second(ups: &[Duration]) -> Vec<u64> {
    let mut curve = Vec::new();
    for up in ups {
        let second = usize::try_from(up.as_secs()).unwrap_or(usize::MAX);
        if second >= curve.len() {
            curve.resize(second.saturating_add(1), 0);
        }
        if let Some(count) = curve.get_mut(second) {
            *count += 1;
        }
    }
    curve
}

#[cfg(test)]
mod tests;
