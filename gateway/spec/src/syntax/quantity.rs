//! Amounts of memory and processor time (Kubernetes documentation, API reference, "Quantity").

use std::str::FromStr;

use thiserror::Error;

/// One, in billionths.
const ONE: u128 = 1_000_000_000;

/// The largest amount that Kubernetes can hold: 63 bits.
const MOST: u128 = (u64::MAX >> 1) as u128 * ONE;

/// Longest amount that is read, in characters; each has a shorter spelling.
const CHARS_MAX: usize = 64;

/// An amount, exact to a billionth; a finer rest counts as one more billionth, as Kubernetes rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(u128);

/// Reason why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadQuantity {
    /// It does not have the form.
    #[error("is not a Kubernetes quantity such as 500m, 2, 512Mi or 1.5Gi")]
    Form,
    /// It is below zero.
    #[error("must not be negative")]
    Negative,
    /// It is more than Kubernetes can hold.
    #[error("is too large")]
    TooLarge,
}

impl Quantity {
    /// Returns two amounts together.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// One processor, or one byte.
    pub const ONE: Self = Self(ONE);

    /// Returns it in thousandths, a finer rest as one more; at most `u64::MAX`.
    #[must_use]
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.div_ceil(ONE / 1000)).unwrap_or(u64::MAX)
    }

    /// Returns it as a whole number, a rest as one more; at most `u64::MAX`.
    #[must_use]
    pub fn whole(self) -> u64 {
        u64::try_from(self.0.div_ceil(ONE)).unwrap_or(u64::MAX)
    }

    /// Returns whether there is nothing after the point.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.0.is_multiple_of(ONE)
    }
}

impl FromStr for Quantity {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > CHARS_MAX {
            return Err(BadQuantity::Form);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
        let (number, unit) = unsigned.split_at_checked(end).ok_or(BadQuantity::Form)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(BadQuantity::Form);
        }
        let (bits, tens) = unit_of(unit).ok_or(BadQuantity::Form)?;
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self(0));
        }
        if negative {
            return Err(BadQuantity::Negative);
        }
        // Billionths are nine places after the point.
        let places = i32::try_from(fraction.len()).map_err(|_| BadQuantity::Form)?;
        let mantissa: u128 = digits.parse().map_err(|_| BadQuantity::TooLarge)?;
        let shifted = mantissa.checked_mul(1 << bits).ok_or(BadQuantity::TooLarge)?;
        let amount = scale(shifted, tens - places + 9).filter(|amount| *amount <= MOST).ok_or(BadQuantity::TooLarge)?;
        Ok(Self(amount))
    }
}

/// Multiplies by a power of ten; a rest below one rounds up.
fn scale(number: u128, tens: i32) -> Option<u128> {
    let power = 10_u128.checked_pow(tens.unsigned_abs());
    match (power, tens >= 0) {
        (Some(power), true) => number.checked_mul(power),
        (Some(power), false) => Some(number.div_ceil(power)),
        (None, true) => None,
        (None, false) => Some(1),
    }
}

/// Returns a unit as a power of two, in bits, and one of ten.
fn unit_of(unit: &str) -> Option<(u32, i32)> {
    let power = match unit {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => {
            let number = exponent.strip_prefix(['e', 'E'])?;
            let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
            let sound = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            (0, if sound { number.parse().ok()? } else { return None })
        }
    };
    Some(power)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Result<Quantity, BadQuantity> {
        text.parse()
    }

    #[test]
    fn amounts_in_different_units_compare_by_size() {
        let rising =
            ["0", "1n", "1u", "0.5m", "1m", "500m", ".9", "1", "1.5", "2.", "1e1", "1k", "1Ki", "512M", "512Mi"];
        let rising: Vec<_> = rising.into_iter().chain(["1G", "1Gi", "1.5Gi", "1T", "1Ti", "1e15", "8E"]).collect();
        for pair in rising.windows(2) {
            assert!(of(pair[0]).unwrap() < of(pair[1]).unwrap(), "{pair:?}");
        }
        for (one, other) in [
            ("1", "1000m"),
            ("1k", "1e3"),
            ("1Mi", "1024Ki"),
            ("+2", "2"),
            ("0.1n", "1n"),
            ("1e-3", "1m"),
            ("0E", "-0"),
        ] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
    }

    #[test]
    fn text_that_is_no_amount_is_refused() {
        for text in [
            "",
            ".",
            "m",
            "1 ",
            " 1",
            "1.2.3",
            "1MB",
            "1mi",
            "1KI",
            "1e",
            "1e+",
            "1e1000",
            "0x10",
            "1,5",
            "١",
            "1i",
            "--1",
            &"1".repeat(65),
        ] {
            assert_eq!(of(text), Err(BadQuantity::Form), "{text}");
        }
        assert_eq!(of("-1"), Err(BadQuantity::Negative));
        for text in ["8Ei", "9223372036854775808", "1e999", &"9".repeat(60), "9999999999999999999E"] {
            assert_eq!(of(text), Err(BadQuantity::TooLarge), "{text}");
        }
        assert_eq!(of("9223372036854775807"), Ok(Quantity(MOST)));
    }

    #[test]
    fn thousandths_of_a_byte_are_not_whole() {
        assert!(of("512Mi").unwrap().is_whole() && of("1.5Ki").unwrap().is_whole());
        assert!(!of("512m").unwrap().is_whole());
    }

    proptest! {
        #[test]
        fn any_text_is_an_amount_or_refused(text in "[0-9.eEkKmMiGnu+-]{0,70}|\\PC{0,20}") {
            let _quantity = of(&text);
        }

        #[test]
        fn more_of_a_unit_is_more(
            less in 0..1_000_000_u32,
            unit in prop::sample::select(vec!["m", "", "Ki", "M", "e2"]),
        ) {
            let (less, more) = (format!("{less}{unit}"), format!("{}{unit}", less + 1));
            prop_assert!(of(&less).unwrap() < of(&more).unwrap());
        }
    }
}
