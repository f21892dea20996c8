//! Every request's way through the edge, in one place and one order.

mod absent;
mod anonymous;
mod changed;
mod failures;
mod neighbours;
mod ports;
mod reauth;
mod visitors;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};
use tunnel_link::drain::Drain;

use self::anonymous::count;
pub use self::anonymous::{checked, overloaded, tried};
pub use self::failures::{FailureLine, Failures, Form, RequestFacts, Traces};
pub use self::neighbours::Neighbours;
pub use self::visitors::Visitors;
use super::address::Address;
use super::body::{RequestPermits, ResponseBody};
use super::expect::{UnknownExpectation, expectation};
use super::followers::Followers;
use super::forward::{Forwarder, Route};
use super::guard::{self, ShapeLimits};
use super::living::{AccessClient, LastWatch, Living, UnderWay};
use super::misdial;
use super::preflight;
use super::tcp;
use super::upstream::{AnonymousClient, Owner, Upstreams};
use super::websocket::{BadUpgrade, upgrade_asked};
use gateway_agents::registry::{LiveSession, Registry};
use gateway_auth::cache::{Cache, Unavailable};
use gateway_auth::policy::{Because, Decision, Exposure, Grant, RequestShape, Target, decide};
use gateway_auth::public_ports::PublicPorts;
use gateway_auth::request::{Offered, OfferedAt};
use gateway_auth::shape::{self, Here};
use gateway_auth::sign_in::event::SignInEvent;
use gateway_auth::sign_in::{OPENER_POLICY, OPENER_POLICY_OWN, PageVisit, path};
use gateway_auth::site::Site;
use gateway_http::host::{BadHost, HostRules, HostTarget, NoSuchHost, authority_of, server_name_agrees};
use gateway_http::respond::{self, Failure, Wants};
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Credential, Items, Text};
use gateway_net::limits::Guest;
use gateway_net::stream::Negotiated;
use gateway_net::telemetry::AnsweredBy;
use gateway_store::{Store, Workspace, wall_clock};
use gateway_types::Limit;
use gateway_types::{Lifecycle, Port, Scheme, WorkspaceName};

/// Longest wait of a request for a session that has just lost its link. An agent redials at once; after a longer
/// absence the user is told rather than kept waiting.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// The edge: everything that answers a request of a user.
#[derive(Debug)]
pub struct Edge {
    /// Hosts of workspaces, and the public host.
    pub rules: HostRules,
    /// The public address, and the cookies that belong to it.
    pub site: Site,
    /// Limits of request heads.
    pub limits: ShapeLimits,
    /// Finds the user of a request.
    pub visitors: Arc<Visitors>,
    /// Owners and shares of workspaces, as the store had them.
    pub workspaces: Arc<Cache<WorkspaceName, Workspace>>,
    /// Desired and actual state of workspaces without a session; only loaded once a request has failed.
    pub lives: Cache<WorkspaceName, Lifecycle>,
    /// Ports that are open without a sign-in.
    pub public_ports: Arc<PublicPorts>,
    /// Requests and streams under way, and the rights that they have.
    pub living: Living,
    /// Event streams that are open.
    pub followers: Arc<Followers>,
    /// Leads a browser that reaches two ports to separate sign-ins.
    pub neighbours: Neighbours,
    /// Counts, logs and answers failures.
    pub failures: Arc<Failures>,
    /// The audit log.
    pub audit: Audit,
    /// Answers requests to the public host.
    pub public: Arc<dyn PublicSite>,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// The database, for what no cache has.
    pub store: Store,
    /// Sends requests to apps.
    pub forwarder: Forwarder,
    /// Drain to which requests belong.
    pub drain: Drain,
    /// Port that agents dial.
    pub agents_port: u16,
}

/// The connection that a request came on.
#[derive(Debug)]
pub struct Origin {
    /// The user's address.
    pub peer: IpAddr,
    /// Outcome of its handshake.
    pub negotiated: Negotiated,
    /// Meaning of the authority of its latest request.
    pub(crate) address: Mutex<Option<Arc<Address>>>,
    /// Watch that let its latest request through.
    pub(crate) watch: LastWatch,
    /// Handles to its limits.
    pub guest: Arc<Guest>,
    /// Its identity towards the apps that it reaches without a sign-in.
    client: OnceLock<Arc<AnonymousClient>>,
}

impl Origin {
    /// Creates the origin of a new connection.
    pub(crate) fn new(peer: IpAddr, negotiated: Negotiated, guest: Arc<Guest>) -> Self {
        Self { peer, negotiated, address: Mutex::default(), watch: Mutex::default(), guest, client: OnceLock::new() }
    }

    /// Returns the owner of the connections that serve a granted request.
    fn owner(&self, grant: &Grant, upstreams: &Arc<Upstreams>) -> Owner {
        match grant.user() {
            Some(user) => Owner::User(user.clone()),
            None => Owner::Client(self.client.get_or_init(|| upstreams.client()).clone()),
        }
    }
}

