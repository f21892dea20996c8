//! Builds the parts of a gateway from its configuration, from the foot to the head.

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;
use tunnel_proto::mux::ReplicaBudget;

use super::audit::{self, AuditTasks};
use super::ci::CiParts;
use super::environments::EnvironmentParts;
use super::handover::Succession;
use super::listeners::Listeners;
use super::replicas::{Joined, PeerPort, ReplicaParts};
use super::sign_in::{self, SignInParts};
use super::sign_ins::SignIns;
use super::traces::{self, TraceParts};
use super::{App, Bound, StartError, environment_api, reload};
use gateway_agents::admission::{Admission, Owners, SessionFactory};
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_agents::service::AgentService;
use gateway_agents::traffic::Traffic;
use gateway_api::{AdminParts, ApiParts, WatchedProvider};
use gateway_auth::cache::Cache;
use gateway_auth::oidc::provider::Provider;
use gateway_auth::public_ports::PublicPorts;
use gateway_auth::request::Identities;
use gateway_auth::site::{BadPublicUrl, Site};
use gateway_config::{Config, Directory, StoreUrl};
use gateway_edge::admin::{self, Admin};
use gateway_edge::cookies::CookieNames;
use gateway_edge::event_streams::EventStreams;
use gateway_edge::forward::Forwarder;
use gateway_edge::guard::ShapeLimits;
use gateway_edge::service::{Access, Edge, Failures, Hosts, Neighbours, Traces, Visitors, expected_failures};
use gateway_edge::traces::Tracer;
use gateway_edge::upstream::Upstreams;
use gateway_edge::watches::Watches;
use gateway_git::credentials::GitCredentials;
use gateway_http::host::{HostRules, HostTarget};
use gateway_http::respond::PublicLinks;
use gateway_net::audit::Audit;
use gateway_net::limits::UsageLimits;
use gateway_net::telemetry::Metrics;
use gateway_net::tls::Tls;
use gateway_site::public_host::{PublicHost, PublicParts};
use gateway_store::{Store, Workspace, wall_clock, wall_clock_ms};
use gateway_types::{Scheme, WorkspaceName};
use gateway_workspaces::addresses::Addresses as SeenFromWorkspaces;
use gateway_workspaces::changes::Changes;
use gateway_workspaces::cluster_configs::ClusterConfigs;
use gateway_workspaces::kubernetes::KubernetesController;
use gateway_workspaces::orphans::Orphans;
use gateway_workspaces::service::Workspaces;
use gateway_workspaces::workspace_templates::WorkspaceTemplates;

/// Longest request target, in bytes: hyper refuses longer ones on its own.
const URI_BYTES_MAX: usize = 32 * 1024;

/// Parts that most others stand on.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) store: Store,
    pub(super) registry: Arc<Registry>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) metrics: Metrics,
    pub(super) audit: Audit,
    pub(super) traffic: Arc<Traffic>,
    pub(super) limits: Arc<UsageLimits>,
    pub(super) drain: Drain,
}

/// Parts that workspace hosts and the public host share.
struct UserFacing {
    visitors: Arc<Visitors>,
    failures: Arc<Failures>,
    followers: Arc<EventStreams>,
    workspaces: Arc<Cache<WorkspaceName, Workspace>>,
    public_ports: Arc<PublicPorts>,
    watches: Arc<Watches>,
}

/// Services that the API offers to users and programs.
struct Services {
    workspaces: Workspaces,
    cluster_configs: Arc<ClusterConfigs>,
    git: Arc<GitCredentials>,
    ci: CiParts,
    jobs: super::ci::Jobs,
    environments: gateway_api::EnvironmentParts,
    orphans: Orphans,
    peers: MaybePeers,
}

