//! The wall clock, in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_types::UnixSeconds;

/// Returns the time since 1970, for dates in records and for delays between two processes of one machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the day of a time since 1970, in UTC: `2026-01-31`.
#[must_use]
pub fn day(since_1970: Duration) -> String {
    let text = rfc_3339(since_1970);
    text.split_once('T').map_or_else(String::new, |(day, _)| day.to_owned())
}

/// Returns the minute of a time since 1970: `2026-01-31 12:00 UTC`.
#[must_use]
pub fn minute(since_1970: Duration) -> String {
    let text = rfc_3339(since_1970);
    text.rsplit_once(':').map_or_else(String::new, |(minute, _)| format!("{} UTC", minute.replace('T', " ")))
}

fn rfc_3339(since_1970: Duration) -> String {
    UnixSeconds::new(i64::try_from(since_1970.as_secs()).unwrap_or_default()).to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_that_of_the_calendar() {
        for (seconds, date, time) in [
            (0, "1970-01-01", "1970-01-01 00:00 UTC"),
            (951_868_799, "2000-02-29", "2000-02-29 23:59 UTC"),
            (1_735_689_599, "2024-12-31", "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01", "2100-03-01 00:00 UTC"),
        ] {
            let since_1970 = Duration::from_secs(seconds);
            assert_eq!((day(since_1970).as_str(), minute(since_1970).as_str()), (date, time));
        }
    }
}
