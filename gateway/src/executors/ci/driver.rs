//! Looks after all workspaces in CI systems: which of them are due, and no more at a time than a bound.
//!
//! Nothing is remembered here that is needed: what is due follows from what is stored and heard, and a gateway that starts
//! looks at every workspace once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::plan::{Heard, Pace};
use super::settings::Systems;
use super::visit::{Seen, Visit};
use crate::executors::timers::Clock;
use crate::executors::timers::deadlines::Deadlines;
use crate::sessions::registry::Registry;
use crate::store::{Store, StoreError, WorkspaceId};
use crate::workspaces::changes::{Change, Changes, Heard as Told, Listener};

/// How often it is looked what is due, and whose agents came or went, which nobody tells.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is asked what other processes changed, such as the command line on the database.
const READ_INTERVAL: Duration = Duration::from_secs(3);

/// Workspaces that are looked after at a time. Each CI system has a bound of its own below this.
const VISITS_MAX: usize = 256;

/// Workspaces that are read at a time.
const PAGE: u32 = 500;

/// After what time a workspace is looked at again that could not be read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(10 * 60);

/// Looks after workspaces in CI systems.
pub struct Driver {
    pub(super) registry: Arc<Registry>,
    pub(super) store: Store,
    pub(super) changes: Changes,
    pub(super) systems: Arc<Systems>,
    pub(super) clock: Clock,
    pub(super) pace: Pace,
}

impl fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CiDriver").finish_non_exhaustive()
    }
}

/// What is remembered of a workspace between two looks at it.
#[derive(Debug, Default)]
struct Known {
    revision: i64,
    seen: Option<Seen>,
    heard: Heard,
    is_under_way: bool,
    /// Something happened while it was looked at.
    is_due_again: bool,
}

/// What is under way, and what is due when.
#[derive(Debug, Default)]
struct Books {
    known: HashMap<WorkspaceId, Known>,
    deadlines: Deadlines<WorkspaceId>,
    read_at: Option<Instant>,
}

impl Driver {
    /// Makes one.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        store: Store,
        changes: Changes,
        systems: Arc<Systems>,
        clock: Clock,
    ) -> Arc<Self> {
        Arc::new(Self { registry, store, changes, systems, clock, pace: Pace::DEFAULT })
    }

    /// Runs until `stop`, and then until what is under way has come to an end.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut books, mut visits) = (Books::default(), JoinSet::<Visit>::new());
        let mut listener = self.changes.listen();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.look(&mut books).await,
                told = listen(&mut listener) => self.note(&mut books, told),
                Some(ended) = visits.join_next() => match ended {
                    Ok(visit) => self.ended(&mut books, visit),
                    // It is read again, as after a start.
                    Err(error) => {
                        warn!(%error, "a look at a workspace in a CI system ended badly");
                        books = Books::default();
                        visits.abort_all();
                    }
                },
            }
            self.begin(&mut books, &mut visits);
        }
        while visits.join_next().await.is_some() {}
    }

    /// Looks at those that are due.
    fn begin(self: &Arc<Self>, books: &mut Books, visits: &mut JoinSet<Visit>) {
        while visits.len() < VISITS_MAX {
            let Some(id) = books.deadlines.due((self.clock)()) else { return };
            let known = books.known.entry(id).or_default();
            if known.is_under_way {
                known.is_due_again = true;
                continue;
            }
            known.is_under_way = true;
            let (driver, heard) = (self.clone(), known.heard.clone());
            visits.spawn(async move { driver.visit(id, heard).await });
        }
    }

    fn ended(&self, books: &mut Books, visit: Visit) {
        let Visit { id, seen, heard, again } = visit;
        let Some(seen) = seen else {
            books.known.remove(&id);
            books.deadlines.remove(id);
            return;
        };
        let known = books.known.entry(id).or_default();
        let is_due = std::mem::take(&mut known.is_due_again);
        known.is_under_way = false;
        (known.revision, known.heard) = (seen.revision, heard);
        known.seen = Some(seen);
        match again {
            _ if is_due => books.deadlines.put(id, (self.clock)()),
            Some(at) => books.deadlines.put(id, at),
            None => books.deadlines.remove(id),
        }
    }

    fn note(&self, books: &mut Books, told: Option<Change>) {
        match told {
            // Of clusters, others take care.
            Some(Change { cluster: Some(_), .. }) => {}
            Some(Change { workspace, cluster: None }) => books.deadlines.put(workspace, (self.clock)()),
            None => books.read_at = None,
        }
    }

    /// Finds out what has changed without a word.
    async fn look(&self, books: &mut Books) {
        let now = (self.clock)();
        for (id, known) in &books.known {
            let Some(seen) = &known.seen else { continue };
            if !known.is_under_way && self.is_up(&seen.name) != seen.is_up {
                books.deadlines.put(*id, now);
            }
        }
        if books.read_at.is_some_and(|read_at| read_at.elapsed() < READ_INTERVAL) {
            return;
        }
        match self.read(books).await {
            Ok(()) => books.read_at = Some(Instant::now()),
            Err(error) => warn!(%error, "cannot read which workspaces are in CI systems"),
        }
    }

    async fn read(&self, books: &mut Books) -> Result<(), StoreError> {
        let (now, mut after) = ((self.clock)(), None);
        loop {
            let page = self.store.ci_revisions(after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(*last);
            for (id, revision) in page {
                let is_news =
                    books.known.get(&id).is_none_or(|known| !known.is_under_way && known.revision != revision);
                if is_news {
                    books.deadlines.put(id, now);
                }
            }
        }
    }

    /// Makes the end of a visit that failed.
    pub(super) fn failed(&self, id: WorkspaceId, heard: Heard, seen: Option<Seen>, error: &StoreError) -> Visit {
        let is_of_one_row = matches!(error, StoreError::Corrupt { .. } | StoreError::Unsealable { .. });
        warn!(workspace = %id, %error, "a workspace in a CI system cannot be looked after");
        let pause = if is_of_one_row { UNREADABLE_PAUSE } else { LOOK_INTERVAL };
        Visit { id, seen: Some(seen.unwrap_or_default()), heard, again: Some((self.clock)().later(pause)) }
    }
}

async fn listen(listener: &mut Listener) -> Option<Change> {
    match listener.next().await {
        Told::Change(change) => Some(change),
        Told::Missed => None,
    }
}
