//! Who runs workspaces: what was asked for is carried out here, and what comes of it is stored.

pub mod ci;
pub mod cluster_configs;
pub mod kubernetes;
pub mod timers;

#[cfg(test)]
mod testing;
