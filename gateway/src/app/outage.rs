//! Passes the store's outages and changes on to the caches of its answers.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;

use gateway_agents::identity::AgentIdentities;
use gateway_edge::service::Edge;
use gateway_store::{AccessChange, SingleGateway, Store};

/// Most changes that wait to be refreshed. A change without a place is forgotten all the same, and looked up on demand.
const WAITING_MAX: usize = 4096;

/// Caches of the store's answers.
pub(super) struct Caches {
    pub(super) edge: Arc<Edge>,
    pub(super) identities: Arc<AgentIdentities>,
}

impl Caches {
    fn forget(&self, change: &AccessChange) -> bool {
        let [of_users, of_agents] = [self.edge.access.forget(change), self.identities.forget(change)];
        of_users || of_agents
    }

    async fn refresh(&self, change: &AccessChange) {
        self.edge.access.refresh(change).await;
        self.identities.refresh().await;
    }
}

/// Watches the store until `stop`; drops changed entries from the caches and refreshes them. Cancels `replaced`, and
/// ends, if another gateway serves the store.
pub(super) async fn watch(
    store: Store,
    single: Arc<SingleGateway>,
    memory: Caches,
    replaced: CancellationToken,
    stop: CancellationToken,
) {
    let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
    let watching = store.watch(&single, stop, |change| {
        if memory.forget(change) {
            drop(sender.try_send(change.clone()));
        }
    });
    let refreshing = async {
        while let Some(change) = receiver.recv().await {
            memory.refresh(&change).await;
        }
    };
    tokio::select! {
        watched = watching => if let Err(why) = watched {
            error!(%why, "another gateway holds the lock of this database: draining, then exiting");
            replaced.cancel();
        },
        () = refreshing => {}
    }
}
