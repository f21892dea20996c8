//! The gateway's end: checks the request, switches, and carries the gateway's answer to the Hello.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::PROTOCOL;
use super::carry::{CarryError, carry};
use super::whole::{WholeMessages, trailers_of};
use crate::grpc::{self, Chunk, Code, FrameReader, IncomingBody, Outgoing, PATH, RpcRefused};
use crate::pace::Pace;

/// Length of a key: 16 bytes in base64.
const KEY_CHARACTERS: usize = 24;

/// A request for the link's WebSocket that can be granted.
#[derive(Clone, Debug)]
pub struct Handshake {
    accept: HeaderValue,
}

/// Reason why a request over HTTP/1.1 is not one for the link's WebSocket. The texts are for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoHandshake {
    /// Another path or method.
    #[error("this is the listener for agents: over HTTP/1.1 it has nothing but a WebSocket at {PATH}")]
    NotHere,
    /// No request to switch.
    #[error(
        "this is the tunnel's RPC: speak gRPC over HTTP/2, or ask for a WebSocket (a proxy on the way may have removed the Upgrade header)"
    )]
    NotAsked,
    /// `Sec-WebSocket-Version` is not 13.
    #[error("Sec-WebSocket-Version is not 13")]
    Version,
    /// `Sec-WebSocket-Key` is missing or damaged.
    #[error("Sec-WebSocket-Key is not 16 bytes in base64")]
    Key,
    /// `Sec-WebSocket-Protocol` does not name the tunnel.
    #[error("Sec-WebSocket-Protocol does not name tunnel.v1")]
    Protocol,
}

impl NoHandshake {
    /// Returns the status of the answer.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotHere => StatusCode::NOT_FOUND,
            Self::NotAsked | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Protocol => StatusCode::BAD_REQUEST,
        }
    }

    /// Makes the answer, without a body.
    #[must_use]
    pub fn response<B: Default>(self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        if self.status() == StatusCode::UPGRADE_REQUIRED {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

impl Handshake {
    /// Reads a request (RFC 6455, section 4.2.1).
    ///
    /// # Errors
    /// [`NoHandshake`] says what is missing.
    pub fn read<B>(request: &Request<B>) -> Result<Self, NoHandshake> {
        if request.uri().path() != PATH {
            return Err(NoHandshake::NotHere);
        }
        let headers = request.headers();
        let asks = has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket");
        if request.method() != Method::GET || !asks {
            return Err(NoHandshake::NotAsked);
        }
        if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(NoHandshake::Version);
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| key.len() == KEY_CHARACTERS);
        let key = key.ok_or(NoHandshake::Key)?;
        if !has_token(headers, &SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
            return Err(NoHandshake::Protocol);
        }
        let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| NoHandshake::Key)?;
        Ok(Self { accept })
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|listed| listed.trim().eq_ignore_ascii_case(token))
}

/// Answers that the connection becomes a WebSocket.
#[must_use]
pub fn switch_response<B: Default>(handshake: Handshake) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.insert(SEC_WEBSOCKET_ACCEPT, handshake.accept);
    response
}

/// Turns an agent away before the switch: gRPC's headers, and a status that proxies understand too.
#[must_use]
pub fn refuse_response<B: Default>(refused: &RpcRefused) -> Response<B> {
    let mut response = grpc::refuse_response(refused);
    *response.status_mut() = match refused.code {
        Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::NotFound => StatusCode::GONE,
    };
    if refused.code == Code::Unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Starts the gateway's end on a stream that has switched. The future carries the WebSocket and ends with it; the
/// reader yields the agent's frames, the Hello first; the third part takes the answer to that.
pub async fn serve<S>(
    stream: S,
) -> (impl Future<Output = Result<(), CarryError>> + use<S>, FrameReader<IncomingBody>, HelloAnswer)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (sender, receiver) = oneshot::channel();
    let (carrier, reader) = carry(stream, Role::Server, Reply::Due(receiver)).await;
    (carrier, reader, HelloAnswer { sender })
}

/// Answers a Hello. Dropped unused, it closes the WebSocket.
#[derive(Debug)]
pub struct HelloAnswer {
    sender: oneshot::Sender<Reply>,
}

impl HelloAnswer {
    /// Answers with a Welcome, followed by the frames of the session.
    pub fn accept(self, outgoing: Outgoing) {
        // The agent may have gone; the session hears of it when the body is dropped.
        drop(self.sender.send(Reply::Tunnel(outgoing)));
    }

    /// Answers with the messages of a link that ends elsewhere. An error of the body becomes its end.
    pub fn relay(self, body: impl Body<Data = Bytes, Error = RpcRefused> + Send + 'static, pace: Arc<Pace>) {
        drop(self.sender.send(Reply::Relay(WholeMessages::new(Box::pin(body), pace))));
    }

    /// Turns the agent away.
    pub fn refuse(self, refused: &RpcRefused) {
        drop(self.sender.send(Reply::Trailers(trailers_of(refused))));
    }
}

/// Outgoing half of the gateway: nothing yet, a session here or elsewhere, or a status and the end.
#[derive(Debug)]
enum Reply {
    Due(oneshot::Receiver<Self>),
    Tunnel(Outgoing),
    Relay(WholeMessages),
    Trailers(HeaderMap),
    Ended,
}

impl Body for Reply {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        if let Self::Due(reply) = &mut *self {
            let reply = ready!(Pin::new(reply).poll(context)).unwrap_or(Self::Ended);
            *self = reply;
        }
        match &mut *self {
            Self::Tunnel(outgoing) => Pin::new(outgoing).poll_frame(context),
            Self::Relay(messages) => messages.poll_frame(context),
            Self::Trailers(trailers) => {
                let trailers = std::mem::take(trailers);
                *self = Self::Ended;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Due(_) | Self::Ended => Poll::Ready(None),
        }
    }
}
