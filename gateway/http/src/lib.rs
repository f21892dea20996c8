//! HTTP words that every user-facing surface of the gateway shares.
//!
//! * [`host`]: the host of a request, parsed into the public host or a workspace and port.
//! * [`respond`]: the one table of failures, and the page or problem document made from each.
//! * [`fields`]: header fields of the gateway's own answers, and lists in header fields.
//!
//! Functions on heads: no socket, clock or task.

pub mod fields;
pub mod host;
pub mod respond;