/// The public host, behind the edge that serves its connections: the pages, the API and the sign-in.
pub trait PublicSite: fmt::Debug + Send + Sync {
    /// Answers a request to the public host. Notes in `known` what it finds out, for the log.
    ///
    /// # Errors
    /// [`Refusal`], which the edge turns into an answer as for any other host.
    ///
    /// Cancel safety: dropping the future ends the request.
    fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: &'a Origin,
        known: &'a mut RequestFacts,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, EdgeAnswer>>;
}

/// An answer of the edge itself.
#[derive(Debug)]
pub enum EdgeAnswer {
    /// A row of the table of failures.
    Failure(Failure),
    /// The workspace is not running; the address where its owner can start it.
    Stopped(Option<String>),
    /// A whole response, such as a redirect to sign in.
    Response(Box<Response<Bytes>>),
}

impl From<Failure> for EdgeAnswer {
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
        let form = Form { wants, is_head: request.method() == Method::HEAD };
        let over_http2 = request.version() == Version::HTTP_2;
        let follows = wants == Wants::Html && request.method() == Method::GET;
        let is_reserved = path::is_reserved(request.uri().path());
        let mut known = RequestFacts::new(Instant::now());
        let mut answer = match self.route(request, origin, is_reserved, &mut known).await {
            Ok(response) => {
                self.failures.metrics.answered(response.status());
                self.failures.metrics.took(known.answered_by(), known.began.elapsed());
                response
            }
            Err(EdgeAnswer::Response(response)) => {
                self.failures.metrics.took(AnsweredBy::Gateway, known.began.elapsed());
                response.map(ResponseBody::from)
            }
            Err(EdgeAnswer::Stopped(start)) => {
                let mut response = self.failures.answer(Failure::WorkspaceStopped, form, &known, origin);
                if let (Some(start), Wants::Html) = (start, wants) {
                    respond::offer_start(&mut response, &start, form.is_head);
                }
                if follows {
                    respond::follow(&mut response, Failure::WorkspaceStopped);
                }
                response.map(ResponseBody::from)
            }
            Err(EdgeAnswer::Failure(failure)) => {
                let mut response = self.failures.answer(failure, form, &known, origin);
                if follows {
                    respond::follow(&mut response, failure);
                }
                if (failure.closes_connection() || origin.guest.is_beyond().is_some()) && !over_http2 {
                    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
                }
                response.map(ResponseBody::from)
            }
        };
        if is_reserved {
            // Also for reserved paths with nothing behind them.
            answer.headers_mut().insert(OPENER_POLICY, OPENER_POLICY_OWN);
        }
        answer
    }

    /// Answers a request on a connection that came in a drain, whatever it asks for.
    pub(crate) fn answer_in_drain(&self, request: &Request<Incoming>, origin: &Origin) -> Response<ResponseBody> {
        let wants = respond::wants(request.headers(), request.method());
        let mut response = self.failures.answer_unread(
            Failure::Draining,
            Form { wants, is_head: request.method() == Method::HEAD },
            origin,
        );
        if wants == Wants::Html && request.method() == Method::GET {
            respond::follow(&mut response, Failure::Draining);
        }
        if request.version() != Version::HTTP_2 {
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(ResponseBody::from)
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        origin: &Origin,
        is_reserved: bool,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let (parts, body) = request.into_parts();
        let checked = guard::check(&parts, &self.limits).map_err(guard::BadRequestShape::failure);
        let address = checked.and_then(|()| self.address(&parts, origin));
        // A workspace may run a gateway of its own, whose agents come through here.
        if !matches!(address, Ok(Some(_))) && misdial::is_agents(&parts) {
            return self.misdialed(&parts, origin);
        }
        let Some(address) = address.map_err(|failure| Failures::of_stranger(failure, origin))? else {
            // On the heap, so that requests to workspaces do not carry it: ten thousand may be under way.
            return self.public.answer(Request::from_parts(parts, body), origin, known).await;
        };
        known.address = Some(address.clone());
        known.port = address.port;
        let now = known.began;
        let is_tcp = tcp::is_asked(&parts);
        if !is_tcp && is_reserved {
            return Box::pin(self.reserved(&parts, origin, &address, now)).await;
        }
        if !is_tcp && let Some(answer) = self.preflight(&parts, &address) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
            return Ok(answer);
        }
        let session = self.registry.current(&address.name);
        let wanted = address.port.or_else(|| session.as_ref().and_then(|session| session.default_port()));
        known.port = wanted;
        let offered = Offered::read(&parts.headers, self.site.cookies());
        if is_tcp {
            tcp::require_token(&offered).map_err(|failure| Failures::of_stranger(failure, origin))?;
        }
        let Some(port) = wanted else {
            // On the heap, so that requests to a port do not carry it.
            return Box::pin(self.without_port(&parts, &offered, origin, (&address, session), known)).await;
        };
        let grant = self.authorise(&parts, &offered, origin, (&address, port), known).await?;
        // A drain closes sessions first: then it is the reason that there is none.
        let is_draining = self.drain.is_draining();
        let session = attached(session).await;
        let Some(session) = session else {
            // On the heap, so that requests that find a session do not carry it.
            let is_owner = matches!(grant.because(), Because::Owner);
            let why = Box::pin(self.absent(&address, is_owner, now));
            return Err(if is_draining { Failure::Draining.into() } else { why.await });
        };
        let asking = AccessClient { identities: &self.visitors.identities, offered: &offered, peer: origin.peer };
        let watch = self.living.watch(&origin.watch, &asking, &address, &grant, || {
            let to = (address.name.clone(), port);
            self.failures.shares.standing(&origin.guest, grant.user(), to, now.into_std())
        });
        let request = Request::from_parts(parts, body);
        let ended = watch.clone();
        let owner = origin.owner(&grant, &self.forwarder.upstreams);
        tokio::select! {
            biased;
            answer = self.to_app(request, GrantedRequest { grant, session, port, owner, address, watch, is_tcp }) => answer.map_err(EdgeAnswer::from),
            () = ended.wait() => Err(ended.why().into()),
        }
    }

    /// Answers a reserved path of a workspace host, which is the gateway's own.
    async fn reserved(
        &self,
        parts: &Parts,
        origin: &Origin,
        address: &Address,
        now: Instant,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        origin.guest.ask(now.into_std()).map_err(overloaded)?;
        let visit = PageVisit::new(parts, origin.peer);
        if neighbours::is_stop(visit.uri) {
            let answer = self.pass_neighbour(visit, &address.host, now).ok_or(Failure::NoSuchPage)?;
            return Ok(answer.map(ResponseBody::from));
        }
        let mut answer =
            self.visitors.sign_in.answer_workspace(visit, &address.host, now).ok_or(Failure::NoSuchPage)?;
        self.visitors.sign_in.written().await;
        record_sign_in(&self.audit, &answer, origin);
        tried(parts, &answer, origin, now)?;
        self.lead_over_neighbours(&mut answer, address, now).await;
        Ok(answer.map(ResponseBody::from))
    }

    /// Tells an agent, and the operator, that this is not the listener for agents.
    fn misdialed(&self, parts: &Parts, origin: &Origin) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let now = Instant::now().into_std();
        origin.guest.ask(now).map_err(overloaded)?;
        self.failures.metrics.failed("wrong_listener");
        if origin.guest.may_be_told_of(now) {
            info!(peer = %origin.peer, "an agent was refused: {}", misdial::words(self.agents_port));
        }
        Ok(misdial::answer::<Bytes>(parts, self.agents_port).map(ResponseBody::from))
    }

    /// Resolves the authority of a request; `None` for the public host.
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

    /// Authenticates and authorises the caller: the one step before anything is sent to an agent.
    async fn authorise(
        &self,
        parts: &Parts,
        offered: &Offered,
        origin: &Origin,
        (address, port): (&Address, Port),
        known: &mut RequestFacts,
    ) -> Result<Grant, EdgeAnswer> {
        let now = known.began;
        let turn = self.visitors.may_try(offered, origin, now).await?;
        let shape = self.shape(parts, address, offered);
        let decision = self.decide(offered, (address, port), shape, known).await?;
        drop(turn);
        count(&decision, offered, shape, origin, now)?;
        match decision {
            Decision::Allow(grant) => Ok(grant),
            refused @ (Decision::SignIn | Decision::Unauthorized | Decision::NotFound | Decision::PortNotAllowed) => {
                Err(self.refusal(refused, (parts, &address.host), origin, now))
            }
        }
    }

    /// Makes the answer to a request that is not let through. A grant is no refusal, and looks like no workspace.
    fn refusal(&self, decision: Decision, (parts, host): (&Parts, &str), origin: &Origin, now: Instant) -> EdgeAnswer {
        match decision {
            Decision::SignIn => {
                let mut response = self.visitors.sign_in.begin(PageVisit::new(parts, origin.peer), host, now);
                let code = HeaderValue::from_static(Failure::SignInRequired.code());
                response.headers_mut().insert("gateway-error", code);
                if let Ok(trace) = HeaderValue::try_from(self.failures.trace()) {
                    response.headers_mut().insert("gateway-trace", trace);
                }
                EdgeAnswer::Response(Box::new(response))
            }
            Decision::Unauthorized => Failure::SignInRequired.into(),
            Decision::NotFound | Decision::Allow(_) => Failure::NoSuchHost.into(),
            Decision::PortNotAllowed => Failure::PortNotAllowed.into(),
        }
    }

    /// Finds the principal and the workspace, and asks the policy.
    async fn decide(
        &self,
        offered: &Offered,
        (address, port): (&Address, Port),
        shape: RequestShape,
        known: &mut RequestFacts,
    ) -> Result<Decision, Failure> {
        let now = known.began;
        let name = &address.name;
        let principal = self.visitors.principal(offered, OfferedAt::Workspace(&address.host), now).await?;
        // Without a principal the store is not asked: neither the answer nor its time must tell whether there is a
        // workspace.
        let record = match &principal {
            Some(_) => self.workspace(name, now).await?,
            None if self.public_ports.contains(name, port) => self.workspace(name, now).await?,
            None => None,
        };
        let exposure =
            record.as_ref().map(|record| Exposure { owner: &record.owner, ports: None, shares: &record.shares });
        let target = Target { workspace: name, port, record: exposure };
        let decision = decide(principal.as_ref(), &target, shape, wall_clock());
        known.user = principal.map(|principal| principal.user);
        Ok(decision)
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

    async fn workspace(&self, name: &WorkspaceName, now: Instant) -> Result<Option<Workspace>, Failure> {
        let found = self.workspaces.get(name, now, || self.store.workspace(name)).await;
        found.map_err(|Unavailable| Failure::Overloaded { limit: "store" })
    }

    async fn to_app(
        &self,
        request: Request<Incoming>,
        asked: GrantedRequest,
    ) -> Result<Response<ResponseBody>, Failure> {
        let GrantedRequest { grant, session, port, owner, address, watch, is_tcp } = asked;
        debug_assert_eq!(grant.port(), port, "the grant is for another port");
        if self.drain.is_draining() {
            return Err(Failure::Draining);
        }
        // Raw bytes could claim any sender, and the agent believes what comes in at the terminal port.
        if !session.exposes(port) || (is_tcp && port.is_terminal()) {
            return Err(Failure::PortNotAllowed);
        }
        let slot = session.requests.clone().try_acquire_owned();
        let slot = slot.map_err(|_| overloaded(Limit::RequestsPerWorkspace))?;
        let seats = watch.standing().take(Instant::now().into_std()).map_err(overloaded)?;
        let slot = RequestPermits { _workspace: slot, _seats: seats };
        let route = Route { grant, session, owner, address, watch, slot };
        if is_tcp {
            return self.forwarder.tcp(request, route, &self.drain, &self.failures.metrics).await;
        }
        let (parts, body) = request.into_parts();
        let upgrade = upgrade_asked(&parts).map_err(BadUpgrade::failure)?;
        let request = Request::from_parts(parts, body);
        debug!(workspace = %route.grant.workspace(), %port, method = %request.method(), "forwarding");
        match upgrade {
            Some(asked) => self.forwarder.upgrade(request, asked, route, (&self.drain, &self.failures.metrics)).await,
            None => {
                let expectation =
                    expectation(request.version(), request.headers()).map_err(UnknownExpectation::failure)?;
                self.forwarder.forward(request, expectation, route).await
            }
        }
    }
}

