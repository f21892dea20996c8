//! Both ends of the tunnel over memory and over loopback: what users of the crate rely on, and what peers may do to it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the helpers of these tests are not test functions themselves"
)]

mod apps;
mod bounds;
mod ends;
mod flow;
mod fuse;
mod halves;
mod handshake;
mod keepalive;
mod pair;
mod resume;
mod websocket;
mod wire;
