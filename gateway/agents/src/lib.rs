//! Live agent sessions of this replica, and the admission of agents.

pub mod admission;
pub mod identity;
pub mod lanes;
pub mod leases;
pub mod pacer;
pub mod recheck;
pub mod registry;
pub mod resume;
pub mod service;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
