//! Live agent sessions of this replica, and the admission of agents.
//!
//! An agent's connection passes these in order:
//!
//! * [`service`] reads its HTTP version, bounds what it sends before its Hello, and shakes hands.
//! * [`identity`] authenticates it: one credential names one workspace or one cluster.
//! * [`admission`] admits its Hello: drain, turn ([`admission_rate`]), entitlement, session. [`resume`] decides, without I/O, which
//!   session it may go on with, and [`lanes`] adds links to one. [`relays`] are links for users of other replicas, which
//!   [`peers`] stands for; [`hop`] is what this replica says there of an agent that adds none.
//! * [`registry`] has the sessions by workspace and by cluster; the newest wins.
//!
//! Afterwards [`revocation`] re-authorises agents while they are connected, and [`expiry`] ends sessions whose credential
//! has ended or was taken back.
//!
//! [`traffic`] remembers an hour of each session's payload.
//!
//! Above are the edge, which opens channels, and the controllers, which send desired state. Below are the store, sign-in's
//! token checks and `tunnel-link`.

pub mod admission;
pub mod admission_rate;
pub mod expiry;
pub mod hop;
pub mod identity;
pub mod lanes;
mod named_ports;
pub mod peers;
pub mod registry;
pub mod relays;
pub mod resume;
pub mod revocation;
pub mod service;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traffic;
