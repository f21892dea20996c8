//! A replica's host: what makes a gateway one of several, as it is, on simulated TCP. Users are jobs that a test gives it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_agents::admission::{Admission, Owners, SessionFactory};
use gateway_agents::identity::AgentIdentities;
use gateway_agents::peers::{FoundSession, Peers};
use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_agents::service::AgentService;
use gateway_agents::{expiry, revocation};
use gateway_config::Config;
use gateway_git::credentials::GitCredentials;
use gateway_net::audit::Audit;
use gateway_net::telemetry::Metrics;
use gateway_replicas::changes::{Change, ChangeSink};
use gateway_replicas::claims::Claims;
use gateway_replicas::connection::{PeerConnections, PeerDial, PeerDialer, PeerStream};
use gateway_replicas::duties::{DutyKeeper, DutyWork, KeeperStops};
use gateway_replicas::hop::Hops;
use gateway_replicas::lease::OwnRow;
use gateway_replicas::replica::Replica;
use gateway_replicas::service::{FailedSource, PeerService};
use gateway_replicas::sweeps::sweep;
use gateway_replicas::{lease, listener, rebalance, report};
use gateway_store::{ChangedRow, Duty, Incarnation, ReplicaReport, SingleGateway, Store, wall_clock_ms};
use gateway_types::failed_request::FailedRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;
use tunnel_link::grpc;
use tunnel_link::pace::PacedStream;
use tunnel_proto::mux::ReplicaBudget;
use turmoil::net::{TcpListener, TcpStream};

use crate::gateway_host::PORT;
use crate::net::{GRACE, INTERVAL, TIMEOUT};
use crate::replicas_store::{Client, Database};
use crate::replicas_world::number_of;
use crate::shared::Shared;

/// The time at which all begins, by clocks that are right.
pub(crate) const EPOCH_MS: u64 = 1_800_000_000_000;

/// Port for other replicas.
const PEER_PORT: u16 = 8083;

/// Pause of a process that cannot start, until its supervisor starts it again.
const START_PAUSE: Duration = Duration::from_millis(500);

/// Longest wait of a user for an agent's link: as long as the gateway's.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// Something to do on a replica's host.
pub(crate) type ReplicaJob = Box<dyn FnOnce(RunningReplica) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// What all hosts of a world share.
pub(crate) struct Fleet {
    pub(crate) shared: Arc<Shared>,
    pub(crate) database: Database,
    replicas: Mutex<BTreeMap<String, RunningReplica>>,
    /// What the hosts' clocks are ahead, in milliseconds.
    pub(crate) clocks: Mutex<BTreeMap<String, i64>>,
}

/// A replica that runs.
#[derive(Clone)]
pub(crate) struct RunningReplica {
    pub(crate) incarnation: Incarnation,
    pub(crate) registry: Arc<Registry>,
    pub(crate) budget: Arc<ReplicaBudget>,
    pub(crate) replica: Arc<Replica>,
    pub(crate) drain: Drain,
    pub(crate) jobs: mpsc::Sender<ReplicaJob>,
}

impl Fleet {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        gateway_store::set_wall_clock(Some(clock));
        Arc::new(Self { shared, database: Database::new(), replicas: Mutex::default(), clocks: Mutex::default() })
    }

    pub(crate) fn replica(&self, host: &str) -> Option<RunningReplica> {
        self.replicas.lock().unwrap().get(host).cloned()
    }

    pub(crate) fn running(&self) -> Vec<(String, RunningReplica)> {
        self.replicas.lock().unwrap().iter().map(|(host, replica)| (host.clone(), replica.clone())).collect()
    }

    pub(crate) fn crashed(&self, host: &str) {
        self.replicas.lock().unwrap().remove(host);
    }

    pub(crate) fn incarnation_of(&self, host: &str) -> Option<i64> {
        self.replica(host).map(|replica| i64::try_from(replica.incarnation.get()).expect("64 bits"))
    }

    /// Returns the generation that was claimed last for a workspace.
    pub(crate) fn claimed(&self, workspace: &str) -> Option<u64> {
        let (generation, _) = self.database.place(number_of(workspace))?;
        u64::try_from(generation).ok()
    }

    /// Returns whether a host has a session of a workspace that lives, with this generation.
    pub(crate) fn has_live(&self, host: &str, workspace: i64, generation: i64) -> bool {
        let Some(replica) = self.replica(host) else { return false };
        let is_it = |session: &Arc<LiveSession>| {
            session.workspace.is_some_and(|id| id.to_string() == format!("w-{workspace}"))
                && i64::try_from(session.generation().get()) == Ok(generation)
                && !session.tunnel.is_ended()
        };
        replica.registry.all().iter().any(is_it)
    }
}

