//! Every request's way through the edge, in one place and one order.

mod absent;
mod public;
mod recheck;
mod sign_in;
mod strangers;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use tracing::{debug, info};
use tunnel_link::drain::Drain;

use self::strangers::{count, overloaded, tried};
use super::address::Address;
use super::body::{ResponseBody, Slot};
use super::expect::{UnknownExpectation, expectation};
use super::followers::Followers;
use super::forward::{Forwarder, Route};
use super::guard::{self, ShapeLimits};
use super::host::{BadHost, HostRules, HostTarget, NoSuchHost, authority_of, server_name_agrees};
use super::living::{LastWatch, Living, UnderWay};
use super::preflight;
use super::respond::{self, Failure, Wants};
use super::tcp;
use super::websocket::{BadUpgrade, upgrade_asked};
use crate::api::Api;
use crate::audit::Audit;
use crate::auth::cache::{Cache, Unavailable};
use crate::auth::oidc::provider::Provider;
use crate::auth::policy::{Decision, Exposure, Grant, RequestShape, Target, decide};
use crate::auth::principal::{Principal, Standing};
use crate::auth::request::{At, Identities, Offered};
use crate::auth::shape::{self, Here};
use crate::auth::sign_in::{SignIn, Visit, path};
use crate::auth::site::Site;
use crate::limits::{Guest, Limit, Shares};
use crate::model::{Lifecycle, Port, Scheme, UserName, WorkspaceName};
use crate::net::stream::Negotiated;
use crate::sessions::registry::{LiveSession, Registry};
use crate::store::{Store, StoreError, TokenSubject, Workspace, wall_clock};
use crate::telemetry::Metrics;

/// How long a request waits for a session that has just lost its link. An agent redials at once; one that is gone for
/// longer is better told of than waited for.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// The edge: everything that answers a request of a user.
#[derive(Debug)]
pub struct Edge {
    pub(crate) rules: HostRules,
    pub(crate) site: Site,
    pub(crate) limits: ShapeLimits,
    pub(crate) identities: Arc<Identities>,
    /// What is known of users: who is disabled, and their groups.
    pub(crate) users: Cache<UserName, Standing>,
    /// How long groups count after the sign-in that brought them.
    pub(crate) groups_age_max: Duration,
    /// Who signs users in; `None` in dev mode.
    pub(crate) provider: Option<Provider>,
    pub(crate) workspaces: Arc<Cache<WorkspaceName, Workspace>>,
    /// What workspaces without a session are and are to be; only asked for where a request has failed already.
    pub(crate) lives: Cache<WorkspaceName, Lifecycle>,
    pub(crate) public_ports: PublicPorts,
    pub(crate) living: Living,
    pub(crate) followers: Followers,
    pub(crate) sign_in: SignIn,
    pub(crate) shares: Arc<Shares>,
    pub(crate) api: Api,
    pub(crate) audit: Audit,
    pub(crate) registry: Arc<Registry>,
    pub(crate) store: Store,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Metrics,
    pub(crate) drain: Drain,
    pub(crate) traces: Traces,
}

/// The connection that a request came on.
#[derive(Debug)]
pub struct Origin {
    /// The user's address.
    pub peer: IpAddr,
    /// What its handshake settled.
    pub negotiated: Negotiated,
    /// What the authority of its latest request means.
    pub(crate) address: Mutex<Option<Arc<Address>>>,
    /// What its latest request was let through by.
    pub(crate) watch: LastWatch,
    /// What it may.
    pub(crate) guest: Arc<Guest>,
}

impl Origin {
    /// Makes one for a new connection.
    pub(crate) fn new(peer: IpAddr, negotiated: Negotiated, guest: Arc<Guest>) -> Self {
        Self { peer, negotiated, address: Mutex::default(), watch: Mutex::default(), guest }
    }
}

/// The ports that anybody may reach, asked for as a whole ahead of time: so a request without a principal never waits for
/// the store, and takes the same time whether there is such a workspace or not.
#[derive(Debug, Default)]
pub(crate) struct PublicPorts {
    open: RwLock<HashSet<(WorkspaceName, Port)>>,
}

impl PublicPorts {
    fn contains(&self, workspace: &WorkspaceName, port: Port) -> bool {
        let open = self.open.read();
        !open.is_empty() && open.contains(&(workspace.clone(), port))
    }

    fn replace(&self, open: Vec<(WorkspaceName, Port)>) {
        *self.open.write() = open.into_iter().collect();
    }
}

