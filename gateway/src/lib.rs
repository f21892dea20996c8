//! The gateway: signs users in and routes their traffic through reverse tunnels into workspaces.
//!
//! ARCHITECTURE.md at the top of the repository has the map of these modules and the direction of their arrows.

mod admin;
mod agents_dir;
mod api;
pub mod app;
pub mod audit;
pub mod auth;
pub mod availability;
pub mod cli;
pub mod config;
pub mod demo;
pub mod edge;
pub mod environments;
pub mod executors;
pub mod limits;
mod markup;
pub mod model;
pub mod net;
pub mod sessions;
mod site;
pub mod store;
pub mod telemetry;
mod ui;
pub mod workspaces;
