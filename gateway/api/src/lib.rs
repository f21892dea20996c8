//! The API of the public host: JSON under [`PREFIX`], described by `openapi.json`, with failures as problem documents
//! (RFC 9457); and the gRPC services of `proto/schema/environments/v1`, on tonic's generated traits.
//!
//! * One file for each resource; `openapi.json` is generated from their types. `grpc` has the services.
//! * [`admin`]: what operators read and do. Each function takes an `OperatorGrant`.
//! * [`page`] and `confirm`: the page on which users confirm sign-ins of programs, and what it shares with others.
//! * [`stack`]: what layers and handlers of the public host have in common.
//!
//! Pages (`gateway_dashboard`) call the same functions as the routes do, so what a page may is decided here as well.
//!
//! The caller is identified before a request gets here, as on every other host. A cookie speaks for its user only if no
//! other site's page can have caused the request. Changes are written to the audit log, and a change that could not be
//! recorded is not made.

pub mod admin;
mod agents;
pub mod answer;
pub mod audited;
pub mod body;
mod ci;
mod clusters;
mod confirm;
mod device;
mod environments;
pub mod etag;
pub mod events;
mod explain;
pub mod external;
mod git_credentials;
mod grpc;
pub mod idle;
pub mod lifecycle;
mod list;
pub mod openapi;
pub mod page;
pub mod permits;
pub mod ports;
pub mod presence;
pub mod problem;
pub mod replicas;
pub mod sessions;
pub mod shares;
pub mod stack;
mod state;
pub mod tokens;
mod whoami;
mod workspace_templates;
mod workspaces;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, delete, get, post};
use http::request::Parts;
use tokio::time::Instant;
use tower::ServiceBuilder;
use tunnel_link::drain::Drain;

use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_agents::traffic::Traffic;
use gateway_auth::attempts::Attempts;
use gateway_auth::browser::{BrowserSessions, session_name};
use gateway_auth::cache::Cache;
use gateway_auth::device::Devices;
use gateway_auth::policy::{OperatorGrant, Purpose, RequestShape, RequestSource};
use gateway_auth::public_ports::PublicPorts;
use gateway_auth::request::{Identities, OfferedCredential};
use gateway_auth::site::Site;
use gateway_ci::downloads::Downloads;
use gateway_edge::service::FailedRequests;
use gateway_edge::watches::Watches;
use gateway_git::credentials::GitCredentials;
use gateway_http::host::HostRules;
use gateway_http::paths;
use gateway_net::audit::{Actor, Audit, AuditEvent, AuditRecord, Credential, Text, Unrecordable};
use gateway_store::{Store, Workspace};
use gateway_types::principal::{Principal, Via};
use gateway_types::{Port, UserName, WorkspaceName};
use gateway_workspaces::cluster_configs::ClusterConfigs;
use gateway_workspaces::orphans::Orphans;
use gateway_workspaces::service::Workspaces;

use crate::stack::Stack;
pub use admin::{AdminParts, EffectiveSetting, WatchedProvider};
pub use answer::RefusalCode;
pub use ci::{Definitions, NoDefinition};
pub use confirm::DEVICE_PATH;
pub use environments::{EnvironmentParts, VouchedCaller};
use permits::PermitPool;
use problem::{ApiProblem, ProblemRow};

/// Path of the API on the public host.
const PREFIX: &str = "/api/v1";

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Wrong user codes of one address, and of one user, before they have to wait.
const CODE_ATTEMPTS_MAX: u32 = 10;

/// Event streams that one user, and all users, may have open.
const FOLLOWERS: (usize, usize) = (16, 2_000);

/// Large bodies that one user, and all users, may have under way.
const UPLOADS: (usize, usize) = (2, 16);

