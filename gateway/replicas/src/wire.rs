//! Code generated from `proto/schema/peers/v1`.
#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    unreachable_pub,
    reason = "generated code; a test compares it with the schema"
)]

include!("wire/peers.v1.rs");
