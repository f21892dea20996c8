//! HTTP words that every user-facing surface of the gateway shares.
//!
//! * [`host`]: the host of a request, parsed into the public host or a workspace and port. The parser is total: what it
//!   does not accept is refused, and nothing else reads a host.
//! * [`paths`]: paths on the origin of `paths_url`, where a workspace and port are the beginning of a path.
//! * [`respond`]: answers made from the one table of failures, `respond/failure.rs`, with their codes, statuses and
//!   fixed words: a page, or a problem document (RFC 9457). `respond/ports.rs` is the page of a workspace's address
//!   without a port.
//! * [`fields`]: header fields of the gateway's own answers, and lists in header fields.
//!
//! Functions on heads: no socket, clock or task. The rules for header fields that pass through are in `gateway_edge`.

pub mod fields;
pub mod host;
pub mod paths;
pub mod respond;
