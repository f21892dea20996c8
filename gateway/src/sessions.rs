//! Live agent sessions of this replica: who is connected, and how they get in.

pub mod registry;
pub mod service;
