//! Counts how many of something there are at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of taken permits.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU32);

/// A taken permit, until it is dropped.
#[derive(Debug)]
pub struct CountPermit(Arc<Gauge>);

impl Gauge {
    /// Takes a permit if fewer than `max` are taken.
    #[must_use]
    pub fn take(self: &Arc<Self>, max: u32) -> Option<CountPermit> {
        let more = |taken: u32| (taken < max).then_some(taken.saturating_add(1));
        // Relaxed is enough: the number guards nothing but itself.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(CountPermit(self.clone()))
    }

    /// Returns how many permits are taken.
    #[must_use]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for CountPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permit_that_is_given_back_can_be_taken_again() {
        let count = Arc::new(Gauge::default());
        let (first, second) = (count.take(2), count.take(2));
        assert!(first.is_some() && second.is_some() && count.take(2).is_none());
        drop(first);
        assert_eq!(count.get(), 1);
        assert!(count.take(2).is_some());
    }
}