/// Parts of the gateway that the API works on.
pub struct ApiParts {
    /// The database.
    pub store: Store,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// Other replicas, which have sessions too.
    pub peers: MaybePeers,
    /// The public address.
    pub site: Site,
    /// Hosts of workspaces.
    pub rules: HostRules,
    /// Browser sessions.
    pub sessions: Arc<BrowserSessions>,
    /// Sign-ins of programs.
    pub devices: Arc<Devices>,
    /// Principals by their credentials.
    pub identities: Arc<Identities>,
    /// Owners and shares of workspaces, as the store had them.
    pub workspaces: Arc<Cache<WorkspaceName, Workspace>>,
    /// Ports that are open without a sign-in.
    pub public_ports: Arc<PublicPorts>,
    /// What users have open at workspaces.
    pub accesses: Arc<Watches>,
    /// Traffic of agents' sessions over the last hour.
    pub traffic: Arc<Traffic>,
    /// The audit log.
    pub audit: Audit,
    /// Takes owners' requests for their workspaces.
    pub lifecycles: Workspaces,
    /// Permissions of clusters.
    pub cluster_configs: Arc<ClusterConfigs>,
    /// Workspaces in clusters without a record.
    pub orphans: Orphans,
    /// The agent's programs, for CI jobs.
    pub downloads: Arc<Downloads>,
    /// Definitions of CI jobs.
    pub definitions: Arc<dyn Definitions>,
    /// Environments of CI jobs.
    pub environments: EnvironmentParts,
    /// Users' credentials for git servers.
    pub git: Arc<GitCredentials>,
    /// External workspaces that one user may make.
    pub external_max: u32,
    /// Failed requests of this replica.
    pub failed: Arc<FailedRequests>,
    /// What operators alone see.
    pub admin: AdminParts,
    /// Drain to which requests belong.
    pub drain: Drain,
}

impl ApiParts {
    /// Returns the address of a port of a workspace, or of its default one, as its owner uses it: by path where the
    /// gateway has `paths_url`, or on a host of its own. The agent's own pages have the latter alone.
    #[must_use]
    pub fn address(&self, name: &WorkspaceName, port: Option<Port>) -> String {
        let by_path = || self.site.by_path(&paths::format(name, port));
        let is_agents_page = port.is_some_and(Port::is_agents_page);
        (!is_agents_page).then(by_path).flatten().unwrap_or_else(|| self.address_on_host(name, port))
    }

    /// Returns the address on a host of its own, which those with a share use.
    #[must_use]
    pub fn address_on_host(&self, name: &WorkspaceName, port: Option<Port>) -> String {
        self.site.workspace(&self.rules.format(name, port), "/")
    }
}

/// The parts, and what the API itself remembers.
pub struct ApiShared {
    parts: ApiParts,
    codes_by_address: Attempts<IpAddr>,
    codes_by_user: Attempts<UserName>,
    /// Event streams that are open.
    pub followers: Arc<PermitPool>,
    job_followers: Arc<PermitPool<u64>>,
    operator_followers: Arc<PermitPool>,
    /// Large bodies under way.
    pub uploads: Arc<PermitPool>,
}

impl std::ops::Deref for ApiShared {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.parts
    }
}

/// Caller of the API, as far as it is known.
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Option<Principal>,
    offered: OfferedCredential,
    /// Proof of a caller that is no user.
    vouched: Option<VouchedCaller>,
    /// What is asked for is a page for people, which they may come to by a link.
    is_page: bool,
    peer: IpAddr,
    /// The page that caused the request.
    source: RequestSource,
    trace: Arc<str>,
}

impl Caller {
    /// Takes the edge's findings. A principal by cookie counts only if no other site can have caused the request: for
    /// the API, unlike for pages, not even by a link.
    pub fn new(
        principal: Option<Principal>,
        offered: OfferedCredential,
        is_page: bool,
        shape: RequestShape,
        peer: IpAddr,
        trace: &str,
    ) -> Self {
        let is_opened_page = is_page && shape.purpose == Purpose::PageVisit;
        let principal = principal.filter(|principal| match principal.via {
            Via::ApiToken => true,
            Via::Browser => is_opened_page || cookie_counts(shape),
        });
        Self { principal, offered, vouched: None, is_page, peer, source: shape.source, trace: trace.into() }
    }

    /// Leaves out a user who is known by a browser's cookie alone.
    fn without_cookie(self) -> Self {
        let principal = self.principal.filter(|principal| match principal.via {
            Via::ApiToken => true,
            Via::Browser => false,
        });
        Self { principal, ..self }
    }

    /// Adds the proof of a caller that is no user.
    pub fn vouched(self, vouched: Option<VouchedCaller>) -> Self {
        Self { vouched, ..self }
    }

