//! Asks the agents of workspaces that are stopped without use whether a command there wants to be waited for
//! (`workspace-agent busy`). Only agents whose session is here are asked, and none whose workspace has no such limit.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use tunnel_link::drain::Drain;

use super::{App, workspace_counts};
use gateway_agents::registry::Registry;
use gateway_config::Idle;
use gateway_edge::activity::Activities;
use gateway_store::Store;
use gateway_types::WorkspaceName;

/// Agents that are asked at a time: one that does not answer is waited for a second.
const AT_ONCE: usize = 32;

/// Watches commands that want to be waited for.
struct BusyWatch {
    store: Store,
    registry: Arc<Registry>,
    activities: Arc<Activities>,
    /// Time between two questions.
    interval: Duration,
    /// Longest time for which one command counts.
    busy_max: Duration,
}

impl App {
    /// Starts the tasks that record the use of workspaces, and their traffic, and count them.
    pub(super) fn record_use(&self, background: &Drain) {
        let (store, activities) = (&self.base.store, self.edge.access.watches.activities());
        let Idle { record_interval, busy_max } = self.config.idle;
        let busy = BusyWatch {
            store: store.clone(),
            registry: self.base.registry.clone(),
            activities: activities.clone(),
            interval: record_interval,
            busy_max,
        };
        background.spawn(self.base.traffic.clone().run(self.base.registry.clone(), self.closed.clone()));
        background.spawn(busy.run(self.closed.clone()));
        background.spawn(workspace_counts::run(store.clone(), self.base.metrics.clone(), self.closed.clone()));
        background.spawn(activities.clone().record(store.clone(), record_interval, self.closed.clone()));
    }
}

impl BusyWatch {
    /// Asks until `stop`.
    async fn run(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            match self.store.limited_by_use().await {
                Ok(limited) => stream::iter(limited).for_each_concurrent(AT_ONCE, |name| self.ask(name)).await,
                // The next time is soon enough: a limit is longer than the interval.
                Err(error) => debug!(%error, "busy commands are not asked for now"),
            }
        }
    }

    async fn ask(&self, name: WorkspaceName) {
        let Some(session) = self.registry.current(&name) else { return };
        let busy_for = session.report().await.and_then(|report| report.busy_for);
        if busy_for.is_some_and(|time| time < self.busy_max) {
            self.activities.busy(&name);
        }
    }
}
