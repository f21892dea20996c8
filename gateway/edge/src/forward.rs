//! Forwards one request to one app: the head as the app should see it, the wait for an answer, and the answer on its
//! way back.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use http::header::{EXPECT, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;
use tracing::info;
use tunnel_link::channel_io::ChannelError;
use tunnel_proto::hello::{AppProtocol, HostMode as WireHostMode};
use tunnel_proto::mux::OpenError;
use tunnel_proto::reason::Reason;

use super::address::Address;
use super::body::{BodySource, RequestBody, RequestPermits, ResponseBody, UploadProgress};
use super::by_path;
use super::cookies;
use super::expect::Expectation;
use super::headers::{self, AppHttp, AppRequest};
use super::insists;
use super::rewrite::{self, HostMode, OwnOrigin};
use super::upstream::http1::{self, Head, Outgoing};
use super::upstream::{Accepted, Owner, PooledHttp1, Upstreams};
use super::watches::WatchUse;
use gateway_agents::registry::{LiveSession, PortMode};
use gateway_auth::policy::{Because, Grant};
use gateway_config::Timeouts;
use gateway_http::respond::Failure;
use gateway_net::stream::HandshakeResult;
use gateway_types::{Scheme, Zone};

/// Fewest bytes that the body of an anonymous user has to bring in each `timeouts.request_body_idle`.
const STRANGER_BODY_BYTES_MIN: u64 = 1024;

/// Longest wait for the beginning of a refusal, to see what it says.
const LOOK_PATIENCE: Duration = Duration::from_millis(250);
/// Longest time that a GET over HTTP/2 whose head was not its end is held until it shows whether it has a body. An
/// HTTP/1.1 app has to be told in the head, and some refuse a body that is announced and empty.
const BODY_PATIENCE: Duration = Duration::from_millis(200);

/// Parts of the gateway that forwarding needs.
#[derive(Debug)]
pub struct Forwarder {
    /// Connections to apps.
    pub upstreams: Arc<Upstreams>,
    /// Deadlines of requests.
    pub timeouts: Timeouts,
    /// The gateway's own cookies, which no app gets.
    pub cookies: cookies::CookieNames,
    /// Domain of the workspaces' hosts.
    pub zone: Zone,
}

/// Origin and destination of a request.
#[derive(Debug)]
pub(super) struct Route {
    /// Proof that the request is allowed.
    pub(super) grant: Grant,
    /// Session that the request goes through.
    pub(super) session: Arc<LiveSession>,
    /// Owner of the connection to the app.
    pub(super) owner: Owner,
    /// The address that the user asked for.
    pub(super) address: Arc<Address>,
    /// Ends once the user's access does.
    pub(super) watch: WatchUse,
    /// Held until the response has ended.
    pub(super) permits: RequestPermits,
}

/// A response head and body before they are rewritten for the user.
pub(super) struct AppResponse {
    pub(super) head: response::Parts,
    pub(super) source: BodySource,
}