/// Opens the store, and builds a gateway that can run from it and the bound parts.
pub(super) async fn assemble(config: Config, bound: Bound) -> Result<App, StartError> {
    let Bound { single, own, certificates, tls, limits, listeners, peers, predecessor } = bound;
    let (renewal, store) = Box::pin(own.with_store(&config)).await?;
    let (base, audit, joined) = Base::open(&config, store, limits, peers).await?;
    let replica = joined.map(|joined| ReplicaParts::new(joined, &base));
    let peers = ReplicaParts::peers(replica.as_ref());
    let changes = Changes::default();
    let seen = workspaces_see(&config, &listeners)?;
    let ci = CiParts::new(&config, &seen, &base.store).await?;
    let cluster_configs = ClusterConfigs::open(config.agents_dir.clone(), &base.store).await?;
    let templates = WorkspaceTemplates::open(config.agents_dir.clone()).await;
    let environments = EnvironmentParts::open(&config, &base, peers.clone()).await?;
    let identities = ci.identities(&config, &base.store)?;
    let sign_ins = SignIns::open(&config, &base.store).await?;
    let git = GitCredentials::new(base.store.clone(), &config.git, Arc::new(wall_clock)).map_err(StartError::Git)?;
    let services = Services {
        git: git.clone(),
        workspaces: ci
            .open_for(Workspaces::new(base.store.clone(), changes.clone(), seen).with_templates(templates.clone())),
        cluster_configs: cluster_configs.clone(),
        jobs: ci.jobs(&identities, &base.store),
        environments: environment_api::parts(&config, &environments.environments)?,
        orphans: Orphans::new(base.store.clone(), base.registry.clone(), peers.clone(), config.zone.clone()),
        ci: ci.clone(),
        peers: peers.clone(),
    };
    let (names, agents_at) = (hosts(&config)?, listeners.agents.local_addr().map_err(StartError::Address)?);
    let TraceParts { tracer, spans } = traces::open(&config, &base.metrics)?;
    let (public, shared) = public_host(&config, &base, &names, &sign_ins, services, &certificates, tracer)?;
    let edge = edge(&config, &base, names, shared, public.clone(), agents_at.port(), peers.clone());
    let budget = ReplicaBudget::new(config.tunnel.replica_budget);
    let closed = CancellationToken::new();
    let factory = session_factory(&config, &base, &budget, &edge, peers);
    let admission = Admission::new(identities.clone(), factory, config.limits.sessions_per_second);
    let agents = AgentService::new(identities.clone(), admission, &config, closed.clone(), base.audit.clone(), git);
    let controller = Arc::new(KubernetesController {
        registry: base.registry.clone(),
        store: base.store.clone(),
        changes,
        configs: cluster_configs,
        metrics: base.metrics.clone(),
        replica: replica.as_ref().map(ReplicaParts::incarnation),
    });
    let admin = admin_pages(&config, &base, &certificates, budget, agents.clone(), replica.as_ref());
    Ok(App {
        config,
        base,
        edge,
        public,
        agents,
        identities,
        admin,
        single,
        succession: Succession { predecessor, handed: CancellationToken::new() },
        replaced: CancellationToken::new(),
        closed,
        listeners,
        tls,
        audit,
        spans,
        renewal,
        controller,
        templates,
        ci,
        environments,
        sign_ins,
        replica,
    })
}

impl Base {
    /// Opens the audit log; returns the parts, and the tasks of the log.
    async fn open(
        config: &Config,
        store: Store,
        limits: Arc<UsageLimits>,
        peers: Option<PeerPort>,
    ) -> Result<(Self, AuditTasks, Option<Joined>), StartError> {
        let joined = Joined::new(config, &store, peers).await?;
        let sessions_max = config.limits.sessions;
        let registry = match &joined {
            Some(joined) => joined.registry(sessions_max),
            None => Registry::new(sessions_max, wall_clock_ms()),
        };
        let metrics = Metrics::default().sharing(store.availability().latency().clone());
        metrics.expect_failures(expected_failures());
        let (audit, tasks) = audit::open(config, &store, &metrics)?;
        let base = Self {
            registry: Arc::new(registry),
            upstreams: Upstreams::new(config.timeouts.upstream_idle),
            drain: Drain::default(),
            store,
            metrics,
            audit,
            traffic: Arc::default(),
            limits,
        };
        Ok((base, tasks, joined))
    }
}

