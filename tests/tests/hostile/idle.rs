//! Connections that do nothing: near the bound on connections they make room, longest idle first, strangers before users.

use std::time::{Duration, Instant};

use e2e::raw::Raw;
use e2e::until;

use crate::support::{Stage, fields, silent_app};

/// An honest user does not wait for longer behind so many.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_for_users_and_what_is_busy_stays() {
    let stage = Stage::new(|config| config.limits.connections = 40).await;
    let silent = silent_app().await;
    let mut busy = stage.connect().await;
    busy.send(format!("GET /busy HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, silent.port))).await;
    let mut user = stage.connect().await;
    user.send(stage.get("/user")).await;
    assert_eq!(user.message().await.expect("an answer").status(), 200);
    let session = stage.gateway.registry.all().remove(0);
    until("it is under way", || session.in_flight() == 1).await;
    // Five times as many as there is room for: silent, half a head, an idle one of HTTP/2.
    let mut idle: Vec<Raw> = Vec::new();
    for number in 0..200 {
        let mut raw = stage.connect_from(10 + number as u8 % 100).await;
        let first: &[u8] = [&b""[..], b"GET / HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"][number % 3];
        raw.try_send(first).await.ok();
        idle.push(raw);
    }
    let began = Instant::now();
    let mut honest = stage.connect().await;
    honest.send(stage.get("/honest")).await;
    let answer = tokio::time::timeout(SOON, honest.message()).await.expect("kept out by idle connections");
    assert_eq!(answer.expect("an answer").status(), 200);
    // It came behind all of them.
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(stage.gateway.reached("limits.connections").await > 100.0);
    assert_eq!(session.in_flight(), 1, "what was busy was cut");
    user.send(stage.get("/again")).await;
    assert_eq!(user.message().await.expect("a user's connection is closed last").status(), 200);
    drop((busy, user, honest, idle));
    stage.finish().await;
}

#[tokio::test]
async fn connection_that_became_a_stream_keeps_its_place_and_gives_it_back() {
    let stage = Stage::new(|config| config.limits.connections = 2).await;
    let echo = e2e::raw::RawApp::echo().await;
    let upgrade =
        format!("GET / HTTP/1.1\r\n{}connection: upgrade\r\nupgrade: echo\r\n\r\n", fields(&stage.gateway, echo.port));
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut raw = stage.connect().await;
        raw.send(&upgrade).await;
        assert_eq!(raw.head().await.expect("an answer").status(), 101);
        streams.push(raw);
    }
    let mut waiting = stage.connect().await;
    waiting.send(stage.get("/waits")).await;
    let waited = tokio::time::timeout(Duration::from_millis(2500), waiting.socket().readable()).await;
    assert!(waited.is_err(), "streams do not count");
    for raw in &mut streams {
        raw.send("still here").await;
        assert_eq!(raw.exactly(10).await, b"still here");
    }
    streams.pop();
    assert_eq!(waiting.message().await.expect("an answer").status(), 200);
    drop((streams, waiting));
    stage.finish().await;
}