impl Forwarder {
    /// Forwards an ordinary request.
    ///
    /// # Errors
    /// [`Failure`] when no response head came.
    ///
    /// Cancel safety: dropping it closes the channel, so the app hears that the user went away.
    pub(super) async fn forward(
        &self,
        request: Request<Incoming>,
        expectation: Expectation,
        route: Route,
    ) -> Result<Response<ResponseBody>, Failure> {
        let (mut parts, body) = request.into_parts();
        let is_http2 = parts.version == Version::HTTP_2;
        let mut mode = speakable(&route)?;
        let http = match mode.protocol {
            AppProtocol::Http1 => AppHttp::Http1,
            AppProtocol::Http2 => AppHttp::Http2,
        };
        self.prepare(&mut parts, &AppRequest { http, upgrade: None, trailers: true }, &route, mode);
        if http == AppHttp::Http2 && expectation == Expectation::Continue {
            // HTTP/2 apps rarely answer it; the body follows at once.
            parts.headers.remove(EXPECT);
        }
        // Anonymous uploads must keep a minimum rate, or they would hold one of the workspace's places for free.
        let least = if route.grant.user().is_some() { 1 } else { STRANGER_BODY_BYTES_MIN };
        let (mut body, mut progress) = RequestBody::new(body, least, route.watch.activity());
        if is_http2 && http == AppHttp::Http1 && expectation == Expectation::Nothing && may_be_empty(&parts, &body) {
            // Boxed: few requests wait here.
            Box::pin(body.begin(BODY_PATIENCE)).await?;
            progress = progress.filter(|_| !body.is_end_stream());
        }
        let is_bare = body.is_end_stream();
        let AppResponse { mut head, source } = match http {
            AppHttp::Http1 => {
                let answer = self.send_http1(&parts, body, expectation, progress.as_deref(), &route).await?;
                if is_bare && mode.host == WireHostMode::Auto && insists::may_refuse_host(answer.head.status) {
                    // On the heap: almost no request comes here.
                    let answer = Box::pin(self.try_localhost(&mut parts, answer, &route)).await?;
                    mode = route.session.mode(route.grant.port());
                    answer
                } else {
                    answer
                }
            }
            AppHttp::Http2 => {
                self.send_http2(Request::from_parts(parts, body), progress.as_deref(), &route, mode).await?
            }
        };
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            // The gateway asked for no switch; what follows is no answer to anything.
            return Err(Failure::AppAnswerInvalid);
        }
        self.finish(&mut head, None, &route, mode);
        Ok(Response::from_parts(head, ResponseBody::app(source, route.permits, route.watch)))
    }

    /// Repeats as `localhost` a request whose app seems to refuse its host, and keeps that mode if the app accepts.
    /// Only for the owner of the workspace: no other user decides how an app is spoken to.
    async fn try_localhost(
        &self,
        parts: &mut Parts,
        answer: AppResponse,
        route: &Route,
    ) -> Result<AppResponse, Failure> {
        let (session, port) = (&route.session, route.grant.port());
        if parts.method != Method::GET || !matches!(route.grant.because(), Because::Owner) {
            return Ok(answer);
        }
        let (answer, is_refused) = refuses_host(answer).await;
        if !is_refused || !session.insists_on_localhost(port) {
            return Ok(answer);
        }
        // The head that was prepared for the original host differs in nothing else.
        rewrite::request(&mut parts.headers, HostMode::Localhost(app_scheme(session.mode(port))), route.origin(), port);
        let again = self.send_http1(parts, RequestBody::Empty, Expectation::Nothing, None, route).await;
        let again = match again {
            Ok(again) => Ok(refuses_host(again).await),
            Err(failure) => Err(failure),
        };
        match again {
            Ok((again, false)) => {
                info!(
                    workspace = %route.grant.workspace(), %port,
                    "the app refuses the host that users ask for, and sees localhost from now on, as with --app {port}:host=localhost"
                );
                Ok(again)
            }
            Ok((again, true)) => {
                session.insists_on_neither(port);
                info!(
                    workspace = %route.grant.workspace(), %port,
                    "the app refuses the host that users ask for, and localhost too: allow the host in its configuration"
                );
                Ok(again)
            }
            Err(failure) => {
                session.insists_on_neither(port);
                Err(failure)
            }
        }
    }

    /// Turns the head that the user sent into the one that the app gets.
    pub(super) fn prepare(&self, parts: &mut Parts, app: &AppRequest<'_>, route: &Route, mode: PortMode) {
        cookies::remove_own(&mut parts.headers, &self.cookies);
        headers::to_app(&mut parts.headers, app);
        if route.grant.port().is_agents_page() {
            headers::to_agents_page(&mut parts.headers, &route.grant);
        }
        route.address.forwarded.apply(&mut parts.headers);
        rewrite::request(&mut parts.headers, host_mode(mode), route.origin(), route.grant.port());
        parts.extensions.clear();
        if let Some(prefix) = &route.address.prefix {
            by_path::to_app(&mut parts.uri, prefix);
        }
        match app.http {
            AppHttp::Http1 => {
                parts.version = Version::HTTP_11;
                // Origin form (RFC 9112, section 3.2.1), its bytes untouched.
                if parts.uri.authority().is_some() {
                    let target = parts.uri.path_and_query().cloned();
                    parts.uri = target.map_or_else(|| Uri::from_static("/"), Uri::from);
                }
            }
            AppHttp::Http2 => parts.version = Version::HTTP_2,
        }
    }

    /// Turns the head that the app sent into the one that the user gets.
    pub(super) fn finish(
        &self,
        head: &mut response::Parts,
        switched: Option<&HeaderValue>,
        route: &Route,
        mode: PortMode,
    ) {
        headers::to_user(&mut head.headers, switched);
        if mode.host == WireHostMode::Localhost {
            cookies::unbind_localhost(&mut head.headers);
        }
        cookies::guard_set(&mut head.headers, &self.cookies, &self.zone);
        if mode.host == WireHostMode::Localhost || head.status.is_redirection() {
            rewrite::response(&mut head.headers, route.origin(), route.grant.port());
        }
        if let Some(prefix) = &route.address.prefix {
            by_path::to_user(&mut head.headers, route.origin(), prefix);
        }
        // The framing of the user's connection is that connection's own business.
        head.version = Version::HTTP_11;
        head.extensions.clear();
    }

    async fn send_http1(
        &self,
        parts: &Parts,
        body: RequestBody,
        expectation: Expectation,
        progress: Option<&UploadProgress>,
        route: &Route,
    ) -> Result<AppResponse, Failure> {
        let (session, port) = (&route.session, route.grant.port());
        let asks_first = expectation == Expectation::Continue;
        let mut request = Outgoing::new(parts, body, asks_first).map_err(|error| failure_of_http1(&error))?;
        if let Some(mut pooled) = self.upstreams.reuse(session, port, &route.owner) {
            let again = request.again();
            match self.exchange_http1(&mut pooled, request, None, progress).await {
                Ok(head) => return Ok(answer(head, pooled.into())),
                // The app may have closed the idle connection at the same moment (RFC 9112, section 9.3.1), or have
                // sent unrequested bytes there.
                Err(failure @ (Failure::AppClosed | Failure::AppAnswerInvalid)) => request = again.ok_or(failure)?,
                Err(failure) => return Err(failure),
            }
        }
        let (mut pooled, accepted) = self.upstreams.connect(session, port, &route.owner);
        let head = self.exchange_http1(&mut pooled, request, Some(accepted), progress).await?;
        Ok(answer(head, pooled.into()))
    }

    /// Sends on a connection of its own and waits for the answer; for upgrades.
    pub(super) async fn exchange_alone(
        &self,
        parts: &Parts,
        body: RequestBody,
        route: &Route,
    ) -> Result<(response::Parts, PooledHttp1), Failure> {
        let request = Outgoing::new(parts, body, false).map_err(|error| failure_of_http1(&error))?;
        let (mut pooled, accepted) = self.upstreams.connect(&route.session, route.grant.port(), &route.owner);
        // An app may have taken the request for more than it was.
        pooled.connection.use_once();
        let head = self.exchange_http1(&mut pooled, request, Some(accepted), None).await?;
        Ok((head_parts(head), pooled))
    }

    async fn exchange_http1(
        &self,
        pooled: &mut PooledHttp1,
        request: Outgoing,
        accepted: Option<Accepted>,
        progress: Option<&UploadProgress>,
    ) -> Result<Head, Failure> {
        pooled.connection.begin(request);
        let response = poll_fn(|context| pooled.connection.poll_head(context));
        let response = response.map_err(|error| failure_of_http1(&error));
        self.wait(response, accepted, progress).await
    }

    async fn send_http2(
        &self,
        mut request: Request<RequestBody>,
        progress: Option<&UploadProgress>,
        route: &Route,
        mode: PortMode,
    ) -> Result<AppResponse, Failure> {
        let port = route.grant.port();
        let authority = match host_mode(mode) {
            HostMode::Original => route.address.authority.to_string(),
            HostMode::Localhost(_) => format!("localhost:{port}"),
        };
        // HTTP/2 has the host in `:authority` (RFC 9113, section 8.3.1).
        request.headers_mut().remove(http::header::HOST);
        let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = Uri::builder().scheme(app_scheme(mode).as_str()).authority(authority).path_and_query(target).build();
        *request.uri_mut() = uri.map_err(|_| Failure::BadRequest { reason: "target" })?;
        loop {
            let connected = self.upstreams.http2(&route.session, port, &route.owner).await;
            let (mut sender, accepted) = connected.map_err(|error| failure_of(&error))?;
            let is_fresh = accepted.is_some();
            let response = async {
                if let Err(error) = sender.ready().await {
                    return Err(SendFailure { failure: failure_of(&error), unsent: Some(Box::new(request)) });
                }
                sender.try_send_request(request).await.map_err(SendFailure::from)
            };
            match self.wait(response, accepted, progress).await {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    return Ok(AppResponse { head, source: BodySource::Http2(incoming) });
                }
                // The app went away before the call was sent; a fresh connection is the last try.
                Err(SendFailure { unsent: Some(unsent), .. }) if !is_fresh => request = *unsent,
                Err(SendFailure { failure, .. }) => return Err(failure),
            }
        }
    }

    /// Waits for a response head under two named deadlines: the port has to answer, and then the app.
    async fn wait<T, E: From<Failure>>(
        &self,
        response: impl Future<Output = Result<T, E>>,
        accepted: Option<Accepted>,
        progress: Option<&UploadProgress>,
    ) -> Result<T, E> {
        let mut response = std::pin::pin!(response);
        if let Some(accepted) = accepted {
            let open_by = Instant::now() + self.timeouts.channel_open;
            tokio::select! {
                biased;
                result = &mut response => return result,
                answered = accepted => match answered {
                    Ok(Ok(())) | Err(_) => {}
                    // The connection's error is about to say the same; this is the exact reason.
                    Ok(Err(reason)) => return Err(failure_of_reason(reason).into()),
                },
                () = tokio::time::sleep_until(open_by) => return Err(Failure::OpenTimeout.into()),
            }
        }
        let Timeouts { request_body_idle, response_header, .. } = self.timeouts;
        let soonest = if progress.is_some() { request_body_idle.min(response_header) } else { response_header };
        let (mut since, mut bytes) = (Instant::now(), 0);
        let mut look_at = since + soonest;
        loop {
            if let Ok(result) = tokio::time::timeout_at(look_at, &mut response).await {
                return result;
            }
            let now = Instant::now();
            // An upload that moves is not an app that hangs.
            if let Some(progress) = progress.filter(|progress| progress.has_moved_since(bytes)) {
                (since, bytes, look_at) = (now, progress.bytes(), now + soonest);
                continue;
            }
            let (limit, failure) = if progress.is_some_and(UploadProgress::waits_for_user) {
                (request_body_idle, Failure::BodyTimeout)
            } else {
                (response_header, Failure::ResponseTimeout)
            };
            look_at = since + limit;
            if look_at <= now {
                return Err(failure.into());
            }
        }
    }
}

