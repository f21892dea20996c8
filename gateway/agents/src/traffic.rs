//! Payload of each session over the last hour, minute by minute, for its owner's page.
//!
//! A session that carries nothing costs nothing: only minutes with bytes are kept.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::registry::Registry;
use tunnel_proto::id::SessionId;

/// Minutes that are kept.
pub const MINUTES: u32 = 60;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteTraffic {
    /// To the workspace.
    pub sent: u64,
    /// From the workspace.
    pub received: u64,
}

/// Traffic of all sessions of this replica.
#[derive(Debug, Default)]
pub struct Traffic {
    all: Mutex<Readings>,
}

#[derive(Debug, Default)]
struct Readings {
    /// Number of the last reading.
    minute: u32,
    sessions: HashMap<SessionId, SessionTraffic>,
}

#[derive(Debug, Default)]
struct SessionTraffic {
    total: MinuteTraffic,
    /// Minutes with bytes, by number, the oldest first.
    minutes: VecDeque<(u32, MinuteTraffic)>,
}

impl Traffic {
    /// Returns the last hour of a session, the oldest minute first; none that is over if it is new.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Vec<MinuteTraffic> {
        let all = self.all.lock();
        let mut hour = vec![MinuteTraffic::default(); MINUTES as usize];
        for (minute, traffic) in all.sessions.get(&session).iter().flat_map(|session| session.minutes.iter()) {
            let ago = all.minute.saturating_sub(*minute) as usize;
            if let Some(slot) = hour.iter_mut().rev().nth(ago) {
                *slot = *traffic;
            }
        }
        hour
    }

    /// Reads all sessions once a minute, until `stop`.
    ///
    /// Cancel safety: safe.
    pub async fn run(self: Arc<Self>, registry: Arc<Registry>, stop: CancellationToken) {
        let mut at = Instant::now();
        loop {
            at += INTERVAL;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(at) => {}
            }
            let totals = registry.with_relays().into_iter().map(|session| {
                let stats = session.stats();
                (session.id, MinuteTraffic { sent: stats.bytes_sent, received: stats.bytes_received })
            });
            self.all.lock().read(totals);
        }
    }
}

impl Readings {
    /// Takes the totals of the sessions that are there, and forgets the others.
    fn read(&mut self, totals: impl Iterator<Item = (SessionId, MinuteTraffic)>) {
        self.minute = self.minute.saturating_add(1);
        let minute = self.minute;
        let mut before = std::mem::take(&mut self.sessions);
        for (id, total) in totals {
            let mut session = before.remove(&id).unwrap_or_default();
            let traffic = MinuteTraffic {
                sent: total.sent.saturating_sub(session.total.sent),
                received: total.received.saturating_sub(session.total.received),
            };
            session.total = total;
            if traffic != MinuteTraffic::default() {
                session.minutes.push_back((minute, traffic));
            }
            while session.minutes.front().is_some_and(|(oldest, _)| minute - oldest >= MINUTES) {
                session.minutes.pop_front();
            }
            self.sessions.insert(id, session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> SessionId {
        SessionId::new(number)
    }

    fn bytes(sent: u64, received: u64) -> MinuteTraffic {
        MinuteTraffic { sent, received }
    }

    #[test]
    fn hour_has_the_minutes_with_bytes_at_their_places() {
        let traffic = Traffic::default();
        for total in [bytes(10, 0), bytes(10, 0), bytes(15, 7)] {
            traffic.all.lock().read([(id(1), total)].into_iter());
        }
        let hour = traffic.of(id(1));
        assert_eq!(hour.len(), 60);
        assert_eq!(hour[57..], [bytes(10, 0), bytes(0, 0), bytes(5, 7)]);
        assert!(traffic.of(id(2)).iter().all(|minute| *minute == bytes(0, 0)));
    }

    #[test]
    fn old_minutes_and_sessions_that_are_over_are_forgotten() {
        let traffic = Traffic::default();
        traffic.all.lock().read([(id(1), bytes(10, 0)), (id(2), bytes(1, 1))].into_iter());
        for _ in 0..59 {
            traffic.all.lock().read([(id(1), bytes(10, 0))].into_iter());
        }
        assert_eq!(traffic.of(id(1))[0], bytes(10, 0));
        traffic.all.lock().read([(id(1), bytes(10, 0))].into_iter());
        let all = traffic.all.lock();
        assert!(all.sessions[&id(1)].minutes.is_empty() && all.sessions.len() == 1);
    }
}
