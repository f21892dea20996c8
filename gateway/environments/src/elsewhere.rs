//! Environments and other replicas: a stop asked for at one begins where another one has the work, and those that follow an
//! environment at one see what another one learns. What comes from elsewhere is not sent on.

use std::sync::OnceLock;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tunnel_proto::environments::ObjectStep;

use super::progress::{EnvironmentEvent, Notification, ObjectProgress};
use super::service::{Environments, EnvironmentsShared};
use gateway_store::EnvironmentId;
use gateway_types::UnixSeconds;
use workspace_spec::environment::facts::ObjectRef;

/// Changes that wait to be sent; of more, everything counts as changed.
const BEHIND_MAX: usize = 1024;

/// A change of an environment, on its way between replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentChange {
    /// Its desired state changed, or is asked for again: pauses end.
    Wanted(EnvironmentId),
    /// Something of it ended: those that follow it read the store.
    Settled(EnvironmentId),
    /// An event for those that follow it, encoded.
    Event(EnvironmentId, Bytes),
    /// Anything changed.
    Everything,
}

/// Changes that begin in this process. Nothing is kept before a subscriber comes: one gateway alone has none.
#[derive(Debug, Default)]
pub(super) struct OwnChanges(OnceLock<broadcast::Sender<EnvironmentChange>>);

impl OwnChanges {
    fn send(&self, make: impl FnOnce() -> Option<EnvironmentChange>) {
        if let Some(sender) = self.0.get().filter(|sender| sender.receiver_count() > 0)
            && let Some(change) = make()
        {
            // A subscriber that is gone meanwhile is no fault.
            sender.send(change).ok();
        }
    }
}

/// Receives the changes that begin in this process, from its making on.
#[derive(Debug)]
pub struct OwnEnvironmentChanges(broadcast::Receiver<EnvironmentChange>);

impl OwnEnvironmentChanges {
    /// Waits for the next change. Never completes once the environments are gone.
    ///
    /// Cancel safety: safe; nothing is lost.
    pub async fn next(&mut self) -> EnvironmentChange {
        match self.0.recv().await {
            Ok(change) => change,
            Err(RecvError::Lagged(_)) => EnvironmentChange::Everything,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl EnvironmentsShared {
    /// Has an environment reconciled, here or at the replica that does so, ending any pause.
    pub(super) fn wake(&self, id: EnvironmentId) {
        self.own.send(|| Some(EnvironmentChange::Wanted(id)));
        self.wakes.wake(id);
    }

    /// Notifies all followers of an environment, here and at other replicas.
    pub(super) fn tell(&self, id: EnvironmentId, told: Notification) {
        self.own.send(|| match &told {
            Notification::Settled => Some(EnvironmentChange::Settled(id)),
            Notification::Event(event) => encode(event).map(|event| EnvironmentChange::Event(id, event)),
        });
        self.hub.tell(id, told);
    }
}

impl Environments {
    /// Subscribes to the changes that begin in this process.
    #[must_use]
    pub fn own_changes(&self) -> OwnEnvironmentChanges {
        let sender = self.shared().own.0.get_or_init(|| broadcast::Sender::new(BEHIND_MAX));
        OwnEnvironmentChanges(sender.subscribe())
    }

    /// Takes a change that began at another replica.
    pub fn changed_elsewhere(&self, change: EnvironmentChange) {
        let shared = self.shared();
        match change {
            EnvironmentChange::Wanted(id) => {
                shared.wakes.announced(id, true);
                shared.hub.tell(id, Notification::Settled);
            }
            EnvironmentChange::Settled(id) => shared.hub.tell(id, Notification::Settled),
            EnvironmentChange::Event(id, event) => {
                if shared.hub.is_followed(id)
                    && let Some(event) = decode(&event)
                {
                    shared.hub.tell(id, Notification::Event(event));
                }
            }
            EnvironmentChange::Everything => {
                shared.wakes.all();
                shared.hub.tell_all();
            }
        }
    }

    /// Takes notice that the stored state of an environment changed, in any process. Pauses go on: the store has the time of
    /// their end, and what is stored here comes this way too.
    pub fn stored(&self, id: EnvironmentId) {
        self.shared().wakes.announced(id, false);
        self.shared().hub.tell(id, Notification::Settled);
    }
}

/// An event, as replicas send it to each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SentEvent {
    Queued,
    Removal,
    Object { object: ObjectRef, step: String, message: String },
    Retrying { code: String, message: String, at: i64 },
}

/// Encodes an event. `None` for one that is read from the store.
fn encode(event: &EnvironmentEvent) -> Option<Bytes> {
    let sent = match event.clone() {
        EnvironmentEvent::Waiting { why: "queued" } => SentEvent::Queued,
        EnvironmentEvent::Waiting { why: _ } => SentEvent::Removal,
        EnvironmentEvent::Object(ObjectProgress { object, step, message }) => {
            SentEvent::Object { object, step: step.as_str().to_owned(), message }
        }
        EnvironmentEvent::Retrying { code, message, at } => SentEvent::Retrying { code, message, at: at.get() },
        EnvironmentEvent::Done(_) => return None,
    };
    serde_json::to_vec(&sent).ok().map(Bytes::from)
}

/// Decodes an event; `None` for one of another program that cannot be read.
fn decode(bytes: &[u8]) -> Option<EnvironmentEvent> {
    Some(match serde_json::from_slice(bytes).ok()? {
        SentEvent::Queued => EnvironmentEvent::Waiting { why: "queued" },
        SentEvent::Removal => EnvironmentEvent::Waiting { why: "removal" },
        SentEvent::Object { object, step, message } => {
            let step = ObjectStep::parse(&step)?;
            EnvironmentEvent::Object(ObjectProgress { object, step, message })
        }
        SentEvent::Retrying { code, message, at } => {
            EnvironmentEvent::Retrying { code, message, at: UnixSeconds::new(at) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_the_same_at_the_other_replica_and_one_that_cannot_be_read_is_none() {
        let object = ObjectRef { kind: "Service".into(), name: "web".into(), ..ObjectRef::default() };
        let message = "not \"yet\"".to_owned();
        let (code, at) = ("unavailable".to_owned(), UnixSeconds::new(7));
        for event in [
            EnvironmentEvent::Waiting { why: "queued" },
            EnvironmentEvent::Waiting { why: "removal" },
            EnvironmentEvent::Object(ObjectProgress { object, step: ObjectStep::Waiting, message: message.clone() }),
            EnvironmentEvent::Retrying { code, message, at },
        ] {
            let sent = encode(&event).expect("it is sent");
            assert_eq!(decode(&sent), Some(event), "{sent:?}");
        }
        assert_eq!(decode(b"{\"later\":{}}"), None);
    }
}
