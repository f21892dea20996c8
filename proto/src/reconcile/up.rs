//! Messages from a cluster agent to the gateway.

use bytes::Bytes;

use super::decoder::{Message, delimited};
use super::{ENTRIES_MAX, MessageError, StartProgress, name, plain};
use crate::wire;

/// Message of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCluster {
    /// First.
    Begin(Begin),
    /// Observed state of one workspace.
    Report(Box<WorkspaceReport>),
    /// Asks for a full round.
    FullRequest,
}

/// Description of the agent, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Version of the program.
    pub agent_version: String,
    /// Version of the Kubernetes API server.
    pub kubernetes_version: String,
}

/// Observed state of one workspace, whole: it replaces the report before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceReport {
    /// Counted from 1 in each conversation, whatever terms come in it.
    pub number: u64,
    /// The workspace's name.
    pub workspace: String,
    /// Namespace of its objects.
    pub namespace: String,
    /// Highest generation that was applied without a failure; 0 for none since the agent started.
    pub applied: u64,
    /// `None`: there is no Deployment.
    pub deployment: Option<Deployment>,
    /// Details of pods and events for people, the most useful first.
    pub details: Vec<ObjectDetail>,
    /// `None`: it is not being terminated.
    pub termination: Option<Termination>,
    /// `None`: the last attempt went well.
    pub failure: Option<ReconcileFailure>,
    /// `None`: no pod of it is about to start, or the agent is too old to say so.
    pub start: Option<StartProgress>,
}

/// State of a workspace's Deployment (Kubernetes API, apps/v1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// `metadata.resourceVersion`, opaque.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`: while it is lower, the rest of the status is of an earlier intent.
    pub observed_generation: i64,
    /// `spec.replicas`.
    pub replicas_wanted: u32,
    /// Pods that there are: `status.replicas`, and those on their way out too, which it leaves out.
    pub replicas: u32,
    /// `status.updatedReplicas`.
    pub updated: u32,
    /// `status.availableReplicas`.
    pub available: u32,
    /// `status.unavailableReplicas`.
    pub unavailable: u32,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

/// A condition of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `type`, such as `Progressing`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Something about an object of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectDetail {
    /// Kind and name.
    pub object: String,
    /// One word, such as `ImagePullBackOff`.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Progress of the end of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    /// Nothing is left.
    pub is_done: bool,
    /// Objects that are still there.
    pub blockers: Vec<Blocker>,
}

/// An object that is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocker {
    /// Kind and name.
    pub object: String,
    /// Finalizers that hold it.
    pub finalizers: Vec<String>,
    /// Unix seconds since which it is being deleted; 0: it is not yet.
    pub since: i64,
    /// For people.
    pub message: String,
}

/// An attempt to apply or prune went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileFailure {
    /// Origin of the failure.
    pub kind: FailureKind,
    /// The intent that it belongs to.
    pub generation: u64,
    /// For people.
    pub message: String,
}

/// Origin of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The configuration that was sent cannot be applied.
    Config,
    /// The Kubernetes API refused or failed.
    Kubernetes,
}

impl FromCluster {
    /// Encodes it with its length in front. Texts are cut to their bounds, and lists to [`ENTRIES_MAX`] entries.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::from_cluster::Body;
        let body = match self {
            Self::Begin(begin) => Body::Begin(wire::Begin {
                agent_version: plain(&begin.agent_version),
                kubernetes_version: plain(&begin.kubernetes_version),
            }),
            Self::Report(report) => Body::Report(report.to_wire()),
            Self::FullRequest => Body::FullRequest(wire::FullRequest {}),
        };
        delimited(&wire::FromCluster { body: Some(body) })
    }
}

impl Message for FromCluster {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::from_cluster::Body;
        let message: wire::FromCluster = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match message.body.ok_or(MessageError::UnknownBody)? {
            Body::Begin(begin) => Self::Begin(Begin {
                agent_version: plain(&begin.agent_version),
                kubernetes_version: plain(&begin.kubernetes_version),
            }),
            Body::Report(report) => Self::Report(Box::new(WorkspaceReport::from_wire(report)?)),
            Body::FullRequest(wire::FullRequest {}) => Self::FullRequest,
        })
    }
}

impl WorkspaceReport {
    fn to_wire(&self) -> wire::Report {
        wire::Report {
            number: self.number,
            workspace: self.workspace.clone(),
            namespace: self.namespace.clone(),
            applied: self.applied,
            deployment: self.deployment.as_ref().map(Deployment::to_wire),
            details: self.details.iter().take(ENTRIES_MAX).map(ObjectDetail::to_wire).collect(),
            termination: self.termination.as_ref().map(Termination::to_wire),
            failure: self.failure.as_ref().map(ReconcileFailure::to_wire),
            start: self.start.as_ref().map(StartProgress::to_wire),
        }
    }

