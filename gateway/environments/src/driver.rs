//! Drives all environments with objects to make or remove: picks those that are due, within a bound on how many are
//! visited at a time.
//!
//! Needs no state of its own: what is due follows from the store, so a restarted gateway continues where the previous
//! process stopped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use work_queue::{Completion, Requeue, Runner};

use super::arrivals::Arrivals;
use super::plan::REMOVE_PAUSE_MAX;
use super::service::EnvironmentsShared;
use super::visit::{Then, VisitResult};
use gateway_agents::registry::Registry;
use gateway_store::{ClusterId, EnvironmentId};
use gateway_types::UnixSeconds;

/// Interval at which due environments are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the store is read for changes by other processes.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which environments that ended long ago are forgotten, and the age at which they are.
const FORGET_INTERVAL: Duration = Duration::from_secs(60 * 60);
const FORGET_AFTER: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Environments that are visited at a time, besides those whose agents are being called: these have a bound for each
/// cluster (`permits`), so many slow clusters do not keep the others from being visited.
const VISITS_MAX: usize = 128;

/// Environments to visit immediately because their desired state changed, or because their turn has come.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    waiting: Mutex<BTreeMap<EnvironmentId, bool>>,
    some: Notify,
}

impl Wakes {
    /// Has an environment visited, ending any pause.
    pub(super) fn wake(&self, id: EnvironmentId) {
        self.waiting.lock().insert(id, true);
        self.some.notify_one();
    }

    /// Has environments visited whose turn has come. Their pauses go on.
    pub(super) fn call(&self, ids: Vec<EnvironmentId>) {
        if ids.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        for id in ids {
            waiting.entry(id).or_default();
        }
        self.some.notify_one();
    }

    async fn woken(&self) -> BTreeMap<EnvironmentId, bool> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.some.notified().await;
        }
    }
}

/// Visits under way and due, and what is known of the environments that wait for one.
#[derive(Debug, Default)]
struct EnvironmentBooks {
    runner: Runner<EnvironmentId, Instant, VisitResult>,
    /// Environments that wait, and whose next visit ends a pause.
    urgent: BTreeSet<EnvironmentId>,
    /// Clusters of the environments, for those that were visited.
    clusters: HashMap<EnvironmentId, ClusterId>,
    arrivals: Arrivals,
    read_at: Option<Instant>,
    forgot_at: Option<Instant>,
}

impl EnvironmentBooks {
    fn add(&mut self, id: EnvironmentId, at: Instant, is_urgent: bool) {
        self.runner.queue.add(id, at);
        if is_urgent {
            self.urgent.insert(id);
        }
    }

    /// Makes all environments of a cluster due whose agent connected. Those under way are visited once more, because
    /// they may be calling another agent. One that was never visited is taken for the cluster's.
    fn came(&mut self, cluster: ClusterId, now: Instant) {
        let is_its = |id: &&EnvironmentId| self.clusters.get(*id).is_none_or(|of| *of == cluster);
        let waiting: BTreeSet<EnvironmentId> = self.runner.queue.keys().filter(is_its).copied().collect();
        waiting.into_iter().for_each(|id| self.add(id, now, true));
    }

    /// Starts visits to environments that are due, as many more as there is room for, longest overdue first.
    fn start<F>(&mut self, now: Instant, room: usize, mut visit: impl FnMut(EnvironmentId, bool) -> F)
    where
        F: Future<Output = VisitResult> + Send + 'static,
    {
        let in_flight_max = self.runner.queue.in_flight().saturating_add(room);
        let urgent = &mut self.urgent;
        self.runner.start(now, in_flight_max, |id| visit(id, urgent.remove(&id)));
    }

