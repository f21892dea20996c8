//! Upgraded connections: a WebSocket and a raw byte stream, both echo.

use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::payload::Payload;

/// Bytes of one read from a raw stream.
const RAW_READ_BYTES: usize = 64 * 1024;

/// Answers a WebSocket handshake and echoes messages.
pub(super) fn websocket(
    request: Request<Incoming>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Response<Payload> {
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes())) else {
        return refuse("a WebSocket handshake is needed\n");
    };
    let Ok(accept) = HeaderValue::try_from(key) else {
        return refuse("a WebSocket handshake is needed\n");
    };
    let stop = stop.clone();
    upgrade(request, tasks, |upgraded| async move {
        let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
        while let Some(Some(Ok(message))) = stop.run_until_cancelled(socket.next()).await {
            // Pings are answered by the library; a close is answered when the stream is polled again.
            let is_echoed = matches!(message, Message::Text(_) | Message::Binary(_));
            if is_echoed && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    let mut answer = switching("websocket");
    answer.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    answer
}

/// Answers `Upgrade: raw` and echoes bytes until the client ends.
pub(super) fn raw(request: Request<Incoming>, tasks: &TaskTracker, stop: &CancellationToken) -> Response<Payload> {
    if request.headers().get(UPGRADE).is_none_or(|value| value != "raw") {
        return refuse("`Upgrade: raw` is needed\n");
    }
    let stop = stop.clone();
    upgrade(request, tasks, |mut upgraded| async move {
        let mut buffer = vec![0; RAW_READ_BYTES];
        while let Some(Ok(length @ 1..)) = stop.run_until_cancelled(upgraded.read(&mut buffer)).await {
            let Some(bytes) = buffer.get(..length) else { break };
            if upgraded.write_all(bytes).await.is_err() || upgraded.flush().await.is_err() {
                break;
            }
        }
        // The client may be gone already.
        drop(upgraded.shutdown().await);
    });
    switching("raw")
}

fn upgrade<F, T>(request: Request<Incoming>, tasks: &TaskTracker, then: F)
where
    F: FnOnce(TokioIo<Upgraded>) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    tasks.spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => then(TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "an upgrade came to nothing"),
        }
    });
}

fn switching(protocol: &'static str) -> Response<Payload> {
    let mut answer = Response::new(Payload::Empty);
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    answer
}

fn refuse(text: &'static str) -> Response<Payload> {
    let mut answer = Response::new(Payload::text(text));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer
}
