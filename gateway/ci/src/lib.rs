//! Runs workspaces as jobs of a CI system: carries out their desired state with pipelines.
//!
//! * `plan` decides the next step of one workspace from its stored and observed state. Pure.
//! * [`controller`] picks the workspaces that are due, in a `work-queue`, with one task for each at a time.
//! * `reconcile` reconciles one workspace: it reads, plans, calls the provider and stores, until it has to wait.
//! * [`provider`] is the CI system: GitLab, or a command on this machine.
//! * [`elsewhere`] is about agents of jobs that are connected to other replicas.
//! * [`settings`] are the operator's: providers and limits.
//! * [`downloads`] serves the agent's programs that jobs fetch.
//!
//! The pipeline's text is made by `workspace_spec::pipeline`; the job's agent is authenticated by `gateway_agents`.
//! The state in the store outlives this process: a run is recorded before the provider is called, so that none is
//! started twice.

pub mod controller;
pub mod downloads;
pub mod elsewhere;
mod plan;
pub mod provider;
mod reconcile;
pub mod settings;
