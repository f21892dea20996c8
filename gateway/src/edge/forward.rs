//! One request to one app: the head as the app should see it, the wait for an answer, and the answer on its way back.

use std::future::poll_fn;
use std::sync::Arc;

use futures_util::TryFutureExt;
use http::header::{EXPECT, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelError;
use tunnel_proto::hello::{AppProtocol, HostMode as WireHostMode};
use tunnel_proto::mux::OpenError;
use tunnel_proto::reason::Reason;

use super::address::Address;
use super::body::{Gate, Progress, RequestBody, ResponseBody};
use super::cookies;
use super::expect::Expectation;
use super::headers::{self, AppHttp, AppRequest};
use super::living::UnderWay;
use super::respond::Failure;
use super::rewrite::{self, HostMode, OwnOrigin};
use super::upstream::{Accepted, Http1, Lease, Upstreams};
use crate::auth::policy::Grant;
use crate::config::Timeouts;
use crate::model::{Scheme, Zone};
use crate::net::stream::Negotiated;
use crate::sessions::registry::{LiveSession, PortMode};

/// What forwarding needs from the gateway.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) timeouts: Timeouts,
    pub(crate) cookies: cookies::CookieNames,
    pub(crate) zone: Zone,
}

/// Where a request came from and where it goes.
#[derive(Debug)]
pub(super) struct Route {
    /// The proof that it may.
    pub(super) grant: Grant,
    /// The session it goes through.
    pub(super) session: Arc<LiveSession>,
    /// The address that the user asked for.
    pub(super) address: Arc<Address>,
    /// Held until the response has ended.
    /// Ends when whoever asked may no longer.
    pub(super) watch: UnderWay,
    pub(super) slot: OwnedSemaphorePermit,
}

