//! Workspaces that an executor runs for their owners: desired state from its request to the messages that carry it.
//!
//! * [`service`] takes the owners' requests: validated, frozen (`workspace_spec`), stored, announced.
//! * [`changes`] announces within this process that a workspace has changed, so that no task has to poll.
//! * [`kubernetes`]: one controller for each cluster with a session sends desired state and stores the observed one;
//!   [`sending`] chooses the objects of a message, [`observed`] derives a workspace's state from a report.
//! * [`lifetimes`] stops and terminates workspaces whose time limits have passed, [`idle_stops`] those without use.
//! * [`cluster_configs`], [`agents_dir`]: configurations of clusters, read from files and stored version by version.
//! * [`workspace_templates`]: the operators' templates that workspaces are made from.
//! * [`starts`]: the steps of a start, for people.
//! * [`orphans`] lists and removes what a lost record left in a cluster, on an operator's word.
//! * [`ci`]: workspaces in CI systems, as far as they are decided without one; `gateway-ci` runs them.
//! * [`addresses`]: addresses of the gateway for definitions of workspaces.

pub mod addresses;
pub mod agents_dir;
pub mod changes;
pub mod ci;
pub mod cluster_configs;
pub mod idle_stops;
pub mod kubernetes;
pub mod lifetimes;
pub mod observed;
pub mod orphans;
pub mod sending;
pub mod service;
pub mod starts;
#[cfg(test)]
mod testing;
pub mod workspace_templates;
