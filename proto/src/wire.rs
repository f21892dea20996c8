//! Code generated from `schema/tunnel/v1`. Only `frame`, `hello`, `listening`, `reason`, `state`, `reconcile`,
//! `environments`, `orphans` and `git` look inside.
#![allow(
    missing_docs,
    clippy::all,
    clippy::use_self,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    unreachable_pub,
    reason = "generated code; a test compares it with the schema"
)]

include!("wire/tunnel.v1.rs");
