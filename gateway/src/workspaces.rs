//! The truth about workspaces that somebody runs for their owner: what they are made from, what they are to be.

pub mod blockers;
pub mod service;