/// Makes ids that a user can quote and an operator can find. They are no secrets: a random start and a count.
#[derive(Debug)]
pub(crate) struct Traces {
    start: u64,
    count: AtomicU64,
}

impl Traces {
    pub(crate) fn new(start: u64) -> Self {
        Self { start, count: AtomicU64::new(0) }
    }

    fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // An odd factor permutes the numbers, so that neighbours do not look alike.
        format!("{:016x}{:016x}", self.start, count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// An answer of the edge itself.
enum Refusal {
    /// A row of the table of failures.
    Failure(Failure),
    /// The workspace is not running; where its owner can start it.
    Stopped(Option<String>),
    /// A whole response, such as a redirect to sign in.
    Response(Box<Response<Bytes>>),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Edge {
    /// Answers one request.
    ///
    /// Cancel safety: dropping it ends the request at the app too.
    pub(crate) async fn answer(&self, request: Request<Incoming>, origin: &Origin) -> Response<ResponseBody> {
        let wants = respond::wants(request.headers(), request.method());
        let head = request.method() == Method::HEAD;
        let over_http2 = request.version() == Version::HTTP_2;
        match self.route(request, origin).await {
            Ok(response) => {
                self.metrics.answered(response.status());
                response
            }
            Err(Refusal::Response(response)) => response.map(ResponseBody::from),
            Err(Refusal::Stopped(start)) => {
                let mut response = self.failed(Failure::WorkspaceStopped, wants, head, origin);
                if let (Some(start), Wants::Html) = (start, wants) {
                    respond::offer_start(&mut response, &start, head);
                }
                response.map(ResponseBody::from)
            }
            Err(Refusal::Failure(failure)) => {
                let mut response = self.failed(failure, wants, head, origin);
                if (failure.closes_connection() || origin.guest.is_beyond().is_some()) && !over_http2 {
                    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
                }
                response.map(ResponseBody::from)
            }
        }
    }

    /// Counts and logs a failure, and makes its answer.
    pub(crate) fn failed(&self, failure: Failure, wants: Wants, head: bool, origin: &Origin) -> Response<Bytes> {
        let trace = self.traces.next();
        self.metrics.failed(failure.code());
        if let Failure::Overloaded { limit } = failure {
            self.shares.refused(limit);
        }
        let (code, detail) = (failure.code(), failure.detail());
        if origin.guest.may_be_told_of(Instant::now().into_std()) {
            info!(code, detail, %trace, peer = %origin.peer, "request failed");
        } else {
            debug!(code, detail, %trace, peer = %origin.peer, "request failed");
        }
        respond::response(failure, wants, &trace, head)
    }

    async fn route(&self, request: Request<Incoming>, origin: &Origin) -> Result<Response<ResponseBody>, Refusal> {
        let (parts, body) = request.into_parts();
        let checked = guard::check(&parts, &self.limits).map_err(guard::BadRequestShape::failure);
        let address = checked.and_then(|()| self.address(&parts, origin));
        let Some(address) = address.map_err(|failure| self.of_stranger(failure, origin))? else {
            return self.public(Request::from_parts(parts, body), origin).await;
        };
        let now = Instant::now();
        let is_tcp = tcp::is_asked(&parts);
        if !is_tcp && path::is_reserved(parts.uri.path()) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
            let answer = self.sign_in.answer_workspace(Visit::from(&parts), &address.host, now);
            let answer = answer.ok_or(Failure::NoSuchHost)?;
            self.note_sign_in(&answer, origin);
            tried(&parts, &answer, origin, now)?;
            return Ok(answer.map(ResponseBody::from));
        }
        if !is_tcp && let Some(answer) = self.preflight(&parts, &address) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
            return Ok(answer);
        }
        let session = self.registry.current(&address.name);
        let wanted = address.port.or_else(|| session.as_ref().and_then(|session| session.default_port()));
        let offered = Offered::read(&parts.headers, self.site.cookies());
        if is_tcp {
            tcp::require_token(&offered).map_err(|failure| self.of_stranger(failure, origin))?;
        }
        let grant = self.authorise(&parts, &offered, origin, (&address, wanted), now).await?;
        // Sessions are closed first in a drain: without one, that is the reason.
        let is_draining = self.drain.is_draining();
        let session = match session {
            Some(session) if session.tunnel.is_detached() => {
                session.tunnel.attached(LINK_PATIENCE).await.then_some(session)
            }
            attached => attached,
        };
        let Some(session) = session else {
            // On the heap, so that requests that find a session do not carry it.
            let why = Box::pin(self.absent(&address, &grant, now));
            return Err(if is_draining { Failure::Draining.into() } else { why.await });
        };
        // The address without a port is nobody's while the agent names no default.
        let port = wanted.ok_or(Failure::NoSuchHost)?;
        let asker = public::Asking { edge: self, offered: &offered, peer: origin.peer };
        let watch = self.living.watch(&origin.watch, (&offered, asker), &address, &grant, || {
            let to = (address.name.clone(), port);
            self.shares.standing(&origin.guest, grant.user(), to, now.into_std())
        });
        let request = Request::from_parts(parts, body);
        let ended = watch.clone();
        tokio::select! {
            biased;
            answer = self.to_app(request, Asked { grant, session, port, address, watch, is_tcp }) => answer.map_err(Refusal::from),
            () = ended.wait() => Err(ended.why().into()),
        }
    }

    /// Finds what the authority of a request means; `None` for the public host.
    fn address(&self, parts: &Parts, origin: &Origin) -> Result<Option<Arc<Address>>, Failure> {
        let authority = authority_of(parts).map_err(BadHost::failure)?;
        let mut known = origin.address.lock();
        if let Some(known) = known.as_ref().filter(|known| *known.authority == *authority) {
            return Ok(Some(known.clone()));
        }
        let target = self.rules.parse(authority).map_err(|NoSuchHost| Failure::NoSuchHost)?;
        if origin.negotiated.tls && !server_name_agrees(origin.negotiated.server_name.as_deref(), authority) {
            return Err(Failure::Misdirected);
        }
        let HostTarget::Workspace { name, port } = target else { return Ok(None) };
        let host = self.rules.format(&name, port);
        let public_scheme = if self.site.is_https() { Scheme::Https } else { Scheme::Http };
        let scheme = Route::scheme_of(&origin.negotiated, public_scheme);
        let address = Arc::new(Address::new(authority, (name, port), host, scheme, origin.peer));
        *known = Some(address.clone());
        Ok(Some(address))
    }

    /// Who is it, and may they: the one step before anything is sent to an agent.
    async fn authorise(
        &self,
        parts: &Parts,
        offered: &Offered,
        origin: &Origin,
        (address, port): (&Address, Option<Port>),
        now: Instant,
    ) -> Result<Grant, Refusal> {
        let turn = self.may_try(offered, origin, now).await?;
        let shape = self.shape(parts, address, offered);
        // Port 1 stands in where the address names none; it is never opened, see `route`.
        let port = port.or_else(|| Port::new(1)).ok_or(Failure::NoSuchHost)?;
        let host = &*address.host;
        let decision = self.decide(offered, (address, port), shape, now).await?;
        drop(turn);
        count(&decision, offered, shape, origin, now)?;
        match decision {
            Decision::Allow(grant) => Ok(grant),
            Decision::SignIn => {
                let mut response = self.sign_in.begin(Visit::from(parts), host);
                let code = HeaderValue::from_static(Failure::SignInRequired.code());
                response.headers_mut().insert("gateway-error", code);
                if let Ok(trace) = HeaderValue::try_from(self.traces.next()) {
                    response.headers_mut().insert("gateway-trace", trace);
                }
                Err(Refusal::Response(Box::new(response)))
            }
            Decision::Unauthorized => Err(Failure::SignInRequired.into()),
            Decision::NotFound => Err(Failure::NoSuchHost.into()),
            Decision::PortNotAllowed => Err(Failure::PortNotAllowed.into()),
        }
    }

    /// Finds who it is and what there is, and asks the policy.
    async fn decide(
        &self,
        offered: &Offered,
        (address, port): (&Address, Port),
        shape: RequestShape,
        now: Instant,
    ) -> Result<Decision, Failure> {
        let name = &address.name;
        let principal = self.principal(offered, At::Workspace(&address.host), now).await?;
        // Without a principal the store is not asked: the answer must not tell, nor take longer, if there is one.
        let record = match &principal {
            Some(_) => self.workspace(name, now).await?,
            None if self.public_ports.contains(name, port) => self.workspace(name, now).await?,
            None => None,
        };
        let exposure =
            record.as_ref().map(|record| Exposure { owner: &record.owner, ports: None, shares: &record.shares });
        let target = Target { workspace: name, port, record: exposure };
        Ok(decide(principal.as_ref(), &target, shape, wall_clock()))
    }

    fn shape(&self, parts: &Parts, address: &Address, offered: &Offered) -> RequestShape {
        let Address { authority, name, .. } = address;
        let workspace_of = |host: &str| match self.rules.parse(host) {
            Ok(HostTarget::Workspace { name, .. }) => Some(name),
            Ok(HostTarget::Public) | Err(_) => None,
        };
        let here = Here { site: &self.site, authority, workspace: Some(name), workspace_of: &workspace_of };
        shape::read(&parts.method, &parts.headers, offered, here)
    }

    /// Answers a preflight between ports of one workspace. It comes before the decision because it carries nothing that
    /// could be decided on, and it opens nothing: see [`preflight`].
    fn preflight(&self, parts: &Parts, address: &Address) -> Option<Response<ResponseBody>> {
        if parts.method != Method::OPTIONS {
            return None;
        }
        let source = self.shape(parts, address, &Offered::Nothing).source;
        preflight::answer(&parts.method, &parts.headers, source).map(|answer| answer.map(ResponseBody::from))
    }

    async fn principal(&self, offered: &Offered, at: At<'_>, now: Instant) -> Result<Option<Principal>, Failure> {
        let load = async |hash: [u8; 32]| {
            let record = self.store.token_by_hash(&hash).await?.filter(|record| record.is_live(wall_clock()));
            Ok::<Option<UserName>, StoreError>(record.and_then(|record| match record.subject {
                TokenSubject::User { user } => Some(user),
                TokenSubject::Agent { .. } | TokenSubject::Cluster { .. } => None,
            }))
        };
        let busy = |Unavailable| Failure::Overloaded { limit: "store" };
        let Some(principal) = self.identities.principal(offered, at, now, load).await.map_err(busy)? else {
            return Ok(None);
        };
        let standing = async || self.store.standing(&principal.user).await.map(Some);
        let standing = self.users.get(&principal.user, now, standing).await.map_err(busy)?.unwrap_or_default();
        if standing.is_disabled {
            self.sign_in.end_sessions_of(&principal);
        }
        Ok(principal.with(&standing, self.groups_age_max, wall_clock()))
    }

    async fn workspace(&self, name: &WorkspaceName, now: Instant) -> Result<Option<Workspace>, Failure> {
        let found = self.workspaces.get(name, now, || self.store.workspace(name)).await;
        found.map_err(|Unavailable| Failure::Overloaded { limit: "store" })
    }

    async fn to_app(&self, request: Request<Incoming>, asked: Asked) -> Result<Response<ResponseBody>, Failure> {
        let Asked { grant, session, port, address, watch, is_tcp } = asked;
        debug_assert_eq!(grant.port(), port, "the grant is for another port");
        if self.drain.is_draining() {
            return Err(Failure::Draining);
        }
        // Raw bytes could say of themselves who sent them, which the agent believes there.
        if !session.exposes(port) || (is_tcp && port.is_terminal()) {
            return Err(Failure::PortNotAllowed);
        }
        let slot = session.requests.clone().try_acquire_owned();
        let slot = slot.map_err(|_| overloaded(Limit::RequestsPerWorkspace))?;
        let seats = watch.standing().take(Instant::now().into_std()).map_err(overloaded)?;
        let slot = Slot { _workspace: slot, _seats: seats };
        let route = Route { grant, session, address, watch, slot };
        if is_tcp {
            return self.forwarder.tcp(request, route, &self.drain, &self.metrics).await;
        }
        let (parts, body) = request.into_parts();
        let upgrade = upgrade_asked(&parts).map_err(BadUpgrade::failure)?;
        let request = Request::from_parts(parts, body);
        debug!(workspace = %route.grant.workspace(), %port, method = %request.method(), "forwarding");
        match upgrade {
            Some(asked) => self.forwarder.upgrade(request, asked, route, &self.drain).await,
            None => {
                let expectation =
                    expectation(request.version(), request.headers()).map_err(UnknownExpectation::failure)?;
                self.forwarder.forward(request, expectation, route).await
            }
        }
    }
}

/// A granted request and where it goes.
struct Asked {
    grant: Grant,
    session: Arc<LiveSession>,
    port: Port,
    address: Arc<Address>,
    watch: UnderWay,
    /// Raw TCP, and not HTTP.
    is_tcp: bool,
}
