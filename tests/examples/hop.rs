//! Cost of a hop: the same agent asked at the replica that it dialed, and at another one, in turns with three nginx in a row.
//!
//! ```text
//! cargo run --release -p e2e --example hop
//! ```
//!
//! Replicas, agent, app and client share one process, and nginx has its own, so processor time is that of all but nginx:
//! differences count, and ratios, not the figures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

use std::alloc::System;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use e2e::TestGateway;
use e2e::fleet::Fleet;
use e2e::raw::{Raw, RawApp};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 5;
const REQUESTS: usize = 2_000;
const CONNECTIONS: usize = 16;
const DOWNLOAD: usize = 64 << 20;
const IDLE_AGENTS: usize = 100;

/// Answers of 128 bytes, or a download.
async fn app(mut raw: Raw) {
    let small = format!("HTTP/1.1 200 OK\r\ncontent-length: 128\r\n\r\n{}", "x".repeat(128));
    while let Some(request) = raw.head().await {
        if request.start.contains("/download") {
            raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {DOWNLOAD}\r\n\r\n")).await;
            raw.try_send(vec![7; DOWNLOAD]).await.ok();
        } else if request.start.contains("/once") {
            // Memory of an app that waits for its next request is not a lane's.
            raw.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
            return;
        } else {
            raw.send(&small).await;
        }
    }
}

/// A way to the app.
#[derive(Clone)]
struct Way {
    name: &'static str,
    address: SocketAddr,
    authority: String,
    token: String,
}

impl Way {
    fn new(name: &'static str, gateway: &TestGateway, workspace: &str, port: u16) -> Self {
        let (address, token) = (gateway.addresses.public, gateway.user_token.clone());
        Self { name, address, authority: gateway.authority(workspace, port), token }
    }

    fn head(&self, path: &str) -> String {
        let Self { authority, token, .. } = self;
        format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n")
    }

    /// Asks one after another on one connection; returns the time of each request.
    async fn ask(&self, count: usize) -> Vec<Duration> {
        let (mut raw, head) = (Raw::connect(self.address).await, self.head("/"));
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            raw.send(&head).await;
            assert_eq!(raw.message().await.expect("an answer").status(), 200);
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times
    }

    async fn many(&self) -> Duration {
        let began = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let way = self.clone();
            asking.spawn(async move { drop(way.ask(REQUESTS / 4).await) });
        }
        asking.join_all().await;
        began.elapsed()
    }

    async fn download(&self) -> Duration {
        let began = Instant::now();
        let mut raw = Raw::connect(self.address).await;
        raw.send(self.head("/download")).await;
        raw.head().await.expect("an answer");
        let mut left = DOWNLOAD;
        while left > 0 {
            left -= raw.some().await.len();
        }
        began.elapsed()
    }
}

/// Processor time of this process.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let fields: Vec<&str> = text.rsplit_once(") ").expect("fields").1.split(' ').collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

async fn timed(work: impl Future<Output = Duration>) -> (Duration, Duration) {
    let before = processor();
    (work.await, processor() - before)
}

#[tokio::main]
async fn main() {
    let fleet = Fleet::default();
    let (users, dialed) = (fleet.replica().await, fleet.replica().await);
    let app = RawApp::start(app).await;
    let _agent = dialed.agent("one").await;
    let mut ways = vec![Way::new("no hop", &dialed, "one", app.port), Way::new("a hop", &users, "one", app.port)];
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = Vec::new();
    for name in ["nginx-nginx-nginx", "nginx-nginx-nginx-tls"] {
        let peer = loadlab::peer::find(name).expect("a peer");
        match peer.start((Ipv4Addr::LOCALHOST, app.port).into(), &folder.path().join(name), None).await {
            Ok(started) => {
                let address = started.target.address.parse().expect("an address");
                ways.push(Way { name, address, authority: loadlab::peer::HOST.to_owned(), token: String::new() });
                running.push(started);
            }
            Err(error) => println!("{name}: not measured: {error:#}"),
        }
    }
    for way in &ways {
        way.ask(100).await;
        println!("{}: up", way.name);
    }
    for round in 1..=ROUNDS {
        for way in &ways {
            let times = way.ask(REQUESTS).await;
            let (took, spent) = timed(way.many()).await;
            let count = (CONNECTIONS * REQUESTS / 4) as f64;
            let (bulk, bulk_spent) = timed(way.download()).await;
            println!(
                "{round} {}: p50 {:?}, p99 {:?}; {:.0} requests/s, {:.1} µs of this process each; {:.0} MiB/s, {:.2} s for a GiB",
                way.name,
                times[times.len() / 2],
                times[times.len() * 99 / 100],
                count / took.as_secs_f64(),
                spent.as_secs_f64() * 1e6 / count,
                (DOWNLOAD >> 20) as f64 / bulk.as_secs_f64(),
                bulk_spent.as_secs_f64() * 1024.0 / (DOWNLOAD >> 20) as f64,
            );
        }
    }
    for started in running {
        started.stop().await;
    }
    let mut agents = Vec::new();
    for number in 0..IDLE_AGENTS {
        agents.push(dialed.agent(&format!("idle-{number}")).await);
    }
    let live = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
    };
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = live();
    for number in 0..IDLE_AGENTS {
        let way = Way::new("idle", &users, &format!("idle-{number}"), app.port);
        let mut raw = Raw::connect(way.address).await;
        raw.send(way.head("/once")).await;
        raw.message().await.expect("an answer");
    }
    // Connections to apps and requests are forgotten; lanes are not yet idle for long enough to end.
    tokio::time::sleep(Duration::from_secs(15)).await;
    println!(
        "lanes: {}; live bytes for each at both replicas and the agent: {}",
        users.registry.relays().len(),
        (live() - before) / IDLE_AGENTS as i64
    );
    std::process::exit(0);
}
