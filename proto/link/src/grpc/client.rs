//! The agent's end of the RPC.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request};
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Welcome};

use super::decode::{FrameReader, ReadError};
use super::encode::{Filler, Outgoing};
use super::received::IncomingBody;
use super::server::{Code, RpcRefused, is_grpc};
use super::{H2_FRAME_BYTES, H2_HEADER_BYTES, H2_SEND_BUFFER_BYTES, H2_WINDOW_BYTES, PATH};
use crate::pace::Pace;
use crate::session::LinkHold;

/// HTTP/2 pings under the tunnel's own, for links on which not even frames get through.
const H2_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const H2_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why the RPC did not come up.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// HTTP/2 could not be spoken.
    #[error("no HTTP/2 connection: is this the gateway's listener for agents?")]
    Http2(#[source] hyper::Error),
    /// HTTP/1.1 could not be spoken.
    #[error("no HTTP/1.1 connection: is this the gateway's listener for agents?")]
    Http1(#[source] hyper::Error),
    /// The answer to the request for a WebSocket agrees, but not to what was asked.
    #[error("the other side switched to a WebSocket that is not a gateway's: {0} is wrong")]
    Upgrade(&'static str),
    /// The answer is not gRPC.
    #[error("the other side answered HTTP {status} and is not a gateway for agents")]
    NotGateway {
        /// The HTTP status.
        status: u16,
    },
    /// The gateway turned the agent away.
    #[error("the gateway refused this agent: {}", .0.message)]
    Refused(RpcRefused),
    /// The stream ended or broke before the Welcome.
    #[error("the stream ended before the gateway's welcome")]
    NoWelcome,
    /// The first frame was not readable.
    #[error("the gateway's welcome could not be read")]
    Welcome(#[source] ReadError),
    /// An argument cannot be sent.
    #[error("{0} cannot be sent in an HTTP header")]
    Argument(&'static str),
}

/// A link after the gateway's Welcome.
#[derive(Debug)]
pub struct DialedLink {
    /// Answer of the gateway.
    pub welcome: Welcome,
    /// The frames that follow.
    pub reader: FrameReader<IncomingBody>,
    filler: Filler,
}

impl DialedLink {
    /// Lets the link carry a session's frames.
    pub fn attach(&self, link: LinkHold) {
        self.filler.fill(link);
    }
}

/// Speaks HTTP/2 on a connected stream, a [`PacedStream`](crate::pace::PacedStream) one whose other half is `pace`, sends the
/// Hello, with a bearer token if there is one, and waits for the Welcome. The first returned future drives the
/// connection and has to be polled for as long as the link is used; it ends when all frames are written and the
/// connection is closed, and dropping it cuts the connection. The second waits for the Welcome.
///
/// # Errors
/// [`ConnectError`], each with its cause.
pub async fn dial<S>(
    stream: S,
    pace: Arc<Pace>,
    authority: Authority,
    scheme: Scheme,
    token: Option<&str>,
    hello: Hello,
) -> Result<
    (
        impl Future<Output = Result<(), hyper::Error>> + Send + use<S>,
        impl Future<Output = Result<DialedLink, ConnectError>> + use<S>,
    ),
    ConnectError,
>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = Tasks::default();
    let cut = tasks.cut.clone().drop_guard();
    let (mut sender, connection) = http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_WINDOW_BYTES)
        .initial_connection_window_size(H2_WINDOW_BYTES)
        .max_frame_size(H2_FRAME_BYTES)
        .max_send_buf_size(H2_SEND_BUFFER_BYTES)
        .max_header_list_size(H2_HEADER_BYTES)
        .keep_alive_interval(H2_KEEPALIVE_INTERVAL)
        .keep_alive_timeout(H2_KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake::<_, Outgoing>(TokioIo::new(stream))
        .await
        .map_err(ConnectError::Http2)?;
    let (filler, body) = request_body(hello, pace);
    let request = request(authority, scheme, token, body)?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(ConnectError::Http2)?;
        if response.status() != http::StatusCode::OK || !is_grpc(response.headers()) {
            return Err(ConnectError::NotGateway { status: response.status().as_u16() });
        }
        if let Some(refused) = refusal(response.headers()) {
            return Err(ConnectError::Refused(refused));
        }
        welcomed(FrameReader::new(response.into_body().into()), filler).await
    };
    let connection = async move {
        let _cut = cut;
        let result = connection.await;
        // hyper's future ends as soon as no request can come; the last frames are still on their way out then.
        tasks.running.close();
        tasks.running.wait().await;
        result
    };
    Ok((connection, answer))
}

/// Makes the body that says Hello, followed by the frames of the session whose link is filled in.
#[must_use]
pub fn request_body(hello: Hello, pace: Arc<Pace>) -> (Filler, Outgoing) {
    let (filler, slot) = Filler::new();
    let first = Frame { sequence: 0, acknowledged: 0, body: Body::Hello(Box::new(hello)) };
    (filler, Outgoing::request(first, slot, pace))
}

/// Waits for the gateway's Welcome, or for its refusal.
///
/// # Errors
/// [`ConnectError`].
///
/// # Cancel safety
/// Dropped, it gives the link up.
pub async fn welcomed(mut reader: FrameReader<IncomingBody>, filler: Filler) -> Result<DialedLink, ConnectError> {
    let frame = reader.next().await.map_err(ConnectError::Welcome)?;
    let Some(Frame { body: Body::Welcome(welcome), .. }) = frame else {
        return Err(reader.trailers().and_then(refusal).map_or(ConnectError::NoWelcome, ConnectError::Refused));
    };
    Ok(DialedLink { welcome: *welcome, reader, filler })
}

/// Runs HTTP/2's own tasks for one connection: they are waited for, and cut when the connection is driven no more.
#[derive(Clone, Default)]
struct Tasks {
    running: TaskTracker,
    cut: CancellationToken,
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let cut = self.cut.clone();
        drop(self.running.spawn(async move {
            // Cut or not, it is over.
            cut.run_until_cancelled(task).await.unwrap_or_default();
        }));
    }
}

fn request(
    authority: Authority,
    scheme: Scheme,
    token: Option<&str>,
    body: Outgoing,
) -> Result<Request<Outgoing>, ConnectError> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority);
    parts.path_and_query = Some(PathAndQuery::from_static(PATH));
    let uri = Uri::from_parts(parts).map_err(|_| ConnectError::Argument("the gateway's address"))?;
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, bearer(token)?);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(USER_AGENT, AGENT);
    Ok(request)
}

/// User agent of the agent.
pub(crate) const AGENT: HeaderValue = HeaderValue::from_static(concat!("workspace-agent/", env!("CARGO_PKG_VERSION")));

/// Makes the credential's header, which no log shows.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, ConnectError> {
    let mut bearer =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ConnectError::Argument("the token"))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// Reads a gRPC status that is not OK. Codes that a gateway does not use count as unavailable, which redials.
#[must_use]
pub fn refusal(headers: &HeaderMap) -> Option<RpcRefused> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let number: u16 = text("grpc-status")?.parse().ok()?;
    if number == 0 {
        return None;
    }
    let retry_after = text("grpc-retry-pushback-ms").and_then(|text| text.parse().ok()).map(Duration::from_millis);
    Some(RpcRefused {
        code: Code::from_number(number).unwrap_or(Code::Unavailable),
        message: text("grpc-message").unwrap_or("no reason given").to_owned(),
        retry_after,
    })
}