impl Route {
    pub(super) fn origin(&self) -> OwnOrigin<'_> {
        self.address.origin()
    }

    /// Reads scheme facts of the connection.
    pub(super) fn scheme_of(negotiated: &HandshakeResult, public: Scheme) -> Scheme {
        // Behind a load balancer that ends TLS, the public address knows better than the connection.
        if negotiated.tls { Scheme::Https } else { public }
    }
}

/// Failure of an exchange, and the request if it was not sent at all.
pub(super) struct SendFailure {
    failure: Failure,
    unsent: Option<Box<Request<RequestBody>>>,
}

impl From<Failure> for SendFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, unsent: None }
    }
}

impl From<TrySendError<Request<RequestBody>>> for SendFailure {
    fn from(mut error: TrySendError<Request<RequestBody>>) -> Self {
        let unsent = error.take_message().map(Box::new);
        Self { failure: failure_of(error.error()), unsent }
    }
}

/// Returns whether a request most often has no body by its method, and does not say whether it has one.
fn may_be_empty(parts: &Parts, body: &RequestBody) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD) && !body.is_end_stream() && body.size_hint().exact().is_none()
}

/// Returns how to speak to the app of a route.
///
/// # Errors
/// [`Failure::AgentWithoutTls`] for an app behind TLS, which the agent is too old to speak.
pub(super) fn speakable(route: &Route) -> Result<PortMode, Failure> {
    let mode = route.session.mode(route.grant.port());
    if route.session.can_speak_to(mode) { Ok(mode) } else { Err(Failure::AgentWithoutTls) }
}

