//! Dates of certificates as seconds.

use crate::model::UnixSeconds;

/// Days of the months of a common year that come before each month, of which the first is March: the leap day is then the
/// last of its year.
const DAYS_BEFORE: [i64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Returns the time of a date and a time of day in UTC (Gregorian calendar). `None` for what no calendar has.
pub(super) fn seconds([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<UnixSeconds> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    };
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    if !is_time || !(0..=9999).contains(&year) || !(1..=days_of_month).contains(&day) {
        return None;
    }
    // The year and the month, counted from March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let before = usize::try_from(month).ok().and_then(|month| DAYS_BEFORE.get(month))?;
    let days = 365 * year + leap_days + before + day - 1 - EPOCH_DAYS;
    Some(UnixSeconds::new(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dates_are_those_that_times_display(
            year in 0_i64..=9999, month in 1_i64..=12, day in 1_i64..=31,
            hour in 0_i64..24, minute in 0_i64..60, second in 0_i64..60,
        ) {
            let written = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
            match seconds([year, month, day], [hour, minute, second]) {
                Some(time) => prop_assert_eq!(time.to_string(), written),
                None => prop_assert!(day > 28, "{}", written),
            }
        }
    }

    #[test]
    fn dates_of_no_calendar_are_refused() {
        assert_eq!(seconds([1970, 1, 1], [0, 0, 0]), Some(UnixSeconds::new(0)));
        assert!(seconds([2024, 2, 29], [0, 0, 0]).is_some() && seconds([2000, 2, 29], [0, 0, 0]).is_some());
        for (date, time) in [
            ([2023, 2, 29], [0, 0, 0]),
            ([2100, 2, 29], [0, 0, 0]),
            ([2024, 4, 31], [0, 0, 0]),
            ([2024, 13, 1], [0, 0, 0]),
            ([2024, 0, 1], [0, 0, 0]),
            ([2024, 1, 0], [0, 0, 0]),
            ([2024, 1, 1], [24, 0, 0]),
            ([2024, 1, 1], [0, 60, 0]),
            ([2024, 1, 1], [0, 0, 60]),
            ([10_000, 1, 1], [0, 0, 0]),
        ] {
            assert_eq!(seconds(date, time), None, "{date:?} {time:?}");
        }
    }
}
