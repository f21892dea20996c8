//! Several replicas of one gateway, which share a PostgreSQL: any of them answers for any workspace.
//!
//! A *replica* is one running process; its *incarnation* numbers its start. An agent dials one replica, *R*; users come to
//! any, *E*.
//!
//! * [`lease`] registers this process start, and renews its lease by the database's clock.
//! * [`report`] stores what this replica has, for the operator, who may ask it to drain there.
//! * [`rebalance`] asks agents to move when there are more here than elsewhere.
//! * [`members`] is the view of the replicas that live.
//! * [`claims`] writes, in batches, which replica has which session. The row gives a session its generation.
//! * [`duties`] are pieces of background work that one replica does for all; [`sweeps`] is one of them.
//! * [`replica`] finds the session of a workspace whose agent is elsewhere: it asks R to have the agent add a *relay lane*,
//!   which ends here. R copies that lane's messages and decodes nothing: numbers, credit and resume are between E and agent, so
//!   R may die or drain, and the lane goes on through another replica.
//! * [`changes`] has every replica learn what changed at another.
//! * [`hop`] carries a lane for an agent that adds none: there R decodes, and the lane ends with R.
//! * [`away`] is about the time while the store is away: sessions without a place, which are claimed later, and questions to
//!   all other replicas.
//! * [`connection`] is the calling half of what replicas say to each other, [`service`] the answering half, [`listener`] its
//!   port. Both ends prove the role of a replica by their certificates.
//!
//! Below are the store and `gateway-agents`, whose `Peers` this crate implements; above is `app` alone.

mod away;
pub mod carried;
pub mod changes;
pub mod claims;
pub mod connection;
pub mod duties;
pub mod hop;
pub mod idle;
pub mod lane_body;
mod lane_places;
mod late;
pub mod lease;
pub mod listener;
pub mod members;
pub mod rebalance;
pub mod replica;
pub mod report;
mod search;
pub mod service;
pub mod sweeps;
mod wire;
