//! Drives all environments with objects to make or remove: picks those that are due, within a bound on how many are
//! reconciled at a time.
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
use super::reconcile::{EnvironmentReconciled, Then};
use super::service::EnvironmentsShared;
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

/// Environments that are reconciled at a time, besides those whose agents are being called: these have a bound for each
/// cluster (`permits`), so many slow clusters do not keep the others from being reconciled.
const VISITS_MAX: usize = 128;

/// Most environments that wait because of an announcement from elsewhere. Of more, the store is read for those that are due.
pub(super) const ANNOUNCED_MAX: usize = 10_000;

/// Environments to reconcile immediately because their desired state changed, or because their turn has come.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    waiting: Mutex<BTreeMap<EnvironmentId, bool>>,
    some: Notify,
    /// Any environment may be due.
    all: Notify,
}

impl Wakes {
    /// Has an environment reconciled, ending any pause.
    pub(super) fn wake(&self, id: EnvironmentId) {
        self.waiting.lock().insert(id, true);
        self.some.notify_one();
    }

    /// Has an environment reconciled that another process changed. `is_urgent` ends any pause. No controller may be there to
    /// take it: then these have a bound.
    pub(super) fn announced(&self, id: EnvironmentId, is_urgent: bool) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() < ANNOUNCED_MAX || waiting.contains_key(&id) {
                *waiting.entry(id).or_default() |= is_urgent;
                self.some.notify_one();
                return;
            }
        }
        self.all();
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Has the store read for environments that are due.
    pub(super) fn all(&self) {
        self.all.notify_one();
    }

    /// Has environments reconciled whose turn has come. Their pauses go on.
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
struct EnvironmentQueue {
    runner: Runner<EnvironmentId, Instant, EnvironmentReconciled>,
    /// Environments that wait, and whose next reconcile ends a pause.
    urgent: BTreeSet<EnvironmentId>,
    /// Clusters of the environments, for those that were reconciled.
    clusters: HashMap<EnvironmentId, ClusterId>,
    arrivals: Arrivals,
    read_at: Option<Instant>,
    forgot_at: Option<Instant>,
}

impl EnvironmentQueue {
    fn add(&mut self, id: EnvironmentId, at: Instant, is_urgent: bool) {
        self.runner.queue.add(id, at);
        if is_urgent {
            self.urgent.insert(id);
        }
    }

    /// Makes all environments of a cluster due whose agent connected. Those under way are reconciled once more, because
    /// they may be calling another agent. One that was never reconciled is taken for the cluster's.
    fn came(&mut self, cluster: ClusterId, now: Instant) {
        let is_its = |id: &&EnvironmentId| self.clusters.get(*id).is_none_or(|of| *of == cluster);
        let waiting: BTreeSet<EnvironmentId> = self.runner.queue.keys().filter(is_its).copied().collect();
        waiting.into_iter().for_each(|id| self.add(id, now, true));
    }

    /// Starts reconciles to environments that are due, as many more as there is room for, longest overdue first.
    fn start<F>(&mut self, now: Instant, room: usize, mut visit: impl FnMut(EnvironmentId, bool) -> F)
    where
        F: Future<Output = EnvironmentReconciled> + Send + 'static,
    {
        let in_flight_max = self.runner.queue.in_flight().saturating_add(room);
        let urgent = &mut self.urgent;
        self.runner.start(now, in_flight_max, |id| visit(id, urgent.remove(&id)));
    }

