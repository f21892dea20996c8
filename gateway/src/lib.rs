//! The gateway: signs users in and routes their traffic through reverse tunnels into workspaces.
//!
//! This package is the composition root and the program; its parts are the crates in the folders beside `src`.
//! ARCHITECTURE.md at the top of the repository has the map of them and the direction of their arrows.

pub mod app;
pub mod demo;
