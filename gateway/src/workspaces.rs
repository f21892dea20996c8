//! Workspaces as desired state: what a person asked for, checked once, before anything is made of it.
//!
//! [`devfile`] reads what a workspace is made from, [`cluster_config`] what a cluster allows. Both are pure and stand
//! on [`document`] (YAML with places) and [`syntax`] (what Kubernetes accepts as names and amounts).

pub mod cluster_config;
pub mod devfile;
pub mod document;
pub mod syntax;
