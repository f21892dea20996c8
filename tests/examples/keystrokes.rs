//! Wait of a keystroke beside eight downloads or uploads on a slow link of the agent: at the replica that it dialed, on a relay
//! lane of another, and on a lane of its own beside that of a third.
//!
//! ```text
//! cargo run --release -p e2e --example keystrokes
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

use std::time::{Duration, Instant};

use e2e::TestGateway;
use e2e::fleet::Fleet;
use e2e::raw::{Raw, RawApp};
use loadlab::relay::Relay;
use tokio::task::JoinSet;
use workspace_agent::Transport;

/// The agent's link: a home's, 40 ms there and back.
const LINK: &str = "rate=20mbit,delay=20ms";
const STREAMS: usize = 8;
const KEYSTROKES: usize = 400;
const PAUSE: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug)]
enum Bulk {
    Nothing,
    Downloads,
    Uploads,
}

/// Echoes what it gets, sends without end, or takes without end.
async fn app(mut raw: Raw) {
    let Some(request) = raw.head().await else { return };
    if request.start.contains("/download") {
        raw.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n").await;
        while raw.try_send(vec![7; 64 << 10]).await.is_ok() {}
    } else if request.start.contains("/upload") {
        while !raw.some().await.is_empty() {}
    } else {
        raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
        loop {
            let bytes = raw.some().await;
            if bytes.is_empty() || raw.try_send(bytes).await.is_err() {
                return;
            }
        }
    }
}

/// Begins a request to the app by way of a replica.
async fn begin(gateway: &TestGateway, port: u16, request: &str, fields: &str) -> Raw {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    let (authority, token) = (gateway.authority("one", port), &gateway.user_token);
    raw.send(format!(
        "{request} HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n"
    ))
    .await;
    raw
}

async fn bulk(gateway: &'static TestGateway, port: u16, kind: Bulk) -> JoinSet<()> {
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        match kind {
            Bulk::Nothing => {}
            Bulk::Downloads => {
                let mut raw = begin(gateway, port, "GET /download", "").await;
                streams.spawn(async move { while !raw.some().await.is_empty() {} });
            }
            Bulk::Uploads => {
                let mut raw = begin(gateway, port, "POST /upload", "content-length: 1000000000000\r\n").await;
                streams.spawn(async move { while raw.try_send(vec![7; 64 << 10]).await.is_ok() {} });
            }
        }
    }
    streams
}

/// Returns the waits of keystrokes for their echoes, in order of length.
async fn keystrokes(gateway: &TestGateway, port: u16) -> Vec<Duration> {
    let mut raw = begin(gateway, port, "GET /echo", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(raw.head().await.expect("an answer").status(), 101);
    let mut waits = Vec::with_capacity(KEYSTROKES);
    for _ in 0..KEYSTROKES {
        let began = Instant::now();
        raw.send("k").await;
        raw.exactly(1).await;
        waits.push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    waits.sort_unstable();
    waits
}

#[tokio::main]
async fn main() {
    let fleet: &'static Fleet = Box::leak(Box::default());
    let replicas: Vec<&'static TestGateway> =
        vec![leak(fleet.replica().await), leak(fleet.replica().await), leak(fleet.replica().await)];
    let app = RawApp::start(app).await;
    let link = Relay::start(replicas[0].addresses.agents, LINK.parse().expect("a link")).expect("a link");
    let token = replicas[0].agent_token("one").await;
    let port = app.port;
    let _agent = replicas[0].start_eager_agent(link.address(), Transport::default(), &token, Vec::new());
    replicas[0].until_connected("one").await;
    for kind in [Bulk::Nothing, Bulk::Downloads, Bulk::Uploads] {
        for (name, at, users) in [
            ("no hop", replicas[0], replicas[0]),
            ("a hop", replicas[1], replicas[1]),
            ("a hop, bulk at a third replica", replicas[2], replicas[1]),
        ] {
            keystrokes_of(name, kind, at, users, port).await;
        }
    }
    std::process::exit(0);
}

async fn keystrokes_of(name: &str, kind: Bulk, at: &'static TestGateway, users: &'static TestGateway, port: u16) {
    let mut streams = bulk(at, port, kind).await;
    // The rate of the link is known by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let waits = keystrokes(users, port).await;
    streams.shutdown().await;
    let of = |share: usize| waits[(waits.len() * share / 1000).min(waits.len() - 1)];
    println!("{kind:?}, {name}: p50 {:?}, p90 {:?}, p99 {:?}, longest {:?}", of(500), of(900), of(990), of(1000));
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn leak(gateway: TestGateway) -> &'static TestGateway {
    Box::leak(Box::new(gateway))
}
