//! The HTTP API, the sign-in of programs, tokens of agents that end, and the audit log, over real sockets in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

#[path = "api/agents.rs"]
mod agents;
#[path = "api/audit.rs"]
mod audit;
#[path = "api/audit_search.rs"]
mod audit_search;
#[path = "api/callers.rs"]
mod callers;
#[path = "api/cli.rs"]
mod cli;
#[path = "api/dashboard.rs"]
mod dashboard;
#[path = "api/device.rs"]
mod device;
#[path = "api/doors.rs"]
mod doors;
#[path = "api/downloads.rs"]
mod downloads;
#[path = "api/explain.rs"]
mod explain;
#[path = "api/external.rs"]
mod external;
#[path = "api/operators.rs"]
mod operators;
#[path = "api/ports.rs"]
mod ports;
#[path = "api/schema.rs"]
mod schema;
#[path = "api/sessions.rs"]
mod sessions;
#[path = "api/shares.rs"]
mod shares;
#[path = "api/support.rs"]
mod support;
#[path = "api/tokens.rs"]
mod tokens;
#[path = "api/workspace_cli.rs"]
mod workspace_cli;
#[path = "api/workspace_events.rs"]
mod workspace_events;
#[path = "api/workspace_page.rs"]
mod workspace_page;
#[path = "api/workspace_templates.rs"]
mod workspace_templates;
#[path = "api/workspaces.rs"]
mod workspaces;