/// Reads the names under which users reach the gateway.
fn hosts(config: &Config) -> Result<Hosts, StartError> {
    let public: http::Uri = config.public_url.to_string().parse().map_err(|_| BadPublicUrl)?;
    let site = Site::new(&public)?;
    debug_assert_eq!(config.public_url.scheme() == Scheme::Https, site.is_https());
    let rules = HostRules::new(site.authority(), config.zone.clone()).map_err(|_| BadPublicUrl)?;
    let Some(paths) = &config.paths_url else { return Ok(Hosts { rules, site }) };
    let rules = rules.with_paths(paths.host()).map_err(|_| BadPublicUrl)?;
    Ok(Hosts { rules, site: site.with_paths(paths.host()) })
}

/// Builds the public host, and the parts that it shares with workspace hosts.
fn public_host(
    config: &Config,
    base: &Base,
    names: &Hosts,
    sign_ins: &SignIns,
    services: Services,
    certificates: &[Arc<Tls>],
    tracer: Tracer,
) -> Result<(Arc<PublicHost>, UserFacing), StartError> {
    let Hosts { site, rules } = names;
    let SignIns { sessions, devices, .. } = sign_ins.clone();
    let is_workspace_host = {
        let rules = rules.clone();
        Box::new(move |host: &str| matches!(rules.parse(host), Ok(HostTarget::Workspace { .. } | HostTarget::Paths)))
    };
    let SignInParts { sign_in, provider } =
        sign_in::parts(config, site, sign_ins, is_workspace_host, base.metrics.latency())?;
    let sign_in = Arc::new(sign_in);
    let remembered = base.store.availability();
    let identities = Arc::new(Identities::bridging(sessions.clone(), remembered.clone()));
    let shared = UserFacing {
        visitors: Arc::new(Visitors {
            identities: identities.clone(),
            users: Cache::bridging(remembered.clone()),
            groups_age_max: config.auth.session_max,
            sign_in: sign_in.clone(),
            store: base.store.clone(),
        }),
        failures: Arc::new(Failures {
            metrics: base.metrics.clone(),
            limits: base.limits.clone(),
            traces: Traces::new(random_start()?),
            refusals: Arc::default(),
            failed: Arc::default(),
            links: PublicLinks::new(&site.public("/"), &site.public("/help")),
            tracer,
        }),
        followers: Arc::new(EventStreams::default()),
        workspaces: Arc::new(Cache::bridging(remembered.clone())),
        public_ports: Arc::new(PublicPorts::default()),
        watches: Arc::new(Watches::new(base.audit.clone(), Arc::default())),
    };
    let api = ApiParts {
        public_ports: shared.public_ports.clone(),
        accesses: shared.watches.clone(),
        traffic: base.traffic.clone(),
        store: base.store.clone(),
        registry: base.registry.clone(),
        peers: services.peers,
        site: site.clone(),
        rules: rules.clone(),
        sessions,
        devices,
        identities,
        workspaces: shared.workspaces.clone(),
        audit: base.audit.clone(),
        lifecycles: services.workspaces,
        cluster_configs: services.cluster_configs,
        downloads: services.ci.downloads,
        definitions: Arc::new(services.jobs),
        environments: services.environments,
        orphans: services.orphans,
        git: services.git,
        external_max: config.limits.external_workspaces_per_user,
        failed: shared.failures.failed.clone(),
        admin: admin_parts(config, &shared, provider.as_ref(), certificates),
        drain: base.drain.clone(),
    };
    let public = Arc::new(PublicHost::new(PublicParts {
        api,
        visitors: shared.visitors.clone(),
        sign_in,
        provider,
        followers: shared.followers.clone(),
        failures: shared.failures.clone(),
    }));
    Ok((public, shared))
}

/// Builds the parts that only operators see.
fn admin_parts(
    config: &Config,
    shared: &UserFacing,
    provider: Option<&Provider>,
    certificates: &[Arc<Tls>],
) -> AdminParts {
    let watched =
        |provider: &Provider| WatchedProvider { issuer: provider.issuer().to_string(), observer: provider.observer() };
    AdminParts {
        operators: ArcSwap::from_pointee(sign_in::operators(config)),
        settings: ArcSwap::from_pointee(reload::effective(config)),
        certificates: certificates.to_vec(),
        refusals: shared.failures.refusals.clone(),
        provider: provider.map(watched),
        directory: match &config.directory {
            Directory::Memory => "memory",
            Directory::Host(_) => "host",
            Directory::Store(_) => "store",
        },
        database: match &config.store.url {
            StoreUrl::SqliteFile(_) | StoreUrl::SqliteMemory => "sqlite",
            StoreUrl::Postgres(_) => "postgres",
        },
    }
}

