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
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::arrivals::Arrivals;
use super::plan::REMOVE_PAUSE_MAX;
use super::service::Inner;
use super::visit::{Then, Visit};
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
/// cluster (`seats`), so many slow clusters do not keep the others from being visited.
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

/// Time of the next visit, and whether it ends a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: Instant,
    is_urgent: bool,
}

/// Visits under way, and due times of the next ones.
#[derive(Debug, Default)]
struct Books {
    due: BTreeMap<EnvironmentId, Due>,
    under_way: HashMap<EnvironmentId, Id>,
    /// Clusters of the environments, for those that were visited.
    clusters: HashMap<EnvironmentId, ClusterId>,
    arrivals: Arrivals,
    read_at: Option<Instant>,
    forgot_at: Option<Instant>,
}

impl Books {
    fn put(&mut self, id: EnvironmentId, at: Instant, is_urgent: bool) {
        let due = self.due.entry(id).or_insert(Due { at, is_urgent });
        *due = Due { at: due.at.min(at), is_urgent: due.is_urgent || is_urgent };
    }

    /// Makes all environments of a cluster due whose agent connected. Those under way are visited once more, because
    /// they may be calling another agent. One that was never visited is taken for the cluster's.
    fn came(&mut self, cluster: ClusterId, now: Instant) {
        let all: BTreeSet<EnvironmentId> = self.due.keys().chain(self.under_way.keys()).copied().collect();
        let is_its = |id: &EnvironmentId| self.clusters.get(id).is_none_or(|of| *of == cluster);
        let waiting: Vec<EnvironmentId> = all.into_iter().filter(is_its).collect();
        waiting.into_iter().for_each(|id| self.put(id, now, true));
    }

    /// Takes out the environments to visit now, longest overdue first.
    fn begin(&mut self, room: usize, now: Instant) -> Vec<(EnvironmentId, bool)> {
        let is_free = |id: &EnvironmentId| !self.under_way.contains_key(id);
        let due = self.due.iter().filter(|(id, due)| due.at <= now && is_free(id));
        let mut due: Vec<(EnvironmentId, Due)> = due.map(|(id, due)| (*id, *due)).collect();
        due.sort_by_key(|(_, due)| due.at);
        due.truncate(room);
        for (id, _) in &due {
            self.due.remove(id);
        }
        due.into_iter().map(|(id, due)| (id, due.is_urgent)).collect()
    }

    /// Notes that a visit ended. After a panic, the environment is visited again, as after a start.
    fn close(&mut self, ended: Result<(Id, Ended), tokio::task::JoinError>, now: (Instant, UnixSeconds)) {
        let (id, visit) = match ended {
            Ok((_, ended)) => ended,
            Err(error) => {
                warn!(%error, "a look at an environment ended badly");
                let task = error.id();
                let found = self.under_way.iter().find(|(_, running)| **running == task).map(|(id, _)| *id);
                if let Some(id) = found {
                    self.under_way.remove(&id);
                    self.put(id, now.0 + READ_INTERVAL, false);
                }
                return;
            }
        };
        self.under_way.remove(&id);
        match visit.then {
            Then::At(at) => self.put(id, instant_of(at, now), false),
            Then::Queue(at, is_urgent) => self.put(id, instant_of(at, now), is_urgent),
            Then::Rest => {}
        }
        match visit.cluster.filter(|_| self.due.contains_key(&id)) {
            Some(cluster) => self.clusters.insert(id, cluster),
            None => self.clusters.remove(&id),
        };
    }
}

/// Converts a time of the wall clock: never later than after the longest pause, in case that clock was changed.
fn instant_of(at: UnixSeconds, (now, wall): (Instant, UnixSeconds)) -> Instant {
    let seconds = u64::try_from(at.get().saturating_sub(wall.get())).unwrap_or_default();
    now + Duration::from_secs(seconds.min(REMOVE_PAUSE_MAX))
}

type Ended = (EnvironmentId, Visit);

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

impl Inner {
    /// Runs until no new visits are to be begun, and then until those under way have ended.
    pub(super) async fn run(self: Arc<Self>, mut outside: Outside) {
        let (mut books, mut visits) = (Books::default(), JoinSet::<Ended>::new());
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
                    woken.into_iter().for_each(|(id, is_urgent)| books.put(id, now, is_urgent));
                }
                Ok(()) = outside.arrivals.changed() => self.arrived(&mut books, &outside.registry),
                Ok(()) = outside.configs.changed() => self.read_access().await,
                Some(ended) = visits.join_next_with_id() => books.close(ended, (Instant::now(), self.now())),
            }
            self.begin(&mut books, &mut visits, &outside);
            self.metrics.environments_due(books.due.len() + books.under_way.len());
        }
        while visits.join_next().await.is_some() {}
    }

    fn begin(self: &Arc<Self>, books: &mut Books, visits: &mut JoinSet<Ended>, outside: &Outside) {
        let room = room(visits.len(), self.seats.lock().taken());
        for (id, is_urgent) in books.begin(room, Instant::now()) {
            let (inner, draining, stop) = (self.clone(), outside.draining.clone(), outside.stop.clone());
            let task = visits.spawn(async move { (id, inner.visit(id, is_urgent, (&draining, &stop)).await) });
            books.under_way.insert(id, task.id());
        }
    }

    /// Ends the pauses of environments whose agents connected.
    fn arrived(&self, books: &mut Books, registry: &Registry) {
        let now = Instant::now();
        let sessions = self.access.clusters().into_iter();
        let sessions = sessions.filter_map(|(id, name)| Some((id, registry.cluster(&name)?.id)));
        let came = books.arrivals.note(sessions, now.into_std());
        came.into_iter().for_each(|cluster| books.came(cluster, now));
    }

    /// Finds environments that are due without a notification.
    async fn tick(&self, books: &mut Books) {
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
                    if !books.due.contains_key(&id) && !books.under_way.contains_key(&id) {
                        books.put(id, now, false);
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