    fn from_wire(report: wire::Report) -> Result<Self, MessageError> {
        if report.number == 0 {
            return Err(MessageError::Field { field: "number" });
        }
        Ok(Self {
            number: report.number,
            workspace: name(report.workspace, "workspace")?,
            namespace: name(report.namespace, "namespace")?,
            applied: report.applied,
            deployment: report.deployment.map(Deployment::from_wire),
            details: report.details.iter().take(ENTRIES_MAX).map(ObjectDetail::from_wire).collect(),
            termination: report.termination.map(Termination::from_wire),
            failure: report.failure.map(ReconcileFailure::from_wire).transpose()?,
            start: report.start.as_ref().map(StartProgress::from_wire),
        })
    }
}

impl Deployment {
    fn to_wire(&self) -> wire::Deployment {
        wire::Deployment {
            resource_version: plain(&self.resource_version),
            generation: self.generation,
            observed_generation: self.observed_generation,
            replicas_wanted: self.replicas_wanted,
            replicas: self.replicas,
            updated: self.updated,
            available: self.available,
            unavailable: self.unavailable,
            conditions: self.conditions.iter().take(ENTRIES_MAX).map(Condition::to_wire).collect(),
        }
    }

    fn from_wire(deployment: wire::Deployment) -> Self {
        Self {
            resource_version: plain(&deployment.resource_version),
            generation: deployment.generation,
            observed_generation: deployment.observed_generation,
            replicas_wanted: deployment.replicas_wanted,
            replicas: deployment.replicas,
            updated: deployment.updated,
            available: deployment.available,
            unavailable: deployment.unavailable,
            conditions: deployment.conditions.iter().take(ENTRIES_MAX).map(Condition::from_wire).collect(),
        }
    }
}

impl Condition {
    fn to_wire(&self) -> wire::Condition {
        wire::Condition {
            kind: plain(&self.kind),
            status: plain(&self.status),
            reason: plain(&self.reason),
            message: plain(&self.message),
        }
    }

    fn from_wire(condition: &wire::Condition) -> Self {
        Self {
            kind: plain(&condition.kind),
            status: plain(&condition.status),
            reason: plain(&condition.reason),
            message: plain(&condition.message),
        }
    }
}

impl ObjectDetail {
    fn to_wire(&self) -> wire::Detail {
        wire::Detail { object: plain(&self.object), reason: plain(&self.reason), message: plain(&self.message) }
    }

    fn from_wire(detail: &wire::Detail) -> Self {
        Self { object: plain(&detail.object), reason: plain(&detail.reason), message: plain(&detail.message) }
    }
}

impl Termination {
    fn to_wire(&self) -> wire::Termination {
        let blockers = self.blockers.iter().take(ENTRIES_MAX).map(Blocker::to_wire).collect();
        wire::Termination { is_done: self.is_done, blockers }
    }

    fn from_wire(termination: wire::Termination) -> Self {
        let blockers = termination.blockers.iter().take(ENTRIES_MAX).map(Blocker::from_wire).collect();
        Self { is_done: termination.is_done, blockers }
    }
}

impl Blocker {
    pub(crate) fn to_wire(&self) -> wire::Blocker {
        wire::Blocker {
            object: plain(&self.object),
            finalizers: self.finalizers.iter().take(ENTRIES_MAX).map(|text| plain(text)).collect(),
            since: self.since,
            message: plain(&self.message),
        }
    }

    pub(crate) fn from_wire(blocker: &wire::Blocker) -> Self {
        Self {
            object: plain(&blocker.object),
            finalizers: blocker.finalizers.iter().take(ENTRIES_MAX).map(|text| plain(text)).collect(),
            since: blocker.since,
            message: plain(&blocker.message),
        }
    }
}

impl ReconcileFailure {
    fn to_wire(&self) -> wire::Failure {
        let kind = match self.kind {
            FailureKind::Config => wire::FailureKind::Config,
            FailureKind::Kubernetes => wire::FailureKind::Kubernetes,
        };
        wire::Failure { kind: kind as i32, generation: self.generation, message: plain(&self.message) }
    }

    fn from_wire(failure: wire::Failure) -> Result<Self, MessageError> {
        let kind = match wire::FailureKind::try_from(failure.kind) {
            Ok(wire::FailureKind::Config) => FailureKind::Config,
            Ok(wire::FailureKind::Kubernetes) => FailureKind::Kubernetes,
            Ok(wire::FailureKind::Unknown) | Err(_) => return Err(MessageError::Field { field: "failure kind" }),
        };
        Ok(Self { kind, generation: failure.generation, message: plain(&failure.message) })
    }
}