/// Returns the scheme of the app's own URLs.
fn app_scheme(mode: PortMode) -> Scheme {
    if mode.tls { Scheme::Https } else { Scheme::Http }
}

fn host_mode(mode: PortMode) -> HostMode {
    match mode.host {
        WireHostMode::Auto | WireHostMode::Original => HostMode::Original,
        WireHostMode::Localhost => HostMode::Localhost(app_scheme(mode)),
    }
}

/// Checks whether an app refuses its host. The answer is returned unchanged, also if its beginning is late.
async fn refuses_host(answer: AppResponse) -> (AppResponse, bool) {
    let AppResponse { head, source } = answer;
    if !insists::may_refuse_host(head.status) {
        return (AppResponse { head, source }, false);
    }
    let (beginning, source) = source.begun(insists::LOOKED_AT_MAX, Instant::now() + LOOK_PATIENCE).await;
    let is_refused = insists::looks_like_refusal(head.status, &beginning);
    (AppResponse { head, source }, is_refused)
}

fn answer(head: Head, source: BodySource) -> AppResponse {
    AppResponse { head: head_parts(head), source }
}

fn head_parts(head: Head) -> response::Parts {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = head.status;
    parts.headers = head.headers;
    parts
}

/// Names a failed exchange by what the channel says, or by what the app did.
fn failure_of(error: &hyper::Error) -> Failure {
    match ChannelError::find(error) {
        Some(error) => failure_of_channel(error),
        // The user's own body broke off, or is not what its head said.
        None if error.is_user() || error.is_body_write_aborted() => Failure::BadRequest { reason: "body" },
        None if breaks_http2(error) => Failure::AppAnswerInvalid,
        // The app closed the connection without an answer, or gave the call up.
        None => Failure::AppClosed,
    }
}

