//! What becomes of a workspace whose CI system is not configured here any more: nobody can be asked about its job, nor to end it.
//!
//! Its run is told to end like any other, by its agent, and counts as one that has not ended: when the CI system is configured
//! again, it is cancelled there, or seen to be over, before a next one begins. So there are never two jobs of one workspace,
//! although the workspace comes to its stop meanwhile. Only the end of the workspace is the end of such a run too, and comes
//! first: were it the other way round, a gateway that knows the CI system again in between would take the job for over.

use super::on_the_way;
use crate::model::{ActualState, DesiredState, Lifecycle};
use crate::store::CiState;

/// What is done next for such a workspace, and what it is said to be before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Orphan {
    /// What it is.
    pub(in super::super) actual: ActualState,
    /// Why, for people; also why its run ends.
    pub(in super::super) reason: String,
    /// What is done.
    pub(in super::super) step: OrphanStep,
}

/// What is done next for such a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum OrphanStep {
    /// Write down that the run is to end. Then tell the agent.
    Stop,
    /// Tell the agent once more.
    Close,
    /// Write down that the run is over, which was never asked for.
    End,
    /// Look again when something happens.
    Wait,
}

/// Decides what is done next for a workspace whose CI system is not configured.
pub(in super::super) fn orphaned(life: &Lifecycle, ci: &CiState, is_up: bool) -> Orphan {
    let is_last = life.desired == DesiredState::Terminated;
    let step = match ci.live() {
        // Nobody was asked, so there is nothing.
        Some(run) if run.asked_at.is_none() => OrphanStep::End,
        Some(run) if run.stop_at.is_none() => OrphanStep::Stop,
        Some(_) if is_up => OrphanStep::Close,
        Some(_) | None => OrphanStep::Wait,
    };
    let is_done = step == OrphanStep::Wait;
    let actual = match life.desired {
        DesiredState::Running => ActualState::Error,
        DesiredState::Stopped | DesiredState::RestartRequested if is_done => ActualState::Stopped,
        DesiredState::Terminated if is_done => ActualState::Terminated,
        DesiredState::Stopped | DesiredState::RestartRequested | DesiredState::Terminated => on_the_way(life),
    };
    let was_asked = ci.run.as_ref().is_some_and(|run| run.asked_at.is_some());
    let left = match (was_asked, ci.live()) {
        (true, Some(_)) if is_last => {
            ". What it keeps of the workspace stays there, and the job itself may still run, until its own time limit"
        }
        (true, Some(_)) => ". The job itself may still run there, until its own time limit",
        (true, None) if is_last => ". What it keeps of the workspace stays there",
        (true | false, _) => "",
    };
    let reason = format!("the CI system {} is not configured here any more{left}", ci.provider);
    Orphan { actual, reason, step }
}
