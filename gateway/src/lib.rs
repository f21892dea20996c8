//! The gateway: signs users in and routes their traffic through reverse tunnels into workspaces.
//!
//! This package is the composition root and the program; its parts are the crates in the folders beside `src`.
//! ARCHITECTURE.md at the top of the repository has the map of them and the direction of their arrows.
//!
//! * [`app`] binds everything first, then builds the parts (`assemble`) and runs them until a drain has ended. It is the
//!   only place that knows every crate.
//! * [`demo`]: gateway, agent and a sample app in one process, on embedded parts.
//! * `main` reads the command and sets up logs, allocator and signals.
//!
//! A request of a user is served by `gateway-edge`, one to the public host by `gateway-site` (`gateway-api` and
//! `gateway-dashboard`), a connection of an agent by
//! `gateway-agents`.

pub mod app;
pub mod demo;
