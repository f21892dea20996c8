//! Detects agents that connected: environments that wait for one of them are tried at once, and those that wait for
//! others are not. Reconnects of one agent end pauses only once per interval. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tunnel_proto::id::SessionId;

use gateway_store::ClusterId;

/// Shortest interval between two reconnects of one agent that end pauses.
const BELIEVED_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Arrived {
    session: SessionId,
    believed_at: Instant,
    /// The agent connected anew since, and this has not ended pauses yet.
    is_owed: bool,
}

/// Last known session of each cluster's agent.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    seen: HashMap<ClusterId, Arrived>,
}

impl Arrivals {
    /// Notes the current sessions. Returns the clusters whose agents connected.
    pub(super) fn note(
        &mut self,
        sessions: impl IntoIterator<Item = (ClusterId, SessionId)>,
        now: Instant,
    ) -> Vec<ClusterId> {
        let mut came = Vec::new();
        for (cluster, session) in sessions {
            match self.seen.get_mut(&cluster) {
                Some(seen) if seen.session == session => {}
                Some(seen) => (seen.session, seen.is_owed) = (session, true),
                None => {
                    self.seen.insert(cluster, Arrived { session, believed_at: now, is_owed: false });
                    came.push(cluster);
                }
            }
        }
        came.extend(self.owed(now));
        came
    }

    /// Returns the clusters whose agents reconnected within the interval, once that has passed.
    pub(super) fn owed(&mut self, now: Instant) -> Vec<ClusterId> {
        let mut owed = Vec::new();
        for (cluster, seen) in &mut self.seen {
            if seen.is_owed && now.saturating_duration_since(seen.believed_at) >= BELIEVED_INTERVAL {
                (seen.is_owed, seen.believed_at) = (false, now);
                owed.push(*cluster);
            }
        }
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_that_comes_again_and_again_is_believed_only_so_often_and_at_last() {
        let (one, other): (ClusterId, ClusterId) = ("c-1".parse().unwrap(), "c-2".parse().unwrap());
        let (mut arrivals, begin) = (Arrivals::default(), tokio::time::Instant::now().into_std());
        assert_eq!(arrivals.note([(one, SessionId::new(1)), (other, SessionId::new(2))], begin), [one, other]);
        assert_eq!(arrivals.note([(one, SessionId::new(1))], begin), [], "it is the one that was there");
        for number in 10..40 {
            let now = begin + Duration::from_millis(number * 100);
            assert_eq!(arrivals.note([(one, SessionId::new(number)), (other, SessionId::new(2))], now), []);
        }
        assert_eq!(arrivals.owed(begin + BELIEVED_INTERVAL), [one]);
        assert_eq!(arrivals.owed(begin + BELIEVED_INTERVAL * 2), [], "once");
        assert_eq!(arrivals.note([(other, SessionId::new(50))], begin + BELIEVED_INTERVAL * 2), [other]);
    }
}
