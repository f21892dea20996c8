//! Load lab: open-loop load against a gateway or a peer, with a verdict and a report.

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
