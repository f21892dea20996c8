//! Users that mean harm, over real sockets: what they get, what the app never sees, and that others are served meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a failed expectation is how a test fails"
)]

#[path = "hostile/agents.rs"]
mod agents;
#[path = "hostile/bodies.rs"]
mod bodies;
#[path = "hostile/connections.rs"]
mod connections;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/http2.rs"]
mod http2;
#[path = "hostile/idle.rs"]
mod idle;
#[path = "hostile/limits.rs"]
mod limits;
#[path = "hostile/proxied.rs"]
mod proxied;
#[path = "hostile/slow.rs"]
mod slow;
#[path = "hostile/smuggling.rs"]
mod smuggling;
#[path = "hostile/stalled.rs"]
mod stalled;
#[path = "hostile/support.rs"]
mod support;
