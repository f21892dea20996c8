//! Load lab: open-loop load against a gateway or a peer, with a verdict and a report.
//!
//! * [`cli`]: the command line. [`results`]: `loadlab results`, which measures what `RESULTS.md` shows.
//! * the load: [`profile`] is a kind of load; [`generator`] runs it on worker threads, at the times of [`pace`], over
//!   [`client`] to a [`target`]. [`load`] has how much, and the objective. [`payload`] makes the bodies, and [`pattern`]
//!   bytes of which any that are lost, repeated or moved are seen
//! * the other side: [`lab`] starts a gateway, an agent and an [`app`], each a process; [`fleet`] is thousands of agents
//!   in one process, [`relay`] a link with delay, rate and faults, and [`peer`] what a user could have instead
//! * the measurements: [`stats`] records, [`failure`] counts reasons, [`outcome`] is the record of a run and [`verdict`]
//!   the judgement on it; [`report`] and [`live`] show them, [`machine`] says where they were made
//! * [`units`] reads numbers with units. [`clock`] is the one place that reads the wall clock

pub mod app;
pub mod cli;
pub mod client;
pub mod clock;
pub mod failure;
pub mod fleet;
pub mod generator;
pub mod lab;
pub mod live;
pub mod load;
pub mod machine;
pub mod outcome;
pub mod pace;
pub mod pattern;
pub mod payload;
pub mod peer;
pub mod profile;
pub mod relay;
pub mod report;
pub mod results;
pub mod stats;
pub mod target;
#[cfg(test)]
mod testing;
pub mod units;
pub mod verdict;
