//! Desired and actual state of a workspace, as its owner is told.

use serde::Serialize;
use utoipa::ToSchema;

use tunnel_proto::reconcile::Blocker;

use super::openapi::values;
use gateway_store::{ManagedWorkspace, WorkspaceId};
use gateway_types::blockers;
use gateway_types::{ActualState, UnixSeconds};
use gateway_workspaces::starts::{StartRow, steps};

/// State of a managed workspace; for the owner only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WorkspaceState)]
pub(super) struct StateRow {
    #[schema(schema_with = values::desired)]
    desired: &'static str,
    #[schema(schema_with = values::actual)]
    actual: &'static str,
    /// Reason of the state, for people.
    #[schema(required)]
    reason: Option<String>,
    /// Counts the changes of intent.
    generation: u64,
    /// Counts everything that was written of it.
    revision: i64,
    /// Time of the last change of the observed state.
    #[schema(format = DateTime)]
    since: String,
    /// Time of the last change of the desired state.
    #[schema(format = DateTime)]
    desired_since: String,
    /// Objects that hold a termination up.
    blockers: Vec<BlockerRow>,
    /// Steps of the start, while it is about to run.
    start: Vec<StepRow>,
}

// An object that is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Blocker)]
pub(super) struct BlockerRow {
    /// Kind and name.
    pub(super) object: String,
    pub(super) finalizers: Vec<String>,
    /// Since when it is being deleted; null if it is not yet.
    #[schema(required, format = DateTime)]
    pub(super) since: Option<String>,
    pub(super) message: String,
}

/// A step of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StartStep)]
pub(super) struct StepRow {
    #[schema(schema_with = values::start_step)]
    step: &'static str,
    #[schema(schema_with = values::start_status)]
    status: &'static str,
    /// What is so once it is done, for people.
    text: &'static str,
}

impl From<StartRow> for StepRow {
    fn from(StartRow { step, status, text }: StartRow) -> Self {
        Self { step, status, text }
    }
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
    /// Makes one from the store's record.
    pub(super) fn new(managed: &ManagedWorkspace) -> Self {
        let life = &managed.lifecycle;
        let stored = managed.termination().map(blockers::from_json).unwrap_or_default();
        Self {
            desired: life.desired.as_str(),
            actual: life.actual.as_str(),
            reason: life.reason.as_deref().map(str::to_owned).or_else(|| managed.idle.stop_reason(life)),
            generation: life.generation,
            revision: life.revision,
            since: life.actual_at.to_string(),
            desired_since: life.desired_at.to_string(),
            blockers: stored.into_iter().map(BlockerRow::from).collect(),
            start: steps(managed).into_iter().map(StepRow::from).collect(),
        }
    }

    /// Returns the reason of the actual state.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the objects that hold a termination up.
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
            start: Vec::new(),
        }
    }
}

/// Returns whether a state is a failure that a reason explains.
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

/// Makes the entity tag of a workspace's intent, which is compared with `If-Match` of a change. The id is in it because
/// a name can have another workspace later; observed state is not, because it changes between a client's read and
/// write.
pub(super) fn tag(managed: &ManagedWorkspace) -> String {
    tag_of(managed.workspace.id, managed.lifecycle.generation)
}

/// Like [`tag`], for one generation.
pub(super) fn tag_of(id: WorkspaceId, generation: u64) -> String {
    format!("\"{id}.{generation}\"")
}
