//! Lengths of time as people write them: `90s`, `30m`, `2h`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Largest first, so that writing picks the shortest exact form.
const UNITS_SECONDS: [(char, u64); 3] = [('h', 3600), ('m', 60), ('s', 1)];

/// A length of time in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Duration);

impl Length {
    /// Makes one of so many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Reads a whole number with a unit, that lies in a range.
    ///
    /// # Errors
    /// Words for people: what would be accepted.
    pub fn parse_within(text: &str, range: &RangeInclusive<Self>) -> Result<Self, String> {
        let length = Self::parse(text).ok_or_else(|| "not a whole number with a unit: 90s, 30m, 2h".to_owned())?;
        if range.contains(&length) {
            Ok(length)
        } else {
            Err(format!("must be from {} to {}", range.start(), range.end()))
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let (_, seconds) = UNITS_SECONDS.iter().find(|(name, _)| unit.chars().eq([*name]))?;
        number.parse::<u64>().ok()?.checked_mul(*seconds).map(Self::seconds)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.as_secs();
        let exact = UNITS_SECONDS.iter().find(|(_, seconds)| whole >= *seconds && whole.is_multiple_of(*seconds));
        match exact {
            Some((name, seconds)) => write!(formatter, "{}{name}", whole / seconds),
            None => write!(formatter, "{whole}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_written_and_bounded() {
        let range = Length::seconds(1)..=Length::seconds(86_400);
        for (text, seconds, written) in
            [("1s", 1, "1s"), ("90s", 90, "90s"), ("120s", 120, "2m"), ("30m", 1800, "30m"), ("24h", 86_400, "24h")]
        {
            let length = Length::parse_within(text, &range).expect(text);
            assert_eq!((length, length.to_string().as_str()), (Length::seconds(seconds), written), "{text}");
        }
        for text in
            ["", "30", "m", "1.5h", "30 m", "-1s", "1d", "30mm", "99999999999999999999h", "18446744073709551615h"]
        {
            let told = Length::parse_within(text, &range).expect_err(text);
            assert!(told.contains("90s, 30m, 2h"), "{text}: {told}");
        }
        for text in ["0s", "25h"] {
            assert_eq!(Length::parse_within(text, &range), Err("must be from 1s to 24h".to_owned()), "{text}");
        }
    }
}
