//! Drives all workspaces in CI systems: picks those that are due, within a bound on how many are visited at a time.
//!
//! Needs no state of its own: what is due follows from stored and observed state, and a gateway that starts visits
//! every workspace once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::books::VisitBooks;
use super::plan::RunTimeouts;
use super::settings::Systems;
use gateway_agents::registry::Registry;
use gateway_net::telemetry::Metrics;
use gateway_store::{Store, StoreError};
use gateway_workspaces::changes::{ChangeNews, ChangeNotice, Changes, Listener};
use gateway_workspaces::timers::Clock;

mod books;

/// Interval at which due workspaces are looked for, and agents that connected or disconnected, which is not notified.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the store is read for changes by other processes, such as the command line on the database.
const READ_INTERVAL: Duration = Duration::from_secs(3);

/// Workspaces that are visited at a time. Each CI system has a bound of its own below this.
const VISITS_MAX: usize = 256;

/// Workspaces that are read at a time.
const PAGE: u32 = 500;

/// Driver of the workspaces in CI systems.
pub struct CiDriver {
    pub(super) registry: Arc<Registry>,
    pub(super) store: Store,
    pub(super) changes: Changes,
    pub(super) systems: Arc<Systems>,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) pace: RunTimeouts,
}

impl fmt::Debug for CiDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CiDriver").finish_non_exhaustive()
    }
}

impl CiDriver {
    /// Creates the driver.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        store: Store,
        changes: Changes,
        systems: Arc<Systems>,
        metrics: Metrics,
        clock: Clock,
    ) -> Arc<Self> {
        Arc::new(Self { registry, store, changes, systems, metrics, clock, pace: RunTimeouts::DEFAULT })
    }

    /// Runs until `stop`, and then until all visits under way have ended.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut books, mut read_at) = (VisitBooks::default(), None);
        let mut listener = self.changes.listen();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.look(&mut books, &mut read_at).await,
                told = listen(&mut listener) => match told {
                    // Workspaces on clusters have drivers of their own.
                    Some(ChangeNotice { cluster: Some(_), .. }) => {}
                    Some(ChangeNotice { workspace, cluster: None }) => books.add(workspace, (self.clock)()),
                    None => read_at = None,
                },
                Some(completion) = books.runner.next() => {
                    if let Some((workspace, why)) = books.settle(completion, (self.clock)()) {
                        warn!(%workspace, why, "a workspace in a CI system cannot be looked after");
                    }
                }
            }
            books.start((self.clock)(), VISITS_MAX, |id, heard| {
                let driver = self.clone();
                async move { driver.visit(id, heard).await }
            });
        }
        books.runner.drain().await;
    }

    /// Finds changes that are not notified.
    async fn look(&self, books: &mut VisitBooks, read_at: &mut Option<Instant>) {
        books.add_changed(|name| self.is_up(name), (self.clock)());
        if read_at.is_some_and(|read_at| read_at.elapsed() < READ_INTERVAL) {
            return;
        }
        match self.read(books).await {
            Ok(()) => *read_at = Some(Instant::now()),
            Err(error) => warn!(%error, "cannot read which workspaces are in CI systems"),
        }
    }

    async fn read(&self, books: &mut VisitBooks) -> Result<(), StoreError> {
        let (now, mut after) = ((self.clock)(), None);
        loop {
            let page = self.store.ci_revisions(after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(*last);
            books.list(page, now);
        }
    }
}

async fn listen(listener: &mut Listener) -> Option<ChangeNotice> {
    match listener.next().await {
        ChangeNews::Change(change) => Some(change),
        ChangeNews::Missed => None,
    }
}

#[cfg(test)]
mod tests;
