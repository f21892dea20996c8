//! Environments as jobs and operators see them, with a cluster that is played.

mod asked;
mod border;
mod ended;
mod model;
mod stage;
mod waits;