/// Returns the number from which trace ids are counted, so that two processes do not give the same ones.
pub(super) fn random_start() -> Result<u64, StartError> {
    let mut start = [0; 8];
    SystemRandom::new().fill(&mut start).map_err(|_| StartError::Randomness)?;
    Ok(u64::from_be_bytes(start))
}

fn edge(
    config: &Config,
    base: &Base,
    names: Hosts,
    shared: UserFacing,
    public: Arc<PublicHost>,
    agents_port: u16,
    peers: MaybePeers,
) -> Arc<Edge> {
    Arc::new(Edge {
        forwarder: forwarder(config, &names.site, &base.upstreams),
        hosts: names,
        limits: ShapeLimits {
            uri_bytes_max: URI_BYTES_MAX,
            header_count_max: config.limits.headers,
            header_bytes_max: usize::try_from(config.limits.header_bytes).unwrap_or(usize::MAX),
        },
        access: Access {
            visitors: shared.visitors,
            workspaces: shared.workspaces,
            lives: Cache::bridging(base.store.availability().clone()),
            public_ports: shared.public_ports,
            watches: shared.watches,
            followers: shared.followers,
            store: base.store.clone(),
        },
        neighbours: Neighbours::new(neighbour_ports(config)),
        failures: shared.failures,
        audit: base.audit.clone(),
        public,
        registry: base.registry.clone(),
        peers,
        drain: base.drain.clone(),
        agents_port,
    })
}

/// Returns the number of further ports that a browser is led over after its sign-in. A tour is in the memory of one gateway, and
/// its next stop may be another replica's to answer. One that is replaced on its host loses the tours under way, which end at the
/// sign-in.
fn neighbour_ports(config: &Config) -> usize {
    match &config.directory {
        Directory::Memory | Directory::Host(_) => config.auth.neighbour_ports,
        Directory::Store(_) => 0,
    }
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

fn session_factory(
    config: &Config,
    base: &Base,
    budget: &Arc<ReplicaBudget>,
    edge: &Edge,
    peers: MaybePeers,
) -> SessionFactory {
    SessionFactory {
        registry: base.registry.clone(),
        budget: budget.clone(),
        owners: Owners::default(),
        tunnel: config.tunnel.clone(),
        requests_max: config.limits.requests_per_workspace,
        workspace_url: edge.hosts.site.workspace(&format!("{{name}}.{}", edge.hosts.rules.zone()), "/").into(),
        drain: base.drain.clone(),
        peers,
    }
}

fn admin_pages(
    config: &Config,
    base: &Base,
    certificates: &[Arc<Tls>],
    budget: Arc<ReplicaBudget>,
    agents: Arc<AgentService>,
    replica: Option<&ReplicaParts>,
) -> Arc<Admin> {
    Arc::new(Admin {
        certificates: certificates.to_vec(),
        hosts: config.listen.admin_hosts.clone(),
        registry: base.registry.clone(),
        upstreams: base.upstreams.clone(),
        budget,
        metrics: base.metrics.clone(),
        limits: base.limits.clone(),
        audit: base.audit.clone(),
        drain: base.drain.clone(),
        availability: base.store.availability().clone(),
        listeners: admin::Listeners::default(),
        lanes_carried: Box::new(move || agents.lanes_carried()),
        peers: ReplicaParts::peers(replica),
        peer_tls: replica.and_then(ReplicaParts::peer_tls),
    })
}

/// Returns the gateway's address for workspaces in a cluster: the public host, on the port for agents.
fn workspaces_see(config: &Config, listeners: &Listeners) -> Result<SeenFromWorkspaces, StartError> {
    let agents = listeners.agents.local_addr().map_err(StartError::Address)?;
    Ok(SeenFromWorkspaces::of(config, agents.port()))
}
