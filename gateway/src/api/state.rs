//! What a workspace is to be and what it is, as its owner is told.

use serde::Serialize;

use tunnel_proto::reconcile::Blocker;

use crate::model::{ActualState, UnixSeconds};
use crate::store::{Managed, WorkspaceId};
use crate::workspaces::blockers;

/// A workspace's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct StateRow {
    desired: &'static str,
    actual: &'static str,
    /// Why it is as it is.
    reason: Option<String>,
    /// Counts the changes of intent.
    generation: u64,
    /// Counts everything that was written of it.
    revision: i64,
    /// Since when it is what it is.
    since: String,
    /// Since when it is to be what it is to be.
    desired_since: String,
    /// What holds a termination up.
    blockers: Vec<BlockerRow>,
}

/// An object that is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BlockerRow {
    pub(super) object: String,
    pub(super) finalizers: Vec<String>,
    /// Since when it is being deleted.
    pub(super) since: Option<String>,
    pub(super) message: String,
}

impl From<Blocker> for BlockerRow {
    fn from(blocker: Blocker) -> Self {
        Self {
            object: blocker.object,
            finalizers: blocker.finalizers,
            since: (blocker.since > 0).then(|| UnixSeconds::new(blocker.since).to_string()),
            message: blocker.message,
        }
    }
}

impl StateRow {
    /// Takes what the store has.
    pub(super) fn new(managed: &Managed) -> Self {
        let life = &managed.lifecycle;
        let stored = managed.termination().map(blockers::from_json).unwrap_or_default();
        Self {
            desired: life.desired.as_str(),
            actual: life.actual.as_str(),
            reason: life.reason.as_deref().map(str::to_owned),
            generation: life.generation,
            revision: life.revision,
            since: life.actual_at.to_string(),
            desired_since: life.desired_at.to_string(),
            blockers: stored.into_iter().map(BlockerRow::from).collect(),
        }
    }

    /// Returns why it is as it is.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns what holds a termination up.
    pub(super) fn blockers(&self) -> &[BlockerRow] {
        &self.blockers
    }
}

#[cfg(test)]
impl StateRow {
    /// Makes one of a workspace that is to run.
    pub(super) fn for_tests(actual: ActualState, reason: Option<&str>, blockers: &[&str], revision: i64) -> Self {
        let blocker = |object: &&str| BlockerRow {
            object: (*object).to_owned(),
            finalizers: Vec::new(),
            since: None,
            message: String::new(),
        };
        Self {
            desired: "Running",
            actual: actual.as_str(),
            reason: reason.map(str::to_owned),
            generation: 1,
            revision,
            since: String::new(),
            desired_since: String::new(),
            blockers: blockers.iter().map(blocker).collect(),
        }
    }
}

/// Returns whether something went wrong that a reason explains.
pub(super) fn is_failure(actual: ActualState) -> bool {
    match actual {
        ActualState::Failed | ActualState::Error => true,
        ActualState::CreationRequested
        | ActualState::Starting
        | ActualState::Running
        | ActualState::Stopping
        | ActualState::Stopped
        | ActualState::Terminating
        | ActualState::Terminated
        | ActualState::Unknown => false,
    }
}

/// Makes the entity tag of a workspace's intent: what `If-Match` of a change is compared with. The id is in it because a name
/// can have another workspace later; what is only observed is not, because it changes under the hands of whoever asks.
pub(super) fn tag(managed: &Managed) -> String {
    tag_of(managed.workspace.id, managed.lifecycle.generation)
}

/// Like [`tag`], for one generation.
pub(super) fn tag_of(id: WorkspaceId, generation: u64) -> String {
    format!("\"{id}.{generation}\"")
}