    /// Returns whether this is a visit to a page by a visitor who has to sign in first.
    pub fn has_to_sign_in(&self, shape: RequestShape) -> bool {
        self.is_page && shape.purpose != Purpose::Change && self.principal.is_none()
    }

    /// Returns the proven identity, with its proof.
    pub fn proven(&self) -> Option<Proof> {
        if let Some(VouchedCaller::Job(_)) = &self.vouched {
            return Some(Proof::Job);
        }
        Some(Proof::User(self.offered, self.principal.as_ref()?.user.clone()))
    }

    /// Returns the id that leads from the answer to the log.
    pub fn trace(&self) -> Arc<str> {
        self.trace.clone()
    }

    /// Returns the user who is signed in.
    ///
    /// # Errors
    /// `sign_in_required`.
    pub fn user(&self) -> Result<&Principal, ProblemRow> {
        self.principal.as_ref().ok_or_else(|| ApiProblem::SignInRequired.into())
    }

    /// Decides whether the caller may act as operator.
    ///
    /// # Errors
    /// No user is signed in, or the user is no operator.
    pub fn operator(&self, api: &ApiParts) -> Result<OperatorGrant, ProblemRow> {
        admin::operator(api, self.user()?)
    }

    /// Makes a record of an event that this caller caused.
    pub fn did(&self, event: AuditEvent) -> AuditRecord {
        let credential = match &self.offered {
            OfferedCredential::Session(id) => Credential::Session { id: Text::of(session_name(id)) },
            OfferedCredential::Token(hash) => Credential::TokenHash(*hash),
            OfferedCredential::Nothing | OfferedCredential::Refused => Credential::None,
        };
        AuditRecord::new(event).at_peer(self.peer).with(credential).traced(&self.trace)
    }
}

/// Proof behind a request.
#[derive(Clone, Debug)]
pub enum Proof {
    /// A user, by the credential that they offered: it may end.
    User(OfferedCredential, UserName),
    /// A CI job, by a token that was good when it asked.
    Job,
}

/// Tells whether a cookie speaks for its user on the public host.
fn cookie_counts(shape: RequestShape) -> bool {
    match (shape.source, shape.purpose) {
        (RequestSource::SameOrigin, _) => true,
        // The address bar. A POST cannot be typed there.
        (RequestSource::UserInitiated, Purpose::PageVisit | Purpose::Read) => true,
        // An old browser, or plain HTTP: what it reads cannot be seen by the page that made it ask.
        (RequestSource::Unstated, Purpose::PageVisit | Purpose::Read) => true,
        (RequestSource::UserInitiated | RequestSource::Unstated, Purpose::Change) => false,
        (RequestSource::SameWorkspace | RequestSource::Foreign, _) => false,
    }
}

/// Names a user as the author of a change.
pub fn actor(principal: &Principal) -> Actor {
    Actor::User(Text::of(&principal.user))
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ProblemRow;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ProblemRow> {
        // The edge puts one into each request; without it, no user is signed in.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| ApiProblem::SignInRequired.into())
    }
}

impl From<Unrecordable> for ProblemRow {
    fn from(_: Unrecordable) -> Self {
        ApiProblem::Overloaded { limit: "audit.queue" }.into()
    }
}

