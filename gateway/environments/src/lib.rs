//! Managed Kubernetes resources of environments: parses and renders templates, refuses what may not be applied, and has
//! the rest applied and removed.
//!
//! [`facts`] describes an environment and the job that asks, [`template`] parses a template and fills in the facts,
//! [`manifest`] refuses what may not be applied and labels the rest. These are pure. [`files`] keeps the templates of
//! each cluster agent in force.
//!
//! [`service`] takes the requests of jobs and operators, with its answers in [`request`], [`refusal`], [`record`] and
//! [`progress`]. `plan` (pure) decides the next step of an environment and `reconcile` carries it out. `controller` knows
//! which environments are due, `cluster_permits` (pure) queues calls to one cluster, and `arrivals` (pure) notes which agents
//! connected. `call` has a step carried out by the cluster's agent, `identity` is the user that the agent impersonates,
//! and `policy` answers from memory without asking the store.

mod arrivals;
mod call;
mod cluster_permits;
mod controller;
pub mod files;
mod identity;
pub mod on_record;
mod plan;
mod policy;
pub mod progress;
mod reconcile;
pub mod record;
pub mod refusal;
pub mod request;
pub mod service;
mod template_store;
