//! Builds a gateway from its configuration, binding everything first, and runs it until it is told to stop. The only
//! file, with its submodules, that knows every module.

mod ci;
mod environment_api;
mod environments;
mod listeners;
mod outage;
mod sign_in;
mod sign_ins;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_link::drain::{Drain, Drained};
use tunnel_proto::mux::ReplicaBudget;
use tunnel_proto::reason::Reason;

use crate::admin::{self, Admin};
use crate::api::{self, Api, ApiParts, Definitions};
use crate::app::ci::{CiParts, Jobs};
use crate::app::environment_api::EnvironmentSetupError;
use crate::app::environments::EnvironmentParts;
use crate::app::listeners::{ListenerTls, Listeners};
use crate::app::sign_in::SignInParts;
use crate::app::sign_ins::SignIns;
use crate::audit::{Audit, Event, Record, TokenIds, Writer};
use crate::auth::cache::Cache;
use crate::auth::public_ports::PublicPorts;
use crate::auth::request::Identities;
use crate::auth::sign_in::link::SignInLink;
use crate::auth::site::{BadPublicUrl, Site};
use crate::auth::token::NoRandomness;
use crate::config::{Auth, Config, LogFormat};
use crate::edge::connection::Server;
use crate::edge::cookies::CookieNames;
use crate::edge::followers::Followers;
use crate::edge::forward::Forwarder;
use crate::edge::guard::ShapeLimits;
use crate::edge::host::{HostRules, HostTarget, host_in};
use crate::edge::living::Living;
use crate::edge::respond::Failure;
use crate::edge::service::{Edge, Failures, Neighbours, Traces, Visitors};
use crate::edge::upstream::Upstreams;
use crate::environments::service::Environments;
use crate::executors::ci::downloads::DownloadError;
use crate::executors::ci::settings::CiSetupError;
use crate::executors::cluster_configs::ClusterConfigs;
use crate::executors::kubernetes::Driver;
use crate::executors::timers::Timers;
use crate::limits::Shares;
use crate::model::Scheme;
use crate::net::acme::{AcmeError, Renewal};
use crate::net::fetch::FetchSetupError;
use crate::net::inherited::{BadInherited, Inherited};
use crate::net::listen::{BindError, First, Listener, Placing};
use crate::net::tls::{Tls, TlsError};
use crate::net::workers::Workers;
use crate::sessions::admission::{Admission, Owners};
use crate::sessions::identity::AgentIdentities;
use crate::sessions::leases;
use crate::sessions::recheck::recheck;
use crate::sessions::registry::Registry;
use crate::sessions::service::AgentService;
use crate::site::public_host::PublicHost;
use crate::store::{PATIENCE, SingleError, SingleGateway, Store, StoreError, wall_clock, wall_clock_ms};
use crate::telemetry::Metrics;
use crate::workspaces::addresses::Addresses as SeenFromWorkspaces;
use crate::workspaces::changes::Changes;
use crate::workspaces::service::Workspaces;

/// Longest request target, in bytes: hyper refuses longer ones on its own.
const URI_BYTES_MAX: usize = 32 * 1024;

/// Earliest redial of agents after their session was drained, so that a restart does not become a storm.
const REDIAL_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// Time to answer the last connections that came during a drain, once nothing else runs.
const LATE_GRACE: std::time::Duration = std::time::Duration::from_millis(250);

/// Time limit for writing the last audit records.
const AUDIT_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

pub use sign_in::{DEV_USER, SignInSetupError};

