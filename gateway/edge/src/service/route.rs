//! The way of one request, in one list of steps.
//!
//! | step | decides | refuses with |
//! | --- | --- | --- |
//! | 1 guard | is this head one request, and only one? | `bad_request`, `header_too_large`, `uri_too_long` |
//! | 2 host | the workspace and port of the authority; requests to the public host, and agents that dialed this listener, leave here | `no_such_host`, `misdirected`, `wrong_listener` |
//! | 3 own answers | reserved paths, and preflights between ports of one workspace, leave here | `no_such_page` |
//! | 4 port | the session, and the port of the host or the agent's default; the credential, a token for raw TCP; without a port, the list of ports leaves here | `no_default_port`, `sign_in_required` |
//! | 5 authorise | may this caller use this port? The [`Grant`] of all later steps | `sign_in_required`, `no_such_host`, `port_not_allowed` |
//! | 6 session | has the session a link? Waits for one that has just lost it | `workspace_stopped`, `agent_absent`, `draining` |
//! | 7 watch | from here on, a revocation ends the request | the failure of that decision |
//! | 8 admit | exposed ports, and the permits of workspace, of user or address, and of port | `draining`, `port_not_allowed`, `overloaded` |
//! | 9 forward | raw TCP, an upgrade, or an ordinary request: the channel, the app, its answer | `port_closed`, `open_timeout`, `session_lost`, … |
//!
//! Steps 1 and 2 come before any decision on the caller. Step 5 comes before any branch by protocol; only the demand for a
//! token of raw TCP comes earlier. Rare futures are boxed: an unboxed one enlarges every request in flight.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::{debug, info};

use super::anonymous::overloaded;
use super::authorise::Visit;
use super::failures::{Failures, RequestFacts, Sent};
use super::hosts::Place;
use super::idle_notice;
use super::{Edge, EdgeAnswer, Origin};
use crate::activity;
use crate::address::Address;
use crate::body::{RequestPermits, ResponseBody};
use crate::expect::{UnknownExpectation, expectation};
use crate::forward::Route;
use crate::guard;
use crate::misdial;
use crate::preflight;
use crate::tcp;
use crate::upstream::Owner;
use crate::watches::{AccessClient, WatchUse};
use crate::websocket::{BadUpgrade, upgrade_asked};
use gateway_agents::peers::FoundSession;
use gateway_agents::registry::{LiveSession, SessionWay, Subject};
use gateway_auth::policy::{Because, Grant};
use gateway_auth::request::OfferedCredential;
use gateway_auth::sign_in::path;
use gateway_http::paths::OwnPath;
use gateway_http::respond::Failure;
use gateway_net::limits::WorkspacePort;
use gateway_types::{Limit, Port};

/// Longest wait of a request for a session that has just lost its link. An agent redials at once; after a longer
/// absence the user gets an answer.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// Destination of a request, by its authority.
enum Destination {
    Workspace(Arc<Address>),
    PublicHost,
    /// The gateway itself, on the origin of `paths_url`.
    Paths(OwnPath),
    /// An agent that dialed the listener for users.
    AgentsListener,
}

/// A request with all that its last steps need.
struct GrantedRequest {
    request: Request<Incoming>,
    route: GrantedRoute,
    /// Raw TCP, and not HTTP.
    is_tcp: bool,
}

/// A route without the permits of step 8.
struct GrantedRoute {
    grant: Grant,
    session: Arc<LiveSession>,
    owner: Owner,
    address: Arc<Address>,
    watch: WatchUse,
}

