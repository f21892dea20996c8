//! Announces within this process that a workspace has changed, so that no task has to poll.
//!
//! An announcement does not contain the change: listeners read the truth from the store. So a lost message costs a look
//! and nothing else, and the queues can be bounded.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use gateway_store::{ClusterId, WorkspaceId};

/// Most changes that a listener may be behind before it has to look at everything.
const BEHIND_MAX: usize = 4096;

/// Notice that a workspace has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeNotice {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Its cluster, if it is in one.
    pub cluster: Option<ClusterId>,
}

/// Publisher of changes. Clones are the same.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: broadcast::Sender<ChangeNotice>,
}

/// Receives every change from its making on.
#[derive(Debug)]
pub struct Subscriber {
    receiver: broadcast::Receiver<ChangeNotice>,
}

/// News for a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeNews {
    /// Something changed.
    Change(ChangeNotice),
    /// More than could be remembered: anything may have changed.
    Missed,
}

impl Default for Changes {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND_MAX) }
    }
}

impl Changes {
    /// Notifies all subscribers, and waits for none.
    pub fn publish(&self, change: ChangeNotice) {
        // No subscriber is no fault.
        drop(self.sender.send(change));
    }

    /// Makes a subscriber. Subscribe first and read the store then: the other way round misses what is in between.
    #[must_use]
    pub fn listen(&self) -> Subscriber {
        Subscriber { receiver: self.sender.subscribe() }
    }
}

impl Subscriber {
    /// Waits for the next change. Never completes once all publishers are gone.
    ///
    /// Cancel safety: safe; nothing is lost.
    pub async fn next(&mut self) -> ChangeNews {
        match self.receiver.recv().await {
            Ok(change) => ChangeNews::Change(change),
            Err(RecvError::Lagged(_)) => ChangeNews::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