/// Waits a moment for a session that has just lost its link; `None` if there is none, or none with a link by then.
async fn attached(session: Option<Arc<LiveSession>>) -> Option<Arc<LiveSession>> {
    match session {
        Some(session) if session.tunnel.is_detached() => {
            session.tunnel.attached(LINK_PATIENCE).await.then_some(session)
        }
        attached => attached,
    }
}

/// A granted request and where it goes.
struct GrantedRequest {
    grant: Grant,
    session: Arc<LiveSession>,
    port: Port,
    owner: Owner,
    address: Arc<Address>,
    watch: UnderWay,
    /// Raw TCP, and not HTTP.
    is_tcp: bool,
}

/// Records the outcome of a sign-in page in the audit log.
pub fn record_sign_in<B>(audit: &Audit, response: &Response<B>, origin: &Origin) {
    let Some(event) = response.extensions().get::<SignInEvent>() else { return };
    let record = match event.clone() {
        SignInEvent::SignedIn { user, how, session } => {
            let session = Text::of(session);
            let event = AuditEvent::SignedIn { user: Text::of(user), how, session: session.clone() };
            AuditRecord::new(event).with(Credential::Session { id: session })
        }
        SignInEvent::Failed { how, reason, user } => {
            let user = user.as_deref().map(Text::new);
            AuditRecord::new(AuditEvent::SignInFailed { how, reason, user })
        }
        SignInEvent::SignedOut { user, sessions } => {
            let sessions: Items = sessions.into_iter().collect();
            AuditRecord::new(AuditEvent::SignedOut { user: Text::of(user), how: "user", sessions })
        }
    };
    audit.record(record.at_peer(origin.peer));
}
