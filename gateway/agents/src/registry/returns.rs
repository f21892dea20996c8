//! Agents that lost their link, by the time after which they were back: what an operator promises users is made of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time within which an agent should be back: a redial after a broken link, with room for a slow network.
const RETURN_OBJECTIVE: Duration = Duration::from_secs(10);

/// Counts of agents that lost the link of their session.
#[derive(Debug, Default)]
pub struct AgentReturns {
    in_time: AtomicU64,
    late: AtomicU64,
    never: AtomicU64,
}

impl AgentReturns {
    /// Counts an agent that was back after a while.
    pub fn came_back(&self, after: Duration) {
        let count = if after <= RETURN_OBJECTIVE { &self.in_time } else { &self.late };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an agent that did not come back while its session was kept.
    pub fn stayed_away(&self) {
        self.never.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts, by the words of their label.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [("in_time", count(&self.in_time)), ("late", count(&self.late)), ("never", count(&self.never))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_counted_by_the_time_of_their_return() {
        let returns = AgentReturns::default();
        returns.came_back(Duration::ZERO);
        returns.came_back(RETURN_OBJECTIVE);
        returns.came_back(RETURN_OBJECTIVE + Duration::from_millis(1));
        returns.stayed_away();
        assert_eq!(returns.counts(), [("in_time", 2), ("late", 1), ("never", 1)]);
    }
}
