//! Sessions of agents over real sockets: who gets in, what a hostile agent can break, who takes over, and what is left
//! when it ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

#[path = "sessions/admission.rs"]
mod admission;
#[path = "sessions/certificates.rs"]
mod certificates;
#[path = "sessions/drain.rs"]
mod drain;
#[path = "sessions/git_credentials.rs"]
mod git_credentials;
#[path = "sessions/held_jobs.rs"]
mod held_jobs;
#[path = "sessions/hostile.rs"]
mod hostile;
#[path = "sessions/issuer.rs"]
mod issuer;
#[path = "sessions/jobs.rs"]
mod jobs;
#[path = "sessions/lifecycle.rs"]
mod lifecycle;
#[path = "sessions/pods.rs"]
mod pods;
#[path = "sessions/raw_agent.rs"]
mod raw_agent;
#[path = "sessions/raw_gateway.rs"]
mod raw_gateway;
#[path = "sessions/recorded.rs"]
mod recorded;
#[path = "sessions/recorded_fields.rs"]
mod recorded_fields;
#[path = "sessions/recorded_lines.rs"]
mod recorded_lines;
#[path = "sessions/recorded_player.rs"]
mod recorded_player;
#[path = "sessions/recorded_recorder.rs"]
mod recorded_recorder;
#[path = "sessions/replacement.rs"]
mod replacement;
#[path = "sessions/replicas.rs"]
mod replicas;
#[path = "sessions/replicas_away.rs"]
mod replicas_away;
#[path = "sessions/replicas_duties.rs"]
mod replicas_duties;
#[path = "sessions/replicas_hop.rs"]
mod replicas_hop;
#[path = "sessions/replicas_moves.rs"]
mod replicas_moves;
#[path = "sessions/replicas_sign_in.rs"]
mod replicas_sign_in;
#[path = "sessions/resume.rs"]
mod resume;
#[path = "sessions/resume_hostile.rs"]
mod resume_hostile;
#[path = "sessions/runs.rs"]
mod runs;
#[path = "sessions/streams.rs"]
mod streams;
#[path = "sessions/target.rs"]
mod target;
#[path = "sessions/unacknowledged.rs"]
mod unacknowledged;
