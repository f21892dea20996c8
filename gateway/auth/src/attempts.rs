//! Counts failures per key (address, user), so that guessing ends before it succeeds.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time window of the count: after [`Attempts::max`] failures a key is refused until this long after the first of them.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);

/// Keys remembered at once. Full of recent failures: unknown keys may not try until some entries expire.
pub const KEYS_MAX: usize = 16 * 1024;

/// Failures by key: an address, a user.
#[derive(Debug)]
pub struct Attempts<K> {
    max: u32,
    failed: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K: Eq + Hash> Attempts<K> {
    /// Creates a counter that allows `max` failures in a [`WINDOW`].
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, failed: Mutex::default() }
    }

    /// Returns the number of allowed failures.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Returns whether `key` may try.
    #[must_use]
    pub fn allows(&self, key: &K, now: Instant) -> bool {
        let failed = self.failed.lock();
        match failed.get(key).filter(|(first, _)| is_recent(*first, now)) {
            Some((_, count)) => *count < self.max,
            None => failed.len() < KEYS_MAX || failed.values().any(|(first, _)| !is_recent(*first, now)),
        }
    }

    /// Notes a failure.
    pub fn failed(&self, key: K, now: Instant) {
        let mut failed = self.failed.lock();
        if failed.len() >= KEYS_MAX {
            failed.retain(|_, (first, _)| is_recent(*first, now));
        }
        if failed.len() >= KEYS_MAX && !failed.contains_key(&key) {
            return;
        }
        let (first, count) = failed.entry(key).or_insert((now, 0));
        if !is_recent(*first, now) {
            (*first, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
    }
}

fn is_recent(first: Instant, now: Instant) -> bool {
    now.saturating_duration_since(first) < WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_too_often_waits_for_the_window_to_end() {
        let (attempts, now) = (Attempts::new(3), Instant::now());
        for second in 0..3 {
            assert!(attempts.allows(&1, now));
            attempts.failed(1, now + Duration::from_secs(second));
        }
        assert!(!attempts.allows(&1, now) && attempts.allows(&2, now));
        assert!(!attempts.allows(&1, now + WINDOW - Duration::from_nanos(1)));
        assert!(attempts.allows(&1, now + WINDOW));
        attempts.failed(1, now + WINDOW);
        assert!(attempts.allows(&1, now + WINDOW), "the count began anew");
    }

    #[test]
    fn memory_is_bounded_and_a_flood_of_keys_opens_nothing() {
        let (attempts, now) = (Attempts::new(1), Instant::now());
        for key in 0..=KEYS_MAX {
            attempts.failed(key, now);
        }
        assert_eq!(attempts.failed.lock().len(), KEYS_MAX);
        assert!(!attempts.allows(&(KEYS_MAX + 1), now), "unknown keys may not try while it is full");
        assert!(attempts.allows(&(KEYS_MAX + 1), now + WINDOW));
        attempts.failed(KEYS_MAX + 1, now + WINDOW);
        assert_eq!(attempts.failed.lock().len(), 1);
    }
}
