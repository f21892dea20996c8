//! The system's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use gateway_types::UnixSeconds;

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// The clock of simulated machines, all of which are in one thread.
    static CLOCK: std::cell::Cell<Option<fn() -> u64>> = const { std::cell::Cell::new(None) };
}

/// Puts another clock in the place of the system's, for this thread: milliseconds since 1970.
#[cfg(any(test, feature = "testing"))]
pub fn set_wall_clock(clock: Option<fn() -> u64>) {
    CLOCK.set(clock);
}

/// Reads the system's clock: the only source of the store's and the commands' time.
#[must_use]
pub fn wall_clock() -> UnixSeconds {
    UnixSeconds::new(i64::try_from(wall_clock_ms() / 1000).unwrap_or(i64::MAX))
}

/// Reads the system's clock in milliseconds since 1970, for numbers that have to grow over restarts.
#[must_use]
pub fn wall_clock_ms() -> u64 {
    #[cfg(any(test, feature = "testing"))]
    if let Some(clock) = CLOCK.get() {
        return clock();
    }
    #[expect(clippy::disallowed_methods, reason = "the border where wall-clock time enters")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
