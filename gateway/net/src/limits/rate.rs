//! Rate limiter with a burst, in one atomic word: the generic cell rate algorithm.
//!
//! The word is the time by which everything taken would have been refilled at the rate. The further it lies ahead, the
//! more of the burst is used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rate: a number in a span of time, and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Time between two, in nanoseconds.
    interval: u64,
    /// Time that the burst reaches ahead, in nanoseconds.
    ahead: u64,
}

impl RateLimit {
    /// Creates a rate of `count` in each `span`, `burst` of them at once.
    #[must_use]
    pub fn new(count: u32, span: Duration, burst: u32) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let interval = (span / u64::from(count.max(1))).max(1);
        Self { interval, ahead: interval.saturating_mul(u64::from(burst.max(1)) - 1) }
    }

    /// Returns interval and reach of the burst, in nanoseconds.
    pub(super) fn parts(self) -> (u64, u64) {
        (self.interval, self.ahead)
    }

    pub(super) fn of_parts(interval: u64, ahead: u64) -> Self {
        Self { interval, ahead }
    }
}

/// State of one limiter. The caller brings its [`RateLimit`].
///
/// # Units
/// Nanoseconds since a start that all callers share.
#[derive(Debug, Default)]
pub struct Meter {
    due: AtomicU64,
}

impl Meter {
    /// Takes one, now or within `patience`. Returns the time to wait.
    ///
    /// # Errors
    /// The time to wait, if longer than `patience`; nothing was taken.
    pub fn take(&self, pace: RateLimit, now: u64, patience: u64) -> Result<u64, u64> {
        let wait = |due: u64| due.saturating_sub(now).saturating_sub(pace.ahead);
        let next = |due: u64| (wait(due) <= patience).then(|| due.max(now).saturating_add(pace.interval));
        // Relaxed is enough: the word guards nothing but itself.
        match self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(due) => Ok(wait(due)),
            Err(due) => Err(wait(due)),
        }
    }

    /// Returns whether nothing could be taken now.
    #[must_use]
    pub fn is_over(&self, pace: RateLimit, now: u64) -> bool {
        self.due.load(Ordering::Relaxed).saturating_sub(now) > pace.ahead
    }

    /// Returns whether everything taken is refilled, so that dropping the meter loses nothing.
    #[must_use]
    pub fn is_idle(&self, now: u64) -> bool {
        self.due.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn burst_comes_at_once_and_the_rest_at_the_rate() {
        let (meter, pace) = (Meter::default(), RateLimit::new(10, Duration::from_secs(1), 5));
        for _ in 0..5 {
            assert_eq!(meter.take(pace, SECOND, 0), Ok(0));
        }
        assert!(meter.is_over(pace, SECOND));
        assert_eq!(meter.take(pace, SECOND, 0), Err(SECOND / 10));
        assert_eq!(meter.take(pace, SECOND, SECOND / 10), Ok(SECOND / 10), "a waiter gets a turn");
        assert_eq!(meter.take(pace, SECOND + SECOND / 5, 0), Ok(0));
        assert!(!meter.is_idle(SECOND + SECOND / 2) && meter.is_idle(2 * SECOND));
    }

    proptest! {
        #[test]
        fn no_more_is_taken_than_the_burst_and_the_rate_and_who_keeps_to_the_rate_is_never_refused(
            count in 1..1000_u32, burst in 1..50_u32, pauses in prop::collection::vec(0..30_000_000_u64, 1..400)
        ) {
            let pace = RateLimit::new(count, Duration::from_secs(1), burst);
            let (meter, calm) = (Meter::default(), Meter::default());
            let (mut now, mut taken, mut calm_at) = (0, 0, 0);
            for pause in pauses {
                now += pause;
                taken += u64::from(meter.take(pace, now, 0).is_ok());
                prop_assert!(taken <= u64::from(burst) + now / pace.interval + 1);
                calm_at += pace.interval + pause;
                prop_assert_eq!(calm.take(pace, calm_at, 0), Ok(0));
            }
            prop_assert!(meter.is_idle(now + pace.interval * (taken + 1)));
        }
    }
}
