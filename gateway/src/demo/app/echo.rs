//! `/ws`: sends every message back as it came.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use tokio::time::timeout;

use super::DemoApp;
use super::open::{OpenCount, OpenKind};

/// The largest message that is echoed; a larger one closes the socket with code 1009 (RFC 6455, section 7.4.1).
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes that the WebSocket layer reads. It breaks off without a close frame, so it stands above the limit that is
/// answered with a close code.
const READ_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Longest wait of a closing socket for the peer's half of the closing handshake.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Accepts a WebSocket, over an HTTP/1.1 upgrade or an extended CONNECT (RFC 8441).
pub(super) async fn upgrade(State(app): State<DemoApp>, upgrade: WebSocketUpgrade) -> Response {
    // Taken here, not in the callback: a stop between the answer and the callback must still wait for it.
    let task = app.tasks.token();
    upgrade.max_message_size(READ_BYTES_MAX).max_frame_size(READ_BYTES_MAX).on_upgrade(async move |socket| {
        converse(socket, &app).await;
        drop(task);
    })
}

/// Reason for the end of the echo.
enum Ending {
    /// The peer closed, or the connection broke.
    Peer,
    /// A message was larger than the limit.
    TooBig,
    /// The app stops.
    Stop,
}

async fn converse(mut socket: WebSocket, app: &DemoApp) {
    let _held = OpenCount::new(app, OpenKind::WebSocket);
    let ending = app.stop.run_until_cancelled(echo(&mut socket)).await;
    let frame = match ending.unwrap_or(Ending::Stop) {
        Ending::Peer => return,
        Ending::TooBig => close(close_code::SIZE, "messages of more than 1 MiB are not echoed"),
        Ending::Stop => close(close_code::AWAY, "the sample app stops"),
    };
    let goodbye = async {
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            // Reading on until the peer has closed keeps a reset from overtaking the close frame.
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    if timeout(app.close_wait, goodbye).await.is_err() {
        tracing::trace!("peer of the echo did not close in time");
    }
}

fn close(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: Utf8Bytes::from_static(reason) }
}

/// Pings are answered by the WebSocket layer while it reads.
async fn echo(socket: &mut WebSocket) -> Ending {
    while let Some(Ok(message)) = socket.recv().await {
        let bytes = match &message {
            Message::Text(text) => text.as_str().len(),
            Message::Binary(bytes) => bytes.len(),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
        };
        if bytes > MESSAGE_BYTES_MAX {
            return Ending::TooBig;
        }
        if socket.send(message).await.is_err() {
            return Ending::Peer;
        }
    }
    Ending::Peer
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Method, Request, StatusCode};
    use futures_util::FutureExt;
    use hyper::client::conn::http2;
    use hyper::ext::Protocol;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::{JoinSet, yield_now};

    use super::super::tests::{RunningApp, patiently, read_past, read_to_end};
    use super::*;

    const HANDSHAKE: &[u8] = b"GET /ws HTTP/1.1\r\nhost: app\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    const TEXT: u8 = 0x81;
    const BINARY: u8 = 0x82;
    const CLOSE: u8 = 0x88;
    const PING: u8 = 0x89;
    const PONG: u8 = 0x8a;

    #[tokio::test]
    async fn text_and_binary_come_back_as_they_went() {
        let app = RunningApp::start().await;
        let mut socket = connect(&app).await;
        let binary: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        for (kind, payload) in [(TEXT, "grüße".as_bytes()), (BINARY, &binary), (TEXT, b"")] {
            write_frame(&mut socket, kind, payload).await;
            assert_eq!(read_frame(&mut socket).await, (kind, payload.to_vec()));
        }
    }

    #[tokio::test]
    async fn a_ping_is_answered_with_its_payload() {
        let app = RunningApp::start().await;
        let mut socket = connect(&app).await;
        write_frame(&mut socket, PING, b"are you there").await;
        assert_eq!(read_frame(&mut socket).await, (PONG, b"are you there".to_vec()));
    }

    #[tokio::test]
    async fn the_largest_message_is_echoed_and_one_byte_more_closes_with_1009() {
        let app = RunningApp::start().await;
        let mut socket = connect(&app).await;
        let mut payload = vec![7; MESSAGE_BYTES_MAX];
        write_frame(&mut socket, BINARY, &payload).await;
        assert_eq!(read_frame(&mut socket).await.1.len(), MESSAGE_BYTES_MAX);
        payload.push(7);
        write_frame(&mut socket, BINARY, &payload).await;
        let (kind, reason) = read_frame(&mut socket).await;
        assert_eq!((kind, &reason[..2]), (CLOSE, &1009_u16.to_be_bytes()[..]));
    }

    #[tokio::test]
    async fn a_stop_closes_open_sockets_as_going_away() {
        let app = RunningApp::with_close_wait(Duration::from_secs(60)).await;
        let mut socket = connect(&app).await;
        write_frame(&mut socket, TEXT, b"still here").await;
        read_frame(&mut socket).await;
        app.stop();
        let (kind, reason) = read_frame(&mut socket).await;
        assert_eq!((kind, &reason[..2]), (CLOSE, &1001_u16.to_be_bytes()[..]));
        write_frame(&mut socket, CLOSE, &reason[..2]).await;
        assert_eq!(read_to_end(&mut socket).await, b"");
        app.stopped().await;
    }

    #[tokio::test]
    async fn a_peer_that_ignores_the_close_does_not_hold_the_stop() {
        let app = RunningApp::start().await;
        let socket = connect(&app).await;
        app.stop();
        app.stopped().await;
        drop(socket);
    }

    #[tokio::test]
    async fn an_extended_connect_opens_an_echo_over_http_2() {
        let app = RunningApp::start().await;
        let socket = TokioIo::new(app.send(b"").await);
        let shaken = http2::handshake::<_, _, Body>(TokioExecutor::new(), socket).await;
        let (mut requests, mut connection) = shaken.unwrap();
        // The settings arrive in a task of hyper's own, which wakes no task here.
        let offered = async {
            while !connection.is_extended_connect_protocol_enabled() {
                assert!((&mut connection).now_or_never().is_none());
                yield_now().await;
            }
        };
        patiently(offered).await;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("http://{}/ws", app.address))
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .body(Body::empty())
            .unwrap();
        let response = patiently(requests.send_request(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let upgraded = patiently(hyper::upgrade::on(response)).await.unwrap();
        let mut socket = TokioIo::new(upgraded);
        write_frame(&mut socket, TEXT, b"over a stream").await;
        assert_eq!(read_frame(&mut socket).await, (TEXT, b"over a stream".to_vec()));
    }

    async fn connect(app: &RunningApp) -> TcpStream {
        let mut socket = app.send(HANDSHAKE).await;
        let head = read_past(&mut socket, b"\r\n\r\n").await;
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        socket
    }

    /// Writes one final frame, masked with zeros (RFC 6455, section 5.2).
    async fn write_frame(socket: &mut (impl AsyncWrite + Unpin), kind: u8, payload: &[u8]) {
        let mut frame = vec![kind];
        match payload.len() {
            short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
            long => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&u64::try_from(long).unwrap().to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        patiently(socket.write_all(&frame)).await.unwrap();
    }

    async fn read_frame(socket: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
        let read = async {
            let kind = socket.read_u8().await.unwrap();
            let length = match socket.read_u8().await.unwrap() {
                126 => u64::from(socket.read_u16().await.unwrap()),
                127 => socket.read_u64().await.unwrap(),
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            socket.read_exact(&mut payload).await.unwrap();
            (kind, payload)
        };
        patiently(read).await
    }
}
