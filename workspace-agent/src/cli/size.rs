//! Sizes as people write them, and as the gateway's configuration has them: `64 KiB`, `8MiB`, `1 GiB`.

use std::fmt;
use std::ops::RangeInclusive;

/// Largest first, so that writing picks the shortest exact form.
const UNITS_BYTES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Reads a whole number of bytes, or one with a unit, that lies in a range.
    ///
    /// # Errors
    /// Words for people: what would be accepted.
    pub fn parse_within(text: &str, range: &RangeInclusive<Self>) -> Result<Self, String> {
        let size = Self::parse(text)
            .ok_or_else(|| "not a whole number of bytes, or one with a unit: 64 KiB, 8MiB, 1 GiB".to_owned())?;
        if range.contains(&size) { Ok(size) } else { Err(format!("must be from {} to {}", range.start(), range.end())) }
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let unit = unit.trim_start_matches(' ');
        let (_, bytes) = UNITS_BYTES.iter().find(|(name, _)| *name == if unit.is_empty() { "B" } else { unit })?;
        number.parse::<u64>().ok()?.checked_mul(*bytes).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS_BYTES.iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        match exact {
            Some((name, bytes)) => write!(formatter, "{}{name}", self.0 / bytes),
            None => self.0.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: RangeInclusive<Size> = Size(1 << 20)..=Size(1 << 40);

    #[test]
    fn sizes_are_read_with_binary_units_and_written_shortest() {
        for (text, bytes, written) in
            [("1048576", 1 << 20, "1MiB"), ("8MiB", 8 << 20, "8MiB"), ("1 GiB", 1 << 30, "1GiB")]
        {
            assert_eq!(Size::parse_within(text, &RANGE), Ok(Size(bytes)), "{text:?}");
            assert_eq!(Size(bytes).to_string(), written);
        }
        assert_eq!((Size(0).to_string(), Size(1_025).to_string()), ("0".into(), "1025B".into()));
    }

    #[test]
    fn what_is_no_size_or_outside_the_range_is_refused_in_words() {
        for text in ["", "MiB", "8 MB", "8m", "-1", "1.5 MiB", "17179869184 GiB", "8 MiB ", " 8MiB", "٣"] {
            let wrong = Size::parse_within(text, &RANGE).expect_err(text);
            assert!(wrong.contains("whole number"), "{text:?}: {wrong}");
        }
        for text in ["0", "1023 KiB", "1025 GiB"] {
            let wrong = Size::parse_within(text, &RANGE);
            assert_eq!(wrong, Err("must be from 1MiB to 1024GiB".to_owned()), "{text:?}");
        }
    }
}
