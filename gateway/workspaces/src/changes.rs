//! Announces that a workspace has changed, so that no task has to poll: to all tasks of this process, and what began here
//! to the other replicas as well. What came from a replica goes to no other one.
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
    sender: broadcast::Sender<Announced>,
}

/// What was announced, and where it began.
#[derive(Clone, Copy, Debug)]
struct Announced {
    news: ChangeNews,
    is_own: bool,
}

/// Receives every change from its making on.
#[derive(Debug)]
pub struct Subscriber {
    receiver: broadcast::Receiver<Announced>,
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
        self.send(Announced { news: ChangeNews::Change(change), is_own: true });
    }

    /// Notifies all subscribers of what began at another replica, or in another process.
    pub fn publish_from_elsewhere(&self, news: ChangeNews) {
        self.send(Announced { news, is_own: false });
    }

    fn send(&self, announced: Announced) {
        // No subscriber is no fault.
        drop(self.sender.send(announced));
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
        self.recv().await.news
    }

    /// Like [`Subscriber::next`], but skips what came from elsewhere.
    ///
    /// Cancel safety: safe; nothing is lost.
    pub async fn next_own(&mut self) -> ChangeNews {
        loop {
            let announced = self.recv().await;
            if announced.is_own {
                return announced.news;
            }
        }
    }

    async fn recv(&mut self) -> Announced {
        match self.receiver.recv().await {
            Ok(announced) => announced,
            Err(RecvError::Lagged(_)) => Announced { news: ChangeNews::Missed, is_own: true },
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn change_from_elsewhere_reaches_all_but_those_that_send_on_what_began_here() {
        let notice = |id: &str| ChangeNotice { workspace: id.parse().expect("an id"), cluster: "c-1".parse().ok() };
        let changes = Changes::default();
        let (mut all, mut own) = (changes.listen(), changes.listen());
        changes.publish_from_elsewhere(ChangeNews::Change(notice("w-1")));
        changes.publish_from_elsewhere(ChangeNews::Missed);
        changes.publish(notice("w-2"));
        assert_eq!(all.next().await, ChangeNews::Change(notice("w-1")));
        assert_eq!(all.next().await, ChangeNews::Missed);
        assert_eq!(all.next().await, ChangeNews::Change(notice("w-2")));
        assert_eq!(own.next_own().await, ChangeNews::Change(notice("w-2")));
    }
}
