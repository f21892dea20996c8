//! Paces new sessions: after a restart ten thousand agents dial at once, and those that are back already are to be
//! served meanwhile.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Hands out turns at a fixed rate. Pure but for its lock: the caller brings the time and waits.
#[derive(Debug)]
pub struct AdmissionRate {
    /// Time between two turns.
    interval: Duration,
    /// Longest wait for a turn.
    patience: Duration,
    /// Time at which the next turn is free.
    next: Mutex<Option<Instant>>,
}

/// There is no turn within the patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Time until there may be one.
    pub retry_after: Duration,
}

impl AdmissionRate {
    /// Makes a pacer of `per_second` turns a second. A caller that would wait for longer than `patience` is refused.
    #[must_use]
    pub fn new(per_second: u32, patience: Duration) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, patience, next: Mutex::new(None) }
    }

    /// Takes a turn. Returns the time to wait for it: nothing, unless many come at once.
    ///
    /// # Errors
    /// [`Busy`] when that would take too long; no turn was taken.
    pub fn turn(&self, now: Instant) -> Result<Duration, Busy> {
        let mut next = self.next.lock();
        // A pause does not save up turns for a burst of more than a tenth of a second.
        let earliest = now.checked_sub(Duration::from_millis(100)).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        let wait = at.saturating_duration_since(now);
        if wait > self.patience {
            return Err(Busy { retry_after: wait });
        }
        *next = Some(at + self.interval);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_is_spread_at_the_rate_and_those_beyond_the_patience_are_told_when() {
        #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
        let now = Instant::now();
        let pacer = AdmissionRate::new(1_000, Duration::from_secs(8));
        let waits: Vec<_> = (0..10_000).map(|_| pacer.turn(now)).collect();
        assert_eq!(waits.first(), Some(&Ok(Duration::ZERO)));
        let at_once = waits.iter().filter(|wait| **wait == Ok(Duration::ZERO)).count();
        assert!((100..=101).contains(&at_once), "{at_once}");
        let served = waits.iter().filter(|wait| wait.is_ok()).count();
        assert!((8_090..8_110).contains(&served), "{served}");
        assert!(matches!(waits.last(), Some(Err(Busy { retry_after })) if *retry_after > Duration::from_secs(8)));
        assert_eq!(pacer.turn(now + Duration::from_secs(60)), Ok(Duration::ZERO), "it is quiet again");
    }
}
