//! Schedule of arrivals: fixed in advance by rate and seed, whatever happens to those before.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::load::Arrivals;

/// The arrivals of one worker: offsets from the start, rising, without end.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    mean_gap_s: f64,
    next_s: f64,
    random: SmallRng,
}

impl Schedule {
    /// Makes the schedule of worker `index` of `workers`, which share `rate` (per second).
    ///
    /// Uniform arrivals of the workers interleave to equal gaps; Poisson ones add up to a Poisson process of the whole rate.
    #[must_use]
    pub fn new(arrivals: Arrivals, rate: f64, seed: u64, index: usize, workers: usize) -> Self {
        let workers = workers.max(1);
        let share = rate / to_float(workers);
        let mean_gap_s = if share > 0.0 { 1.0 / share } else { f64::INFINITY };
        let mut random = SmallRng::seed_from_u64(seed ^ mix(index as u64 + 1));
        let next_s = match arrivals {
            Arrivals::Uniform => mean_gap_s * to_float(index) / to_float(workers),
            Arrivals::Poisson => exponential(&mut random, mean_gap_s),
        };
        Self { arrivals, mean_gap_s, next_s, random }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let at = Duration::try_from_secs_f64(self.next_s).ok()?;
        self.next_s += match self.arrivals {
            Arrivals::Uniform => self.mean_gap_s,
            Arrivals::Poisson => exponential(&mut self.random, self.mean_gap_s),
        };
        Some(at)
    }
}

/// Draws a gap of an exponential distribution.
fn exponential(random: &mut SmallRng, mean: f64) -> f64 {
    // 1 − u is in (0, 1], so the logarithm is finite.
    -(1.0 - random.random::<f64>()).ln() * mean
}

#[expect(clippy::cast_precision_loss, reason = "numbers of workers are small")]
const fn to_float(number: usize) -> f64 {
    number as f64
}

/// Spreads the bits of a small number, so that neighbouring seeds and workers do not resemble each other.
const fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Arrivals of all workers before `seconds`, in order.
    fn all(arrivals: Arrivals, rate: f64, seed: u64, workers: usize, seconds: f64) -> Vec<f64> {
        let mut all: Vec<f64> = (0..workers)
            .flat_map(|index| {
                let schedule = Schedule::new(arrivals, rate, seed, index, workers);
                schedule.map(|at| at.as_secs_f64()).take_while(move |at| *at < seconds)
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    proptest! {
        #[test]
        fn arrivals_rise_and_depend_on_seed_and_worker_alone(seed: u64, rate in 0.1_f64..1e5, index in 0_usize..8) {
            for arrivals in [Arrivals::Poisson, Arrivals::Uniform] {
                let once: Vec<_> = Schedule::new(arrivals, rate, seed, index, 8).take(100).collect();
                let again: Vec<_> = Schedule::new(arrivals, rate, seed, index, 8).take(100).collect();
                prop_assert!(once.is_sorted());
                prop_assert_eq!(once, again);
            }
        }

        #[test]
        fn uniform_arrivals_of_all_workers_have_equal_gaps(rate in 1.0_f64..1000.0, workers in 1_usize..9) {
            let all = all(Arrivals::Uniform, rate, 7, workers, 10.0);
            for pair in all.windows(2) {
                prop_assert!((pair[1] - pair[0] - 1.0 / rate).abs() < 1e-6, "{pair:?}");
            }
            prop_assert!((all.len() as f64 - 10.0 * rate).abs() <= 1.0 + 10.0 * rate * 1e-9);
        }

        #[test]
        fn poisson_arrivals_of_all_workers_have_the_rate_and_the_spread(seed: u64, workers in 1_usize..9) {
            // 20,000 expected; the standard deviation of a Poisson number is its root, 141.
            let all = all(Arrivals::Poisson, 2000.0, seed, workers, 10.0);
            prop_assert!((all.len() as f64 - 20_000.0).abs() < 6.0 * 141.4, "{}", all.len());
            // Gaps of independent arrivals are exponential: their standard deviation is their mean.
            let gaps: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            prop_assert!((variance.sqrt() / mean - 1.0).abs() < 0.1, "{}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn workers_and_seeds_do_not_resemble_each_other() {
        let first = |seed, index| Schedule::new(Arrivals::Poisson, 100.0, seed, index, 4).take(50).collect::<Vec<_>>();
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(1, 2), first(2, 1));
    }

    #[test]
    fn rate_of_nothing_has_no_arrivals() {
        assert_eq!(Schedule::new(Arrivals::Uniform, 0.0, 1, 1, 2).next(), None);
    }
}
