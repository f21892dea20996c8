//! Back-off of a key that fails. Pure.

use std::time::Duration;

/// Doublings beyond which no ceiling changes any more, and the factor still fits.
const DOUBLINGS_MAX: u32 = 20;

/// Bounds of the delays between tries of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// Ceiling of the first delay.
    pub first: Duration,
    /// Ceiling of every delay.
    pub max: Duration,
}

impl RetryDelays {
    /// Returns the delay after so many failures in a row: its ceiling doubles with each of them. `roll`, in `0.0..=1.0`,
    /// is the part of the ceiling to wait for: uniform over all of that it is full jitter, and 1.0 is none.
    #[must_use]
    pub fn after(&self, failures: u32, roll: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let ceiling = self.first.saturating_mul(1 << doublings).min(self.max);
        ceiling.mul_f64(roll.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELAYS: RetryDelays = RetryDelays { first: Duration::from_secs(1), max: Duration::from_secs(30) };

    #[test]
    fn ceiling_doubles_up_to_the_longest() {
        let delays: Vec<u64> = (0..8).map(|failures| DELAYS.after(failures, 1.0).as_secs()).collect();
        assert_eq!(delays, [1, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(DELAYS.after(3, 0.25), Duration::from_secs(1), "a part of it");
    }

    proptest! {
        #[test]
        fn delay_stays_within_its_bounds(failures in any::<u32>(), roll in -1.0..2.0_f64) {
            prop_assert!(DELAYS.after(failures, roll) <= DELAYS.max);
        }
    }
}
