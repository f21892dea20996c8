//! When things are to start: fixed in advance by rate and seed, whatever happens to those before.

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
