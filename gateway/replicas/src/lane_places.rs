//! Decides for how many replicas an agent is asked to add relay lanes. Pure.
//!
//! It is an estimate: how long a lane lives is between its agent and the replica at which it ends. Where it is too low, the agent
//! adds no lane, and the other replica asks for a hop lane after a moment; where it is too high, that one gets a hop lane at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gateway_agents::registry::Subject;

/// Time for which a lane is taken to be there after it was asked for.
const PLACE_TIME: Duration = Duration::from_secs(600);

/// Replicas for which each agent was asked, and when that was, last.
#[derive(Debug)]
pub(crate) struct LanePlaces {
    /// Most replicas for which one agent is asked.
    per_agent_max: usize,
    /// By agent and number of its process. Bounded by the agents of this replica, and the time.
    asked: HashMap<(Subject, u64), Vec<(u64, Instant)>>,
}

impl LanePlaces {
    pub(crate) fn new(per_agent_max: usize) -> Self {
        Self { per_agent_max, asked: HashMap::new() }
    }

    /// Returns whether an agent is to be asked for a lane to a replica, and takes note of that.
    pub(crate) fn take(&mut self, subject: &Subject, instance: u64, replica: u64, now: Instant) -> bool {
        let lives = |(_, at): &(u64, Instant)| now.saturating_duration_since(*at) < PLACE_TIME;
        if self.asked.len() == self.asked.capacity() {
            self.asked.retain(|_, places| places.iter().any(lives));
        }
        let places = self.asked.entry((subject.clone(), instance)).or_default();
        places.retain(|place| lives(place) && place.0 != replica);
        let has_room = places.len() < self.per_agent_max;
        if has_room {
            places.push((replica, now));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_beyond_the_bound_get_no_relay_lane_until_a_place_is_free() {
        let (mut places, began) = (LanePlaces::new(8), tokio::time::Instant::now().into_std());
        let subject = Subject::Workspace("one".parse().expect("a name"));
        let bound = 8;
        for replica in 1..=bound {
            assert!(places.take(&subject, 7, replica, began));
        }
        assert!(!places.take(&subject, 7, bound + 1, began));
        assert!(places.take(&subject, 7, 1, began + PLACE_TIME / 2), "a place is its replica's");
        assert!(places.take(&subject, 8, bound + 1, began), "a newer process has lanes of its own");
        // The first one's is newer than the others.
        let later = began + PLACE_TIME;
        let taken = (0..bound).filter(|number| places.take(&subject, 7, 100 + number, later)).count();
        assert_eq!(taken, 7);
    }

    #[test]
    fn agents_of_long_ago_are_forgotten() {
        let (mut places, mut now) = (LanePlaces::new(8), tokio::time::Instant::now().into_std());
        for number in 0..10_000 {
            let subject = Subject::Workspace(format!("w{number}").parse().expect("a name"));
            assert!(places.take(&subject, 7, 1, now));
            now += PLACE_TIME / 50;
        }
        assert!(places.asked.len() < 500);
    }
}
