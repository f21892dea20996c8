//! Managed Kubernetes resources of environments (design, section 6.5): what a template says, what of it may be applied, and where
//! templates come from.
//!
//! [`facts`] is what is known of an environment and the job that asks, [`template`] reads a template and fills in the facts,
//! [`manifest`] refuses what may not be applied and labels the rest. These are pure. [`files`] keeps the templates of each cluster
//! agent in force.
//!
//! [`service`] is what jobs and operators ask, with its answers in [`request`], [`refusal`], [`record`] and [`following`]. `plan`
//! (pure) decides what is next for an environment, `visit` does it, `driver` knows which ones are due, `seats` (pure) whose turn it is
//! at a cluster and `arrivals` (pure) which agents came, `call` has it carried out by the cluster's agent, as whom is `identity`'s,
//! and `access` answers what needs no asking.

mod access;
mod arrivals;
mod call;
mod driver;
pub mod facts;
pub mod files;
pub mod following;
mod identity;
mod kept;
pub mod labels;
pub mod manifest;
pub mod on_record;
mod plan;
pub mod record;
pub mod refusal;
pub mod request;
mod seats;
pub mod service;
pub mod slug;
pub mod template;
mod visit;

#[cfg(test)]
mod examples;
