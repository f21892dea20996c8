//! Drives all workspaces in CI systems: picks those that are due, within a bound on how many are reconciled at a time.
//!
//! Needs no state of its own: what is due follows from stored and observed state, and a gateway that starts reconciles
//! every workspace once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::queue::ReconcileQueue;
use super::elsewhere::Elsewhere;
use super::plan::RunTimeouts;
use super::settings::Systems;
use gateway_agents::registry::Registry;
use gateway_net::telemetry::Metrics;
use gateway_store::{Store, StoreError};
use gateway_types::{Clock, UnixSeconds};
use gateway_workspaces::changes::{ChangeNews, ChangeNotice, Changes, Subscriber};

mod queue;

/// Interval at which due workspaces are looked for, and agents that connected or disconnected, which is not notified.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the store is read for changes by other processes, such as the command line on the database.
const READ_INTERVAL: Duration = Duration::from_secs(3);

/// Workspaces that are reconciled at a time. Each CI system has a bound of its own below this.
const VISITS_MAX: usize = 256;

/// Workspaces that are read at a time.
const PAGE: u32 = 500;

/// Controller of the workspaces in CI systems.
pub struct CiController {
    pub(super) registry: Arc<Registry>,
    pub(super) store: Store,
    pub(super) changes: Changes,
    pub(super) systems: Arc<Systems>,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) pace: RunTimeouts,
    /// Agents at other replicas, if there are some.
    pub(super) elsewhere: Option<Elsewhere>,
    /// Time at which this process took the work over, if it has others.
    pub(super) begun_at: Option<UnixSeconds>,
}

impl fmt::Debug for CiController {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CiDriver").finish_non_exhaustive()
    }
}

impl CiController {
    /// Creates the controller. Among replicas, `elsewhere` is what it learns of the others' agents, and it has just taken the
    /// work over.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        store: Store,
        changes: Changes,
        systems: Arc<Systems>,
        metrics: Metrics,
        clock: Clock,
        elsewhere: Option<Elsewhere>,
    ) -> Arc<Self> {
        let (pace, begun_at) = (RunTimeouts::DEFAULT, elsewhere.as_ref().map(|_| clock()));
        Arc::new(Self { registry, store, changes, systems, metrics, clock, pace, elsewhere, begun_at })
    }

    /// Runs until `stop`, and then until all reconciles under way have ended.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut queue, mut read_at) = (ReconcileQueue::default(), None);
        let mut listener = self.changes.listen();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.reconcile_due(&mut queue, &mut read_at).await,
                told = listen(&mut listener) => match told {
                    // Workspaces on clusters have controllers of their own.
                    Some(ChangeNotice { cluster: Some(_), .. }) => {}
                    Some(ChangeNotice { workspace, cluster: None }) => queue.add(workspace, (self.clock)()),
                    None => read_at = None,
                },
                Some(completion) = queue.runner.next() => {
                    if let Some((workspace, why)) = queue.settle(completion, (self.clock)()) {
                        warn!(%workspace, why, "a workspace in a CI system cannot be reconciled");
                    }
                }
            }
            if self.elsewhere.as_ref().is_some_and(|elsewhere| !elsewhere.is_known()) {
                continue;
            }
            queue.start((self.clock)(), VISITS_MAX, |id, heard| {
                let controller = self.clone();
                async move { controller.reconcile(id, heard).await }
            });
        }
        queue.runner.drain().await;
    }

    /// Finds changes that are not notified.
    async fn reconcile_due(&self, queue: &mut ReconcileQueue, read_at: &mut Option<Instant>) {
        if let Some(elsewhere) = &self.elsewhere
            && let Err(error) = elsewhere.read(&self.store).await
        {
            warn!(%error, "cannot read which jobs have agents at other replicas");
        }
        queue.add_changed(|name| self.is_up(name), (self.clock)());
        if read_at.is_some_and(|read_at| read_at.elapsed() < READ_INTERVAL) {
            return;
        }
        match self.read(queue).await {
            Ok(()) => *read_at = Some(Instant::now()),
            Err(error) => warn!(%error, "cannot read which workspaces are in CI systems"),
        }
    }

    async fn read(&self, queue: &mut ReconcileQueue) -> Result<(), StoreError> {
        let (now, mut after) = ((self.clock)(), None);
        loop {
            let page = self.store.ci_revisions(after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(*last);
            queue.list(page, now);
        }
    }
}

async fn listen(listener: &mut Subscriber) -> Option<ChangeNotice> {
    match listener.next().await {
        ChangeNews::Change(change) => Some(change),
        ChangeNews::Missed => None,
    }
}

#[cfg(test)]
mod tests;
