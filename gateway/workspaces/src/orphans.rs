//! Orphans: workspaces that are in a cluster, made by this gateway, of which it has no record: a database was restored from an
//! older backup, or a row was lost. They are listed and removed on an operator's word, and never by themselves.
//!
//! [`compare`] decides what is an orphan; `call` asks the cluster's agent.

mod call;
mod compare;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tunnel_proto::orphans::{Blocker, Marked, MarkedIn, MarkedRemove, NamespaceMode, OrphanCall};

use self::call::Call;
pub use self::call::CallFailure;
use self::compare::{Recorded, compare, host_template};
use crate::cluster_configs::StoredConfig;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_store::{Cluster, Store, StoreError};
use gateway_types::{ClusterName, WorkspaceName, Zone};

/// Most workspaces of a cluster that are compared at a time.
const MARKED_MAX: usize = 50_000;

/// Name and namespace of an orphan, as one id: `NAME.NAMESPACE`. Neither has a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanId {
    workspace: WorkspaceName,
    namespace: String,
}

/// Orphans of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanList {
    /// Workspaces without a record, by namespace and name.
    pub orphans: Vec<Marked>,
    /// Workspaces with the marks of this cluster's agent and hosts of another gateway, or of none: they are left alone.
    pub others: usize,
}

/// Progress of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Nothing is left of it.
    pub is_gone: bool,
    /// What is still there.
    pub left: Vec<Blocker>,
}

/// Reason why orphans are not listed or removed.
#[derive(Debug, Error)]
pub enum OrphanError {
    /// There is no such cluster.
    #[error("there is no such cluster")]
    NoSuchCluster,
    /// There is no such orphan.
    #[error("there is no such orphan")]
    NoSuchOrphan,
    /// The gateway has a record of the workspace: it is no orphan.
    #[error("the gateway has a record of it: terminate the workspace")]
    Recorded,
    /// The agent does not remove it.
    #[error("{0}")]
    Refused(String),
    /// The agent gave no answer.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lists and removes orphans. Clones share everything.
#[derive(Clone, Debug)]
pub struct Orphans {
    store: Store,
    registry: Arc<Registry>,
    peers: MaybePeers,
    zone: Zone,
}

impl OrphanId {
    /// Reads an id; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (workspace, namespace) = text.split_once('.')?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = (1..=63).contains(&namespace.len()) && namespace.bytes().all(is_plain);
        is_label.then_some(())?;
        Some(Self { workspace: workspace.parse().ok()?, namespace: namespace.to_owned() })
    }

    /// Writes the id of a workspace that an agent has found.
    #[must_use]
    pub fn of(marked: &Marked) -> String {
        format!("{}.{}", marked.workspace, marked.namespace)
    }
}

impl Orphans {
    /// Makes the service of a gateway whose workspaces live in `zone`.
    #[must_use]
    pub fn new(store: Store, registry: Arc<Registry>, peers: MaybePeers, zone: Zone) -> Self {
        Self { store, registry, peers, zone }
    }

    /// Returns the orphans of a cluster, as its agent finds them now.
    ///
    /// # Errors
    /// [`OrphanError`].
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn list(&self, cluster: &ClusterName) -> Result<OrphanList, OrphanError> {
        let (cluster, within) = self.within(cluster).await?;
        // Read before and after: one that is made or ends meanwhile has a record in one of them.
        let mut recorded = self.recorded(&cluster).await?;
        let session = self.session_of(&cluster.name).await.ok_or(CallFailure::Absent)?;
        let marked = Call::begin(&session, &OrphanCall::List(within))?.list(MARKED_MAX).await?;
        recorded.extend(self.recorded(&cluster).await?);
        Ok(compare(marked, &recorded, &self.zone))
    }

