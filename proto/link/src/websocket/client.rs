//! The agent's end: asks for the WebSocket, says Hello, waits for the Welcome.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE, USER_AGENT,
};
use http::uri::Authority;
use http::{Request, Uri, response};
use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tunnel_proto::hello::Hello;

use super::PROTOCOL;
use super::carry::{CarryError, carry};
use crate::grpc::{AGENT, ConnectError, DialedLink, PATH, bearer, is_grpc, refusal, request_body, welcomed};
use crate::pace::Pace;
use crate::switch::{SwitchAnswer, ask};

/// Asks for a WebSocket on a connected stream, a [`PacedStream`](crate::pace::PacedStream) one whose other half is `pace`, and says
/// Hello. The first returned future carries the WebSocket and has to be polled for as long as the link is used; it ends
/// when the WebSocket is closed, and dropping it cuts the connection. The second waits for the Welcome.
///
/// # Errors
/// [`ConnectError`], each with its cause.
pub async fn dial<S>(
    stream: S,
    pace: Arc<Pace>,
    authority: Authority,
    token: Option<&str>,
    hello: Hello,
) -> Result<
    (
        impl Future<Output = Result<(), CarryError>> + Send + use<S>,
        impl Future<Output = Result<DialedLink, ConnectError>> + use<S>,
    ),
    ConnectError,
>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let key = generate_key();
    let request = request(&authority, token, &key)?;
    let stream = match ask(stream, request).await.map_err(ConnectError::Http1)? {
        SwitchAnswer::Switched(answer, stream) => {
            check(&answer.headers, &key)?;
            stream
        }
        SwitchAnswer::Refused(answer) => return Err(refused(&answer)),
    };
    let (filler, body) = request_body(hello, pace);
    let (carrier, reader) = carry(stream, Role::Client, body).await;
    Ok((carrier, welcomed(reader, filler)))
}

fn request(authority: &Authority, token: Option<&str>, key: &str) -> Result<Request<Empty<Bytes>>, ConnectError> {
    let text = |text: &str, what| HeaderValue::try_from(text).map_err(|_| ConnectError::Argument(what));
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(HOST, text(authority.as_str(), "the gateway's address")?);
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, bearer(token)?);
    }
    headers.insert(USER_AGENT, AGENT);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.insert(SEC_WEBSOCKET_KEY, text(key, "the key of the WebSocket")?);
    Ok(request)
}

fn refused(answer: &response::Parts) -> ConnectError {
    match refusal(&answer.headers).filter(|_| is_grpc(&answer.headers)) {
        Some(refused) => ConnectError::Refused(refused),
        None => ConnectError::NotGateway { status: answer.status.as_u16() },
    }
}

/// Checks the answer (RFC 6455, section 4.1).
fn check(headers: &HeaderMap, key: &str) -> Result<(), ConnectError> {
    let accept = derive_accept_key(key.as_bytes());
    if headers.get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes) != Some(accept.as_bytes()) {
        return Err(ConnectError::Upgrade("Sec-WebSocket-Accept"));
    }
    if headers.get(SEC_WEBSOCKET_PROTOCOL).map(HeaderValue::as_bytes) != Some(PROTOCOL.as_bytes()) {
        return Err(ConnectError::Upgrade("Sec-WebSocket-Protocol"));
    }
    Ok(())
}
