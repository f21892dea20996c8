//! Live agent sessions of this replica: who is connected, and how they get in.

pub mod admission;
pub mod identity;
pub mod lanes;
pub mod leases;
pub mod pacer;
pub mod recheck;
pub mod registry;
pub mod resume;
pub mod service;
