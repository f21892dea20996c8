//! Rules for when the store counts as away, and for how long cached results count meanwhile.

use std::time::{Duration, Instant};

/// Largest age, at the beginning of an outage, of a result that may bridge it.
pub const REMEMBERED_MAX: Duration = Duration::from_secs(10 * 60);

/// Time without answers from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start of the first request without an answer.
    pub since: Instant,
    /// Longest time for which cached results count.
    max: Duration,
}

impl Outage {
    /// Returns whether cached results may count at `now`.
    #[must_use]
    pub fn is_bridged(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < self.max
    }

    /// Returns whether a result found at `found` counts at `now`: not for longer than the configuration says, and only
    /// if it was found within [`REMEMBERED_MAX`] of the outage.
    #[must_use]
    pub fn bridges(&self, found: Instant, now: Instant) -> bool {
        self.is_bridged(now) && self.since.saturating_duration_since(found) <= REMEMBERED_MAX
    }
}

/// State of the store.
#[derive(Debug)]
pub(super) struct StoreState {
    outage_max: Duration,
    /// Whether a task asks if the store is back. The store is never away before that, or else it would stay so for
    /// ever.
    is_watched: bool,
    /// Whether no answer ends the outage.
    is_held: bool,
    outage: Option<Outage>,
    /// End of the last outage: requests that began before it say nothing about now.
    back_at: Option<Instant>,
    unwritable_since: Option<Instant>,
    outages: u64,
}

impl StoreState {
    pub(super) fn new(outage_max: Duration) -> Self {
        Self {
            outage_max,
            is_watched: false,
            is_held: false,
            outage: None,
            back_at: None,
            unwritable_since: None,
            outages: 0,
        }
    }

    pub(super) fn watched(&mut self) {
        self.is_watched = true;
    }

    /// Records that a request begun at `began` got no answer; returns whether an outage begins with that.
    pub(super) fn failed(&mut self, began: Instant) -> bool {
        let is_old = self.back_at.is_some_and(|back_at| began < back_at);
        if !self.is_watched || self.outage.is_some() || is_old {
            return false;
        }
        self.outage = Some(Outage { since: began, max: self.outage_max });
        self.outages += 1;
        true
    }

    /// Begins an outage that no answer ends, or lets the next answer end it.
    pub(super) fn hold(&mut self, is_held: bool, now: Instant) {
        self.is_held = is_held;
        if is_held && self.outage.is_none() {
            self.outage = Some(Outage { since: now, max: self.outage_max });
            self.outages += 1;
        }
    }

    /// Records an answer; returns the outage that it ends.
    pub(super) fn answered(&mut self, now: Instant) -> Option<Outage> {
        if self.is_held {
            return None;
        }
        let ended = self.outage.take()?;
        self.back_at = Some(now);
        Some(ended)
    }

    /// Records the outcome of a write; returns whether it differs from the one before.
    pub(super) fn writable(&mut self, is_writable: bool, now: Instant) -> bool {
        match (is_writable, self.unwritable_since) {
            (true, None) | (false, Some(_)) => false,
            (true, Some(_)) => {
                self.unwritable_since = None;
                true
            }
            (false, None) => {
                self.unwritable_since = self.is_watched.then_some(now);
                self.is_watched
            }
        }
    }

    pub(super) fn outage(&self) -> Option<Outage> {
        self.outage
    }

    pub(super) fn unwritable_since(&self) -> Option<Instant> {
        self.unwritable_since
    }

    pub(super) fn outages(&self) -> u64 {
        self.outages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const SECOND: Duration = Duration::from_secs(1);

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn watched() -> (StoreState, Instant) {
        let mut state = StoreState::new(HOUR);
        state.watched();
        (state, now())
    }

    #[test]
    fn store_that_nothing_asks_after_is_never_away() {
        let mut state = StoreState::new(HOUR);
        assert!(!state.failed(now()) && state.outage().is_none());
        assert!(!state.writable(false, now()) && state.unwritable_since().is_none());
    }

    #[test]
    fn outage_begins_with_the_first_failure_and_ends_with_the_first_answer() {
        let (mut state, start) = watched();
        assert!(state.failed(start));
        assert!(!state.failed(start + SECOND), "it has begun already");
        assert_eq!(state.outage().map(|outage| outage.since), Some(start));
        let ended = state.answered(start + 5 * SECOND);
        assert_eq!(ended.map(|outage| outage.since), Some(start));
        assert!(state.answered(start + 6 * SECOND).is_none() && state.outage().is_none());
        assert_eq!(state.outages(), 1);
    }

    #[test]
    fn outage_that_is_held_ends_with_the_first_answer_after_it_was_let_go() {
        let (mut state, start) = watched();
        state.hold(true, start);
        assert_eq!(state.outage().map(|outage| outage.since), Some(start));
        assert!(state.answered(start + SECOND).is_none() && state.outage().is_some());
        state.hold(false, start + 2 * SECOND);
        assert!(state.outage().is_some(), "it has not answered yet");
        assert!(state.answered(start + 3 * SECOND).is_some() && state.outage().is_none());
        assert_eq!(state.outages(), 1);
    }

    #[test]
    fn what_was_asked_before_the_store_came_back_begins_no_new_outage() {
        let (mut state, start) = watched();
        assert!(state.failed(start) && state.answered(start + 2 * SECOND).is_some());
        assert!(!state.failed(start + SECOND), "asked while it was away");
        assert!(state.failed(start + 3 * SECOND), "asked since");
    }

    #[test]
    fn ten_minutes_before_count_and_only_up_to_the_configured_time() {
        let (mut state, start) = watched();
        let since = start + HOUR;
        assert!(state.failed(since));
        let outage = state.outage().unwrap();
        for (found, now, counts) in [
            (since - SECOND, since + SECOND, true),
            (since - REMEMBERED_MAX, since + SECOND, true),
            (since - REMEMBERED_MAX - SECOND, since + SECOND, false),
            (since - SECOND, since + HOUR - SECOND, true),
            (since - SECOND, since + HOUR, false),
            // An answer that came just before the others stopped coming.
            (since + SECOND, since + 2 * SECOND, true),
        ] {
            assert_eq!(outage.bridges(found, now), counts, "{:?} {:?}", since - found, now - since);
        }
    }

    #[test]
    fn store_that_cannot_be_written_says_so_once_until_it_can() {
        let (mut state, start) = watched();
        assert!(state.writable(false, start) && !state.writable(false, start + SECOND));
        assert_eq!(state.unwritable_since(), Some(start));
        assert!(state.outage().is_none(), "it can be read");
        assert!(state.writable(true, start + SECOND) && !state.writable(true, start + SECOND));
        assert_eq!(state.unwritable_since(), None);
    }
}
