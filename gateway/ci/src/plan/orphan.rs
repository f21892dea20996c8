//! Decides for a workspace whose CI system is no longer configured: its job can neither be queried nor cancelled.
//!
//! Its run is told to end like any other, by its agent, and counts as one that has not ended: once the CI system is
//! configured again, the run is cancelled there, or seen to be over, before a next one begins. So there are never two
//! jobs of one workspace, although the workspace reaches its stop meanwhile. Such a run ends only with its workspace,
//! and the workspace ends first: in the other order, a gateway that knows the CI system again in between would take the
//! job for over.

use super::on_the_way;
use gateway_store::CiState;
use gateway_types::{ActualState, DesiredState, Lifecycle};

/// Next step of such a workspace, and the state to report before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Orphan {
    /// State of the workspace.
    pub(in super::super) actual: ActualState,
    /// Reason, for people; also the reason for its run to end.
    pub(in super::super) reason: String,
    /// Next step.
    pub(in super::super) step: OrphanStep,
}

/// Next step of such a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum OrphanStep {
    /// Store that the run is to end. Then tell the agent.
    Stop,
    /// Tell the agent once more.
    Close,
    /// Store that a run which was never asked for is over.
    End,
    /// Reconcile again once something happens.
    Wait,
}

/// Decides the next step of a workspace whose CI system is not configured.
pub(in super::super) fn orphaned(life: &Lifecycle, ci: &CiState, is_up: bool) -> Orphan {
    let is_last = life.desired == DesiredState::Terminated;
    let step = match ci.live() {
        // The run was never asked for, so there is nothing to end.
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