/// A response head and body before they are turned back to the user.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    pub(super) lease: Lease,
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
        let mode = route.session.mode(route.grant.port());
        let http = match mode.protocol {
            AppProtocol::Http1 => AppHttp::Http1,
            AppProtocol::Http2 => AppHttp::Http2,
        };
        self.prepare(&mut parts, &AppRequest { http, upgrade: None, trailers: true }, &route, mode);
        let (opener, over, gate) = match expectation {
            Expectation::Nothing => (None, None, None),
            Expectation::Continue if http == AppHttp::Http2 => {
                // HTTP/2 apps rarely answer it; the body follows at once.
                parts.headers.remove(EXPECT);
                (None, None, None)
            }
            Expectation::Continue => {
                let ((opener, opened), (over, is_over)) = (oneshot::channel(), oneshot::channel());
                (Some(opener), Some(over), Some(Gate::new(opened, is_over)))
            }
        };
        let (body, progress) = RequestBody::new(body, gate);
        let mut outgoing = Request::from_parts(parts, body);
        if let Some(opener) = opener {
            open_on_continue(&mut outgoing, opener);
        }
        let answer = match http {
            AppHttp::Http1 => self.send_http1(outgoing, progress.as_deref(), &route).await?,
            AppHttp::Http2 => self.send_http2(outgoing, progress.as_deref(), &route, mode).await?,
        };
        let Answer { response, lease } = answer;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for it; what follows is no answer to anything.
            return Err(Failure::AppClosed);
        }
        let lease = lease.watch(progress.as_deref(), over);
        let (mut head, incoming) = response.into_parts();
        self.finish(&mut head, None, &route, mode);
        Ok(Response::from_parts(head, ResponseBody::app(incoming, lease, route.slot, route.watch)))
    }

    /// Turns the head that the user sent into the one that the app gets.
    pub(super) fn prepare(&self, parts: &mut Parts, app: &AppRequest<'_>, route: &Route, mode: PortMode) {
        cookies::remove_own(&mut parts.headers, &self.cookies);
        headers::to_app(&mut parts.headers, app);
        route.address.forwarded.apply(&mut parts.headers);
        rewrite::request(&mut parts.headers, host_mode(mode), route.origin(), route.grant.port());
        parts.extensions.clear();
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
        head: &mut http::response::Parts,
        switched: Option<&HeaderValue>,
        route: &Route,
        mode: PortMode,
    ) {
        headers::to_user(&mut head.headers, switched);
        cookies::guard_set(&mut head.headers, &self.cookies, &self.zone);
        if mode.host == WireHostMode::Localhost || head.status.is_redirection() {
            rewrite::response(&mut head.headers, route.origin(), route.grant.port());
        }
        // The framing of the user's connection is that connection's own business.
        head.version = Version::HTTP_11;
        head.extensions.clear();
    }

    async fn send_http1(
        &self,
        mut request: Request<RequestBody>,
        progress: Option<&Progress>,
        route: &Route,
    ) -> Result<Answer, Failure> {
        let session = &route.session;
        while let Some(mut connection) = self.upstreams.reuse(session, route.grant.port()) {
            let again = can_repeat(&request).then(|| copy_head(&request));
            match self.exchange_http1(&mut connection, request, progress).await {
                Ok(response) => return Ok(Answer { response, lease: connection.lease(&self.upstreams) }),
                Err(Sent { unsent: Some(unsent), .. }) => request = *unsent,
                // The app may have closed the idle connection at the same moment (RFC 9112, section 9.3.1).
                Err(Sent { failure: Failure::AppClosed, .. }) if again.is_some() => {
                    request = again.ok_or(Failure::AppClosed)?;
                    break;
                }
                Err(Sent { failure, .. }) => return Err(failure),
            }
        }
        let mut connection = self.connect(session, route).await?;
        match self.exchange_http1(&mut connection, request, progress).await {
            Ok(response) => Ok(Answer { response, lease: connection.lease(&self.upstreams) }),
            Err(Sent { failure, .. }) => Err(failure),
        }
    }

    async fn connect(&self, session: &LiveSession, route: &Route) -> Result<Http1, Failure> {
        self.upstreams.connect(session, route.grant.port()).await.map_err(|error| failure_of(&error))
    }

    /// Sends on a connection of its own and waits for the answer; for upgrades.
    pub(super) async fn exchange_alone(
        &self,
        request: Request<RequestBody>,
        route: &Route,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        let connected = self.upstreams.connect_upgradable(&route.session, route.grant.port()).await;
        let mut connection = connected.map_err(|error| failure_of(&error))?;
        let response = connection.sender.try_send_request(request);
        let response = async { response.await.map_err(Sent::from) };
        match self.wait(response, connection.accepted.take(), None).await {
            Ok(response) => Ok((response, connection.lease(&self.upstreams))),
            Err(Sent { failure, .. }) => Err(failure),
        }
    }

    async fn exchange_http1(
        &self,
        connection: &mut Http1,
        request: Request<RequestBody>,
        progress: Option<&Progress>,
    ) -> Result<Response<Incoming>, Sent> {
        let accepted = connection.accepted.take();
        let driven = &mut *connection.driven;
        // What it waits for comes of driving the connection, so a budget of its own would only be in the way.
        let mut response = std::pin::pin!(unconstrained(driven.sender.try_send_request(request)));
        let response = poll_fn(|context| driven.poll(context, |context| response.as_mut().poll(context)));
        self.wait(response.map_err(Sent::from), accepted, progress).await
    }

    async fn send_http2(
        &self,
        mut request: Request<RequestBody>,
        progress: Option<&Progress>,
        route: &Route,
        mode: PortMode,
    ) -> Result<Answer, Failure> {
        let port = route.grant.port();
        let authority = match host_mode(mode) {
            HostMode::Original => route.address.authority.to_string(),
            HostMode::Localhost => format!("localhost:{port}"),
        };
        // HTTP/2 has the host in `:authority` (RFC 9113, section 8.3.1).
        request.headers_mut().remove(http::header::HOST);
        let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(target).build();
        *request.uri_mut() = uri.map_err(|_| Failure::BadRequest { reason: "target" })?;
        loop {
            let connected = self.upstreams.http2(&route.session, port).await;
            let (mut sender, accepted, lease) = connected.map_err(|error| failure_of(&error))?;
            let is_fresh = accepted.is_some();
            let response = async {
                if let Err(error) = sender.ready().await {
                    return Err(Sent { failure: failure_of(&error), unsent: Some(Box::new(request)) });
                }
                sender.try_send_request(request).await.map_err(Sent::from)
            };
            match self.wait(response, accepted, progress).await {
                Ok(response) => return Ok(Answer { response, lease }),
                // The app went away before the call was sent; a fresh connection is the last try.
                Err(Sent { unsent: Some(unsent), .. }) if !is_fresh => request = *unsent,
                Err(Sent { failure, .. }) => return Err(failure),
            }
        }
    }

    /// Waits for a response head under two named deadlines: the port has to answer, and then the app.
    async fn wait<T>(
        &self,
        response: impl Future<Output = Result<T, Sent>>,
        accepted: Option<Accepted>,
        progress: Option<&Progress>,
    ) -> Result<T, Sent> {
        let timed_out = |failure| Sent { failure, unsent: None };
        let mut response = std::pin::pin!(response);
        if let Some(accepted) = accepted {
            let open_by = Instant::now() + self.timeouts.channel_open;
            tokio::select! {
                biased;
                result = &mut response => return result,
                answered = accepted => match answered {
                    Ok(Ok(())) | Err(_) => {}
                    // The connection's error is about to say the same; this is the exact reason.
                    Ok(Err(reason)) => return Err(timed_out(failure_of_reason(reason))),
                },
                () = tokio::time::sleep_until(open_by) => return Err(timed_out(Failure::OpenTimeout)),
            }
        }
        let mut frames = progress.map(Progress::frames);
        loop {
            match tokio::time::timeout(self.timeouts.response_header, &mut response).await {
                Ok(result) => return result,
                Err(_elapsed) => {
                    // An upload that moves is not an app that hangs.
                    let now = progress.map(Progress::frames);
                    let moved = now != frames && !progress.is_none_or(Progress::is_finished);
                    if !moved {
                        return Err(timed_out(Failure::ResponseTimeout));
                    }
                    frames = now;
                }
            }
        }
    }
}

