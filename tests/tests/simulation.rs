//! The tunnel over a simulated network: many hosts in one thread, time that only moves when everybody waits, faults at
//! chosen moments, and each scenario over several seeds.
//!
//! What is real: HTTP/2 and the RPC (`tunnel_link::grpc`), the session and its machine, `splice`, the gateway's
//! admission and registry, and the whole agent but its sockets. What is simulated: TCP, and around it the gateway's
//! accept loop and authentication (the bearer is the workspace's name), which are small.
//!
//! What the simulated TCP does not do, so that nobody expects it: it never sends a lost segment again. What falls into
//! a partition is a hole for ever, so a link on which anything was said meanwhile is dead, even if the partition is
//! short, and the session needs another one. `hold` and `release` are what a kernel's repeats look like from above: late, and nothing lost.
//! It has no bandwidth either; delay and windows are what bounds a transfer.
//!
//! Worlds of several replicas (`replicas*.rs`) have more that is real: admission with its look-ups, the directory, leases, claims, lanes
//! between replicas, and the store down to its statements, which SQLite runs on a host of its own. Simulated there are the accept
//! loops, TLS between replicas, and how a request finds its session.
//!
//! The seed chooses latencies, moments and the rolls of the back-off. Which branch of a `select!` is looked at first is
//! tokio's own choice and is seeded only under `--cfg tokio_unstable`; the tests hold with and without it. h2 reads
//! the real clock to forget reset streams; nothing here depends on that.
//!
//! To repeat one seed: `SIMULATION_SEED=7 cargo test -p e2e --test simulation`. For a long search:
//! `SIMULATION_TIMES=50`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

#[path = "simulation/agent.rs"]
mod agent;
#[path = "simulation/apps.rs"]
mod apps;
#[path = "simulation/chaos.rs"]
mod chaos;
#[path = "simulation/crash.rs"]
mod crash;
#[path = "simulation/detached.rs"]
mod detached;
#[path = "simulation/drain.rs"]
mod drain;
#[path = "simulation/flow.rs"]
mod flow;
#[path = "simulation/gateway.rs"]
mod gateway_host;
#[path = "simulation/herd.rs"]
mod herd;
#[path = "simulation/latency.rs"]
mod latency;
#[path = "simulation/middle.rs"]
mod middle;
#[path = "simulation/net.rs"]
mod net;
#[path = "simulation/partition.rs"]
mod partition;
#[path = "simulation/replicas.rs"]
mod replicas;
#[path = "simulation/replicas_away.rs"]
mod replicas_away;
#[path = "simulation/replicas_chaos.rs"]
mod replicas_chaos;
#[path = "simulation/replicas_host.rs"]
mod replicas_host;
#[path = "simulation/replicas_moves.rs"]
mod replicas_moves;
#[path = "simulation/replicas_store.rs"]
mod replicas_store;
#[path = "simulation/replicas_world.rs"]
mod replicas_world;
#[path = "simulation/resume.rs"]
mod resume;
#[path = "simulation/shared.rs"]
mod shared;
#[path = "simulation/takeover.rs"]
mod takeover;
#[path = "simulation/user.rs"]
mod user;
#[path = "simulation/welcome.rs"]
mod welcome;
