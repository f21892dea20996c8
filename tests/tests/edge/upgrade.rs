//! Upgrades over HTTP/1.1: WebSocket, other protocols, and what must not become one.

use e2e::raw::{Raw, RawApp};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{accept_async, client_async};

use super::support::{World, app, ok, soon};

pub(crate) const HANDSHAKE: &str = "connection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                                    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// The answer to the key of [`HANDSHAKE`] (RFC 6455, section 1.3).
pub(crate) const ACCEPTED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Sends each message back until it is closed.
async fn websocket_echo(mut raw: Raw) {
    let mut socket = accept_async(raw.socket()).await.expect("a handshake");
    while let Some(Ok(frame)) = socket.next().await {
        if (frame.is_text() || frame.is_binary()) && socket.send(frame).await.is_err() {
            return;
        }
    }
}

// Trap 10.
#[tokio::test]
async fn websocket_echoes_over_http1() {
    let world = World::start().await;
    let app = RawApp::start(websocket_echo).await;
    let mut request = format!("ws://{}/chat?x=1", world.authority(app.port)).into_client_request().unwrap();
    let token = format!("Bearer {}", world.gateway.user_token);
    request.headers_mut().insert("gateway-authorization", token.parse().unwrap());
    let mut client = world.client().await;
    let (mut socket, answer) = soon(client_async(request, client.socket())).await.unwrap();
    assert_eq!(answer.status(), 101);
    for size in [0, 1, 125, 126, 70_000, 2_000_000] {
        let frame = Frame::Binary(vec![5; size].into());
        socket.send(frame.clone()).await.unwrap();
        assert_eq!(soon(socket.next()).await.unwrap().unwrap(), frame, "{size}");
    }
    socket.close(None).await.unwrap();
    assert!(soon(socket.next()).await.unwrap().unwrap().is_close());
    drop(socket);
    drop(client);
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn handshake_reaches_the_app_with_its_own_fields_only() {
    let world = World::start().await;
    let (seen, mut heads) = tokio::sync::mpsc::channel(1);
    let app = RawApp::start(move |mut raw| {
        let seen = seen.clone();
        async move {
            seen.send(raw.head().await.unwrap()).await.unwrap();
            raw.send(ACCEPTED).await;
            raw.read_rest().await;
        }
    })
    .await;
    let mut client = world.client().await;
    let fields = format!(
        "{HANDSHAKE}sec-websocket-protocol: a, b\r\nsec-websocket-extensions: permessage-deflate\r\norigin: http://x.example\r\n"
    );
    client.send(world.head(app.port, "GET /chat", &fields)).await;
    let answer = client.head().await.unwrap();
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert_eq!(answer.header("connection"), Some("upgrade"));
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let head = heads.recv().await.unwrap();
    assert_eq!(head.start, "GET /chat HTTP/1.1");
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "a, b"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("origin", "http://x.example"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(head.header(name), Some(value), "{head:?}");
    }
    assert_eq!(head.header("gateway-authorization"), None);
}

// Trap 10: what the app says right behind its 101 is not lost, and neither is what the user says ahead of it.
#[tokio::test]
async fn bytes_right_behind_the_switch_arrive() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(format!("{ACCEPTED}greeting")).await;
        let said = raw.exactly(5).await;
        raw.send(said).await;
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", HANDSHAKE) + "early").await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    assert_eq!(soon(client.exactly(13)).await, b"greetingearly");
}

// Trap 28.
#[tokio::test]
async fn each_direction_of_a_stream_ends_on_its_own() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(ACCEPTED).await;
        let said = raw.read_rest().await;
        raw.send([b"all of: ", said.as_slice()].concat()).await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", HANDSHAKE)).await;
    client.head().await.unwrap();
    client.send("the user").await;
    client.finish().await;
    assert_eq!(client.read_rest().await, b"all of: the user");
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(format!("{ACCEPTED}bye")).await;
        raw.finish().await;
        assert_eq!(raw.read_rest().await, b"still here");
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", HANDSHAKE)).await;
    client.head().await.unwrap();
    assert_eq!(client.read_rest().await, b"bye");
    client.send("still here").await;
    client.finish().await;
    world.gateway.assert_empty().await;
}

