//! Relay lanes that this replica waits for: it asks another replica to have an agent dial, and the agent's Hello shows the
//! ticket.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tunnel_proto::id::Generation;

use crate::registry::Subject;
use gateway_store::WorkspaceId;
use gateway_types::opaque::{Digest, Opaque};
use gateway_types::token::NoRandomness;

/// Time for which a ticket is good.
pub const TICKET_TIME: Duration = Duration::from_secs(10);

/// Most lanes that are waited for at a time: a bound on memory, above what a replica asks for within [`TICKET_TIME`].
const EXPECTED_MAX: usize = 65_536;

/// A relay lane that is waited for. Only this agent's process may bring it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedLane {
    /// Workspace or cluster of the agent.
    pub subject: Subject,
    /// The workspace of that name; `None` for a cluster.
    pub workspace: Option<WorkspaceId>,
    /// Number of the agent's process.
    pub instance: u64,
    /// Place of its session among those of all replicas.
    pub generation: Generation,
}

/// A ticket in the shape that an agent shows, and its name here.
#[derive(Debug)]
pub struct Ticket {
    /// Bytes for the agent. The caller must not log them.
    pub shown: Bytes,
    digest: Digest,
}

/// The tickets that were given out. Bounded by number and time.
#[derive(Debug, Default)]
pub struct ExpectedLanes {
    lanes: Mutex<HashMap<Digest, ExpectedTicket>>,
    settled: Notify,
}

#[derive(Debug)]
struct ExpectedTicket {
    /// `None` until the other replica has said which process it asks.
    lane: Option<ExpectedLane>,
    until: Instant,
}

impl ExpectedLanes {
    /// Makes a ticket. `None` while too many are out.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn announce(&self, now: Instant) -> Result<Option<Ticket>, NoRandomness> {
        let ticket = Opaque::random()?;
        let mut lanes = self.lanes.lock();
        if lanes.len() == lanes.capacity() || lanes.len() >= EXPECTED_MAX {
            lanes.retain(|_, expected| expected.until > now);
        }
        if lanes.len() >= EXPECTED_MAX {
            return Ok(None);
        }
        lanes.insert(ticket.digest(), ExpectedTicket { lane: None, until: now + TICKET_TIME });
        Ok(Some(Ticket { shown: Bytes::from(ticket.reveal()), digest: ticket.digest() }))
    }

    /// Sets the lane that a ticket is good for, once the other replica has asked its agent.
    pub fn settle(&self, ticket: &Ticket, lane: ExpectedLane) {
        if let Some(expected) = self.lanes.lock().get_mut(&ticket.digest) {
            expected.lane = Some(lane);
        }
        self.settled.notify_waiters();
    }

    /// Makes a ticket worthless.
    pub fn forget(&self, ticket: &Ticket) {
        self.lanes.lock().remove(&ticket.digest);
        self.settled.notify_waiters();
    }

    /// Takes the lane of a ticket, which is worth nothing after that. An agent may be faster than the answer of the replica
    /// that asked it, so this waits for that.
    ///
    /// Cancel safety: safe; a ticket is used by the call that returns its lane.
    pub async fn take(&self, shown: &[u8]) -> Option<ExpectedLane> {
        let digest = Opaque::digest_of(shown)?;
        loop {
            let settled = self.settled.notified();
            let until = {
                let mut lanes = self.lanes.lock();
                let expected = lanes.get(&digest)?;
                let (lane, until) = (expected.lane.clone(), expected.until);
                if lane.is_some() || until <= Instant::now() {
                    lanes.remove(&digest);
                    return lane.filter(|_| until > Instant::now());
                }
                until
            };
            timeout_at(until, settled).await.ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> ExpectedLane {
        let (subject, workspace) = (Subject::Workspace("one".parse().expect("a name")), "w-1".parse().ok());
        ExpectedLane { subject, workspace, instance: 7, generation: Generation::new(3) }
    }

    fn announced(lanes: &ExpectedLanes) -> Ticket {
        lanes.announce(Instant::now()).expect("random").expect("room")
    }

    #[tokio::test(start_paused = true)]
    async fn ticket_is_good_once_and_for_a_short_time() {
        let lanes = ExpectedLanes::default();
        let ticket = announced(&lanes);
        lanes.settle(&ticket, lane());
        assert_eq!(lanes.take(b"another").await, None);
        assert_eq!(lanes.take(&ticket.shown).await, Some(lane()));
        assert_eq!(lanes.take(&ticket.shown).await, None, "it was used");
        let late = announced(&lanes);
        lanes.settle(&late, lane());
        tokio::time::advance(TICKET_TIME).await;
        assert_eq!(lanes.take(&late.shown).await, None, "it is too late");
        let forgotten = announced(&lanes);
        lanes.forget(&forgotten);
        assert_eq!(lanes.take(&forgotten.shown).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn agent_that_is_faster_than_the_answer_of_its_replica_waits_for_it() {
        let lanes = ExpectedLanes::default();
        let ticket = announced(&lanes);
        let settle = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lanes.settle(&ticket, lane());
        };
        assert_eq!(tokio::join!(lanes.take(&ticket.shown), settle).0, Some(lane()));
        let never = announced(&lanes);
        assert_eq!(lanes.take(&never.shown).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn tickets_that_are_not_used_are_forgotten() {
        let lanes = ExpectedLanes::default();
        for _ in 0..10_000 {
            drop(announced(&lanes));
            tokio::time::advance(TICKET_TIME / 50).await;
        }
        assert!(lanes.lanes.lock().capacity() < 500);
    }
}
