//! Runs workspaces as jobs of a CI system: carries out their desired state with pipelines.
//!
//! [`plan`] decides the next step of one workspace from its stored and observed state; [`driver`] carries it out, with
//! one task per workspace at a time; [`provider`] is the CI system; [`settings`] are the operator's; [`downloads`]
//! serves the agent's programs that jobs fetch.

pub mod downloads;
pub mod driver;
mod plan;
pub mod provider;
pub mod settings;
mod visit;
