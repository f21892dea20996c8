//! Costs that do not depend on the machine's load: allocations for each request, message and connection, and live bytes
//! of what is open and idle. Gateway, agent, app and client share this process; app and client use buffers of fixed size,
//! so that they allocate nothing for a request or message.
//!
//! A change that moves a figure by 2 % names it in its commit, and moves the bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation is how a test fails"
)]

#[path = "counts/client.rs"]
mod client;
#[path = "counts/http2.rs"]
mod http2;

use std::alloc::System;

use e2e::{TestAgent, TestGateway};
use gateway_types::Port;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tunnel_link::channel_io::ChannelIo;

use self::client::{App, FixedClient};
use self::http2::Http2Client;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Rounds of which the cheapest counts: timers of the gateway and its polls of the store fall into the others.
const ROUNDS: usize = 8;
/// Requests or messages in a round.
const REQUESTS: usize = 200;
/// Connections in a round.
const CONNECTIONS: usize = 50;
/// Idle agents, WebSockets or channels that are open at once.
const OPEN: usize = 100;

/// Figures and their bounds: 2 % above what was measured (docs/measurements/2026-11-24-counts.md).
const BOUNDS: [(&str, f64); 7] = [
    ("allocations for each request of 128 B over HTTP/1.1", 25.5),
    ("allocations for each request of 128 B over HTTP/2", 28.5),
    ("allocations for each WebSocket message of 128 B", 10.2),
    ("allocations for each new connection with one request", 73.4),
    ("live bytes for each idle channel, both ends", 5_235.0),
    ("live bytes for each idle WebSocket, all ends", 11_665.0),
    ("live bytes for each idle agent, both ends", 111_000.0),
];

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Returns the allocations of the cheapest round, for each of its `count` steps.
async fn cheapest(count: usize, mut step: impl AsyncFnMut()) -> f64 {
    let mut least = usize::MAX;
    // The first round fills pools and buffers.
    for _ in 0..=ROUNDS {
        let before = allocations();
        for _ in 0..count {
            step().await;
        }
        least = least.min(allocations() - before);
    }
    per(least, count)
}

fn per(total: usize, count: usize) -> f64 {
    f64::from(u32::try_from(total).unwrap()) / f64::from(u32::try_from(count).unwrap())
}

/// A gateway with the agent of the workspace `one`, and an app.
struct Bench {
    gateway: TestGateway,
    _agent: TestAgent,
    app: App,
}

impl Bench {
    async fn start() -> Self {
        let gateway = TestGateway::start().await;
        let agent = gateway.agent("one").await;
        Self { gateway, _agent: agent, app: App::start().await }
    }

    fn head(&self, fields: &str) -> String {
        let (host, token) = (self.gateway.authority("one", self.app.port), &self.gateway.user_token);
        format!("GET /128 HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n")
    }

    async fn client(&self) -> FixedClient {
        FixedClient::connect(self.gateway.addresses.public).await
    }

    async fn http1(&self) -> f64 {
        let (mut client, head) = (self.client().await, self.head(""));
        cheapest(REQUESTS, async || client.request(head.as_bytes()).await).await
    }

    async fn http2(&self) -> f64 {
        let authority = self.gateway.authority("one", self.app.port);
        let mut client =
            Http2Client::connect(self.gateway.addresses.public, &authority, &self.gateway.user_token).await;
        cheapest(REQUESTS, async || client.request().await).await
    }

    async fn websocket(&self) -> FixedClient {
        let mut client = self.client().await;
        client.upgrade(self.head(client::HANDSHAKE).as_bytes()).await;
        client
    }

    async fn message(&self) -> f64 {
        let mut client = self.websocket().await;
        cheapest(REQUESTS, async || client.message().await).await
    }

    async fn connection(&self) -> f64 {
        let head = self.head("");
        cheapest(CONNECTIONS, async || self.client().await.request(head.as_bytes()).await).await
    }

    async fn agents(&self, held: &mut Vec<TestAgent>) -> f64 {
        let mut tokens = Vec::new();
        for number in 0..OPEN {
            tokens.push((format!("idle-{number}"), self.gateway.agent_token(&format!("idle-{number}")).await));
        }
        held.reserve(OPEN);
        let before = live_bytes();
        for (name, token) in &tokens {
            held.push(self.gateway.start_agent(token, Vec::new()));
            self.gateway.until_connected(name).await;
        }
        per(live_bytes().saturating_sub(before), OPEN)
    }

    async fn websockets(&self, held: &mut Vec<FixedClient>) -> f64 {
        held.reserve(OPEN);
        let before = live_bytes();
        for _ in 0..OPEN {
            let mut client = self.websocket().await;
            client.message().await;
            held.push(client);
        }
        per(live_bytes().saturating_sub(before), OPEN)
    }

    async fn channels(&self, held: &mut Vec<ChannelIo>) -> f64 {
        let session = self.gateway.registry.current(&"one".parse().unwrap()).expect("connected");
        let port = Port::new(self.app.port).unwrap();
        held.reserve(OPEN);
        let before = live_bytes();
        for _ in 0..OPEN {
            let (mut channel, accepted) = session.open(port).expect("there is room");
            channel.write_all(client::RAW_HELLO).await.expect("it takes bytes");
            accepted.await.expect("an answer").expect("the port is there");
            assert_eq!(channel.read_u8().await.expect("the app answers"), client::RAW_ANSWER);
            held.push(channel);
        }
        per(live_bytes().saturating_sub(before), OPEN)
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are worth a look when they are within their bounds, too")]
async fn costs_stay_within_their_bounds() {
    let bench = Bench::start().await;
    // What is made at first use is there before anything is measured.
    bench.client().await.request(bench.head("").as_bytes()).await;
    bench.websocket().await.message().await;
    // All of it stays open to the end: freed bytes of one figure are no part of the next.
    let (mut channels, mut websockets, mut agents) = (Vec::new(), Vec::new(), Vec::new());
    let idle =
        [bench.channels(&mut channels).await, bench.websockets(&mut websockets).await, bench.agents(&mut agents).await];
    let allocations = [bench.http1().await, bench.http2().await, bench.message().await, bench.connection().await];
    let figures = allocations.into_iter().chain(idle);
    let rows: Vec<String> = BOUNDS
        .iter()
        .zip(figures)
        .map(|((name, most), figure)| {
            let verdict = if figure <= *most { "ok  " } else { "ABOVE" };
            format!("{verdict} {name}: {figure:.2}, at most {most:.2}")
        })
        .collect();
    let table = rows.join("\n");
    println!("{table}");
    assert!(
        !table.contains("ABOVE"),
        "{table}\nA cost is above its bound. If the change is worth it, name the figure in the commit and move the bound in tests/tests/counts.rs."
    );
}
