//! Tells within this process that something about a workspace has changed, so that nobody has to ask again and again.
//!
//! What changed is not told: whoever listens reads the truth from the store. So a message that is lost costs a look and
//! nothing else, and the queues can be bounded.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::store::{ClusterId, WorkspaceId};

/// How many changes a listener may be behind before it has to look at everything.
const BEHIND_MAX: usize = 4096;

/// A workspace that is not as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub workspace: WorkspaceId,
    /// In which cluster, if in one.
    pub cluster: Option<ClusterId>,
}

/// Where changes are told. Clones are the same.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: broadcast::Sender<Change>,
}

/// Hears of every change from its making on.
#[derive(Debug)]
pub struct Listener {
    receiver: broadcast::Receiver<Change>,
}

/// What a listener heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something changed.
    Change(Change),
    /// More than could be remembered: anything may have changed.
    Missed,
}

impl Default for Changes {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND_MAX) }
    }
}

impl Changes {
    /// Tells all listeners. Nobody is waited for.
    pub fn say(&self, change: Change) {
        // No listener is no fault.
        drop(self.sender.send(change));
    }

    /// Makes a listener. Listen first and read the store then: the other way round misses what is in between.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener { receiver: self.sender.subscribe() }
    }
}

impl Listener {
    /// Waits for the next change. Never completes once nobody can tell any more.
    ///
    /// Cancel safety: safe; nothing is lost.
    pub async fn next(&mut self) -> Heard {
        match self.receiver.recv().await {
            Ok(change) => Heard::Change(change),
            Err(RecvError::Lagged(_)) => Heard::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
