//! Workspaces that an executor runs for their owners: from a devfile to frozen Kubernetes objects, and what of them is
//! sent when (design, section 6).

pub mod changes;
pub mod cluster_config;
pub mod devfile;
pub mod document;
pub mod frozen;
pub mod observed;
pub mod sending;
pub mod syntax;
