//! Workspaces as jobs of a CI system (design, section 6.4).

pub mod provider;
