//! Wall-clock time as a value; reading the clock is the store's business.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The wall clock, as an argument: tests turn it.
pub type Clock = Arc<dyn Fn() -> UnixSeconds + Send + Sync>;

/// Whole seconds since 1970-01-01T00:00:00Z. Displays as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixSeconds(i64);

impl UnixSeconds {
    /// Wraps a number of seconds.
    #[must_use]
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Takes the whole seconds of a number of milliseconds.
    #[must_use]
    pub fn of_milliseconds(milliseconds: u64) -> Self {
        Self(i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX))
    }

    /// Returns the number of seconds.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the time that is so much later, in whole seconds.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_secs()).unwrap_or(i64::MAX)))
    }
}

/// The text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a time is written as 2030-01-31T12:00:00Z or with an offset such as +02:00")]
pub struct BadTime;

impl FromStr for UnixSeconds {
    type Err = BadTime;

    /// Reads RFC 3339, section 5.6; drops a fraction of a second. Leap seconds are not supported.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (date, rest) = text.split_once(['T', 't']).ok_or(BadTime)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let clock_end = rest.find(|character: char| !character.is_ascii_digit() && character != ':');
        let (clock, rest) = rest.split_at_checked(clock_end.ok_or(BadTime)?).ok_or(BadTime)?;
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
        let zone = match rest.strip_prefix('.') {
            None => rest,
            Some(fraction) => {
                let zone = fraction.trim_start_matches(|character: char| character.is_ascii_digit());
                if zone.len() == fraction.len() {
                    return Err(BadTime);
                }
                zone
            }
        };
        let days = days_of(year, month, day);
        if civil_date(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
            return Err(BadTime);
        }
        Ok(Self(days * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset(zone)?))
    }
}

/// Reads the offset from UTC, in seconds.
fn offset(zone: &str) -> Result<i64, BadTime> {
    if zone == "Z" || zone == "z" {
        return Ok(0);
    }
    let (sign, rest) = match (zone.strip_prefix('+'), zone.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (None, Some(rest)) => (-1, rest),
        (None, None) => return Err(BadTime),
    };
    let [hours, minutes] = numbers(rest, ':', [2, 2])?;
    if hours > 23 || minutes > 59 { Err(BadTime) } else { Ok(sign * (hours * 3600 + minutes * 60)) }
}

/// Reads numbers of fixed width with a separator between them.
fn numbers<const COUNT: usize>(text: &str, separator: char, digits: [usize; COUNT]) -> Result<[i64; COUNT], BadTime> {
    let mut parts = text.split(separator);
    let mut numbers = [0; COUNT];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()));
        *number = part.and_then(|part| part.parse().ok()).ok_or(BadTime)?;
    }
    if parts.next().is_some() { Err(BadTime) } else { Ok(numbers) }
}

/// Returns the day, counted from 1970-01-01, of a date in the Gregorian calendar: [`civil_date`] the other way round. A
/// date that does not exist gives the day of another one.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days = year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + days - EPOCH_DAYS
}

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;

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
    fn time_reads_rfc_3339_and_nothing_else() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59z", -1),
            ("2009-02-13t23:31:30Z", 1_234_567_890),
            ("2009-02-14T01:31:30.999+02:00", 1_234_567_890),
            ("2009-02-13T18:01:30-05:30", 1_234_567_890),
            ("2000-02-29T00:00:00Z", 951_782_400),
        ] {
            assert_eq!(text.parse(), Ok(UnixSeconds::new(seconds)), "{text}");
        }
        for text in [
            "",
            "now",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-1-1T00:00:00Z",
            "1970-02-30T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+2",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00ZZ",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:0٣Z",
        ] {
            assert_eq!(text.parse::<UnixSeconds>(), Err(BadTime), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn time_reads_what_it_displays(seconds in -62_135_596_800_i64..253_402_300_800) {
            let time = UnixSeconds::new(seconds);
            proptest::prop_assert_eq!(time.to_string().parse(), Ok(time));
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