/// A path, its methods, and its handlers.
type Route = (&'static str, &'static [&'static str], MethodRouter<Arc<ApiShared>>);

/// Every path below [`PREFIX`] with its methods: what `openapi.json` describes too.
fn routes() -> Vec<Route> {
    let mut routes: Vec<Route> = vec![
        ("/openapi.json", &["get"], get(answer::openapi)),
        ("/whoami", &["get"], get(whoami::show)),
        ("/workspaces", &["get", "post"], get(workspaces::list).post(lifecycle::create)),
        (
            "/workspaces/{name}",
            &["delete", "get", "patch"],
            get(workspaces::show).patch(lifecycle::change).delete(lifecycle::remove),
        ),
        ("/workspaces/{name}/events", &["get"], get(events::follow)),
        ("/workspaces/{name}/hand-over", &["post"], post(external::hand_over_asked)),
        ("/workspaces/{name}/keep", &["post"], post(idle::keep)),
        ("/workspaces/{name}/shares", &["get", "put"], get(shares::show).put(shares::replace)),
        ("/agents", &["get"], get(agents::list)),
        ("/agents/{name}", &["get"], get(agents::show)),
        ("/replicas", &["get"], get(replicas::list)),
        ("/failures/{trace}", &["get"], get(explain::explain)),
        ("/ci/pipeline", &["get"], get(ci::pipeline)),
        ("/ci/agents/{sha256}", &["get"], get(ci::agent)),
        ("/tokens", &["get", "post"], get(tokens::list).post(tokens::create)),
        ("/tokens/{id}", &["delete"], delete(tokens::revoke)),
        ("/tokens/{id}/rotate", &["post"], post(tokens::rotate)),
        ("/git-credentials", &["get"], get(git_credentials::list)),
        ("/git-credentials/{host}", &["delete", "put"], delete(git_credentials::remove).put(git_credentials::put)),
        ("/sessions", &["delete", "get"], get(sessions::list).delete(sessions::end_all)),
        ("/sessions/{id}", &["delete"], delete(sessions::end)),
        ("/device", &["post"], post(device::ask)),
        ("/device/token", &["post"], post(device::poll)),
    ];
    routes.extend(admin::routes());
    routes.extend(clusters::routes());
    routes.extend(workspace_templates::routes());
    routes.extend(environments::routes());
    routes
}

/// The API, the services that are called over gRPC, and the page on which users confirm sign-ins of programs.
pub struct Api {
    router: Router,
    services: grpc::Services,
    shared: Arc<ApiShared>,
}

impl fmt::Debug for Api {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Makes the routes, with those of `pages` beside them.
    #[must_use]
    pub fn new(parts: ApiParts, pages: Router<Arc<ApiShared>>) -> Self {
        let shared = Arc::new(ApiShared {
            parts,
            codes_by_address: Attempts::new(CODE_ATTEMPTS_MAX),
            codes_by_user: Attempts::new(CODE_ATTEMPTS_MAX),
            followers: PermitPool::new(FOLLOWERS.0, FOLLOWERS.1, "event_streams_per_user", "event_streams"),
            job_followers: environments::permits_of_jobs(),
            operator_followers: environments::permits_of_operators(),
            uploads: PermitPool::new(UPLOADS.0, UPLOADS.1, "uploads_per_user", "uploads"),
        });
        let api = routes().into_iter().fold(Router::new(), |router, (path, _, methods)| router.route(path, methods));
        let router = Router::new()
            .nest(PREFIX, api)
            .merge(pages)
            .route(DEVICE_PATH, get(confirm::show).post(confirm::decide))
            .fallback(async || ProblemRow::from(ApiProblem::NotFound))
            .method_not_allowed_fallback(async || ProblemRow::from(ApiProblem::MethodNotAllowed))
            // Bodies are read by `body`, which has a bound of its own.
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        Self { router, services: grpc::Services::new(shared.clone()), shared }
    }

    /// Checks whether a request carries a proof that is no user's, on paths that accept one.
    ///
    /// Cancel safety: safe.
    pub async fn vouched(&self, parts: &Parts, now: Instant) -> Option<VouchedCaller> {
        self.shared.environments.vouch(parts, now).await
    }

    /// Returns whether a request to the public host is a call of a service.
    pub fn is_grpc(method: &http::Method, headers: &http::HeaderMap) -> bool {
        grpc::is_call(method, headers)
    }

    /// Returns whether a path of the public host is answered here.
    pub fn has(path: &str) -> bool {
        path == DEVICE_PATH || path.strip_prefix("/api").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the service that answers requests of identified callers. A body is read as far as the API needs it, and never
    /// beyond what the path takes.
    ///
    /// Cancel safety: a change that was begun is made or not made, as a whole.
    pub fn documents(&self) -> Stack {
        Stack::new(ServiceBuilder::new().layer(from_fn(answer::seal)).service(self.router.clone()))
    }

    /// Returns the service that answers gRPC calls of identified callers.
    ///
    /// Cancel safety: a change that was begun is made or not made, as a whole.
    pub fn services(&self) -> Stack {
        Stack::new(ServiceBuilder::new().layer(from_fn(grpc::drop_cookies)).service(self.services.clone()))
    }

    /// Returns the parts of the gateway that the API works on.
    pub fn parts(&self) -> &ApiParts {
        &self.shared.parts
    }
}

#[cfg(test)]
mod tests;
