//! Terminals of this machine, for people behind the gateway.

pub mod job;
