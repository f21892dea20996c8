//! Raw TCP through a gateway, over real sockets in one process: an app, its agent, the gateway, and a user's end of the
//! stream. "trap N" and "row N" are the traps and the holes of `docs/defences.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

#[path = "tcp/access.rs"]
mod access;
#[path = "tcp/bulk.rs"]
mod bulk;
#[path = "tcp/ends.rs"]
mod ends;
#[path = "tcp/links.rs"]
mod links;
#[path = "tcp/streams.rs"]
mod streams;
#[path = "tcp/support.rs"]
mod support;
