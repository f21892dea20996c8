//! Numbers with units, in their usual notation: `30s`, `10KiB`, `max`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Failure to read a number with a unit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {what}")]
pub struct UnitError {
    text: String,
    what: &'static str,
}

/// Splits a text into its number and its unit and scales by the unit's factor.
fn scaled(text: &str, units: &[(&str, f64)], what: &'static str) -> Result<f64, UnitError> {
    let wrong = || UnitError { text: text.to_owned(), what };
    let end = text.find(|character: char| !(character.is_ascii_digit() || character == '.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end).ok_or_else(wrong)?;
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let unit = unit.trim_start_matches(' ');
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    let value = number * factor;
    if value.is_finite() && value <= 9e15 { Ok(value) } else { Err(wrong()) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`scaled` gives 0 to 9e15")]
const fn whole(value: f64) -> u64 {
    value as u64
}

/// Reads a duration: `500us`, `30ms`, `1.5s`, `2m`, `1h`.
///
/// # Errors
/// No number, no unit, or one that is not known.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    const WHAT: &str = "a duration such as 500us, 20ms, 30s, 5m or 1h";
    let value = scaled(text, &UNITS, WHAT)?;
    Duration::try_from_secs_f64(value).map_err(|_| UnitError { text: text.to_owned(), what: WHAT })
}

/// Reads a size in bytes: `128`, `10KiB`, `1.5MiB`, `2GiB`, also `10k`, `1MB`.
///
/// # Errors
/// No number, or a unit that is not known.
pub fn size(text: &str) -> Result<u64, UnitError> {
    const UNITS: [(&str, f64); 10] = [
        ("", 1.0),
        ("b", 1.0),
        ("k", 1024.0),
        ("kib", 1024.0),
        ("kb", 1e3),
        ("mib", 1_048_576.0),
        ("mb", 1e6),
        ("gib", 1_073_741_824.0),
        ("gb", 1e9),
        ("m", 1_048_576.0),
    ];
    scaled(text, &UNITS, "a size such as 128, 10KiB, 16MiB or 1GiB").map(whole)
}

/// Reads a part of a whole: `0.01`, `1%`.
///
/// # Errors
/// Not between 0 and 1 (or 0 % and 100 %).
pub fn part(text: &str) -> Result<f64, UnitError> {
    const WHAT: &str = "a part such as 0.01 or 1%";
    let value = scaled(text, &[("", 1.0), ("%", 0.01)], WHAT)?;
    if value <= 1.0 { Ok(value) } else { Err(UnitError { text: text.to_owned(), what: WHAT }) }
}

/// Arrivals per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalRate {
    /// Closed loop: the next one starts when the last one ended.
    Max,
    /// Open loop: this many a second, whatever happens to those before.
    PerSecond(f64),
}

impl ArrivalRate {
    /// Returns arrivals per second, none in a closed loop.
    #[must_use]
    pub const fn per_second(self) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::PerSecond(rate) => Some(rate),
        }
    }
}

impl FromStr for ArrivalRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "a rate per second such as 500, 0.2, 20k or max";
        if text == "max" {
            return Ok(Self::Max);
        }
        let value = scaled(text, &[("", 1.0), ("/s", 1.0), ("k", 1e3), ("k/s", 1e3)], WHAT)?;
        if value > 0.0 && value <= 1e7 {
            Ok(Self::PerSecond(value))
        } else {
            Err(UnitError { text: text.to_owned(), what: WHAT })
        }
    }
}

impl fmt::Display for ArrivalRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => formatter.write_str("max (closed loop)"),
            Self::PerSecond(rate) => write!(formatter, "{rate}/s"),
        }
    }
}

/// Writes microseconds with the unit that suits: `85 µs`, `1.24 ms`, `2.10 s`.
#[must_use]
pub fn show_micros(micros: f64) -> String {
    if micros < 1e3 {
        format!("{micros:.0} µs")
    } else if micros < 1e6 {
        format!("{:.*} ms", digits(micros / 1e3), micros / 1e3)
    } else {
        format!("{:.*} s", digits(micros / 1e6), micros / 1e6)
    }
}

/// Writes bytes with the unit that suits: `812 B`, `1.24 MiB`.
#[must_use]
pub fn show_bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{value:.0} B") } else { format!("{value:.*} {unit}", digits(value)) };
        }
        value /= 1024.0;
    }
    format!("{value:.*} GiB", digits(value))
}

/// Writes a number of events: `812`, `12.4 k`, `1.24 M`.
#[must_use]
pub fn show_count(count: f64) -> String {
    if count < 10.0 && count.fract() != 0.0 {
        format!("{count:.2}")
    } else if count < 1e4 {
        format!("{count:.0}")
    } else if count < 1e6 {
        format!("{:.*} k", digits(count / 1e3), count / 1e3)
    } else {
        format!("{:.*} M", digits(count / 1e6), count / 1e6)
    }
}

/// Returns how many decimals leave three digits.
fn digits(value: f64) -> usize {
    if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    }
}

/// Durations as seconds in JSON.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes seconds.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(value.as_secs_f64())
    }

    /// Reads seconds.
    ///
    /// # Errors
    /// Negative, not finite, or the deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Durations that may be absent, as seconds in JSON.
pub mod seconds_option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes seconds or null.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.as_secs_f64()).serialize(to)
    }

    /// Reads seconds or null.
    ///
    /// # Errors
    /// Negative, not finite, or the deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        seconds.map(|value| Duration::try_from_secs_f64(value).map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(size("128"), Ok(128));
        assert_eq!(size("10KiB"), Ok(10_240));
        assert_eq!(size("1.5 MiB"), Ok(1_572_864));
        assert_eq!(part("1%"), Ok(0.01));
        assert_eq!("max".parse(), Ok(ArrivalRate::Max));
        assert_eq!("20k".parse(), Ok(ArrivalRate::PerSecond(20_000.0)));
    }

    #[test]
    fn what_is_no_number_with_a_unit_is_refused_with_an_example() {
        for text in ["", "s", "30", "-1s", "1,5s", "30 parsecs", "1e3s", "99999999999999999999h", "٣s"] {
            let error = duration(text).unwrap_err().to_string();
            assert!(error.contains("30s"), "{error}");
        }
        for text in ["", "KiB", "-1", "10 stone", "1..5"] {
            assert!(size(text).is_err(), "{text:?}");
        }
        for text in ["0", "-5", "inf", "nan", "maximum", "1e9", "10000001"] {
            assert!(text.parse::<ArrivalRate>().is_err(), "{text:?}");
        }
        for text in ["1.01", "101%", "-1%"] {
            assert!(part(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn figures_have_three_digits_and_a_fitting_unit() {
        assert_eq!(show_micros(85.2), "85 µs");
        assert_eq!(show_micros(1_240.0), "1.24 ms");
        assert_eq!(show_micros(999_960.0), "1000 ms");
        assert_eq!(show_micros(2_100_000.0), "2.10 s");
        assert_eq!(show_bytes(812.0), "812 B");
        assert_eq!(show_bytes(1.5 * 1024.0 * 1024.0), "1.50 MiB");
        assert_eq!(show_bytes(3.0 * 1024.0 * 1024.0 * 1024.0), "3.00 GiB");
        assert_eq!(show_count(0.5), "0.50");
        assert_eq!(show_count(9_999.0), "9999");
        assert_eq!(show_count(57_633.0), "57.6 k");
    }
}
