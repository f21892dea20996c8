//! The agent's end: asks for the WebSocket, says Hello, waits for the Welcome.

use std::future::Future;
use std::pin::pin;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE, USER_AGENT,
};
use http::uri::Authority;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tunnel_proto::hello::Hello;

use super::carry::{CarryError, carry};
use super::{HEAD_BYTES, PROTOCOL};
use crate::grpc::{AGENT, ConnectError, Dialed, PATH, bearer, is_grpc, refusal, request_body, welcomed};

/// Asks for a WebSocket on a connected stream and says Hello. The first returned future carries the WebSocket and has
/// to be polled for as long as the link is used; it ends when the WebSocket is closed, and dropping it cuts the
/// connection. The second waits for the Welcome.
///
/// # Errors
/// [`ConnectError`], each with its cause.
pub async fn dial<S>(
    stream: S,
    authority: Authority,
    token: &str,
    hello: Hello,
) -> Result<
    (
        impl Future<Output = Result<(), CarryError>> + Send + use<S>,
        impl Future<Output = Result<Dialed, ConnectError>> + use<S>,
    ),
    ConnectError,
>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let key = generate_key();
    let request = request(&authority, token, &key)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(ConnectError::Http1)?;
    let mut connection = pin!(connection.with_upgrades());
    let answer = sender.send_request(request);
    let response = tokio::select! {
        biased;
        response = answer => response.map_err(ConnectError::Http1)?,
        result = connection.as_mut() => {
            result.map_err(ConnectError::Http1)?;
            return Err(ConnectError::NoWelcome);
        }
    };
    check(response.status(), response.headers(), &key)?;
    let switched = hyper::upgrade::on(response);
    let (switched, ()) = tokio::try_join!(switched, connection).map_err(ConnectError::Http1)?;
    let (filler, body) = request_body(hello);
    let (carrier, reader) = carry(TokioIo::new(switched), Role::Client, body).await;
    Ok((carrier, welcomed(reader, filler)))
}

fn request(authority: &Authority, token: &str, key: &str) -> Result<Request<Empty<Bytes>>, ConnectError> {
    let text = |text: &str, what| HeaderValue::try_from(text).map_err(|_| ConnectError::Argument(what));
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(HOST, text(authority.as_str(), "the gateway's address")?);
    headers.insert(AUTHORIZATION, bearer(token)?);
    headers.insert(USER_AGENT, AGENT);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.insert(SEC_WEBSOCKET_KEY, text(key, "the key of the WebSocket")?);
    Ok(request)
}

/// Checks the answer (RFC 6455, section 4.1).
fn check(status: StatusCode, headers: &HeaderMap, key: &str) -> Result<(), ConnectError> {
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(match refusal(headers).filter(|_| is_grpc(headers)) {
            Some(refused) => ConnectError::Refused(refused),
            None => ConnectError::NotGateway { status: status.as_u16() },
        });
    }
    let accept = derive_accept_key(key.as_bytes());
    if headers.get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes) != Some(accept.as_bytes()) {
        return Err(ConnectError::Upgrade("Sec-WebSocket-Accept"));
    }
    if headers.get(SEC_WEBSOCKET_PROTOCOL).map(HeaderValue::as_bytes) != Some(PROTOCOL.as_bytes()) {
        return Err(ConnectError::Upgrade("Sec-WebSocket-Protocol"));
    }
    Ok(())
}
