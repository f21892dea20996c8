//! What the driver remembers: which workspaces there are, what is under way, and what is due when.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinError};

use crate::executors::ci::plan::Heard;
use crate::executors::ci::visit::{Outcome, Seen, Visit};
use crate::executors::timers::deadlines::Deadlines;
use crate::model::{UnixSeconds, WorkspaceName};
use crate::store::{StoreError, WorkspaceId};

/// Between a look that failed and the next one, doubled with each that fails too.
const PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The longest of these for a workspace that cannot be read, or that no look comes to an end with: more of them change nothing.
const PAUSE_OF_ONE_MAX: Duration = Duration::from_secs(10 * 60);

/// The longest of these while the store does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is remembered of a workspace between two looks at it.
#[derive(Debug, Default)]
struct Known {
    /// What was there at the last look that did not fail.
    seen: Option<Seen>,
    /// The revision for which a look was asked last.
    listed: Option<i64>,
    heard: Heard,
    is_under_way: bool,
    /// Something happened while it was looked at.
    is_due_again: bool,
    failing: Option<Failing>,
}

/// Looks that failed, in a row.
#[derive(Debug)]
struct Failing {
    count: u32,
    /// Why, and with which revision: nothing is said twice.
    said: (String, Option<i64>),
}

/// What is under way, and what is due when.
#[derive(Debug, Default)]
pub(super) struct Books {
    known: HashMap<WorkspaceId, Known>,
    deadlines: Deadlines<WorkspaceId>,
    /// Which look is whose.
    tasks: HashMap<Id, WorkspaceId>,
}

impl Books {
    /// Has a workspace looked at then.
    pub(super) fn put(&mut self, id: WorkspaceId, at: UnixSeconds) {
        self.deadlines.put(id, at);
    }

    /// Has those looked at whose agent came or went.
    pub(super) fn put_changed(&mut self, is_up: impl Fn(&WorkspaceName) -> bool, now: UnixSeconds) {
        for (id, known) in &self.known {
            let Some(seen) = known.seen.as_ref().filter(|_| !known.is_under_way) else { continue };
            if is_up(&seen.name) != seen.is_up {
                self.deadlines.put(*id, now);
            }
        }
    }

    /// Has those looked at that were not seen in the revision that they have. One that cannot be read is looked at once for each.
    pub(super) fn list(&mut self, page: Vec<(WorkspaceId, i64)>, now: UnixSeconds) {
        for (id, revision) in page {
            let known = self.known.entry(id).or_default();
            let was_seen = known.seen.as_ref().is_some_and(|seen| seen.revision == revision);
            // A look that is under way may have read an earlier one.
            if known.is_under_way || was_seen || known.listed == Some(revision) {
                continue;
            }
            known.listed = Some(revision);
            self.deadlines.put(id, now);
        }
    }

    /// Takes the next workspace that is to be looked at by now, with what was heard of it.
    pub(super) fn next(&mut self, now: UnixSeconds) -> Option<(WorkspaceId, Heard)> {
        while let Some(id) = self.deadlines.due(now) {
            let known = self.known.entry(id).or_default();
            if known.is_under_way {
                known.is_due_again = true;
                continue;
            }
            known.is_under_way = true;
            return Some((id, known.heard.clone()));
        }
        None
    }

    /// Notes which task looks at a workspace.
    pub(super) fn begun(&mut self, task: Id, id: WorkspaceId) {
        self.tasks.insert(task, id);
    }

    /// Takes in how a look ended. Returns what has to be said of it: each thing once, until it changes.
    pub(super) fn ended(
        &mut self,
        ended: Result<(Id, Visit), JoinError>,
        now: UnixSeconds,
    ) -> Option<(WorkspaceId, String)> {
        match ended {
            Ok((task, visit)) => {
                self.tasks.remove(&task);
                self.done(visit, now)
            }
            // Of one workspace: all others go on. It is asked anew what there is to hear of it.
            Err(error) => {
                let id = self.tasks.remove(&error.id())?;
                let why = "a look at it ended badly, which is a mistake of the gateway's".to_owned();
                self.failed(id, (Heard::default(), None), (why, PAUSE_OF_ONE_MAX), now)
            }
        }
    }

    fn done(&mut self, visit: Visit, now: UnixSeconds) -> Option<(WorkspaceId, String)> {
        let Visit { id, heard, outcome } = visit;
        let (seen, again) = match outcome {
            Outcome::Nothing => {
                self.known.remove(&id);
                self.deadlines.remove(id);
                return None;
            }
            Outcome::Failed { seen, error } => {
                let is_of_one = matches!(error, StoreError::Corrupt { .. } | StoreError::Unsealable { .. });
                let pause_max = if is_of_one { PAUSE_OF_ONE_MAX } else { PAUSE_MAX };
                return self.failed(id, (heard, seen), (error.to_string(), pause_max), now);
            }
            Outcome::Done { seen, again } => (seen, again),
        };
        self.known.entry(id).or_default().failing = None;
        self.settle(id, (heard, Some(seen)), again, now);
        None
    }

    fn failed(
        &mut self,
        id: WorkspaceId,
        (heard, seen): (Heard, Option<Seen>),
        (why, pause_max): (String, Duration),
        now: UnixSeconds,
    ) -> Option<(WorkspaceId, String)> {
        let known = self.known.entry(id).or_default();
        let said = (why, known.listed);
        let before = known.failing.take();
        let count = before.as_ref().map_or(0, |before| before.count);
        let is_news = before.is_none_or(|before| before.said != said);
        let text = is_news.then(|| said.0.clone());
        known.failing = Some(Failing { count: count.saturating_add(1), said });
        let factor = 1_u32.checked_shl(count).unwrap_or(u32::MAX);
        let again = now.later(PAUSE_FIRST.saturating_mul(factor).min(pause_max));
        self.settle(id, (heard, seen), Some(again), now);
        text.map(|text| (id, text))
    }

    fn settle(
        &mut self,
        id: WorkspaceId,
        (heard, seen): (Heard, Option<Seen>),
        again: Option<UnixSeconds>,
        now: UnixSeconds,
    ) {
        let known = self.known.entry(id).or_default();
        (known.heard, known.seen, known.is_under_way) = (heard, seen, false);
        let is_due_again = std::mem::take(&mut known.is_due_again);
        match again {
            _ if is_due_again => self.deadlines.put(id, now),
            Some(at) => self.deadlines.put(id, at),
            None => self.deadlines.remove(id),
        }
    }
}

#[cfg(test)]
mod tests;
