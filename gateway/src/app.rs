//! Builds a gateway from its configuration, binding everything first, and runs it until it is stopped. The only file, with
//! its submodules, that knows every crate.

mod assemble;
mod audit;
mod busy;
mod certificates;
mod changes;
mod ci;
mod drain;
mod duties;
mod environment_api;
mod environments;
mod error;
mod handover;
mod listeners;
mod outage;
mod redial;
mod reload;
mod replicas;
mod run;
mod shared_sign_ins;
mod sign_in;
mod sign_ins;
mod traces;
mod workspace_counts;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::assemble::Base;
use self::audit::AuditTasks;
use self::certificates::OwnCertificate;
use self::ci::CiParts;
use self::environments::EnvironmentParts;
use self::handover::Succession;
pub use self::handover::{Inheritance, ReplaceError};
use self::listeners::{ListenerTls, Listeners};
use self::reload::ReloadedTls;
use self::replicas::{PeerPort, ReplicaParts};
use self::sign_ins::SignIns;
use self::traces::SpanTask;
use gateway_agents::identity::AgentIdentities;
use gateway_agents::registry::Registry;
use gateway_agents::service::AgentService;
use gateway_auth::sign_in::link::SignInLink;
use gateway_config::{Config, Directory};
use gateway_edge::admin::Admin;
use gateway_edge::service::Edge;
use gateway_environments::service::Environments;
use gateway_net::acme::Renewal;
use gateway_net::handover::Predecessor;
use gateway_net::limits::UsageLimits;
use gateway_net::listen::Listener;
use gateway_net::tls::Tls;
use gateway_site::public_host::PublicHost;
use gateway_store::{PATIENCE, SingleGateway, Store, wall_clock};
use gateway_workspaces::changes::Changes;
use gateway_workspaces::cluster_configs::ClusterConfigs;
use gateway_workspaces::kubernetes::KubernetesController;
use gateway_workspaces::workspace_templates::WorkspaceTemplates;

pub use self::error::StartError;
pub use self::reload::ConfigSource;
pub use self::sign_in::{DEV_USER, SignInSetupError, configured_provider};

/// A gateway whose listeners are bound.
#[derive(Debug)]
pub struct App {
    config: Config,
    base: Base,
    edge: Arc<Edge>,
    public: Arc<PublicHost>,
    agents: Arc<AgentService>,
    identities: Arc<AgentIdentities>,
    admin: Arc<Admin>,
    /// Lock that entitles this gateway to serve the store.
    single: Arc<SingleGateway>,
    /// The processes of this host before and after this one.
    succession: Succession,
    /// Cancelled once another gateway serves the store.
    replaced: CancellationToken,
    /// Cancelled once all sessions are closed, so that none can go on.
    closed: CancellationToken,
    listeners: Listeners,
    tls: ReloadedTls,
    audit: AuditTasks,
    spans: SpanTask,
    renewal: Option<Renewal>,
    controller: Arc<KubernetesController>,
    templates: Arc<WorkspaceTemplates>,
    ci: CiParts,
    environments: EnvironmentParts,
    sign_ins: SignIns,
    /// This process among other replicas.
    replica: Option<ReplicaParts>,
}

/// Parts that are bound and read before the store is opened.
struct Bound {
    single: Arc<SingleGateway>,
    own: OwnCertificate,
    certificates: Vec<Arc<Tls>>,
    tls: ReloadedTls,
    limits: Arc<UsageLimits>,
    listeners: Listeners,
    peers: Option<PeerPort>,
    predecessor: Option<Predecessor>,
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
        Self::bind_with(config, Inheritance::default()).await
    }

    /// Like [`App::bind`], with what a service manager or the process whose place this one takes has opened. Sockets are used if
    /// they match a listener.
    ///
    /// # Errors
    /// [`StartError`] names what to change.
    pub async fn bind_with(mut config: Config, inheritance: Inheritance) -> Result<Self, StartError> {
        let Inheritance { sockets, lock, predecessor } = inheritance;
        gateway_config::advice(&config).iter().for_each(|advice| warn!("{advice}"));
        // First of all: while another gateway serves, its addresses are not free either.
        let single = Arc::new(match (&config.directory, lock) {
            // Its lease among the replicas entitles it.
            (Directory::Store(_), _) => SingleGateway::shared(&config.store),
            (Directory::Memory | Directory::Host(_), Some(lock)) => SingleGateway::handed_over(&config.store, lock),
            (Directory::Memory | Directory::Host(_), None) => SingleGateway::take(&config.store, PATIENCE).await?,
        });
        let own = Box::pin(OwnCertificate::ensure(&config)).await?;
        let tls = ListenerTls::load(&config)?;
        let certificates = tls.certificates();
        let reloaded = ReloadedTls { public: tls.public.clone(), agents: tls.agents.clone(), source: None };
        let limits = UsageLimits::new(&config.limits, Instant::now().into_std());
        let listeners = Listeners::bind(&config, &limits, tls, sockets)?;
        listeners.settle(&mut config)?;
        let peers = PeerPort::bind(&config).await?;
        let bound = Bound { single, own, certificates, tls: reloaded, limits, listeners, peers, predecessor };
        // On the heap: it holds all parts of a gateway.
        Box::pin(assemble::assemble(config, bound)).await
    }

    /// Reloads the configuration from `source` on each SIGHUP, while it runs.
    #[must_use]
    pub fn reloading(mut self, source: ConfigSource) -> Self {
        self.tls.source = Some(source);
        self
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
        &self.base.store
    }

    /// Returns the channel of changes to workspaces.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.controller.changes
    }

    /// Returns the live sessions.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.base.registry
    }

    /// Returns the environments of jobs.
    #[must_use]
    pub fn environments(&self) -> &Environments {
        &self.environments.environments
    }

    /// Returns the configurations of clusters.
    #[must_use]
    pub fn cluster_configs(&self) -> &Arc<ClusterConfigs> {
        &self.controller.configs
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
        Ok(self.public.sign_in().issue_link(Instant::now())?)
    }

    /// Returns the token that is cancelled when another gateway serves the same database: this one then drains, and its
    /// end is a failure.
    #[must_use]
    pub fn replaced(&self) -> CancellationToken {
        self.replaced.clone()
    }
}
