//! Environments of CI jobs as jobs, operators and the CI system meet them: the HTTP API, the services over gRPC and the command
//! line, with an issuer that signs tokens and a cluster's agent that does what it is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

#[path = "environments/commands.rs"]
mod commands;
#[path = "environments/grpc.rs"]
mod grpc;
#[path = "environments/hook.rs"]
mod hook;
#[path = "sessions/issuer.rs"]
#[allow(dead_code, reason = "another suite needs the rest")]
mod issuer;
#[path = "environments/jobs.rs"]
mod jobs;
#[path = "environments/operators.rs"]
mod operators;
#[path = "environments/replicas.rs"]
mod replicas;
#[path = "environments/support.rs"]
mod support;
#[path = "environments/wire.rs"]
mod wire;
