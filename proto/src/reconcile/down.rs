//! Messages from the gateway to a cluster agent.

use bytes::Bytes;

use super::decoder::{Message, delimited};
use super::{MessageError, PULL_SECRETS_MAX, name};
use crate::state::{ActualState, DesiredState};
use crate::wire;

/// Message of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCluster {
    /// First, and again when it changes: nothing is done in the cluster before.
    Terms(Terms),
    /// Desired state of one workspace.
    Intent(Intent),
    /// Every workspace of this agent was named in the round.
    RoundEnd {
        /// The round, counted from 1.
        round: u64,
        /// Number of workspaces that were named.
        workspaces: u32,
    },
    /// All reports up to this number are stored.
    Noted {
        /// Number of the last one.
        number: u64,
    },
}

/// Terms of the agent's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Name of the cluster agent, as in the label of its workspaces' objects.
    pub cluster: String,
    /// Namespaces of workspaces.
    pub namespaces: NamespaceMode,
}

/// Namespaces of workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceMode {
    /// Each workspace has a namespace, which the agent makes and deletes.
    Unique,
    /// All are in this one, which has another owner: it is neither made nor deleted.
    Shared(String),
}

/// Desired state of one workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Its name.
    pub workspace: String,
    /// Namespace of its objects.
    pub namespace: String,
    /// Counts the changes of intent; a lower one than was seen is ignored.
    pub generation: u64,
    /// Its desired state.
    pub desired: DesiredState,
    /// Its state as the gateway has it: Terminated lets the agent forget it.
    pub actual: ActualState,
    /// The full round that this belongs to; 0 for none.
    pub round: u64,
    /// A JSON array of Kubernetes objects in the order to apply them: each inventory with all that it owns, or alone to
    /// terminate. Empty: nothing to apply.
    pub config: Bytes,
    /// Secrets to be copied into the namespace.
    pub pull_secrets: Vec<SecretRef>,
}

/// A Secret of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl ToCluster {
    /// Encodes it with its length in front.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::to_cluster::Body;
        let body = match self {
            Self::Terms(terms) => Body::Terms(terms.to_wire()),
            Self::Intent(intent) => Body::Intent(intent.to_wire()),
            Self::RoundEnd { round, workspaces } => {
                Body::RoundEnd(wire::RoundEnd { round: *round, workspaces: *workspaces })
            }
            Self::Noted { number } => Body::Noted(wire::Noted { number: *number }),
        };
        delimited(&wire::ToCluster { body: Some(body) })
    }
}

impl Message for ToCluster {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::to_cluster::Body;
        let message: wire::ToCluster = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match message.body.ok_or(MessageError::UnknownBody)? {
            Body::Terms(terms) => Self::Terms(Terms::from_wire(terms)?),
            Body::Intent(intent) => Self::Intent(Intent::from_wire(intent)?),
            Body::RoundEnd(end) => Self::RoundEnd { round: end.round, workspaces: end.workspaces },
            Body::Noted(noted) => Self::Noted { number: noted.number },
        })
    }
}

impl Terms {
    fn to_wire(&self) -> wire::Terms {
        let (mode, shared_namespace) = match &self.namespaces {
            NamespaceMode::Unique => (wire::NamespaceMode::Unique, String::new()),
            NamespaceMode::Shared(namespace) => (wire::NamespaceMode::Shared, namespace.clone()),
        };
        wire::Terms { cluster: self.cluster.clone(), namespace_mode: mode as i32, shared_namespace }
    }

    fn from_wire(terms: wire::Terms) -> Result<Self, MessageError> {
        let namespaces = match wire::NamespaceMode::try_from(terms.namespace_mode) {
            Ok(wire::NamespaceMode::Unique) => NamespaceMode::Unique,
            Ok(wire::NamespaceMode::Shared) => NamespaceMode::Shared(name(terms.shared_namespace, "shared_namespace")?),
            Ok(wire::NamespaceMode::Unknown) | Err(_) => return Err(MessageError::Field { field: "namespace_mode" }),
        };
        Ok(Self { cluster: name(terms.cluster, "cluster")?, namespaces })
    }
}

impl Intent {
    fn to_wire(&self) -> wire::Intent {
        let secret =
            |secret: &SecretRef| wire::SecretRef { name: secret.name.clone(), namespace: secret.namespace.clone() };
        wire::Intent {
            workspace: self.workspace.clone(),
            namespace: self.namespace.clone(),
            generation: self.generation,
            desired: self.desired.to_wire(),
            actual: self.actual.to_wire(),
            round: self.round,
            config: self.config.clone(),
            pull_secrets: self.pull_secrets.iter().map(secret).collect(),
        }
    }

    fn from_wire(intent: wire::Intent) -> Result<Self, MessageError> {
        if intent.pull_secrets.len() > PULL_SECRETS_MAX {
            return Err(MessageError::Field { field: "pull_secrets" });
        }
        let secret = |secret: wire::SecretRef| {
            Ok(SecretRef { name: name(secret.name, "secret")?, namespace: name(secret.namespace, "secret namespace")? })
        };
        Ok(Self {
            workspace: name(intent.workspace, "workspace")?,
            namespace: name(intent.namespace, "namespace")?,
            generation: intent.generation,
            desired: DesiredState::from_wire(intent.desired).ok_or(MessageError::Field { field: "desired" })?,
            actual: ActualState::from_wire(intent.actual),
            round: intent.round,
            config: intent.config,
            pull_secrets: intent.pull_secrets.into_iter().map(secret).collect::<Result<_, MessageError>>()?,
        })
    }
}
