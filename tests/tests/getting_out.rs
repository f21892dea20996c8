//! Agents in networks that let only some things out: proxies, and balancers that speak HTTP/1.1 only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

#[path = "getting_out/listener.rs"]
mod listener;
#[path = "getting_out/middle.rs"]
mod middle;
#[path = "getting_out/proxies.rs"]
mod proxies;
#[path = "getting_out/websocket.rs"]
mod websocket;
