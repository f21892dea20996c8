//! Times and amounts in words.

use std::time::Duration;

use gateway_types::UnixSeconds;

/// Says how long a time is, in its largest unit.
pub(crate) fn length(time: Duration) -> String {
    let unit = |number: u64, name: &str| format!("{number} {name}{}", if number == 1 { "" } else { "s" });
    match time.as_secs() {
        0..60 => "less than a minute".to_owned(),
        seconds @ 60..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => unit(seconds / 3600, "hour"),
        seconds => unit(seconds / 86_400, "day"),
    }
}

/// Says how long ago a time was.
pub(crate) fn ago(time: UnixSeconds, now: UnixSeconds) -> String {
    match u64::try_from(now.get().saturating_sub(time.get())) {
        Ok(0..60) | Err(_) => "just now".to_owned(),
        Ok(seconds) => format!("{} ago", length(Duration::from_secs(seconds))),
    }
}

/// Says a number of bytes in the unit that suits it.
pub(crate) fn bytes(number: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| number >> shift > 0) {
        Some((unit, shift)) => {
            let tenths = (number >> (shift - 4)) * 10 / 16;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{number} B"),
    }
}

/// Begins a text with a capital letter.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_are_short_words() {
        let lengths =
            [(59, "less than a minute"), (61, "1 min"), (7_199, "119 min"), (7_200, "2 hours"), (172_800, "2 days")];
        for (seconds, words) in lengths {
            assert_eq!(length(Duration::from_secs(seconds)), words);
        }
        assert_eq!(ago(UnixSeconds::new(10), UnixSeconds::new(20)), "just now");
        assert_eq!(ago(UnixSeconds::new(20), UnixSeconds::new(10)), "just now", "clocks differ");
        assert_eq!(ago(UnixSeconds::new(0), UnixSeconds::new(600)), "10 min ago");
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }
}
