//! This process among other replicas, if it has some.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::StartError;
use super::assemble::Base;
use super::changes::Travelling;
use super::duties::{self, Work};
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_agents::service::AgentService;
use gateway_config::{Config, Directory};
use gateway_edge::service::FailedRequests;
use gateway_net::host_sockets::HostSockets;
use gateway_net::peers::PeerTls;
use gateway_replicas::claims::Claims;
use gateway_replicas::connection::{PeerConnections, PeerNetwork};
use gateway_replicas::duties::{DutyKeeper, KeeperStops};
use gateway_replicas::hop::Hops;
use gateway_replicas::lease::OwnRow;
use gateway_replicas::listener::PeerListener;
use gateway_replicas::replica::{DisplacedSession, Replica};
use gateway_replicas::service::{FailedSource, PeerService};
use gateway_replicas::sweeps::sweep;
use gateway_replicas::{lease, rebalance, report};
use gateway_store::{DrainRequest, Duty, Incarnation, ReplicaReport, Store, wall_clock_ms};
use gateway_types::failed_request::FailedRequest;

/// The port or socket for other replicas.
pub(super) struct PeerPort {
    listener: PeerListener,
    network: PeerNetwork,
    /// Where others reach it.
    url: String,
    /// Sockets of this host, for replicas that are on one.
    sockets: Option<HostSockets>,
}

impl PeerPort {
    /// Reads the certificates and binds the port, or makes a socket of this host.
    ///
    /// # Errors
    /// [`StartError::Tls`], [`StartError::PeerPort`] and [`StartError::Socket`].
    pub(super) async fn bind(config: &Config) -> Result<Option<Self>, StartError> {
        match &config.directory {
            Directory::Memory => Ok(None),
            Directory::Host(host) => {
                let sockets = HostSockets::open(&host.sockets)?;
                let socket = sockets.bind_own()?;
                let url = socket.url();
                let (listener, network) = (PeerListener::of_host(socket), PeerNetwork::Host);
                Ok(Some(Self { listener, network, url, sockets: Some(sockets) }))
            }
            Directory::Store(peers) => {
                let tls = Arc::new(PeerTls::load(peers, &config.zone)?);
                let bound = PeerListener::bind(peers.listen, tls.clone()).await;
                let listener = bound.map_err(|source| StartError::PeerPort { address: peers.listen, source })?;
                let (network, url) = (PeerNetwork::Tls(tls), peers.url.to_string());
                Ok(Some(Self { listener, network, url, sockets: None }))
            }
        }
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
        let Some(port) = port else { return Ok(None) };
        Ok(Some(Self { incarnation: lease::join(store, config, &port.url).await?, port }))
    }

    /// Makes the registry whose ids name this process start.
    pub(super) fn registry(&self, sessions_max: usize) -> Registry {
        Registry::of_replica(sessions_max, self.incarnation.get())
    }
}

/// Parts of a gateway that has other replicas.
pub(super) struct ReplicaParts {
    own: Box<OwnRow>,
    replica: Arc<Replica>,
    displaced: mpsc::Receiver<DisplacedSession>,
    listener: PeerListener,
    network: PeerNetwork,
    sockets: Option<HostSockets>,
    writer: Pin<Box<dyn Future<Output = ()> + Send>>,
    drain_asked: watch::Sender<Option<DrainRequest>>,
}

/// Work of a replica beside that of its agents.
pub(super) struct ReplicaWork {
    /// What changes here and is of interest elsewhere, and the other way round.
    pub(super) travelling: Travelling,
    /// Work that one replica does for all.
    pub(super) works: Vec<Work>,
    /// Requests that failed here.
    pub(super) failed: Arc<FailedRequests>,
}

/// Failed requests of this process, for other replicas.
#[derive(Debug)]
struct FailedHere(Arc<FailedRequests>);

impl FailedSource for FailedHere {
    fn find(&self, trace: &str) -> Option<FailedRequest> {
        self.0.find(trace, wall_clock_ms())
    }
}

/// Owners of the tasks of a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaTasks<'a> {
    /// Of those that are cut at the end.
    pub(super) background: &'a Drain,
    /// Of those that give something up at the end, which takes a moment.
    pub(super) leaving: &'a Drain,
}