    /// Settles a visit that has ended. After a panic, the environment is visited again, as after a start.
    fn settle(&mut self, completion: Completion<EnvironmentId, VisitResult>, now: DriverTime) {
        let Completion { key: id, result } = completion;
        let queue = &mut self.runner.queue;
        let VisitResult { cluster, then } = match result {
            Ok(visit) => visit,
            Err(error) => {
                warn!(%error, "a look at an environment ended badly");
                queue.finish(id, Requeue::At(now.clock + READ_INTERVAL));
                return;
            }
        };
        let requeue = match then {
            Then::At(at) | Then::Queue(at, _) => Requeue::At(instant_of(at, now)),
            Then::Rest => Requeue::AwaitAdd,
        };
        queue.finish(id, requeue);
        if matches!(then, Then::Queue(_, true)) {
            self.urgent.insert(id);
        }
        match cluster.filter(|_| queue.contains(&id)) {
            Some(cluster) => self.clusters.insert(id, cluster),
            None => self.clusters.remove(&id),
        };
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct DriverTime {
    clock: Instant,
    wall: UnixSeconds,
}

/// Converts a time of the wall clock: never later than after the longest pause, in case that clock was changed.
fn instant_of(at: UnixSeconds, now: DriverTime) -> Instant {
    let seconds = u64::try_from(at.get().saturating_sub(now.wall.get())).unwrap_or_default();
    now.clock + Duration::from_secs(seconds.min(REMOVE_PAUSE_MAX))
}

/// Inputs of the driver's loop.
pub(super) struct Outside {
    /// The agents that have a session.
    pub(super) registry: Arc<Registry>,
    /// Signals that agents connected.
    pub(super) arrivals: watch::Receiver<u64>,
    /// Signals that configurations of clusters changed.
    pub(super) configs: watch::Receiver<u64>,
    /// Set once no new visits are begun.
    pub(super) draining: CancellationToken,
    /// Set once visits under way are ended too.
    pub(super) stop: CancellationToken,
}

impl EnvironmentsShared {
    /// Runs until no new visits are to be begun, and then until those under way have ended.
    pub(super) async fn run(self: Arc<Self>, mut outside: Outside) {
        let mut books = EnvironmentBooks::default();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.arrived(&mut books, &outside.registry);
        loop {
            tokio::select! {
                () = outside.draining.cancelled() => break,
                () = outside.stop.cancelled() => break,
                _ = ticks.tick() => self.tick(&mut books).await,
                woken = self.wakes.woken() => {
                    let now = Instant::now();
                    woken.into_iter().for_each(|(id, is_urgent)| books.add(id, now, is_urgent));
                }
                Ok(()) = outside.arrivals.changed() => self.arrived(&mut books, &outside.registry),
                Ok(()) = outside.configs.changed() => self.read_access().await,
                Some(completion) = books.runner.next() => books.settle(completion, DriverTime { clock: Instant::now(), wall: self.now() }),
            }
            self.start(&mut books, &outside);
            self.metrics.environments_due(books.runner.queue.waiting() + books.runner.queue.in_flight());
        }
        books.runner.drain().await;
    }

    fn start(self: &Arc<Self>, books: &mut EnvironmentBooks, outside: &Outside) {
        let room = room(books.runner.queue.in_flight(), self.permits.lock().taken());
        books.start(Instant::now(), room, |id, is_urgent| {
            let (inner, draining, stop) = (self.clone(), outside.draining.clone(), outside.stop.clone());
            async move { inner.visit(id, is_urgent, &draining, &stop).await }
        });
    }

    /// Ends the pauses of environments whose agents connected.
    fn arrived(&self, books: &mut EnvironmentBooks, registry: &Registry) {
        let now = Instant::now();
        let sessions = self.access.clusters().into_iter();
        let sessions = sessions.filter_map(|(id, name)| Some((id, registry.cluster(&name)?.id)));
        let came = books.arrivals.note(sessions, now.into_std());
        came.into_iter().for_each(|cluster| books.came(cluster, now));
    }

    /// Finds environments that are due without a notification.
    async fn tick(&self, books: &mut EnvironmentBooks) {
        let now = Instant::now();
        books.arrivals.owed(now.into_std()).into_iter().for_each(|cluster| books.came(cluster, now));
        if books.read_at.is_some_and(|read_at| read_at.elapsed() < READ_INTERVAL) {
            return;
        }
        books.read_at = Some(Instant::now());
        self.read_access().await;
        self.finish_stops().await;
        match self.store.environments_due().await {
            Ok(due) => {
                for id in due {
                    if !books.runner.queue.contains(&id) {
                        books.add(id, now, false);
                    }
                }
            }
            Err(error) => warn!(%error, "cannot read which environments are due"),
        }
        if books.forgot_at.is_none_or(|forgot_at| forgot_at.elapsed() >= FORGET_INTERVAL) {
            books.forgot_at = Some(Instant::now());
            let before = UnixSeconds::new(self.now().get().saturating_sub(seconds(FORGET_AFTER)));
            if let Err(error) = self.store.forget_environments(before).await {
                warn!(%error, "cannot forget environments that ended long ago");
            }
        }
    }

    async fn read_access(&self) {
        if let Err(error) = self.access.read(&self.store, self.now()).await {
            warn!(%error, "cannot read what clusters allow: what was known stays in force");
        }
    }
}

/// Returns how many more environments may be visited, from the number of visits and of those among them that call an
/// agent.
fn room(visits: usize, called: usize) -> usize {
    VISITS_MAX.saturating_sub(visits.saturating_sub(called))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