impl Edge {
    /// Takes a request through the steps.
    ///
    /// Cancel safety: dropping it ends the request at the app too.
    pub(super) async fn route(
        &self,
        request: Request<Incoming>,
        origin: &Arc<Origin>,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let (parts, body) = request.into_parts();
        // Steps 1 and 2: guard, host.
        let address = match self.destination(&parts, origin)? {
            Destination::Workspace(address) => address,
            // On the heap, so that requests to workspaces do not carry it.
            Destination::PublicHost => {
                return self.public.answer(Request::from_parts(parts, body), origin, known).await;
            }
            Destination::Paths(path) => return Box::pin(self.paths_page(path, &parts, origin, known.began)).await,
            Destination::AgentsListener => return self.misdialed(&parts, origin),
        };
        known.address = Some(address.clone());
        known.method = Some(parts.method.clone());
        known.port = address.port;
        // Step 3: own answers.
        let is_tcp = tcp::is_asked(&parts);
        // Only its owner may know of a stop, so that one is answered behind step 5.
        let is_idle_notice = !is_tcp && parts.uri.path() == idle_notice::PATH;
        if !is_tcp && !is_idle_notice && path::is_reserved(parts.uri.path()) {
            return Box::pin(self.reserved(&parts, origin, &address, known.began)).await;
        }
        if !is_tcp && let Some(answer) = self.preflight(&parts, &address) {
            origin.guest.ask(known.began.into_std()).map_err(overloaded)?;
            return Ok(answer);
        }
        // Step 4: port.
        let mut session = self.registry.current(&address.name);
        if session.is_none() && address.port.is_none() {
            // On the heap, as all rare futures here.
            session = Box::pin(self.elsewhere(&address)).await.lane();
        }
        // By path, the agent's own pages are no place to lead to.
        let is_open = |port: &Port| !address.is_by_path() || !(port.is_agents_page() || port.is_ssh());
        let default_port = || session.as_ref().and_then(|session| session.default_port()).filter(is_open);
        let port = address.port.or_else(default_port);
        let offered = OfferedCredential::read(&parts.headers, self.hosts.site.cookies(), &origin.offered);
        if is_tcp {
            tcp::require_token(&offered).map_err(|failure| Failures::of_stranger(failure, origin))?;
        }
        let visit = Visit { parts: &parts, offered: &offered, origin, address: &address, now: known.began };
        let Some(port) = port else {
            return Box::pin(self.without_port(&visit, session, known)).await;
        };
        // Step 5: authorise.
        let grant = self.authorise(&visit, port, known).await?;
        // Not before: what is known of a refusal is explained to the caller, and the agent's default says that it is there.
        known.port = Some(port);
        if address.is_by_path() && address.port.is_none() {
            return Ok(self.led_to_port(&parts, &address, port));
        }
        if is_idle_notice {
            return Box::pin(self.idle_notice(&visit, &grant)).await;
        }
        // Step 6: session.
        let session = self.attached(session, &visit, &grant).await?;
        // Step 7: watch.
        let watch = self.watch(&visit, &address, &grant);
        let ended = watch.clone();
        let owner = origin.owner(&grant, &self.forwarder.upstreams);
        let route = GrantedRoute { grant, session, owner, address, watch };
        let granted = GrantedRequest { request: Request::from_parts(parts, body), route, is_tcp };
        tokio::select! {
            biased;
            // Steps 8 and 9: admit, forward.
            answer = self.forward(granted, known) => answer.map_err(EdgeAnswer::from),
            () = ended.wait() => Err(ended.why().into()),
        }
    }

    /// Steps 1 and 2. A workspace may run a gateway of its own, whose agents come through here: only elsewhere, an agent's
    /// request is one that went astray, whatever else is wrong with it.
    fn destination(&self, parts: &Parts, origin: &Origin) -> Result<Destination, Failure> {
        let checked = guard::check(parts, &self.limits).map_err(guard::BadRequestShape::failure);
        match checked.and_then(|()| self.hosts.place(parts, origin)) {
            Ok(Place::Workspace(address)) => Ok(Destination::Workspace(address)),
            Ok(Place::Public | Place::Paths(_)) | Err(_) if misdial::is_agents(parts) => {
                Ok(Destination::AgentsListener)
            }
            Ok(Place::Public) => Ok(Destination::PublicHost),
            Ok(Place::Paths(path)) => Ok(Destination::Paths(path)),
            Err(failure) => Err(Failures::of_stranger(failure, origin)),
        }
    }