impl std::fmt::Debug for ReplicaParts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReplicaParts").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl ReplicaParts {
    /// Makes them.
    pub(super) fn new(joined: Joined, base: &Base) -> Self {
        let Joined { incarnation, port: PeerPort { listener, network, url, sockets } } = joined;
        let (claims, writer) = Claims::new(base.store.clone(), incarnation);
        let connections = PeerConnections::new(network.clone(), incarnation.get());
        let (store, registry) = (base.store.clone(), base.registry.clone());
        let (replica, displaced) = Replica::new(incarnation, store, registry, claims, connections);
        Self {
            own: Box::new(OwnRow { incarnation, peer_url: url }),
            replica: Arc::new(replica),
            displaced,
            listener,
            network,
            sockets,
            writer: Box::pin(writer),
            drain_asked: watch::Sender::default(),
        }
    }

    /// Returns the drain that the operator asks of this replica; never changes for one gateway alone.
    pub(super) fn drain_asked(parts: Option<&Self>) -> watch::Receiver<Option<DrainRequest>> {
        parts.map_or_else(|| watch::channel(None).1, |parts| parts.drain_asked.subscribe())
    }

    /// Returns the replicas as the rest of the gateway needs them.
    pub(super) fn peers(parts: Option<&Self>) -> MaybePeers {
        parts.map(|parts| -> Arc<dyn gateway_agents::peers::Peers> { parts.replica.clone() })
    }

    /// Returns the number of this process start.
    pub(super) fn incarnation(&self) -> Incarnation {
        self.own.incarnation
    }

    /// Returns TLS towards replicas of other hosts.
    pub(super) fn peer_tls(&self) -> Option<Arc<PeerTls>> {
        match &self.network {
            PeerNetwork::Tls(tls) => Some(tls.clone()),
            PeerNetwork::Host => None,
        }
    }

    /// Returns the sockets of this host's replicas, if they are on one.
    pub(super) fn sockets(&self) -> Option<&HostSockets> {
        self.sockets.as_ref()
    }

    /// Starts the tasks that other replicas need, and those that one replica does for all. `lost` is cancelled when this process
    /// may not go on.
    pub(super) fn execute(
        self,
        base: &Base,
        agents: &Arc<AgentService>,
        work: ReplicaWork,
        tasks: ReplicaTasks<'_>,
        closed: &CancellationToken,
        lost: &CancellationToken,
    ) {
        let Self { own, replica, displaced, listener, network, sockets: _, writer, drain_asked } = self;
        let incarnation = own.incarnation;
        let (ReplicaWork { travelling, works, failed }, ReplicaTasks { background, leaving }) = (work, tasks);
        let (store, closed_at_end) = (base.store.clone(), closed.clone());
        let mut works = duties::by_duty(works);
        works.insert(Duty::Sweeps, Box::new(|held| Box::pin(sweep(held))));
        let stops = KeeperStops { draining: base.drain.draining().clone(), closed: closed.clone(), lost: lost.clone() };
        leaving.spawn(DutyKeeper::new(base.store.clone(), incarnation, works).run(stops));
        let announced = base.drain.announced().clone();
        leaving.spawn(lease::keep(store, replica.clone(), *own, announced.clone(), closed_at_end, lost.clone()));
        let report = {
            let (registry, agents) = (base.registry.clone(), agents.clone());
            move || ReplicaReport {
                agents: count(registry.len()),
                lanes_ended: count(registry.relays_len()),
                lanes_carried: count(agents.lanes_carried()),
            }
        };
        background.spawn(report::keep(base.store.clone(), incarnation, report, drain_asked, closed.clone()));
        let (registry, members) = (base.registry.clone(), replica.members().clone());
        // Not in a drain, which asks all of them.
        background.spawn(rebalance::keep(registry, members, incarnation.get(), announced));
        if let PeerNetwork::Tls(tls) = network {
            background.spawn(tls.watch(closed.clone()));
        }
        background.spawn(writer);
        background.spawn(replica.clone().end_displaced(displaced, closed.clone()));
        travelling.execute(replica.clone(), base.store.clone(), &base.metrics, background, closed);
        background.spawn(replica.clone().claim_late(closed.clone()));
        background.spawn(replica.clone().check_sessions(closed.clone()));
        background.spawn(replica.clone().tidy(closed.clone()));
        let (registry, agents) = (base.registry.clone(), agents.clone());
        let hops = Hops::new(replica, agents.clone(), background.clone(), closed.clone());
        let (incarnation, metrics, changes) = (incarnation.get(), base.metrics.clone(), Arc::new(travelling));
        let failed = Arc::new(FailedHere(failed));
        let service = Arc::new(PeerService { incarnation, registry, agents, changes, failed, metrics, hops });
        background.spawn(listener.run(service, background.clone(), closed.clone()));
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
