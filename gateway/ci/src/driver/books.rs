//! Bookkeeping of the driver: known workspaces, visits under way, and the times at which visits are due.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinError};

use crate::plan::Heard;
use crate::visit::{Outcome, Seen, Visit};
use gateway_store::{StoreError, WorkspaceId};
use gateway_types::{UnixSeconds, WorkspaceName};
use gateway_workspaces::timers::deadlines::Deadlines;

/// Pause after a visit that failed, doubled with each further failure.
const PAUSE_FIRST: Duration = Duration::from_secs(1);

/// Longest such pause of a workspace that cannot be read, or whose visits do not return a result: more tries change
/// nothing.
const PAUSE_OF_ONE_MAX: Duration = Duration::from_secs(10 * 60);

/// Longest such pause while the store does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// State of a workspace that is kept between two visits.
#[derive(Debug, Default)]
struct Known {
    /// State at the last visit that did not fail.
    seen: Option<Seen>,
    /// Revision for which a visit was last scheduled.
    listed: Option<i64>,
    heard: Heard,
    is_under_way: bool,
    /// The workspace became due during the visit under way.
    is_due_again: bool,
    failing: Option<Failing>,
}

/// Failed visits in a row.
#[derive(Debug)]
struct Failing {
    count: u32,
    /// Reason and revision of the last logged failure: nothing is logged twice.
    said: (String, Option<i64>),
}

/// Visits under way and due.
#[derive(Debug, Default)]
pub(super) struct Books {
    known: HashMap<WorkspaceId, Known>,
    deadlines: Deadlines<WorkspaceId>,
    /// Workspaces of the visiting tasks.
    tasks: HashMap<Id, WorkspaceId>,
}

impl Books {
    /// Schedules a visit to a workspace.
    pub(super) fn put(&mut self, id: WorkspaceId, at: UnixSeconds) {
        self.deadlines.put(id, at);
    }

    /// Schedules visits to workspaces whose agent connected or disconnected.
    pub(super) fn put_changed(&mut self, is_up: impl Fn(&WorkspaceName) -> bool, now: UnixSeconds) {
        for (id, known) in &self.known {
            let Some(seen) = known.seen.as_ref().filter(|_| !known.is_under_way) else { continue };
            if is_up(&seen.name) != seen.is_up {
                self.deadlines.put(*id, now);
            }
        }
    }

    /// Schedules visits to workspaces with a new revision. One that cannot be read is visited at once only once per
    /// revision.
    pub(super) fn list(&mut self, page: Vec<(WorkspaceId, i64)>, now: UnixSeconds) {
        for (id, revision) in page {
            let known = self.known.entry(id).or_default();
            let was_seen = known.seen.as_ref().is_some_and(|seen| seen.revision == revision);
            // A visit under way may have read an earlier one.
            if known.is_under_way || was_seen || known.listed == Some(revision) {
                continue;
            }
            known.listed = Some(revision);
            self.deadlines.put(id, now);
        }
    }

    /// Takes the next workspace that is due, with its observed state.
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

    /// Notes the task that visits a workspace.
    pub(super) fn begun(&mut self, task: Id, id: WorkspaceId) {
        self.tasks.insert(task, id);
    }

    /// Takes in the end of a visit. Returns the failure to log: each one once, until it changes.
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
            // A panic of one visit leaves all others running. The observed state of its workspace is queried anew.
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
