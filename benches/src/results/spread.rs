//! Figure with its spread over the rounds, and the notation of figures.

/// The median of several rounds, with the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value; of an even count, the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// Number of rounds with a value.
    pub count: usize,
}

impl Spread {
    /// Returns the spread of values; `None` without any that is a number.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let count = sorted.len();
        let upper = *sorted.get(count / 2)?;
        let lower = if count.is_multiple_of(2) { *sorted.get(count / 2 - 1)? } else { upper };
        Some(Self { median: f64::midpoint(lower, upper), min: *sorted.first()?, max: *sorted.last()?, count })
    }
}

impl std::fmt::Display for Spread {
    /// Writes `1,234 (1,100–1,300)`; the median alone if there was one round.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&figure(self.median))?;
        if self.count > 1 {
            write!(formatter, " ({}–{})", figure(self.min), figure(self.max))?;
        }
        Ok(())
    }
}

/// Writes a number with as many digits as such measurements carry, thousands apart.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if size < f64::EPSILON {
        return "0".to_owned();
    }
    if size >= 99.95 {
        return grouped(&format!("{value:.0}"));
    }
    if size >= 9.995 { format!("{value:.1}") } else { format!("{value:.2}") }
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_of_sorted_values() {
        let spread = Spread::of([5.0, 1.0, 9.0]).unwrap();
        assert_eq!(spread, Spread { median: 5.0, min: 1.0, max: 9.0, count: 3 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 8.0]).unwrap().median.to_bits(), 3.0_f64.to_bits());
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn figures_are_grouped_and_rounded_by_size() {
        for (value, expected) in [
            (1_234_567.8, "1,234,568"),
            (999.6, "1,000"),
            (-1234.0, "-1,234"),
            (100.0, "100"),
            (43.21, "43.2"),
            (9.999, "10.0"),
            (0.987, "0.99"),
            (0.0, "0"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(figure(value), expected, "{value}");
        }
        assert_eq!(Spread::of([1000.0, 1500.0, 1200.0]).unwrap().to_string(), "1,200 (1,000–1,500)");
        assert_eq!(Spread::of([0.5]).unwrap().to_string(), "0.50");
    }
}