    /// Has an orphan removed with its storage, and waits for that for at most `patience`. What is still there then goes on being
    /// deleted as far as the cluster was asked for it; a further call goes on with the rest.
    ///
    /// # Errors
    /// [`OrphanError::Recorded`] also if a record comes up meanwhile: the removal ends between two requests to the cluster then.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the agent stops between two requests; what it has requested is carried out.
    pub async fn remove(
        &self,
        cluster: &ClusterName,
        id: &OrphanId,
        patience: Duration,
    ) -> Result<Removal, OrphanError> {
        let (cluster, within) = self.within(cluster).await?;
        self.check_unrecorded(&cluster, id).await?;
        let session = self.session_of(&cluster.name).await.ok_or(CallFailure::Absent)?;
        let host_template = host_template(id.workspace.as_str(), &self.zone);
        let (workspace, namespace) = (id.workspace.to_string(), id.namespace.clone());
        let remove = OrphanCall::Remove(MarkedRemove { within, workspace, namespace, host_template });
        let mut call = Call::begin(&session, &remove)?;
        let (mut left, deadline) = (Vec::new(), tokio::time::Instant::now() + patience);
        loop {
            let heard = tokio::time::timeout_at(deadline, call.removal()).await;
            match heard {
                Err(_elapsed) => return Ok(Removal { is_gone: false, left }),
                Ok(Err(failure)) => return Err(failure.into()),
                Ok(Ok(call::RemovalNews::Left(still))) => left = still,
                Ok(Ok(call::RemovalNews::Over(removed))) => {
                    return match (removed.was_there, removed.failure) {
                        (false, _) => Err(OrphanError::NoSuchOrphan),
                        (true, Some(failure)) => Err(OrphanError::Refused(failure)),
                        (true, None) => Ok(Removal { is_gone: true, left: Vec::new() }),
                    };
                }
            }
            // A workspace of that name may have been made since, in the same namespace.
            self.check_unrecorded(&cluster, id).await?;
        }
    }

    async fn check_unrecorded(&self, cluster: &Cluster, id: &OrphanId) -> Result<(), OrphanError> {
        let key = (id.workspace.to_string(), id.namespace.clone());
        if self.recorded(cluster).await?.contains(&key) { Err(OrphanError::Recorded) } else { Ok(()) }
    }

    async fn within(&self, name: &ClusterName) -> Result<(Cluster, MarkedIn), OrphanError> {
        let cluster = self.store.cluster(name).await?.ok_or(OrphanError::NoSuchCluster)?;
        let config = StoredConfig::read(&self.store, cluster.id, None).await?.and_then(|stored| stored.config.ok());
        let shared = config.and_then(|config| config.shared_namespace);
        let namespaces = shared.map_or(NamespaceMode::Unique, NamespaceMode::Shared);
        let within = MarkedIn { cluster: cluster.name.to_string(), namespaces };
        Ok((cluster, within))
    }

    async fn recorded(&self, cluster: &Cluster) -> Result<Recorded, StoreError> {
        self.store.recorded_in(cluster.id).await.map(|all| all.into_iter().collect())
    }

    /// Returns the session through which a cluster's agent is called: its own, or a lane to the replica that has it.
    async fn session_of(&self, cluster: &ClusterName) -> Option<Arc<LiveSession>> {
        if let Some(session) = self.registry.cluster(cluster) {
            return Some(session);
        }
        let subject = Subject::Cluster(cluster.clone());
        self.peers.as_ref()?.find(&subject).await.lane()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_the_name_and_the_namespace_and_nothing_else() {
        let marked = Marked { workspace: "app".into(), namespace: "ws-app".into(), ..Marked::default() };
        let id = OrphanId::parse(&OrphanId::of(&marked)).expect("an id");
        assert_eq!((id.workspace.as_str(), id.namespace.as_str()), ("app", "ws-app"));
        for text in ["", "app", "app.", ".ws", "app.ws.x", "app.WS", "a/b.ws", "app.ws/../x"] {
            assert_eq!(OrphanId::parse(text), None, "{text}");
        }
    }
}
