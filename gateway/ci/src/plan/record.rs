//! Transitions of a run's stored state, before and after each step.

use super::{ObservedRun, RunTimeouts};
use crate::provider::RunStatus;
use gateway_store::{CiRun, CiState};
use gateway_types::UnixSeconds;

/// Records that the CI system is asked for the run now.
pub(in super::super) fn asked(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.asked_at = Some(now))
}

/// Records the CI system's report of the run: its ids, and the start of its job.
pub(in super::super) fn known(ci: &CiState, status: &RunStatus) -> CiState {
    with_run(ci, |run| {
        run.pipeline = Some(status.run.id.as_str().into());
        run.child = status.run.child.as_deref().map(Box::from).or(run.child.take());
        run.web_url = status.web_url.as_deref().map(Box::from).or(run.web_url.take());
        run.started_at = run.started_at.or(status.job.as_ref().and_then(|job| job.started_at));
    })
}

/// Records the CI system's ids of the run.
pub(in super::super) fn named(ci: &CiState, pipeline: &str, child: Option<&str>) -> CiState {
    with_run(ci, |run| {
        run.pipeline = Some(pipeline.into());
        run.child = child.map(Box::from);
    })
}

/// Records that the run was not made, and never will be.
pub(in super::super) fn unmade_for_good(
    ci: &CiState,
    heard: &ObservedRun,
    pace: &RunTimeouts,
    now: UnixSeconds,
) -> CiState {
    ended(ci, heard.refused.as_deref().map(impossible).as_deref(), pace, now)
}

/// Describes why there is no run.
pub(in super::super) fn impossible(why: &str) -> String {
    format!("the job cannot be made: {why}")
}

/// Records that the agent connected.
pub(in super::super) fn up(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.up_at = Some(now))
}

/// Records that the run is to end.
pub(in super::super) fn stopping(ci: &CiState, failure: Option<&str>, now: UnixSeconds) -> CiState {
    with_run(ci, |run| {
        run.stop_at = Some(now);
        run.failure = failure.map(Box::from);
    })
}

/// Records that the CI system is asked to end the run now.
pub(in super::super) fn cancelling(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.cancel_at = Some(now))
}

/// Records that the run is over without its files being saved. The next may begin at once.
pub(in super::super) fn unsaved(ci: &CiState, note: &str, now: UnixSeconds) -> CiState {
    let ended = with_run(ci, |run| {
        run.ended_at = Some(now);
        run.failure = Some(note.into());
    });
    CiState { failures: 0, retry_at: None, ..ended }
}

/// Records that the run is over, and the earliest time of the next.
pub(in super::super) fn ended(ci: &CiState, failure: Option<&str>, pace: &RunTimeouts, now: UnixSeconds) -> CiState {
    let was_healthy = ci.run.as_ref().and_then(|run| run.up_at).is_some_and(|up_at| up_at.later(pace.healthy) <= now);
    let mut next = with_run(ci, |run| {
        run.ended_at = Some(now);
        run.failure = failure.map(Box::from);
    });
    next.failures = match failure {
        None => 0,
        Some(_) if was_healthy => 1,
        Some(_) => ci.failures.saturating_add(1),
    };
    next.retry_at = failure.map(|_| now.later(pace.retry(next.failures)));
    next
}

fn with_run(ci: &CiState, change: impl FnOnce(&mut CiRun)) -> CiState {
    let mut next = ci.clone();
    if let Some(run) = next.run.as_mut() {
        change(run);
    }
    next
}
