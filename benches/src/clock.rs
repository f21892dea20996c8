//! The wall clock, in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970, for dates in records and for delays between two processes of one machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a duration in whole microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a count as a floating-point number; exact up to 2^53, which is enough for any figure here.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures need three digits, not sixteen")]
pub const fn float(count: u64) -> f64 {
    count as f64
}
