//! Changes of a workspace that its page waits for.

use gateway_store::ManagedWorkspace;
use gateway_types::{ActualState, DesiredState};

/// Returns whether a request to the workspace would reach it.
pub(super) fn is_usable(managed: &ManagedWorkspace, connected: bool) -> bool {
    let life = &managed.lifecycle;
    life.desired == DesiredState::Running && life.actual == ActualState::Running && connected
}

/// Returns whether its state is about to change.
pub(super) fn is_under_way(managed: &ManagedWorkspace, connected: bool) -> bool {
    let life = &managed.lifecycle;
    let went_wrong = match life.actual {
        ActualState::Failed | ActualState::Error => true,
        ActualState::CreationRequested
        | ActualState::Starting
        | ActualState::Running
        | ActualState::Stopping
        | ActualState::Stopped
        | ActualState::Terminating
        | ActualState::Terminated
        | ActualState::Unknown => false,
    };
    let waits_for_agent = life.desired == DesiredState::Running && !connected;
    !went_wrong && (!life.is_settled() || waits_for_agent)
}
