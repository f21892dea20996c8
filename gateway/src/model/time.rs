//! Wall-clock time as a value; where it comes from is the store's business.

use std::fmt;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Whole seconds since 1970-01-01T00:00:00Z. Displays as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixSeconds(i64);

impl UnixSeconds {
    /// Wraps a number of seconds.
    #[must_use]
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the number of seconds.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_date(self.0.div_euclid(DAY_SECONDS));
        let second = self.0.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Returns year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year; 400 such years always have 146097 days.
fn civil_date(day: i64) -> (i64, i64, i64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: i64 = 719_468;
    const ERA_DAYS: i64 = 146_097;
    let day = day + EPOCH_DAYS;
    let (era, day) = (day.div_euclid(ERA_DAYS), day.rem_euclid(ERA_DAYS));
    // Takes the leap days out: one each 1460 days, but none each 36524, but one at the era's end.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, months repeat 31, 30, 31, 30, 31: 153 days in five months.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_displays_as_rfc_3339() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(UnixSeconds::new(seconds).to_string(), shown);
        }
    }

    #[test]
    fn days_follow_each_other_for_four_centuries() {
        let mut before = civil_date(-1);
        for day in 0..146_097 {
            let date = civil_date(day);
            let next_day = date.2 == before.2 + 1 && (date.0, date.1) == (before.0, before.1);
            let next_month = date.2 == 1 && before.2 >= 28 && (date.1 == before.1 + 1 || date.1 == 1);
            assert!(next_day || next_month, "{before:?} {date:?}");
            before = date;
        }
        assert_eq!(before, (2369, 12, 31));
    }
}