impl RunningReplica {
    /// Finds the session of a workspace as a request does. The text says why there is none.
    pub(crate) async fn session(&self, workspace: &str) -> Result<Arc<LiveSession>, &'static str> {
        let subject = Subject::Workspace(workspace.parse().expect("a name"));
        let here = self.registry.current(subject.workspace().expect("it is one"));
        let session = match here {
            Some(session) if !session.tunnel.is_detached() && !session.tunnel.is_ended() => session,
            here => match (self.replica.find(&subject).await, here) {
                (FoundSession::Lane(session), _) | (_, Some(session)) => session,
                (FoundSession::Absent, None) => return Err("absent"),
                (FoundSession::Unreachable, None) => return Err("unreachable"),
            },
        };
        match session.tunnel.attached(LINK_PATIENCE).await {
            true => Ok(session),
            false => Err("without a link"),
        }
    }
}

thread_local! {
    /// The clocks of the hosts of this thread's world: the moment at which a host's process began, by which it is known,
    /// and what its clock is ahead, in milliseconds.
    static CLOCKS: RefCell<Vec<(Instant, i64)>> = const { RefCell::new(Vec::new()) };
}

fn began() -> Instant {
    Instant::now() - turmoil::elapsed()
}

/// The clock of the host that runs.
fn clock() -> u64 {
    let Some(elapsed) = turmoil::sim_elapsed() else { return EPOCH_MS };
    let began = began();
    let ahead = CLOCKS.with_borrow(|clocks| clocks.iter().find(|(of, _)| *of == began).map_or(0, |(_, ahead)| *ahead));
    (EPOCH_MS + u64::try_from(elapsed.as_millis()).expect("64 bits")).checked_add_signed(ahead).expect("64 bits")
}

fn set_clock(fleet: &Fleet, host: &str) {
    let ahead = fleet.clocks.lock().unwrap().get(host).copied().unwrap_or_default();
    CLOCKS.with_borrow_mut(|clocks| clocks.push((began(), ahead)));
}

/// The network between replicas.
#[derive(Debug)]
struct Dialer;

impl PeerDialer for Dialer {
    fn dial<'a>(&'a self, url: &'a str) -> PeerDial<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((url, PEER_PORT)).await?;
            Ok(Box::new(stream) as Box<dyn PeerStream>)
        })
    }
}

/// No part of the gateway that learns of changes is here.
#[derive(Debug)]
struct NoChanges;

impl ChangeSink for NoChanges {
    fn announced(&self, _change: Change) {}

    fn found(&self, _row: ChangedRow) {}
}

/// A replica without users, whose requests could fail.
#[derive(Debug)]
struct NoFailures;

impl FailedSource for NoFailures {
    fn find(&self, _trace: &str) -> Option<FailedRequest> {
        None
    }
}

/// The supervisor of a replica's process: one that must not go on is started again.
pub(crate) async fn run(fleet: Arc<Fleet>, host: String) -> turmoil::Result {
    set_clock(&fleet, &host);
    assert!(wall_clock_ms() > 0);
    let (agents_port, peers_port) =
        (TcpListener::bind(("0.0.0.0", PORT)).await?, TcpListener::bind(("0.0.0.0", PEER_PORT)).await?);
    loop {
        if let Err(error) = process(&fleet, &host, &agents_port, &peers_port).await {
            fleet.shared.note(&host, format_args!("cannot start: {error}"));
        }
        fleet.crashed(&host);
        tokio::time::sleep(START_PAUSE).await;
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.tunnel.keepalive_interval = INTERVAL;
    config.tunnel.keepalive_timeout = TIMEOUT;
    config.tunnel.resume_grace = GRACE;
    config
}

/// Everything that a process runs in, whose end ends all of it.
struct Parts {
    running: RunningReplica,
    agents: Arc<AgentService>,
    peers: Arc<PeerService>,
    background: Drain,
    lost: CancellationToken,
}

async fn process(
    fleet: &Arc<Fleet>,
    host: &str,
    agents_port: &TcpListener,
    peers_port: &TcpListener,
) -> Result<(), lease::JoinError> {
    let config = config();
    let store = fleet.database.server.client(Box::new(Client(fleet.clone())), config.store.outage_max);
    let incarnation = lease::join(&store, &config, host).await?;
    let (sender, mut jobs) = mpsc::channel(1_024);
    let own = OwnRow { incarnation, peer_url: host.to_owned() };
    let parts = parts(&config, store, own, sender);
    let _cut = [parts.background.cut_on_drop(), parts.running.drain.cut_on_drop()];
    fleet.shared.note(host, format_args!("replica {incarnation} begins"));
    fleet.replicas.lock().unwrap().insert(host.to_owned(), parts.running.clone());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = parts.lost.cancelled() => return Ok(()),
            // A failed expectation in a task fails the host, and with it the test.
            Some(done) = tasks.join_next(), if !tasks.is_empty() => done.expect("no task fails"),
            Some(job) = jobs.recv() => { tasks.spawn(job(parts.running.clone())); }
            accepted = agents_port.accept() => {
                let (stream, peer) = accepted.expect("accepting");
                tasks.spawn(serve_agent(parts.agents.clone(), stream, peer));
            }
            accepted = peers_port.accept() => {
                let (stream, _) = accepted.expect("accepting");
                tasks.spawn(listener::serve_on(stream, parts.peers.clone()));
            }
        }
    }
}

