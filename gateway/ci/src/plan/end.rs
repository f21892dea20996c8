//! Judges a run that is over: whether it ended as intended, and whether its files were saved.

use std::time::Duration;

use super::PlanInput;
use crate::provider::RunState;
use gateway_store::{CiRun, CiState};
use gateway_types::DesiredState;

/// GitLab's word for a job whose time was over.
const TIMED_OUT: &str = "job_execution_timeout";

/// GitLab's word for a script that failed, or was ended by its runner.
const SCRIPT_FAILED: &str = "script_failure";

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Ending {
    /// Ended as intended.
    Well,
    /// Ended as intended, but before its files were saved: no failure of the job's, but its owner must be told.
    Unsaved(String),
    /// Ended although it was to go on, or was ended for this reason.
    Failed(String),
}

/// Returns the notice about the last run, if it ended before its files were saved.
pub(super) fn lost(ci: &CiState) -> Option<String> {
    // Failures were counted, and are reported elsewhere.
    let run = ci.run.as_ref().filter(|run| ci.failures == 0 && run.ended_at.is_some())?;
    run.failure.as_deref().map(|note| format!("It is stopped, but {note}"))
}

/// Returns the outcome of a run.
pub(super) fn ending(view: &PlanInput<'_>, run: &CiRun, state: RunState) -> Ending {
    let PlanInput { life, heard, time, now, .. } = *view;
    let failure = heard.failure.as_deref();
    let is_past = |after: Duration| run.started_at.is_some_and(|started_at| started_at.later(after) <= now);
    // Without an agent that ever connected, the end of its time would be no explanation.
    let is_renewal = run.up_at.is_some() && is_past(time.renew());
    let is_timed_out = state == RunState::Failed && failure == Some(TIMED_OUT);
    let is_killed = state == RunState::Failed && failure == Some(SCRIPT_FAILED) && is_past(time.script_kill());
    let is_kept = run.up_at.is_some() && life.desired != DesiredState::Terminated;
    match (run.stop_at, &run.failure) {
        (Some(_), Some(failure)) => Ending::Failed(failure.to_string()),
        (Some(_), None) if is_kept && (is_timed_out || state == RunState::Cancelled && run.cancel_at.is_some()) => {
            Ending::Unsaved(unsaved_since(run))
        }
        (Some(_), None) => Ending::Well,
        // It was not told to end: it watched its time limit itself, or its runner did, which keeps the files of a
        // script that it ends.
        (None, _) if is_renewal && (state == RunState::Succeeded || is_killed) => Ending::Well,
        (None, _) if is_renewal && is_timed_out => Ending::Unsaved(unsaved_since(run)),
        (None, _) => Ending::Failed(unwanted_end(state, failure)),
    }
}

fn unsaved_since(run: &CiRun) -> String {
    let since = run.started_at.unwrap_or(run.intended_at);
    format!("the last job was cut before its files were saved; what was changed since {since} may be lost")
}

/// Describes the end of a run that was to go on.
fn unwanted_end(state: RunState, failure: Option<&str>) -> String {
    let why = failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
    match state {
        RunState::Failed => format!("the job failed{why}"),
        RunState::Cancelled => format!("the job was cancelled in the CI system{why}"),
        RunState::Gone => "the CI system does not know the pipeline any more".to_owned(),
        RunState::Succeeded | RunState::Pending | RunState::Running => format!("the job ended by itself{why}"),
    }
}
