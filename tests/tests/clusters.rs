//! Cluster agents: who they are, and what a gateway tells them and believes them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

#[path = "clusters/configs.rs"]
mod configs;
#[path = "clusters/environments.rs"]
mod environments;
#[path = "clusters/faults.rs"]
mod faults;
#[path = "clusters/identity.rs"]
mod identity;
#[path = "clusters/intents.rs"]
mod intents;
#[path = "clusters/links.rs"]
mod links;
#[path = "clusters/replicas.rs"]
mod replicas;
#[path = "clusters/support.rs"]
mod support;