/// Makes the parts, and starts their tasks as the gateway does.
fn parts(config: &Config, store: Store, own: OwnRow, jobs: mpsc::Sender<ReplicaJob>) -> Parts {
    let incarnation = own.incarnation;
    let (background, drain, stop, lost) =
        (Drain::default(), Drain::default(), CancellationToken::new(), CancellationToken::new());
    let registry = Arc::new(Registry::of_replica(1_000, incarnation.get()));
    let budget = ReplicaBudget::new(config.tunnel.replica_budget);
    let (claims, writer) = Claims::new(store.clone(), incarnation);
    let connections = PeerConnections::simulated(Box::new(Dialer), incarnation.get());
    let (replica, displaced) = Replica::new(incarnation, store.clone(), registry.clone(), claims, connections);
    let replica = Arc::new(replica);
    let identities = Arc::new(AgentIdentities::new(store.clone(), &config.auth.agents).expect("no issuers"));
    let factory = SessionFactory {
        registry: registry.clone(),
        budget: budget.clone(),
        owners: Owners::default(),
        tunnel: config.tunnel.clone(),
        requests_max: 1_000,
        workspace_url: "".into(),
        drain: drain.clone(),
        peers: Some(replica.clone()),
    };
    let admission = Admission::new(identities.clone(), factory, config.limits.sessions_per_second);
    let git = GitCredentials::new(store.clone(), &[], Arc::new(gateway_store::wall_clock)).expect("no servers");
    let agents = AgentService::new(identities.clone(), admission, config, stop.clone(), Audit::default(), git);
    background.spawn(writer);
    let (watched, forgets, single) = (store.clone(), identities.clone(), SingleGateway::shared(&config.store));
    let stopped = stop.clone();
    background.spawn(async move {
        let forget = |change: &gateway_store::AccessChange| {
            forgets.forget(change);
        };
        watched.watch(&single, stopped, forget).await.expect("no other gateway takes it");
    });
    background.spawn(expiry::watch(registry.clone(), identities, stop.clone()));
    background.spawn(revocation::recheck(registry.clone(), store.clone(), stop.clone()));
    background.spawn(lease::keep(
        store.clone(),
        replica.clone(),
        own,
        drain.announced().clone(),
        stop.clone(),
        lost.clone(),
    ));
    background.spawn(replica.clone().end_displaced(displaced, stop.clone()));
    background.spawn(replica.clone().claim_late(stop.clone()));
    background.spawn(replica.clone().check_sessions(stop.clone()));
    background.spawn(replica.clone().tidy(stop.clone()));
    background.spawn(rebalance::keep(registry.clone(), replica.members().clone(), incarnation.get(), stop.clone()));
    let reported = registry.clone();
    let report = move || ReplicaReport { agents: reported.len() as u64, ..ReplicaReport::default() };
    background.spawn(report::keep(store.clone(), incarnation, report, watch::Sender::default(), stop.clone()));
    let sweeps: DutyWork = Box::new(|held| Box::pin(sweep(held)));
    let keeper = DutyKeeper::new(store.clone(), incarnation, BTreeMap::from([(Duty::Sweeps, sweeps)]));
    let stops = KeeperStops { draining: drain.draining().clone(), closed: stop.clone(), lost: lost.clone() };
    background.spawn(keeper.run(stops));
    let hops = Hops::new(replica.clone(), agents.clone(), background.clone(), stop);
    let peers = Arc::new(PeerService {
        incarnation: incarnation.get(),
        registry: registry.clone(),
        agents: agents.clone(),
        changes: Arc::new(NoChanges),
        failed: Arc::new(NoFailures),
        metrics: Metrics::default(),
        hops,
    });
    let running = RunningReplica { incarnation, registry, budget, replica, drain, jobs };
    Parts { running, agents, peers, background, lost }
}

async fn serve_agent(agents: Arc<AgentService>, stream: TcpStream, peer: SocketAddr) {
    let (stream, pace) = PacedStream::new(stream, |_stream, _bytes| None);
    let service = service_fn(|request| {
        let (agents, pace) = (agents.clone(), pace.clone());
        async move { Ok::<_, Infallible>(agents.answer_on(request, peer, pace).await) }
    });
    let connection = grpc::server_builder(INTERVAL, TIMEOUT).serve_connection(TokioIo::new(stream), service);
    // How it ends is seen at the session.
    connection.await.ok();
}