// Trap 10: anything but 101 is an answer like any other.
#[tokio::test]
async fn refused_upgrade_is_answered_and_the_connection_goes_on() {
    let world = World::start().await;
    let app = app(|_, number, request| match request.header("upgrade") {
        Some(_) => super::support::Reply::Keep("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".into()),
        None => ok(&number.to_string()),
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", HANDSHAKE)).await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
    assert_eq!(answer.header("upgrade"), None);
    client.send(world.head(app.port, "GET /", "")).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    world.gateway.assert_quiet().await;
}

// Row 12: the switch counts only with the right answer to the key.
#[tokio::test]
async fn switch_with_a_wrong_accept_value_is_a_failure() {
    let world = World::start().await;
    let app = super::support::app_saying(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: AAAA\r\n\r\n",
    )
    .await;
    let answer = world.ask(app.port, "GET /", HANDSHAKE).await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("port_closed")));
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn malformed_websocket_handshakes_reach_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    for (start, fields) in [
        ("GET /", HANDSHAKE.replace("13", "8")),
        ("GET /", HANDSHAKE.replace("dGhlIHNhbXBsZSBub25jZQ==", "short")),
        ("POST /", HANDSHAKE.to_owned()),
        ("GET /", format!("{HANDSHAKE}content-length: 5\r\n")),
        ("GET /", HANDSHAKE.replace("websocket", "websocket, h2c")),
    ] {
        let answer = world.ask(app.port, start, &fields).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (400, Some("bad_request")), "{fields}");
    }
    assert_eq!(app.seen.connections(), 0);
}

// Row 12: the offer is ignored, the request is served, and the app never sees it.
#[tokio::test]
async fn h2c_upgrade_is_ignored() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let fields = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";
    let answer = world.ask(app.port, "GET /", fields).await;
    assert_eq!(answer.status(), 200);
    let text = answer.text();
    assert!(!text.contains("upgrade") && !text.contains("http2-settings") && !text.contains("connection:"), "{text}");
}

#[tokio::test]
async fn upgrade_that_connection_does_not_name_is_none() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let text = world.ask(app.port, "GET /", "upgrade: websocket\r\n").await.text();
    assert!(text.starts_with("GET / ") && !text.contains("upgrade"), "{text}");
}

#[tokio::test]
async fn other_protocols_are_passed_on_as_asked() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        let head = raw.head().await.unwrap();
        assert_eq!(head.header("upgrade"), Some("tcp-stream/1"));
        raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: tcp-stream/1\r\n\r\n").await;
        let said = raw.exactly(4).await;
        raw.send(said).await;
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /attach", "connection: upgrade\r\nupgrade: tcp-stream/1\r\n")).await;
    let answer = client.head().await.unwrap();
    assert_eq!((answer.status(), answer.header("upgrade")), (101, Some("tcp-stream/1")));
    client.send(b"\0\xffab").await;
    assert_eq!(client.exactly(4).await, b"\0\xffab");
    drop(client);
    world.gateway.assert_empty().await;
}

// Trap 16: a stream lives as long as bytes move, and ends by its own idle time.
#[tokio::test]
async fn idle_stream_is_ended_after_its_time() {
    let change = |config: &mut gateway_config::Config| {
        config.timeouts.stream_idle = std::time::Duration::from_millis(300);
    };
    let world = World::configured(change, Vec::new()).await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(ACCEPTED).await;
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", HANDSHAKE)).await;
    client.head().await.unwrap();
    assert_eq!(soon(client.read_rest()).await, b"");
    world.gateway.assert_empty().await;
}
