//! Reconciles workspaces: carries out their desired state and stores the observed one.

pub mod ci;
pub mod cluster_configs;
pub mod kubernetes;
pub mod timers;

#[cfg(test)]
mod testing;