/// Returns whether our side found the bytes received to be no HTTP/2, or no answer to a request.
fn breaks_http2(error: &hyper::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<h2::Error>() {
            return error.is_library();
        }
        cause = inner.source();
    }
    false
}

/// The same for an exchange over HTTP/1.1.
fn failure_of_http1(error: &http1::Error) -> Failure {
    match error {
        http1::Error::Channel(error) => ChannelError::find(error).map_or(Failure::AppClosed, failure_of_channel),
        http1::Error::User(_) | http1::Error::Request => Failure::BadRequest { reason: "body" },
        http1::Error::Closed | http1::Error::Incomplete => Failure::AppClosed,
        http1::Error::Tls => Failure::AppSpeaksTls,
        http1::Error::Head | http1::Error::Body => Failure::AppAnswerInvalid,
    }
}

pub(super) fn failure_of_channel(error: ChannelError) -> Failure {
    match error {
        ChannelError::Reset(reason) => failure_of_reason(reason),
        ChannelError::Open(OpenError::ChannelsExhausted) => {
            Failure::Overloaded { limit: "tunnel.channels_per_session" }
        }
        ChannelError::Open(OpenError::BudgetExhausted) => Failure::Overloaded { limit: "tunnel.session_budget" },
        ChannelError::Open(OpenError::ReplayExhausted) => Failure::Overloaded { limit: "tunnel.unacknowledged" },
        ChannelError::Open(OpenError::Ended) => Failure::AgentAbsent,
        ChannelError::Finished => Failure::SessionLost,
    }
}

pub(super) fn failure_of_reason(reason: Reason) -> Failure {
    match reason {
        Reason::PortClosed => Failure::PortClosed,
        Reason::PortNotAllowed => Failure::PortNotAllowed,
        Reason::AppTls => Failure::AppSpeaksNoTls,
        Reason::TimedOut => Failure::OpenTimeout,
        Reason::Overloaded => Failure::Overloaded { limit: "agent" },
        Reason::AppReset | Reason::Cancelled => Failure::AppClosed,
        Reason::Unknown
        | Reason::Protocol
        | Reason::Displaced
        | Reason::Shutdown
        | Reason::Revoked
        | Reason::SessionLost
        | Reason::WorkspaceStopped => Failure::SessionLost,
    }
}
