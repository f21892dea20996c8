//! Several replicas of one gateway, which share a PostgreSQL: any of them answers for any workspace.
//!
//! A *replica* is one running process; its *incarnation* numbers its start. An agent dials one replica, *R*; users come to
//! any, *E*.
//!
//! * [`lease`] registers this process start, and renews its lease by the database's clock.
//! * [`members`] is the view of the replicas that live.
//! * [`claims`] writes, in batches, which replica has which session. The row gives a session its generation.
//! * [`replica`] finds the session of a workspace whose agent is elsewhere: it asks R to have the agent add a *relay lane*,
//!   which ends here. R copies that lane's messages and decodes nothing: numbers, credit and resume are between E and agent, so
//!   R may die or drain, and the lane goes on through another replica.
//! * [`hop`] carries a lane for an agent that adds none: there R decodes, and the lane ends with R.
//! * [`connection`] is the calling half of what replicas say to each other, [`service`] the answering half, [`listener`] its
//!   port. Both ends prove the role of a replica by their certificates.
//!
//! Below are the store and `gateway-agents`, whose `Peers` this crate implements; above is `app` alone.

pub mod carried;
pub mod claims;
pub mod connection;
pub mod hop;
pub mod idle;
mod lane_places;
pub mod lease;
pub mod listener;
pub mod members;
pub mod replica;
mod search;
pub mod service;
mod wire;
