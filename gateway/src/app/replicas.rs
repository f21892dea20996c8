//! This process among other replicas, if it has some.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::StartError;
use super::assemble::Base;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_agents::service::AgentService;
use gateway_config::{Config, Directory, PeersConfig};
use gateway_net::peers::PeerTls;
use gateway_replicas::claims::Claims;
use gateway_replicas::connection::PeerConnections;
use gateway_replicas::hop::Hops;
use gateway_replicas::lease;
use gateway_replicas::listener::PeerListener;
use gateway_replicas::replica::{DisplacedSession, Replica};
use gateway_replicas::service::PeerService;
use gateway_store::{Incarnation, Store};

/// The port for other replicas.
pub(super) struct PeerPort {
    listener: PeerListener,
    tls: Arc<PeerTls>,
}

impl PeerPort {
    /// Reads the certificates and binds the port.
    ///
    /// # Errors
    /// [`StartError::Tls`] and [`StartError::PeerPort`].
    pub(super) async fn bind(config: &Config) -> Result<Option<Self>, StartError> {
        let Directory::Store(peers) = &config.directory else { return Ok(None) };
        let tls = Arc::new(PeerTls::load(peers, &config.zone)?);
        let PeersConfig { listen, .. } = peers;
        let bound = PeerListener::bind(*listen, tls.clone()).await;
        let listener = bound.map_err(|source| StartError::PeerPort { address: *listen, source })?;
        Ok(Some(Self { listener, tls }))
    }
}

/// This process start among those of all replicas.
pub(super) struct Joined {
    incarnation: Incarnation,
    port: PeerPort,
}

impl Joined {
    /// Registers this process start.
    ///
    /// # Errors
    /// [`StartError::Join`].
    pub(super) async fn new(
        config: &Config,
        store: &Store,
        port: Option<PeerPort>,
    ) -> Result<Option<Self>, StartError> {
        let (Directory::Store(peers), Some(port)) = (&config.directory, port) else { return Ok(None) };
        Ok(Some(Self { incarnation: lease::join(store, config, peers).await?, port }))
    }

    /// Makes the registry whose ids name this process start.
    pub(super) fn registry(&self, sessions_max: usize) -> Registry {
        Registry::of_replica(sessions_max, self.incarnation.get())
    }
}

/// Parts of a gateway that has other replicas.
pub(super) struct ReplicaParts {
    incarnation: Incarnation,
    replica: Arc<Replica>,
    displaced: mpsc::Receiver<DisplacedSession>,
    listener: PeerListener,
    writer: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for ReplicaParts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReplicaParts").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl ReplicaParts {
    /// Makes them.
    pub(super) fn new(joined: Joined, base: &Base) -> Self {
        let Joined { incarnation, port: PeerPort { listener, tls } } = joined;
        let (claims, writer) = Claims::new(base.store.clone(), incarnation);
        let connections = PeerConnections::new(tls, incarnation.get());
        let (store, registry) = (base.store.clone(), base.registry.clone());
        let (replica, displaced) = Replica::new(incarnation, store, registry, claims, connections);
        Self { incarnation, replica: Arc::new(replica), displaced, listener, writer: Box::pin(writer) }
    }

    /// Returns the replicas as the rest of the gateway needs them.
    pub(super) fn peers(parts: Option<&Self>) -> MaybePeers {
        parts.map(|parts| -> Arc<dyn gateway_agents::peers::Peers> { parts.replica.clone() })
    }

    /// Starts the tasks that other replicas need. `lost` is cancelled when this process may not go on.
    pub(super) fn execute(
        self,
        base: &Base,
        agents: &Arc<AgentService>,
        background: &Drain,
        closed: &CancellationToken,
        lost: &CancellationToken,
    ) {
        let Self { incarnation, replica, displaced, listener, writer } = self;
        let draining = base.drain.draining().clone();
        let (store, closed_at_end) = (base.store.clone(), closed.clone());
        background.spawn(lease::keep(
            store,
            replica.members().clone(),
            incarnation,
            draining,
            closed_at_end,
            lost.clone(),
        ));
        background.spawn(writer);
        background.spawn(replica.clone().end_displaced(displaced, closed.clone()));
        background.spawn(replica.clone().tidy(closed.clone()));
        let (registry, agents) = (base.registry.clone(), agents.clone());
        let hops = Hops::new(replica, agents.clone(), background.clone(), closed.clone());
        let service = Arc::new(PeerService { incarnation: incarnation.get(), registry, agents, hops });
        background.spawn(listener.run(service, background.clone(), closed.clone()));
    }
}