    /// Tells an agent, and the operator, that this is not the listener for agents.
    fn misdialed(&self, parts: &Parts, origin: &Origin) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let now = Instant::now().into_std();
        origin.guest.ask(now).map_err(overloaded)?;
        self.failures.metrics.failed(&misdial::LABELS);
        if origin.guest.may_be_told_of(now) {
            info!(peer = %origin.peer, "an agent was refused: {}", misdial::words(self.agents_port));
        }
        Ok(misdial::answer::<Bytes>(parts, self.agents_port).map(ResponseBody::from))
    }

    /// Step 3: answers a preflight between ports of one workspace. It comes before the decision because it carries
    /// nothing that could be decided on, and it opens nothing: see [`preflight`].
    fn preflight(&self, parts: &Parts, address: &Address) -> Option<Response<ResponseBody>> {
        if parts.method != Method::OPTIONS {
            return None;
        }
        let source = self.hosts.shape(parts, address, &OfferedCredential::Nothing).source;
        preflight::answer(&parts.method, &parts.headers, source).map(|answer| answer.map(ResponseBody::from))
    }

    /// Finds the session of a workspace whose agent dialed another replica.
    async fn elsewhere(&self, address: &Address) -> FoundSession {
        match &self.peers {
            Some(peers) => peers.find(&Subject::Workspace(address.name.clone())).await,
            None => FoundSession::Absent,
        }
    }

    /// Step 6. A drain closes sessions first: then it is the reason that there is none.
    async fn attached(
        &self,
        session: Option<Arc<LiveSession>>,
        visit: &Visit<'_>,
        grant: &Grant,
    ) -> Result<Arc<LiveSession>, EdgeAnswer> {
        let is_draining = self.drain.is_draining();
        let (session, is_unreachable) = match session {
            Some(session) if !session.tunnel.is_detached() => (Some(session), false),
            // Its agent, or another process of it, may be elsewhere.
            here => {
                let found = Box::pin(self.elsewhere(visit.address)).await;
                let is_unreachable = found.is_unreachable();
                (found.lane().or(here), is_unreachable)
            }
        };
        if let Some(session) = with_link(session).await {
            return Ok(session);
        }
        if is_unreachable {
            return Err(Failure::AgentUnreachable.into());
        }
        // The one that was waited for has ended, because its agent has a newer one.
        if let Some(session) = self.registry.current(&visit.address.name).filter(|now| !now.tunnel.is_detached()) {
            return Ok(session);
        }
        let is_owner = matches!(grant.because(), Because::Owner);
        // On the heap, so that requests that find a session do not carry it.
        let why = Box::pin(self.absent(visit.address, is_owner, visit.now));
        Err(if is_draining { Failure::Draining.into() } else { why.await })
    }

    /// Step 7.
    fn watch(&self, visit: &Visit<'_>, address: &Arc<Address>, grant: &Grant) -> WatchUse {
        let Visit { offered, origin, now, .. } = visit;
        let identities = &self.access.visitors.identities;
        let client = AccessClient { identities, offered, peer: origin.peer };
        self.access.watches.watch(&origin.watch, &client, address, grant, || {
            let to = WorkspacePort { workspace: address.name.clone(), port: grant.port() };
            self.failures.limits.counters(&origin.guest, grant.user(), &to, now.into_std())
        })
    }

    /// Step 8. Raw bytes could claim any sender, and the agent believes what comes in at the ports of its own pages. At the SSH port a
    /// token counts alone: a page that has a cookie could speak to a server there which asks for no password. By path, all ports are one
    /// origin, so that a page of any app could speak to the terminal, or the request inspector, as its own page does.
    fn admit(&self, route: &GrantedRoute, is_tcp: bool) -> Result<RequestPermits, Failure> {
        let port: Port = route.grant.port();
        if self.refuses_requests() {
            return Err(Failure::Draining);
        }
        let is_off_by_path = route.address.is_by_path() && port.is_agents_page();
        let is_off = (is_tcp && port.is_agents_page()) || (!is_tcp && port.is_ssh()) || is_off_by_path;
        if !route.session.exposes(port) || is_off {
            return Err(Failure::PortNotAllowed);
        }
        let workspace = route.session.requests.clone().try_acquire_owned();
        let workspace = workspace.map_err(|_| overloaded(Limit::RequestsPerWorkspace))?;
        let usage = route.watch.counters().take(Instant::now().into_std()).map_err(overloaded)?;
        Ok(RequestPermits { _workspace: workspace, _usage: usage })
    }

    /// Steps 8 and 9.
    async fn forward(
        &self,
        granted: GrantedRequest,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, Failure> {
        let GrantedRequest { mut request, route, is_tcp } = granted;
        let permits = self.admit(&route, is_tcp)?;
        let sent = Sent { at: Instant::now(), round_trip: route.session.tunnel.round_trip(), way: route.session.way() };
        known.sent = Some(sent);
        known.trace = self.failures.tracer.begin(request.headers_mut(), route.grant.user().is_some(), sent.at);
        if sent.way == SessionWay::Relay {
            self.failures.metrics.relayed();
        }
        let GrantedRoute { grant, session, owner, address, watch } = route;
        let route = Route { grant, session, owner, address, watch, permits };
        if is_tcp {
            return self.forwarder.tcp(request, route, &self.drain, &self.failures.metrics).await;
        }
        let (parts, body) = request.into_parts();
        if let (Some(user), Some(kind)) = (route.watch.activity(), activity::of_request(&parts)) {
            user.note(kind);
        }
        let upgrade = upgrade_asked(&parts).map_err(BadUpgrade::failure)?;
        let request = Request::from_parts(parts, body);
        debug!(workspace = %route.grant.workspace(), port = %route.grant.port(), method = %request.method(), "forwarding");
        match upgrade {
            Some(asked) => self.forwarder.upgrade(request, asked, route, &self.drain, &self.failures.metrics).await,
            None => {
                let expectation =
                    expectation(request.version(), request.headers()).map_err(UnknownExpectation::failure)?;
                self.forwarder.forward(request, expectation, route).await
            }
        }
    }
}

/// Waits a moment for a session that has just lost its link; `None` if there is none, or none with a link by then.
pub(super) async fn with_link(session: Option<Arc<LiveSession>>) -> Option<Arc<LiveSession>> {
    match session {
        Some(session) if session.tunnel.is_detached() => {
            session.tunnel.attached(LINK_PATIENCE).await.then_some(session)
        }
        attached => attached,
    }
}
