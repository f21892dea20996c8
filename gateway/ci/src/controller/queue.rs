//! Bookkeeping of the controller: known workspaces, and the queue of those that are to be reconciled.

use std::collections::HashMap;
use std::time::Duration;

use work_queue::{Completion, Requeue, RetryDelays, Runner};

use crate::plan::ObservedRun;
use crate::reconcile::{CiReconcileOutcome, EndedReconcile, VisitState};
use gateway_store::{StoreError, WorkspaceId};
use gateway_types::{UnixSeconds, WorkspaceName};

/// Pauses of a workspace that cannot be read, or whose reconciles do not return a result: more tries change nothing.
const OF_ONE: RetryDelays = RetryDelays { first: Duration::from_secs(1), max: Duration::from_secs(10 * 60) };

/// Pauses while the store does not answer.
const OF_STORE: RetryDelays = RetryDelays { max: Duration::from_secs(30), ..OF_ONE };

/// Part of each pause to wait for: all of it, since times are in whole seconds.
const WHOLE: f64 = 1.0;

/// State of a workspace that is kept between two reconciles.
#[derive(Debug, Default)]
struct KnownWorkspace {
    /// State at the last reconcile that did not fail.
    seen: Option<VisitState>,
    /// Revision for which a reconcile was last scheduled.
    listed: Option<i64>,
    heard: ObservedRun,
    /// Last logged failure, while reconciles fail: nothing is logged twice.
    logged: Option<Logged>,
}

/// A failure in the log.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    why: String,
    revision: Option<i64>,
}

/// A failed reconcile.
#[derive(Debug)]
struct FailedVisit {
    heard: ObservedRun,
    seen: Option<VisitState>,
    why: String,
    delays: RetryDelays,
}

/// Known workspaces, and those that are reconciled or due.
#[derive(Debug, Default)]
pub(super) struct ReconcileQueue {
    known: HashMap<WorkspaceId, KnownWorkspace>,
    pub(super) runner: Runner<WorkspaceId, UnixSeconds, EndedReconcile>,
}

impl ReconcileQueue {
    /// Adds a workspace that is to be reconciled.
    pub(super) fn add(&mut self, id: WorkspaceId, now: UnixSeconds) {
        self.runner.queue.add(id, now);
    }

    /// Adds workspaces whose agent connected or disconnected.
    pub(super) fn add_changed(&mut self, is_up: impl Fn(&WorkspaceName) -> bool, now: UnixSeconds) {
        for (id, known) in &self.known {
            let Some(seen) = &known.seen else { continue };
            if !self.runner.queue.is_in_flight(id) && is_up(&seen.name) != seen.is_up {
                self.runner.queue.add(*id, now);
            }
        }
    }

    /// Adds workspaces with a new revision. One that cannot be read is reconciled at once only once per revision.
    pub(super) fn list(&mut self, page: Vec<(WorkspaceId, i64)>, now: UnixSeconds) {
        for (id, revision) in page {
            let known = self.known.entry(id).or_default();
            let was_seen = known.seen.as_ref().is_some_and(|seen| seen.revision == revision);
            // A reconcile under way may have read an earlier one.
            if self.runner.queue.is_in_flight(&id) || was_seen || known.listed == Some(revision) {
                continue;
            }
            known.listed = Some(revision);
            self.runner.queue.add(id, now);
        }
    }

    /// Starts reconciles to workspaces that are due, with their observed state.
    pub(super) fn start<F>(
        &mut self,
        now: UnixSeconds,
        in_flight_max: usize,
        visit: impl Fn(WorkspaceId, ObservedRun) -> F,
    ) where
        F: Future<Output = EndedReconcile> + Send + 'static,
    {
        let known = &mut self.known;
        self.runner.start(now, in_flight_max, |id| visit(id, known.entry(id).or_default().heard.clone()));
    }

    /// Settles a reconcile that has ended. Returns the failure to log: each one once, until it changes.
    pub(super) fn settle(
        &mut self,
        Completion { key: id, result }: Completion<WorkspaceId, EndedReconcile>,
        now: UnixSeconds,
    ) -> Option<(WorkspaceId, String)> {
        let queue = &mut self.runner.queue;
        let failed = match result {
            Ok(EndedReconcile { outcome: CiReconcileOutcome::Nothing, .. }) => {
                self.known.remove(&id);
                queue.remove(&id);
                queue.finish(id, Requeue::AwaitAdd);
                return None;
            }
            Ok(EndedReconcile { outcome: CiReconcileOutcome::Done { seen, again }, heard }) => {
                let known = self.known.entry(id).or_default();
                (known.heard, known.seen, known.logged) = (heard, Some(seen), None);
                queue.forget(&id);
                queue.finish(id, again.map_or(Requeue::AwaitAdd, Requeue::At));
                return None;
            }
            Ok(EndedReconcile { outcome: CiReconcileOutcome::Failed { seen, error }, heard }) => {
                let is_of_one = matches!(error, StoreError::Corrupt { .. } | StoreError::Unsealable { .. });
                let delays = if is_of_one { OF_ONE } else { OF_STORE };
                FailedVisit { heard, seen, why: error.to_string(), delays }
            }
            // A panic of one reconcile leaves all others running. The observed state of its workspace is queried anew.
            Err(_panic) => {
                let why = "a look at it ended badly, which is a mistake of the gateway's".to_owned();
                FailedVisit { heard: ObservedRun::default(), seen: None, why, delays: OF_ONE }
            }
        };
        queue.retry(id, |failures| now.later(failed.delays.after(failures, WHOLE)));
        self.note(id, failed).map(|why| (id, why))
    }

    /// Notes a failed reconcile. Returns the reason if it is to be logged.
    fn note(&mut self, id: WorkspaceId, failed: FailedVisit) -> Option<String> {
        let known = self.known.entry(id).or_default();
        (known.heard, known.seen) = (failed.heard, failed.seen);
        let logged = Logged { why: failed.why, revision: known.listed };
        if known.logged.as_ref() == Some(&logged) {
            return None;
        }
        Some(known.logged.insert(logged).why.clone())
    }
}

#[cfg(test)]
mod tests;
