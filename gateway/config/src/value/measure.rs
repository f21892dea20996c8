//! Numbers with units: durations, sizes, counts.

use std::time::Duration;

use super::ValueKind;

/// Longest duration that is accepted. Every deadline computed from it stays far inside the clock's range.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Largest first, so that writing picks the shortest exact form.
const DURATION_UNITS_MILLIS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// Largest first, as above.
const SIZE_UNITS_BYTES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

pub(crate) const DURATION: ValueKind<Duration> =
    ValueKind::new("a whole number with a unit: `500ms`, `10s`, `5m`, `1h`, `1d`", parse_duration, |duration| {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        show_with_unit(millis, &DURATION_UNITS_MILLIS, "")
    });

pub(crate) const SIZE: ValueKind<u64> =
    ValueKind::new("a whole number of bytes, or with a unit: `64 KiB`, `8MiB`, `1 GiB`", parse_size, |bytes| {
        show_with_unit(*bytes, &SIZE_UNITS_BYTES, " ")
    });

pub(crate) const COUNT: ValueKind<usize> = ValueKind::new("a whole number", parse_count, ToString::to_string);

pub(crate) const COUNT_32: ValueKind<u32> = ValueKind::new("a whole number", parse_count, ToString::to_string);

/// Splits `64 KiB` into `64` and `KiB`.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (digits, rest.trim_start_matches(' '))
}

fn parse_digits(digits: &str) -> Result<u64, String> {
    if digits.is_empty() {
        return Err("does not begin with a number".to_owned());
    }
    digits.parse().map_err(|_| "the number is too large".to_owned())
}

/// Reads a duration as the configuration does: `500ms`, `10s`, `5m`, `1h`, `1d`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = split_unit(text);
    let number = parse_digits(digits)?;
    if unit.is_empty() {
        return Err("the unit is missing".to_owned());
    }
    let (_, millis) =
        DURATION_UNITS_MILLIS.iter().find(|(name, _)| *name == unit).ok_or_else(|| "the unit is unknown".to_owned())?;
    let millis = number.checked_mul(*millis).ok_or_else(|| "the number is too large".to_owned())?;
    match Duration::from_millis(millis) {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration if duration > DURATION_MAX => Err("must be at most 365d".to_owned()),
        duration => Ok(duration),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_unit(text);
    let number = parse_digits(digits)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, bytes) =
        SIZE_UNITS_BYTES.iter().find(|(name, _)| *name == unit).ok_or_else(|| "the unit is unknown".to_owned())?;
    number.checked_mul(*bytes).ok_or_else(|| "the number is too large".to_owned())
}

/// Reads digits only: `+5`, ` 5` and `5_000` are more likely slips than intent.
fn parse_count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a whole number".to_owned());
    }
    text.parse().map_err(|_| "the number is too large".to_owned())
}

/// Writes a number with the largest unit that divides it.
fn show_with_unit(number: u64, units: &[(&str, u64)], space: &str) -> String {
    let exact = units.iter().find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor));
    match exact {
        Some((name, factor)) => format!("{}{space}{name}", number / factor),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duration_needs_a_number_a_unit_and_a_value_above_zero() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("1 d", 86_400_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
        for text in ["", "s", "10", "0s", "-1s", "1.5s", "10 sec", "10S", "366d", "99999999999999999999s", " 1s", "1s "]
        {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn size_is_in_bytes_or_binary_units() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("17 B", 17), ("64 KiB", 65_536), ("8MiB", 8 << 20), ("1 GiB", 1 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text:?}");
        }
        for text in ["", "KiB", "64 KB", "64k", "-1", "1.5 MiB", "17179869184 GiB", "64 KiB ", "٣"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn count_is_digits_only() {
        assert_eq!(parse_count("100"), Ok(100_u32));
        for text in ["", "+5", "-5", " 5", "5_000", "1e3", "4294967296"] {
            assert!(parse_count::<u32>(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn size_survives_writing_and_reading(bytes: u64) {
            prop_assert_eq!((SIZE.parse)(&(SIZE.show)(&bytes)), Ok(bytes));
        }

        #[test]
        fn duration_survives_writing_and_reading(millis in 1..=365 * 24 * 60 * 60 * 1000_u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!((DURATION.parse)(&(DURATION.show)(&duration)), Ok(duration));
        }

        #[test]
        fn any_text_gives_a_value_within_bounds_or_words(text: String) {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert!(duration > Duration::ZERO && duration <= DURATION_MAX);
            }
            prop_assert!(parse_size(&text).map_or_else(|wrong| !wrong.is_empty(), |_| true));
            prop_assert!(parse_count::<u32>(&text).map_or_else(|wrong| !wrong.is_empty(), |_| true));
        }

        #[test]
        fn number_and_unit_never_overflow(number: u64, unit in "(ms|s|m|h|d|B|KiB|MiB|GiB)") {
            let text = format!("{number}{unit}");
            let factor = SIZE_UNITS_BYTES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
            prop_assert_eq!(parse_size(&text).ok(), factor.and_then(|factor| number.checked_mul(factor)));
            if let Ok(duration) = parse_duration(&text) {
                prop_assert!(duration <= DURATION_MAX);
            }
        }
    }
}