/// Failure to start a gateway. Each text says what to change.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address is taken or not ours.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A service manager's socket is of no use.
    #[error(transparent)]
    Inherited(#[from] BadInherited),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no certificate.
    #[error("there is no certificate to serve users with: {0}")]
    Acme(#[from] AcmeError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another gateway serves the store, or its absence cannot be checked.
    #[error(transparent)]
    Single(#[from] SingleError),
    /// Issuers of agents' credentials cannot be asked.
    #[error("auth.agents: {0}")]
    Issuers(#[from] FetchSetupError),
    /// The public address cannot be used.
    #[error(transparent)]
    PublicUrl(#[from] BadPublicUrl),
    /// The audit log cannot be written.
    #[error("audit.path: {} cannot be opened: {source}", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Sign-in with the identity provider cannot be set up.
    #[error(transparent)]
    SignIn(#[from] SignInSetupError),
    /// Programs that jobs download cannot be used.
    #[error(transparent)]
    Downloads(#[from] DownloadError),
    /// CI systems cannot be used.
    #[error(transparent)]
    Ci(#[from] CiSetupError),
    /// Jobs cannot ask for environments.
    #[error(transparent)]
    Environments(#[from] EnvironmentSetupError),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Randomness,
    /// The kernel does not say where a listener is.
    #[error("a listener has no address: {0}")]
    Address(#[source] std::io::Error),
}

impl From<NoRandomness> for StartError {
    fn from(_: NoRandomness) -> Self {
        Self::Randomness
    }
}

/// A gateway whose listeners are bound.
#[derive(Debug)]
pub struct App {
    config: Config,
    edge: Arc<Edge>,
    public: Arc<PublicHost>,
    agents: Arc<AgentService>,
    identities: Arc<AgentIdentities>,
    admin: Arc<Admin>,
    upstreams: Arc<Upstreams>,
    registry: Arc<Registry>,
    store: Store,
    /// Lock that entitles this gateway to serve the store.
    single: Arc<SingleGateway>,
    /// Cancelled once another gateway serves the store.
    replaced: CancellationToken,
    shares: Arc<Shares>,
    drain: Drain,
    /// Cancelled once all sessions are closed, so that none can go on.
    closed: CancellationToken,
    listeners: Listeners,
    certificates: Vec<Arc<Tls>>,
    audit: Audit,
    audit_writer: Writer,
    renewal: Option<Renewal>,
    driver: Arc<Driver>,
    ci: CiParts,
    environments: EnvironmentParts,
    sign_ins: SignIns,
}

/// Parts that are bound and read before the store is opened.
struct Bound {
    single: Arc<SingleGateway>,
    renewal: Option<Renewal>,
    certificates: Vec<Arc<Tls>>,
    shares: Arc<Shares>,
    listeners: Listeners,
}

/// Parts that the operator's pages show.
struct Operated<'a> {
    certificates: &'a [Arc<Tls>],
    registry: &'a Arc<Registry>,
    upstreams: &'a Arc<Upstreams>,
    shares: &'a Arc<Shares>,
}

/// Addresses that a gateway listens on.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For users.
    pub public: SocketAddr,
    /// For agents.
    pub agents: SocketAddr,
    /// For the operator.
    pub admin: Option<SocketAddr>,
}

impl App {
    /// Binds everything. Nothing is served before [`App::run`].
    ///
    /// # Errors
    /// [`StartError`] names what to change.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        Self::bind_with(config, Inherited::default()).await
    }

    /// Like [`App::bind`], with sockets of a service manager, which are used if they match a listener.
    ///
    /// # Errors
    /// [`StartError`] names what to change.
    pub async fn bind_with(mut config: Config, inherited: Inherited) -> Result<Self, StartError> {
        crate::config::advice(&config).iter().for_each(|advice| warn!("{advice}"));
        // First of all: while another gateway serves, its addresses are not free either.
        let single = Arc::new(SingleGateway::take(&config.store, PATIENCE).await?);
        let renewal = certified(&config).await?;
        let tls = ListenerTls::load(&config)?;
        let certificates = tls.certificates();
        let shares = Shares::new(&config.limits, Instant::now().into_std());
        let listeners = Listeners::bind(&config, &shares, tls, inherited)?;
        listeners.settle(&mut config)?;
        let bound = Bound { single, renewal, certificates, shares, listeners };
        // On the heap: it holds all parts of a gateway.
        Box::pin(Self::assemble(config, bound)).await
    }

    /// Opens the store, and builds a gateway that can run from it and the bound parts.
    async fn assemble(config: Config, bound: Bound) -> Result<Self, StartError> {
        let Bound { single, renewal, certificates, shares, listeners } = bound;
        let store = Store::open_with(&config.store).await?;
        let drain = Drain::default();
        let registry = Arc::new(Registry::new(config.limits.sessions, wall_clock_ms()));
        let budget = ReplicaBudget::new(config.tunnel.replica_budget);
        let upstreams = Upstreams::new(config.timeouts.upstream_idle);
        let metrics = Metrics::default();
        metrics.expect_failures(&Failure::CODES);
        let (audit, audit_writer) = open_audit(&config, &store, &metrics)?;
        let changes = Changes::default();
        let seen = workspaces_see(&config, &listeners)?;
        let ci = CiParts::new(&config, &seen, &store).await?;
        let lifecycles = ci.open_for(Workspaces::new(store.clone(), changes.clone(), seen));
        let configs = ClusterConfigs::open(config.agents_dir.clone(), &store).await?;
        let environments = EnvironmentParts::open(&config, &store, &registry, (&metrics, &audit)).await?;
        let identities = ci.identities(&config, &store)?;
        let asked = environment_api::parts(&config, &environments.environments)?;
        let sign_ins = SignIns::open(&config, &store).await?;
        let agents_port = listeners.agents.local_addr().map_err(StartError::Address)?.port();
        let lives = (&lifecycles, &configs, (&ci, ci.jobs(&identities, &store), asked), (&drain, agents_port));
        let (edge, public) =
            edge(&config, (&store, &sign_ins), &registry, &upstreams, (&metrics, &audit, &shares), lives)?;
        let admission = admission(&config, &registry, &budget, &drain, &edge);
        let closed = CancellationToken::new();
        let (rate, timeouts) = (config.limits.sessions_per_second, config.timeouts.clone());
        let agents = AgentService::new(
            identities.clone(),
            admission,
            rate,
            timeouts,
            closed.clone(),
            audit.clone(),
            &config.public_url,
        );
        let driver = Arc::new(Driver {
            registry: registry.clone(),
            store: store.clone(),
            changes,
            configs,
            metrics: metrics.clone(),
        });
        let watched =
            Operated { certificates: &certificates, registry: &registry, upstreams: &upstreams, shares: &shares };
        let admin = admin_pages(&config, &watched, &store, (budget, metrics), (&audit, &drain));
        Ok(Self {
            config,
            edge,
            public,
            agents,
            identities,
            admin,
            upstreams,
            registry,
            store,
            single,
            replaced: CancellationToken::new(),
            shares,
            drain,
            closed,
            listeners,
            certificates,
            audit,
            audit_writer,
            renewal,
            driver,
            ci,
            environments,
            sign_ins,
        })
    }

    /// Returns the addresses that it listens on.
    ///
    /// # Errors
    /// [`StartError::Address`] when the kernel does not say.
    pub fn addresses(&self) -> Result<Addresses, StartError> {
        let address = |listener: &Listener| listener.local_addr().map_err(StartError::Address);
        Ok(Addresses {
            public: address(&self.listeners.public)?,
            agents: address(&self.listeners.agents)?,
            admin: self.listeners.admin.as_ref().map(address).transpose()?,
        })
    }

    /// Returns the store, for programs that wire a gateway and others into one process.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the channel of changes to workspaces.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.driver.changes
    }

    /// Returns the live sessions.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the environments of jobs.
    #[must_use]
    pub fn environments(&self) -> &Environments {
        &self.environments.environments
    }

    /// Returns the configurations of clusters.
    #[must_use]
    pub fn cluster_configs(&self) -> &Arc<ClusterConfigs> {
        &self.driver.configs
    }

    /// Returns the configuration, with the addresses that binding settled.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Creates the one-time link that signs the operator in; `None` if an identity provider signs users in.
    ///
    /// # Errors
    /// [`StartError::Randomness`].
    pub fn sign_in_link(&self) -> Result<Option<SignInLink>, StartError> {
        Ok(self.public.sign_in.issue_link(Instant::now())?)
    }

    /// Returns the token that is cancelled when another gateway serves the same database: this one then drains, and its
    /// end is a failure.
    #[must_use]
    pub fn replaced(&self) -> CancellationToken {
        self.replaced.clone()
    }

    /// Serves until `stop`, then drains: takes nothing new, tells agents, lets running work finish up to
    /// `timeouts.drain`, also over links that break and come back meanwhile, and cuts the rest.
    pub async fn run(self, stop: CancellationToken) -> Drained {
        self.run_on(&Workers::none(), stop).await
    }

    /// Like [`App::run`], with connections served by `workers`. Dropped, it ends all at once, as if it were killed.
    pub async fn run_on(self, workers: &Workers, stop: CancellationToken) -> Drained {
        let (for_users, for_agents) = self.placing(workers);
        let server = Server::new(self.edge.clone(), &self.config);
        let (writing, written) = (Drain::default(), CancellationToken::new());
        let background = Drain::default();
        // Dropping this future ends the whole gateway: nothing of it lives on beside the next one.
        let late = Drain::default();
        let _cut = (self.upstreams.cut_on_drop(), [&self.drain, &background, &writing, &late].map(Drain::cut_on_drop));
        writing.spawn(self.audit_writer.run(written.clone()));
        writing.spawn(self.sign_ins.keep(written.clone()));
        self.audit.record(Record::new(Event::GatewayStarted { version: env!("CARGO_PKG_VERSION") }));
        background.spawn(self.upstreams.clone().sweep(self.drain.clone()));
        let edge = self.edge.clone();
        background.spawn(async move { edge.recheck().await });
        background.spawn(self.shares.clone().keep());
        let memory = outage::Memory { edge: self.edge.clone(), identities: self.identities.clone() };
        let watched = (self.store.clone(), self.single.clone());
        background.spawn(outage::watch(watched, memory, self.replaced.clone(), self.closed.clone()));
        background.spawn(leases::watch(self.registry.clone(), self.identities.clone(), self.closed.clone()));
        background.spawn(recheck(self.registry.clone(), self.store.clone(), self.closed.clone()));
        self.ci.execute(
            &self.registry,
            &self.store,
            &self.driver.changes,
            &self.driver.metrics,
            &self.drain,
            &background,
        );
        let parts = (&self.registry, &self.store, &*self.driver.configs);
        self.environments.execute(parts, &self.drain, &background, &self.closed);
        execute(self.driver, &self.ci, &background, &self.closed);
        let public = self.public.clone();
        background.spawn(async move { public.greet_provider().await });
        for tls in self.certificates {
            background.spawn(tls.watch(self.drain.draining().clone()));
        }
        if let Some(renewal) = self.renewal {
            background.spawn(renewal.run(self.drain.draining().clone()));
        }
        let ended = CancellationToken::new();
        let lost = &self.admin.listeners;
        let (listener, drain) = (self.listeners.public, self.drain.clone());
        let served = serve_users(listener, server, for_users, drain, late.clone(), ended.clone());
        background.spawn(lost.clone().serving(served, ended.clone()));
        let agents = self.agents.clone();
        let serve = move |connection| agents.serve(connection);
        // Sessions outlive their links in a drain too: agents have to be accepted for as long as there are sessions.
        let (listener, drain, closed) = (self.listeners.agents, self.drain.clone(), self.closed.clone());
        let served = async move { listener.run(drain, closed, for_agents, serve).await };
        background.spawn(lost.clone().serving(served, self.closed.clone()));
        if let Some(listener) = self.listeners.admin {
            let router = admin::router(self.admin.clone());
            let serve = move |connection| admin::serve(router.clone(), connection);
            let (drain, stopped) = (background.clone(), background.draining().clone());
            background.spawn(async move { listener.run(drain, stopped, Placing::Here, serve).await });
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.replaced.cancelled() => {}
        }
        info!(tasks = self.drain.live(), "draining");
        let drained = drain_sessions(&self.registry, &self.drain, &self.closed, self.config.timeouts.drain).await;
        self.upstreams.close().await;
        ended.cancel();
        late.run(LATE_GRACE).await;
        background.run(std::time::Duration::ZERO).await;
        self.audit.record(Record::new(Event::GatewayStopped));
        written.cancel();
        writing.run(AUDIT_GRACE).await;
        self.store.close().await;
        drained
    }
}

impl App {
    /// Chooses the worker of each connection: users go to the thread of the agent that they ask for.
    fn placing(&self, workers: &Workers) -> (Placing, Placing) {
        if !workers.are_several() {
            return (Placing::Here, Placing::Here);
        }
        let (edge, registry, of) = (self.edge.clone(), self.registry.clone(), workers.clone());
        let place = move |first: First<'_>| {
            let host = match first {
                First::ServerName(name) => name,
                First::Bytes(head) => host_in(head)?,
            };
            match edge.rules.parse(host) {
                Ok(HostTarget::Workspace { name, .. }) => of.of(registry.current(&name)?.peer()),
                Ok(HostTarget::Public) | Err(_) => None,
            }
        };
        (Placing::ByRequest(workers.clone(), Arc::new(place)), Placing::ByPeer(workers.clone()))
    }
}

/// Accepts users' connections until the gateway ends. During a drain, each gets an answer that says so: a refused
/// connection would look like a fault, and say nothing of when to come back.
async fn serve_users(
    listener: Listener,
    server: Server,
    placing: Placing,
    drain: Drain,
    late: Drain,
    ended: CancellationToken,
) {
    let serve = move |connection| server.serve(connection);
    let draining = drain.draining().clone();
    listener.run(drain, draining, placing, serve.clone()).await;
    // The drain does not wait for these: they are answered at once.
    listener.run(late, ended, Placing::Here, serve).await;
}

fn admin_pages(
    config: &Config,
    operated: &Operated<'_>,
    store: &Store,
    (budget, metrics): (Arc<ReplicaBudget>, Metrics),
    (audit, drain): (&Audit, &Drain),
) -> Arc<Admin> {
    Arc::new(Admin {
        certificates: operated.certificates.to_vec(),
        hosts: config.listen.admin_hosts.clone(),
        registry: operated.registry.clone(),
        upstreams: operated.upstreams.clone(),
        budget,
        metrics,
        shares: operated.shares.clone(),
        audit: audit.clone(),
        drain: drain.clone(),
        availability: store.availability().clone(),
        listeners: admin::Listeners::default(),
    })
}

fn admission(
    config: &Config,
    registry: &Arc<Registry>,
    budget: &Arc<ReplicaBudget>,
    drain: &Drain,
    edge: &Edge,
) -> Admission {
    Admission {
        registry: registry.clone(),
        budget: budget.clone(),
        owners: Owners::default(),
        tunnel: config.tunnel.clone(),
        requests_max: config.limits.requests_per_workspace,
        workspace_url: edge.site.workspace(&format!("{{name}}.{}", edge.rules.zone()), "/").into(),
        drain: drain.clone(),
    }
}

/// Starts the tasks that reconcile workspaces.
fn execute(driver: Arc<Driver>, ci: &CiParts, background: &Drain, closed: &CancellationToken) {
    background.spawn(driver.configs.clone().watch(driver.store.clone(), closed.clone()));
    let timers = Timers::new(driver.store.clone(), driver.changes.clone(), Arc::new(wall_clock));
    background.spawn(ci.limit(timers).run(closed.clone()));
    background.spawn(driver.run(closed.clone()));
}

/// Tells agents that the gateway drains, and ends requests, streams and sessions.
async fn drain_sessions(
    registry: &Registry,
    drain: &Drain,
    closed: &CancellationToken,
    deadline: std::time::Duration,
) -> Drained {
    for session in &registry.all() {
        session.tunnel.drain(deadline, REDIAL_AFTER);
    }
    // Requests and streams first; sessions carry them, and are closed when these are through or time is up.
    let (drained, cut) = tokio::join!(drain.run(deadline), close_when_quiet(registry, closed, deadline));
    let drained = match drained {
        Drained::Clean if cut == 0 => Drained::Clean,
        Drained::Clean => Drained::Cut(cut),
        Drained::Cut(tasks) => Drained::Cut(tasks.max(cut)),
    };
    if let Drained::Cut(tasks) = drained {
        warn!(tasks, "cut what did not finish in time");
    }
    drained
}

/// Closes sessions once no request uses them any more, so that a drain takes no longer than its work, and then stops
/// accepting agents. Returns how many requests and streams were cut because the time was up.
async fn close_when_quiet(registry: &Registry, closed: &CancellationToken, deadline: std::time::Duration) -> usize {
    /// Interval of checks whether requests are through.
    const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
    let by = Instant::now() + deadline.saturating_sub(2 * LOOK_INTERVAL);
    while registry.all().iter().any(|session| session.in_flight() > 0) && Instant::now() < by {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let mut cut = 0;
    for session in registry.all() {
        cut += session.in_flight();
        session.tunnel.close(Reason::Shutdown, "the gateway is shutting down");
    }
    closed.cancel();
    cut
}

/// Opens the audit log. Its writer asks the store for the ids of tokens, so that no other task has to.
fn open_audit(config: &Config, store: &Store, metrics: &Metrics) -> Result<(Audit, Writer), StartError> {
    let store = store.clone();
    let token_ids: TokenIds = Box::new(move |hash| {
        let store = store.clone();
        Box::pin(async move { Some(store.token_by_hash(&hash).await.ok()??.id.to_string()) })
    });
    let (audit, writer) = Audit::open(&config.audit, wall_clock_ms, token_ids, metrics.audit_lost())
        .map_err(|source| StartError::Audit { path: config.audit.path.clone().unwrap_or_default(), source })?;
    Ok((audit, if config.log.format == LogFormat::Text { writer.in_words() } else { writer }))
}

/// Returns the gateway's address for workspaces in a cluster: the public host, on the port for agents.
fn workspaces_see(config: &Config, listeners: &Listeners) -> Result<SeenFromWorkspaces, StartError> {
    let agents = listeners.agents.local_addr().map_err(StartError::Address)?;
    Ok(SeenFromWorkspaces::of(config, agents.port()))
}

/// Gets the gateway's own certificates if it is configured to, and returns their renewal.
async fn certified(config: &Config) -> Result<Option<Renewal>, AcmeError> {
    let renewal = config.tls.acme.clone().map(|acme| Renewal::new(acme, wall_clock));
    if let Some(renewal) = &renewal {
        renewal.ensure().await?;
    }
    Ok(renewal)
}

/// Parts that the gateway manages for users and programs.
type Lives<'a> =
    (&'a Workspaces, &'a Arc<ClusterConfigs>, (&'a CiParts, Jobs, api::EnvironmentParts), (&'a Drain, u16));

fn edge(
    config: &Config,
    (store, sign_ins): (&Store, &SignIns),
    registry: &Arc<Registry>,
    upstreams: &Arc<Upstreams>,
    (metrics, audit, shares): (&Metrics, &Audit, &Arc<Shares>),
    (lifecycles, cluster_configs, (ci, jobs, environments), (drain, agents_port)): Lives<'_>,
) -> Result<(Arc<Edge>, Arc<PublicHost>), StartError> {
    let public: http::Uri = config.public_url.to_string().parse().map_err(|_| BadPublicUrl)?;
    let site = Site::new(&public)?;
    let rules = HostRules::new(site.authority(), config.zone.clone()).map_err(|_| BadPublicUrl)?;
    let Auth { session_max: age_max, neighbour_ports, .. } = config.auth;
    let SignIns { sessions, devices, .. } = sign_ins.clone();
    let is_workspace_host = {
        let rules = rules.clone();
        Box::new(move |host: &str| matches!(rules.parse(host), Ok(HostTarget::Workspace { .. })))
    };
    let SignInParts { sign_in, provider } = sign_in::parts(config, &site, &sessions, is_workspace_host)?;
    let remembered = store.availability();
    let identities = Arc::new(Identities::bridging(sessions.clone(), remembered.clone()));
    let workspaces = Arc::new(Cache::bridging(remembered.clone()));
    let public_ports = Arc::new(PublicPorts::default());
    let api = Api::new(ApiParts {
        public_ports: public_ports.clone(),
        store: store.clone(),
        registry: registry.clone(),
        site: site.clone(),
        rules: rules.clone(),
        sessions,
        devices,
        identities: identities.clone(),
        workspaces: workspaces.clone(),
        audit: audit.clone(),
        lifecycles: lifecycles.clone(),
        cluster_configs: cluster_configs.clone(),
        downloads: ci.downloads.clone(),
        definitions: Arc::new(jobs) as Arc<dyn Definitions>,
        environments,
        external_max: config.limits.external_workspaces_per_user,
        drain: drain.clone(),
    });
    let mut start = [0; 8];
    SystemRandom::new().fill(&mut start).map_err(|_| StartError::Randomness)?;
    debug_assert_eq!(config.public_url.scheme() == Scheme::Https, site.is_https());
    let followers = Arc::new(Followers::default());
    let failures = Arc::new(Failures {
        metrics: metrics.clone(),
        shares: shares.clone(),
        traces: Traces::new(u64::from_be_bytes(start)),
    });
    let sign_in = Arc::new(sign_in);
    let visitors = Arc::new(Visitors {
        identities,
        users: Cache::bridging(remembered.clone()),
        groups_age_max: age_max,
        sign_in: sign_in.clone(),
        store: store.clone(),
    });
    let public = Arc::new(PublicHost {
        rules: rules.clone(),
        site: site.clone(),
        visitors: visitors.clone(),
        sign_in,
        provider,
        followers: followers.clone(),
        failures: failures.clone(),
        api,
        audit: audit.clone(),
        registry: registry.clone(),
        store: store.clone(),
    });
    let edge = Arc::new(Edge {
        rules,
        forwarder: forwarder(config, &site, upstreams),
        site,
        limits: ShapeLimits {
            uri_bytes_max: URI_BYTES_MAX,
            header_count_max: config.limits.headers,
            header_bytes_max: usize::try_from(config.limits.header_bytes).unwrap_or(usize::MAX),
        },
        visitors,
        workspaces,
        lives: Cache::bridging(remembered.clone()),
        public_ports,
        living: Living::new(audit.clone()),
        followers,
        neighbours: Neighbours::new(neighbour_ports),
        failures,
        audit: audit.clone(),
        public: public.clone(),
        registry: registry.clone(),
        store: store.clone(),
        drain: drain.clone(),
        agents_port,
    });
    Ok((edge, public))
}

fn forwarder(config: &Config, site: &Site, upstreams: &Arc<Upstreams>) -> Forwarder {
    let own = site.cookies();
    Forwarder {
        upstreams: upstreams.clone(),
        timeouts: config.timeouts.clone(),
        cookies: CookieNames::new(own.session, own.pre),
        zone: config.zone.clone(),
    }
}
