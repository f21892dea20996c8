//! Environments as jobs and operators see them, with a cluster that is played.

mod acts;
mod asked;
mod border;
mod changed;
mod elsewhere;
mod ended;
mod late;
mod model;
mod prepared;
mod stage;
mod waits;
