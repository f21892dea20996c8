//! Workspaces that an executor runs for their owners: from a devfile to frozen Kubernetes objects, and what of them is
//! sent when (design, section 6).

pub mod changes;
pub mod observed;
