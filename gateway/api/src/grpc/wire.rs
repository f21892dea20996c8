//! Code generated from `proto/schema/environments/v1`. Only this module's siblings look inside.
#![allow(
    missing_docs,
    clippy::all,
    clippy::use_self,
    clippy::too_many_lines,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    unreachable_pub,
    reason = "generated code; a test compares it with the schema"
)]

include!("wire/environments.v1.rs");
