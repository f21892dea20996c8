//! Workspaces that an executor runs for their owners: the owner's request, checked once; the definition that is made of
//! it and frozen; and the parts of that which each message sends.
//!
//! [`devfile`] reads the source of a workspace, [`cluster_config`] the permissions of a cluster. Both are pure and
//! stand on [`document`] (YAML with places) and [`syntax`] (names and amounts that Kubernetes accepts). [`frozen`]
//! makes Kubernetes objects of the two, once; [`pipeline`] makes the definition of a CI job of a devfile; [`sending`]
//! chooses the objects of a message; [`observed`] derives a workspace's actual state from a report. [`service`] takes
//! the owners' requests.

pub mod addresses;
pub mod agents_dir;
pub mod changes;
pub mod ci;
pub mod cluster_configs;
pub mod kubernetes;
pub mod observed;
pub mod sending;
pub mod service;
#[cfg(test)]
mod testing;
pub mod timers;
