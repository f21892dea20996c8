//! Changes on their way between replicas, in two ways. What began here is gathered for a moment and sent to each replica
//! that lives: [`sender`], [`set`]. And each replica reads every second from the store what changed: [`feed`], which finds
//! what a replica that could not be reached has not been sent.
//!
//! No change contains what it is about: those that learn of it read the store. So one that is lost or comes twice costs a
//! reading and nothing else. What came from another replica is not sent on.

pub mod feed;
pub mod sender;
pub mod set;

use std::fmt;

use bytes::Bytes;
use gateway_store::{ChangedRow, ClusterId, EnvironmentId, WorkspaceId};

/// A change, as replicas announce it to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something about a workspace.
    Workspace {
        /// The workspace.
        workspace: WorkspaceId,
        /// Its cluster, if it is in one.
        cluster: Option<ClusterId>,
    },
    /// Something about an environment.
    Environment {
        /// The environment.
        environment: EnvironmentId,
        /// Its desired state changed; otherwise something of it ended.
        is_wanted: bool,
    },
    /// An event for those that follow an environment. It is not stored.
    Event {
        /// The environment.
        environment: EnvironmentId,
        /// The event, in the form of `gateway-environments`.
        event: Bytes,
    },
    /// Anything.
    Everything,
}

/// The parts of this process that have to learn of changes elsewhere.
pub trait ChangeSink: fmt::Debug + Send + Sync + 'static {
    /// Takes a change that another replica announced. Does not wait.
    fn announced(&self, change: Change);

    /// Takes a change that was found in the store: by any process, this one included. Does not wait.
    fn found(&self, row: ChangedRow);
}