    /// Settles a reconcile that has ended. After a panic, the environment is reconciled again, as after a start.
    fn settle(&mut self, completion: Completion<EnvironmentId, EnvironmentReconciled>, now: ControllerTime) {
        let Completion { key: id, result } = completion;
        let queue = &mut self.runner.queue;
        let EnvironmentReconciled { cluster, then } = match result {
            Ok(visit) => visit,
            Err(error) => {
                warn!(%error, "a reconcile of an environment failed");
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
struct ControllerTime {
    clock: Instant,
    wall: UnixSeconds,
}

/// Converts a time of the wall clock: never later than after the longest pause, in case that clock was changed.
fn instant_of(at: UnixSeconds, now: ControllerTime) -> Instant {
    let seconds = u64::try_from(at.get().saturating_sub(now.wall.get())).unwrap_or_default();
    now.clock + Duration::from_secs(seconds.min(REMOVE_PAUSE_MAX))
}

/// Inputs of the controller's loop.
pub(super) struct Outside {
    /// The agents that have a session.
    pub(super) registry: Arc<Registry>,
    /// Signals that agents connected.
    pub(super) arrivals: watch::Receiver<u64>,
    /// Signals that configurations of clusters changed.
    pub(super) configs: watch::Receiver<u64>,
    /// Set once no new reconciles are begun.
    pub(super) draining: CancellationToken,
    /// Set once reconciles under way are ended too.
    pub(super) stop: CancellationToken,
}

impl EnvironmentsShared {
    /// Runs until no new reconciles are to be begun, and then until those under way have ended.
    pub(super) async fn run(self: Arc<Self>, mut outside: Outside) {
        let mut queue = EnvironmentQueue::default();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.arrived(&mut queue, &outside.registry);
        loop {
            tokio::select! {
                () = outside.draining.cancelled() => break,
                () = outside.stop.cancelled() => break,
                _ = ticks.tick() => self.tick(&mut queue).await,
                woken = self.wakes.woken() => {
                    let now = Instant::now();
                    woken.into_iter().for_each(|(id, is_urgent)| queue.add(id, now, is_urgent));
                }
                () = self.wakes.all.notified() => {
                    queue.read_at = None;
                    self.tick(&mut queue).await;
                }
                Ok(()) = outside.arrivals.changed() => self.arrived(&mut queue, &outside.registry),
                Ok(()) = outside.configs.changed() => self.read_access().await,
                Some(completion) = queue.runner.next() => queue.settle(completion, ControllerTime { clock: Instant::now(), wall: self.now() }),
            }
            self.start(&mut queue, &outside);
            self.metrics.environments_due(queue.runner.queue.waiting() + queue.runner.queue.in_flight());
        }
        queue.runner.drain().await;
    }

    fn start(self: &Arc<Self>, queue: &mut EnvironmentQueue, outside: &Outside) {
        let room = room(queue.runner.queue.in_flight(), self.permits.lock().taken());
        queue.start(Instant::now(), room, |id, is_urgent| {
            let (inner, draining, stop) = (self.clone(), outside.draining.clone(), outside.stop.clone());
            async move { inner.reconcile(id, is_urgent, &draining, &stop).await }
        });
    }

    /// Ends the pauses of environments whose agents connected.
    fn arrived(&self, queue: &mut EnvironmentQueue, registry: &Registry) {
        let now = Instant::now();
        let sessions = self.access.clusters().into_iter();
        let sessions = sessions.filter_map(|(id, name)| Some((id, registry.cluster(&name)?.id)));
        let came = queue.arrivals.note(sessions, now.into_std());
        came.into_iter().for_each(|cluster| queue.came(cluster, now));
    }

    /// Finds environments that are due without a notification.
    async fn tick(&self, queue: &mut EnvironmentQueue) {
        let now = Instant::now();
        queue.arrivals.owed(now.into_std()).into_iter().for_each(|cluster| queue.came(cluster, now));
        if queue.read_at.is_some_and(|read_at| read_at.elapsed() < READ_INTERVAL) {
            return;
        }
        queue.read_at = Some(Instant::now());
        self.read_access().await;
        self.finish_stops().await;
        match self.store.environments_due().await {
            Ok(due) => {
                for id in due {
                    if !queue.runner.queue.contains(&id) {
                        queue.add(id, now, false);
                    }
                }
            }
            Err(error) => warn!(%error, "cannot read which environments are due"),
        }
        if queue.forgot_at.is_none_or(|forgot_at| forgot_at.elapsed() >= FORGET_INTERVAL) {
            queue.forgot_at = Some(Instant::now());
            let before = UnixSeconds::new(self.now().get().saturating_sub(seconds(FORGET_AFTER)));
            if let Err(error) = self.store.forget_environments(before).await {
                warn!(%error, "cannot forget environments that ended long ago");
            }
        }
    }

    /// Reads what clusters allow to jobs, whenever a configuration changed and at intervals, until `stop`.
    pub(super) async fn keep_access(&self, mut configs: watch::Receiver<u64>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
                Ok(()) = configs.changed() => {}
            }
            self.read_access().await;
        }
    }

    async fn read_access(&self) {
        if let Err(error) = self.access.read(&self.store, self.now()).await {
            warn!(%error, "cannot read the clusters' ci_access: the last known one stays in force");
        }
    }
}

/// Returns how many more environments may be reconciled, from the number of reconciles and of those among them that call an
/// agent.
fn room(visits: usize, called: usize) -> usize {
    VISITS_MAX.saturating_sub(visits.saturating_sub(called))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
