//! Users who stop reading: what waits for them outside of their channels' windows, which are budgeted, is bounded too.

use e2e::raw::RawApp;
use e2e::until;

use crate::support::{DATA, END_HEADERS, END_STREAM, H2, HEADERS, Stage, WINDOW_UPDATE, block, fields, frame, h2_get};

const KIB: u64 = 1024;

/// Readers over HTTP/1, each with a connection of its own, and streams of one connection of HTTP/2.
const CONNECTIONS: u64 = 30;
const STREAMS: u64 = 20;

/// What one connection's kernel buffers at both ends and both HTTP libraries may take: generous, and a fraction of the
/// 4 MiB that the kernel gives a sender who asks for no less.
const OUTSIDE_EACH: u64 = 1024 * KIB;

/// Sends until nobody takes any more, and then waits for the end.
async fn endless_app() -> RawApp {
    RawApp::start(|mut raw| async move {
        use tokio::io::AsyncWriteExt as _;
        raw.head().await;
        let piece = vec![b'x'; 64 * 1024];
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n";
        let mut sent = raw.socket().write_all(head).await;
        while sent.is_ok() {
            sent = raw.socket().write_all(&piece).await;
        }
    })
    .await
}

/// Waits until nothing has arrived from the agent while ten other requests were answered.
async fn until_stalled(stage: &Stage) {
    let session = stage.gateway.registry.all().remove(0);
    let mut calm = 0;
    while calm < 10 {
        let before = session.tunnel.stats().bytes_received;
        for _ in 0..10 {
            stage.assert_serves().await;
        }
        // Each of those answers is some 40 bytes.
        calm = if session.tunnel.stats().bytes_received - before < 4 * KIB { calm + 1 } else { 0 };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_stalled_readers_leave_a_bounded_number_of_bytes_behind() {
    let stage = Stage::new(|config| config.tunnel.window_initial = 64 * KIB).await;
    let endless = endless_app().await;
    let get = format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, endless.port));
    let mut stalled = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut raw = stage.connect().await;
        raw.send(&get).await;
        stalled.push(raw);
    }
    // Windows of 2^30, so that only the socket is full.
    let mut streams = H2::connect(&stage, &[(4, 1 << 30)]).await;
    streams.raw.send(frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 29).to_be_bytes())).await;
    let (authority, bearer) =
        (stage.gateway.authority("one", endless.port), format!("Bearer {}", stage.gateway.user_token));
    for number in 0..STREAMS as u32 {
        let head = block(&h2_get(&authority, &bearer, "/"));
        streams.raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head)).await;
    }
    let session = stage.gateway.registry.all().remove(0);
    let all = (CONNECTIONS + STREAMS) as usize;
    until("every download has a channel", || session.tunnel.stats().channels_live >= all).await;
    until_stalled(&stage).await;

    // What the HTTP library keeps for users who do not read is part of the windows.
    let stats = session.tunnel.stats();
    assert!(stats.lent_bytes > 0 && stats.lent_bytes <= stats.window_bytes, "{stats:?}");
    let outside = stats.bytes_received.saturating_sub(stats.window_bytes);
    assert!(outside <= (CONNECTIONS + STREAMS) * OUTSIDE_EACH, "{} KiB have left the windows", outside / KIB);
    stage.assert_serves().await;

    // Who reads again gets on.
    for raw in &mut stalled {
        raw.exactly(2 * 1024 * 1024).await;
    }
    for _ in 0..100 {
        streams.until(&[DATA], 2 * STREAMS as u32 - 1).await.expect("the last stream gets on too");
    }
    drop((stalled, streams));
    until("who left holds nothing", || session.tunnel.stats().lent_bytes == 0).await;
    stage.finish().await;
}
