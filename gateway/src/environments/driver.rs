//! Looks after all environments of which something is to be made or removed: which of them are due, and no more at a time
//! than a bound.
//!
//! Nothing is remembered here that is needed: what is due follows from what is stored, so a gateway that starts goes on where
//! the one before was.

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
use crate::model::UnixSeconds;
use crate::sessions::registry::Registry;
use crate::store::{ClusterId, EnvironmentId};

/// How often it is looked what is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the store is asked what other processes changed.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// How often what ended long ago is forgotten, and what that is.
const FORGET_INTERVAL: Duration = Duration::from_secs(60 * 60);
const FORGET_AFTER: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Environments that are looked after at a time, besides those whose agents are called: these have a bound for each cluster
/// (`seats`), and however slow many clusters are, the others are looked after.
const VISITS_MAX: usize = 128;

/// Whom to look after at once, because somebody wishes something.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    waiting: Mutex<BTreeMap<EnvironmentId, bool>>,
    some: Notify,
}

impl Wakes {
    /// Has an environment looked after, whatever it pauses for.
    pub(super) fn wake(&self, id: EnvironmentId) {
        self.waiting.lock().insert(id, true);
        self.some.notify_one();
    }

    /// Has environments looked after whose turn it is. A pause that they are in goes on.
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

/// When to look, and whether that ends a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: Instant,
    is_urgent: bool,
}

/// What is under way, and what is due when.
#[derive(Debug, Default)]
struct Books {
    due: BTreeMap<EnvironmentId, Due>,
    under_way: HashMap<EnvironmentId, Id>,
    /// Whose they are, of those that were looked at.
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

    /// Has what waits for a cluster's agent tried at once, and what is under way once more: that agent may not be the one
    /// that it asks. One that was never looked at is taken for the cluster's.
    fn came(&mut self, cluster: ClusterId, now: Instant) {
        let all: BTreeSet<EnvironmentId> = self.due.keys().chain(self.under_way.keys()).copied().collect();
        let is_its = |id: &EnvironmentId| self.clusters.get(id).is_none_or(|of| *of == cluster);
        let waiting: Vec<EnvironmentId> = all.into_iter().filter(is_its).collect();
        waiting.into_iter().for_each(|id| self.put(id, now, true));
    }

    /// Takes out those to look at now, those that wait longest first.
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

    /// Notes that a visit ended. One that panicked is looked at again, as after a start.
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

/// Returns when a time of the wall clock is: never later than after the longest pause, whatever was done to that clock.
fn instant_of(at: UnixSeconds, (now, wall): (Instant, UnixSeconds)) -> Instant {
    let seconds = u64::try_from(at.get().saturating_sub(wall.get())).unwrap_or_default();
    now + Duration::from_secs(seconds.min(REMOVE_PAUSE_MAX))
}

type Ended = (EnvironmentId, Visit);

/// Tells what happens outside.
pub(super) struct Outside {
    /// The agents that have a session.
    pub(super) registry: Arc<Registry>,
    /// Agents came.
    pub(super) arrivals: watch::Receiver<u64>,
    /// Configurations of clusters changed.
    pub(super) configs: watch::Receiver<u64>,
    /// Nothing new is begun any more.
    pub(super) draining: CancellationToken,
    /// What is under way ends too.
    pub(super) stop: CancellationToken,
}

impl Inner {
    /// Runs until nothing is to be begun any more, and then until what is under way has ended.
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

    /// Ends the pauses of what waits for agents that came.
    fn arrived(&self, books: &mut Books, registry: &Registry) {
        let now = Instant::now();
        let sessions = self.access.clusters().into_iter();
        let sessions = sessions.filter_map(|(id, name)| Some((id, registry.cluster(&name)?.id)));
        let came = books.arrivals.note(sessions, now.into_std());
        came.into_iter().for_each(|cluster| books.came(cluster, now));
    }

    /// Finds out what is due without a word.
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

/// Returns how many more environments may be looked after, of how many are already, and of how many of these an agent is called.
fn room(visits: usize, called: usize) -> usize {
    VISITS_MAX.saturating_sub(visits.saturating_sub(called))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
