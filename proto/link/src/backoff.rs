//! Back-off for everything that redials: exponential with full jitter, pure. Success has to be earned.

use std::time::Duration;

/// Bounds of the wait between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Ceiling of the first wait.
    pub first: Duration,
    /// Ceiling of every wait.
    pub max: Duration,
    /// Shortest time that a link has to hold before failures are forgotten.
    pub healthy_after: Duration,
    /// Ceiling of every wait while the gateway cannot be reached, so that agents are back seconds after it; and while a
    /// session waits for a link, because some attempts have to fit into its grace.
    pub absence_max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            max: Duration::from_secs(30),
            healthy_after: Duration::from_secs(30),
            absence_max: Duration::from_secs(4),
        }
    }
}

impl Backoff {
    /// Returns the wait after so many failures in a row. `roll` is uniform in `0.0..1.0` and spreads a herd over the
    /// whole interval (full jitter).
    #[must_use]
    pub fn delay(&self, failures: u32, roll: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let ceiling = self.first.saturating_mul(1 << doublings).min(self.max);
        ceiling.mul_f64(roll.clamp(0.0, 1.0))
    }

    /// Returns the bounds during an absence. Ceilings are lowered and waits not cut: cut waits would be the same for
    /// all agents, and a herd would come in step.
    #[must_use]
    pub fn in_absence(&self) -> Self {
        Self { max: self.max.min(self.absence_max), ..*self }
    }

    /// Returns the failures to count from after a link that held for `up`.
    #[must_use]
    pub fn failures_after(&self, failures: u32, up: Duration) -> u32 {
        if up >= self.healthy_after { 0 } else { failures }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delay_stays_within_its_bounds(failures in any::<u32>(), roll in 0.0..1.0_f64) {
            let backoff = Backoff::default();
            prop_assert!(backoff.delay(failures, roll) <= backoff.max);
        }
    }

    #[test]
    fn ten_thousand_agents_spread_over_the_whole_interval() {
        let backoff = Backoff::default();
        let spread: Vec<_> = (0..10_000_u32).map(|agent| backoff.delay(7, f64::from(agent) / 10_000.0)).collect();
        let in_first_second = spread.iter().filter(|delay| **delay < Duration::from_secs(1)).count();
        assert!(in_first_second < 400, "{in_first_second} redial within a second");
        // And as many in each tenth of the interval: waiting long together would only move the storm.
        let tenth = backoff.delay(7, 0.1);
        for part in 0..10_u32 {
            let within = spread.iter().filter(|delay| (tenth * part..tenth * (part + 1)).contains(*delay)).count();
            assert!((990..=1010).contains(&within), "{within} redial in tenth {part}");
        }
    }

    #[test]
    fn lower_ceiling_in_an_absence_spreads_a_herd_over_all_of_it() {
        let backoff = Backoff::default().in_absence();
        assert_eq!(backoff.delay(20, 1.0), Backoff::default().absence_max);
        assert_eq!(backoff.delay(20, 0.25), Backoff::default().absence_max / 4);
        assert_eq!(backoff.delay(1, 1.0), Backoff::default().first, "it begins as low");
    }

    #[test]
    fn failures_are_forgotten_only_after_a_healthy_while() {
        let backoff = Backoff::default();
        assert_eq!(backoff.failures_after(5, Duration::from_secs(1)), 5);
        assert_eq!(backoff.failures_after(5, Duration::from_secs(30)), 0);
    }
}
