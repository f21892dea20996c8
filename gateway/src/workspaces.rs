//! Workspaces that an executor runs for their owners: from a devfile to frozen Kubernetes objects, and what of them is
//! sent when (design, section 6).
//!
//! [`devfile`] reads what a workspace is made from, [`cluster_config`] what a cluster allows. Both are pure and stand
//! on [`document`] (YAML with places) and [`syntax`] (what Kubernetes accepts as names and amounts).

pub mod cluster_config;
pub mod devfile;
pub mod document;
pub mod observed;
pub mod syntax;