impl Route {
    pub(super) fn origin(&self) -> OwnOrigin<'_> {
        self.address.origin()
    }

    /// Reads scheme facts of the connection.
    pub(super) fn scheme_of(negotiated: &Negotiated, public: Scheme) -> Scheme {
        // Behind a load balancer that ends TLS, the public address knows better than the connection.
        if negotiated.tls { Scheme::Https } else { public }
    }
}

/// Why no response came, and the request if it was not sent at all.
pub(super) struct Sent {
    failure: Failure,
    unsent: Option<Box<Request<RequestBody>>>,
}

impl From<TrySendError<Request<RequestBody>>> for Sent {
    fn from(mut error: TrySendError<Request<RequestBody>>) -> Self {
        let unsent = error.take_message().map(Box::new);
        Self { failure: failure_of(error.error()), unsent }
    }
}

fn host_mode(mode: PortMode) -> HostMode {
    match mode.host {
        WireHostMode::Original => HostMode::Original,
        WireHostMode::Localhost => HostMode::Localhost,
    }
}

/// Only what has no body and may be repeated by its method (RFC 9110, section 9.2.2) is sent again after it was sent.
fn can_repeat(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_empty()
}

fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Lets the body go when the app says `100 Continue`.
fn open_on_continue(request: &mut Request<RequestBody>, opener: oneshot::Sender<()>) {
    let opener = Mutex::new(Some(opener));
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE
            && let Some(opener) = opener.lock().take()
        {
            opener.send(()).ok();
        }
    });
}

/// Names a failed exchange by what the channel says, or by what the app did.
pub(super) fn failure_of(error: &hyper::Error) -> Failure {
    match ChannelError::find(error) {
        Some(ChannelError::Reset(reason)) => failure_of_reason(reason),
        Some(ChannelError::Open(OpenError::ChannelsExhausted)) => {
            Failure::Overloaded { limit: "tunnel.channels_per_session" }
        }
        Some(ChannelError::Open(OpenError::BudgetExhausted)) => Failure::Overloaded { limit: "tunnel.session_budget" },
        Some(ChannelError::Open(OpenError::Ended)) => Failure::AgentAbsent,
        Some(ChannelError::Finished) => Failure::SessionLost,
        // The user's own body broke off, or is not what its head said.
        None if error.is_user() || error.is_body_write_aborted() => Failure::BadRequest { reason: "body" },
        // The app closed the connection without an answer, or answered something that is not HTTP.
        None => Failure::AppClosed,
    }
}

fn failure_of_reason(reason: Reason) -> Failure {
    match reason {
        Reason::PortClosed => Failure::PortClosed,
        Reason::PortNotAllowed => Failure::PortNotAllowed,
        Reason::TimedOut => Failure::OpenTimeout,
        Reason::Overloaded => Failure::Overloaded { limit: "agent" },
        Reason::AppReset | Reason::Cancelled => Failure::AppClosed,
        Reason::Unknown
        | Reason::Protocol
        | Reason::Displaced
        | Reason::Shutdown
        | Reason::Revoked
        | Reason::SessionLost => Failure::SessionLost,
    }
}
