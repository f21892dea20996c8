//! What a WebSocket hears when it is cut: a close frame that says why, where one fits, and never a byte inside the app's
//! (row 18; RFC 6455, sections 5.4 and 5.5.1).

use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use futures_util::StreamExt as _;
use gateway_store::wall_clock;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::support::{World, some, soon};
use super::upgrade::{ACCEPTED, HANDSHAKE};
use super::websocket_http2;

/// Of a message in two frames the first, and a ping.
const BETWEEN_FRAMES: &[u8] = &[0x01, 3, b'o', b'n', b'e', 0x89, 0];

/// Two bytes of a frame of three.
const INSIDE_A_FRAME: &[u8] = &[0x81, 3, b'o', b'n'];

/// An app that switches, says something, and then listens.
async fn saying(words: &'static [u8]) -> RawApp {
    RawApp::start(move |mut raw| async move {
        raw.head().await.unwrap();
        raw.send(ACCEPTED).await;
        raw.send(words).await;
        raw.read_rest().await;
    })
    .await
}

/// Opens a WebSocket and hears the app's words.
async fn open(world: &World, port: u16, words: &[u8]) -> Raw {
    let mut client = world.client().await;
    client.send(world.head(port, "GET /", HANDSHAKE)).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    assert_eq!(client.exactly(words.len()).await, words);
    client
}

fn close(code: u16, reason: &str) -> Vec<u8> {
    let length = u8::try_from(reason.len() + 2).unwrap();
    [&[0x88, length][..], &code.to_be_bytes(), reason.as_bytes()].concat()
}

impl World {
    async fn revoke_all(&self) {
        for token in self.gateway.store.list_tokens().await.unwrap() {
            // Agents' tokens too would end the session first.
            if token.subject.kind().as_str() == "user" {
                assert!(self.gateway.store.revoke_token(token.id, wall_clock()).await.unwrap());
            }
        }
    }
}

#[tokio::test]
async fn websocket_that_is_cut_ends_with_a_close_frame_that_says_why() {
    let world = World::start().await;
    let app = saying(BETWEEN_FRAMES).await;
    let mut client = open(&world, app.port, BETWEEN_FRAMES).await;
    world.revoke_all().await;
    assert_eq!(soon(client.read_rest()).await, close(1008, "sign_in_required"));
    drop(client);
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn browser_hears_the_reason_as_its_close_event() {
    let world = World::start().await;
    let app = saying(&[]).await;
    let mut client = open(&world, app.port, &[]).await;
    let mut socket = WebSocketStream::from_raw_socket(client.socket(), Role::Client, None).await;
    world.revoke_all().await;
    let Frame::Close(Some(told)) = soon(socket.next()).await.unwrap().unwrap() else { panic!("no close frame") };
    assert_eq!((u16::from(told.code), told.reason.as_str()), (1008, "sign_in_required"));
    // A clean end: the answer was taken, and then the connection closed.
    assert!(soon(socket.next()).await.is_none());
}

#[tokio::test]
async fn frame_that_is_not_whole_is_never_followed_by_the_gateways_words() {
    let world = World::start().await;
    let app = saying(INSIDE_A_FRAME).await;
    let mut client = open(&world, app.port, INSIDE_A_FRAME).await;
    world.revoke_all().await;
    assert_eq!(soon(client.read_rest()).await, b"");
}

#[tokio::test]
async fn app_that_has_closed_has_the_last_word() {
    const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];
    let world = World::start().await;
    let app = saying(CLOSED).await;
    let mut client = open(&world, app.port, CLOSED).await;
    world.revoke_all().await;
    assert_eq!(soon(client.read_rest()).await, b"");
}

#[tokio::test]
async fn other_protocols_get_no_words_of_the_gateways() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: lines\r\n\r\n").await;
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", "connection: upgrade\r\nupgrade: lines\r\n")).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    world.revoke_all().await;
    assert_eq!(soon(client.read_rest()).await, b"");
}

#[tokio::test]
async fn websocket_over_http2_that_is_cut_ends_with_a_close_frame_that_says_why() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        websocket_http2::accept(&mut raw, "").await;
        raw.send(BETWEEN_FRAMES).await;
        raw.read_rest().await;
    })
    .await;
    let mut http2 = websocket_http2::user(&world).await;
    let (response, _send) = http2.start(websocket_http2::connect(&world, app.port, "websocket"));
    let mut body = soon(response).await.unwrap().into_body();
    let mut heard = Vec::new();
    while heard.len() < BETWEEN_FRAMES.len() {
        heard.extend_from_slice(&some(&mut body).await.expect("the app's words"));
    }
    world.revoke_all().await;
    while let Some(more) = some(&mut body).await {
        heard.extend_from_slice(&more);
    }
    assert_eq!(heard, [BETWEEN_FRAMES, &close(1008, "sign_in_required")].concat());
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn websocket_that_outlives_the_drain_is_told_of_it() {
    let world = World::configured(|config| config.timeouts.drain = Duration::from_secs(10), Vec::new()).await;
    let app = saying(BETWEEN_FRAMES).await;
    let mut client = open(&world, app.port, BETWEEN_FRAMES).await;
    world.gateway.begin_stop();
    assert_eq!(soon(client.read_rest()).await, close(1001, "draining"));
}
