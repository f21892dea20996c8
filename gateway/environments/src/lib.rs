//! Environments of CI jobs: has the objects of a template applied in a cluster before a job runs, and removed once the
//! environment ends.
//!
//! * [`service`] takes the requests of jobs and operators; [`request`], [`refusal`], [`record`] and [`progress`] are
//!   their forms and answers, and [`on_record`] is a change with its slot in the audit log
//! * [`files`] keeps the templates of each cluster agent in force, and `template_store` those of before a restart
//! * `plan` (pure) decides the next step of an environment, and `reconcile` carries it out. `controller` knows which
//!   environments are due, `cluster_permits` (pure) queues calls to one cluster, and `arrivals` (pure) notes which agents
//!   connected. `call` has a step carried out by the cluster's agent
//! * [`elsewhere`] connects all this with other replicas
//! * `policy` answers from memory, without asking the store, which jobs may have environments. `identity` (pure) is the
//!   user that the agent impersonates
//!
//! Facts, templates and manifests are documents, and pure: [`workspace_spec::environment`].

mod arrivals;
mod call;
mod cluster_permits;
mod controller;
pub mod elsewhere;
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
