//! The messages of the services, as any client has them that was made of the schema.
#![allow(
    missing_docs,
    clippy::all,
    clippy::use_self,
    clippy::too_many_lines,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    unreachable_pub,
    dead_code,
    reason = "generated code; a test compares it with the schema"
)]

include!("../../../gateway/api/src/grpc/wire/environments.v1.rs");
