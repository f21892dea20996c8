//! Workspaces as jobs of a CI system (design, section 6.4): what their owners ask for is carried out with pipelines.
//!
//! [`plan`] decides what is done next for one workspace, from what is stored and heard; [`driver`] does it, one task for each
//! workspace at a time; [`provider`] is the CI system that is asked; [`settings`] is what the operator decided; [`downloads`]
//! has the agent's programs that jobs fetch.

pub mod downloads;
pub mod driver;
mod plan;
pub mod provider;
pub mod settings;
mod visit;
