//! Runs workspaces in Kubernetes clusters: for each cluster whose agent has a session, one controller sends the desired
//! state of its workspaces and stores the observed one. Among replicas that is the one that has the session, and its writes are
//! fenced by it: one that was displaced by a newer session elsewhere stores nothing.
//!
//! [`plan`] decides the next message and its time, [`intent`] builds it from the stored state, `report` stores what the
//! agent reports, and [`conversation`] joins them with the store and the reconcile channel, [`wire`].

mod conversation;
mod intent;
mod plan;
mod report;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_proto::id::SessionId;

use self::conversation::{Conversation, ConversationEnd};
use crate::changes::Changes;
use crate::cluster_configs::ClusterConfigs;
use gateway_agents::registry::{LiveSession, Registry};
use gateway_net::telemetry::Metrics;
use gateway_store::{Fence, Incarnation, SessionKey, Store, StoreError, wall_clock};
use gateway_types::ClusterName;

/// Dependencies of a controller. Clones share them.
#[derive(Clone, Debug)]
pub struct KubernetesController {
    /// Sessions of the clusters' agents.
    pub registry: Arc<Registry>,
    /// Source of truth for all state.
    pub store: Store,
    /// Channel of changes, for listening and publishing.
    pub changes: Changes,
    /// Configurations of the clusters.
    pub configs: Arc<ClusterConfigs>,
    /// Counters.
    pub metrics: Metrics,
    /// This process start, if it has others beside it.
    pub replica: Option<Incarnation>,
}

/// The last session of a cluster that was driven.
#[derive(Debug)]
struct Driven {
    session: SessionId,
    is_running: bool,
}

impl KubernetesController {
    /// Drives every cluster whose agent has a session, until `stop`.
    ///
    /// Invariants: a session's controller begins once that of the cluster's previous session has ended. So nothing that a
    /// displaced agent said is stored after something that the newer one said.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut arrivals = self.registry.arrivals();
        let mut drivers: JoinSet<()> = JoinSet::new();
        let (mut running, mut driven) = (HashMap::<Id, ClusterName>::new(), HashMap::<ClusterName, Driven>::new());
        loop {
            arrivals.mark_unchanged();
            for session in self.registry.clusters() {
                let Some(name) = session.subject.cluster() else { continue };
                if driven.get(name).is_some_and(|last| last.is_running || last.session == session.id) {
                    continue;
                }
                driven.insert(name.clone(), Driven { session: session.id, is_running: true });
                let (controller, stop, name) = (self.clone(), stop.clone(), name.clone());
                let task = drivers.spawn(async move { controller.drive(&session, stop).await });
                running.insert(task.id(), name);
            }
            tokio::select! {
                () = stop.cancelled() => break,
                changed = arrivals.changed() => if changed.is_err() { break },
                Some(ended) = drivers.join_next_with_id() => {
                    // Includes a panic: the next session of its cluster is driven like any other.
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    if let Some(last) = running.remove(&id).and_then(|name| driven.get_mut(&name)) {
                        last.is_running = false;
                    }
                }
            }
        }
        while drivers.join_next().await.is_some() {}
    }

    async fn drive(&self, session: &LiveSession, stop: CancellationToken) {
        let Some(name) = session.subject.cluster() else { return };
        // Cancelled by a write that finds a newer session of the cluster, here or at another replica.
        let lost = stop.child_token();
        let end = match self.converse(name, session, lost.clone()).await {
            Ok(()) => ConversationEnd::Session,
            Err(ConversationEnd::Stopped) if lost.is_cancelled() && !stop.is_cancelled() => ConversationEnd::Displaced,
            Err(end) => end,
        };
        if session.tunnel.is_ended() {
            info!(cluster = %name, session = %session.id, "reconciling ended with its session");
            return;
        }
        warn!(cluster = %name, session = %session.id, %end, "reconciling ended: the session is closed");
        // A new session begins a new conversation.
        session.tunnel.close(end.reason(), &end.to_string());
    }

    async fn converse(
        &self,
        name: &ClusterName,
        session: &LiveSession,
        stop: CancellationToken,
    ) -> Result<(), ConversationEnd> {
        let cluster =
            conversation::patiently_all(session, &stop, || self.store.ensure_cluster(name, wall_clock())).await?;
        let Some(replica) = self.replica else {
            return Conversation::open(self, session, cluster, stop).await?.run().await;
        };
        let key = SessionKey::Cluster(cluster.id);
        let fence = Fence::of_session(key, replica, session.generation().get(), stop.clone());
        let fenced = Self { store: self.store.fenced(fence), ..self.clone() };
        Conversation::open(&fenced, session, cluster, stop).await?.run().await
    }
}

/// Returns whether a failure is about one row, and not about the store.
fn is_of_one_row(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. })
}
