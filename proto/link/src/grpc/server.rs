//! The gateway's end of the RPC.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::Welcome;

use super::encode::Outgoing;
use super::{H2_FRAME_BYTES, H2_HEADER_BYTES, H2_SEND_BUFFER_BYTES, H2_WINDOW_BYTES, PATH};
use crate::pace::Pace;
use crate::session::LinkHold;

/// RPCs that one agent's connection may have open: its link, and reflection or health beside it.
const STREAMS_MAX: u32 = 8;

/// Most streams that are reset before they were taken, and most that are reset for an agent's mistakes. An agent that
/// keeps to the rules has none of either.
const RESETS_MAX: usize = 16;

/// gRPC status codes that a refusal uses (<https://grpc.io/docs/guides/status-codes/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The Hello is wrong.
    InvalidArgument,
    /// Too much at once: come back later.
    ResourceExhausted,
    /// The peers cannot work together.
    FailedPrecondition,
    /// Not now: come back later.
    Unavailable,
    /// The session that the agent names is not its to resume or to join: it starts a new one.
    PermissionDenied,
    /// A newer session of another agent took the place of the one to resume.
    Aborted,
    /// The credential is not good.
    Unauthenticated,
    /// A wait ran out.
    DeadlineExceeded,
    /// The workspace is not to run, so there is nothing to be an agent of.
    NotFound,
}

impl Code {
    /// Every code, for reading them and for tests.
    pub const ALL: [Self; 9] = [
        Self::InvalidArgument,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Unavailable,
        Self::PermissionDenied,
        Self::Aborted,
        Self::Unauthenticated,
        Self::DeadlineExceeded,
        Self::NotFound,
    ];

    /// Returns the number that stands on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::InvalidArgument => 3,
            Self::DeadlineExceeded => 4,
            Self::NotFound => 5,
            Self::PermissionDenied => 7,
            Self::ResourceExhausted => 8,
            Self::FailedPrecondition => 9,
            Self::Aborted => 10,
            Self::Unavailable => 14,
            Self::Unauthenticated => 16,
        }
    }

    /// Reads the number; `None` for codes that a gateway does not use.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// Returns whether the same agent can succeed later without a change by a person.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        match self {
            // It succeeds without the session, which the agent forgets then.
            Self::PermissionDenied => true,
            Self::ResourceExhausted | Self::Unavailable | Self::DeadlineExceeded => true,
            Self::InvalidArgument
            | Self::FailedPrecondition
            | Self::Aborted
            | Self::Unauthenticated
            | Self::NotFound => false,
        }
    }
}

/// Refusal of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcRefused {
    /// The gRPC status.
    pub code: Code,
    /// For the agent's log: printable ASCII without `%`, and nothing that the agent sent.
    pub message: String,
    /// Earliest redial.
    pub retry_after: Option<Duration>,
}

impl RpcRefused {
    /// Returns whether the session that the agent wanted to resume or to join is lost to it.
    #[must_use]
    pub fn loses_session(&self) -> bool {
        matches!(self.code, Code::PermissionDenied | Code::Aborted)
    }
}

/// Makes the HTTP/2 server of the agents' listener with the tunnel's settings.
#[must_use]
pub fn server_builder(keepalive_interval: Duration, keepalive_timeout: Duration) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_WINDOW_BYTES)
        .initial_connection_window_size(H2_WINDOW_BYTES)
        .max_frame_size(H2_FRAME_BYTES)
        .max_send_buf_size(H2_SEND_BUFFER_BYTES)
        .max_header_list_size(H2_HEADER_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(keepalive_interval)
        .keep_alive_timeout(keepalive_timeout);
    builder
}

/// Returns whether a request is the tunnel's RPC.
#[must_use]
pub fn is_tunnel_request<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == PATH && is_grpc(request.headers())
}

/// Returns whether a message declares itself as gRPC.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Answers with a Welcome and then carries the session, as fast as the connection's `pace` has it.
#[must_use]
pub fn accept_response(welcome: Welcome, link: LinkHold, pace: Arc<Pace>) -> Response<Outgoing> {
    let frame = Frame { sequence: 0, acknowledged: 0, body: Body::Welcome(Box::new(welcome)) };
    let mut response = Response::new(Outgoing::response(frame, link, pace));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Answers with a status and no body ("trailers only").
#[must_use]
pub fn refuse_response<B: Default>(refused: &RpcRefused) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(refused.code.number()));
    if let Ok(message) = HeaderValue::from_str(&refused.message) {
        headers.insert("grpc-message", message);
    }
    if let Some(retry_after) = refused.retry_after {
        let milliseconds = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from(milliseconds));
    }
    response
}
