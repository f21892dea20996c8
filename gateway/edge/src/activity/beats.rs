//! Tells what a person sent over a raw stream from what programs send by themselves. Only lengths and times are known: the gateway
//! parses no protocol there, and SSH is encrypted.
//!
//! Two things look like input and are none. A keep-alive, such as OpenSSH's `ServerAliveInterval`, is a small piece of always the same
//! length after always the same silence of both directions: any byte from either end puts the next one off. And an answer to
//! much output, such as SSH's window adjustment, is a small piece behind many bytes the other way. A key press is neither: its
//! length is that of the last one, but no person types in step with a clock.

/// Largest piece that can be a keep-alive or an answer to output, in bytes: OpenSSH's have at most 92.
const SMALL_BYTES_MAX: usize = 256;

/// Shortest silence before a keep-alive, in seconds.
const SILENCE_MIN: i64 = 5;

/// Difference between two silences of a clock, in seconds, since times are whole seconds.
const SILENCE_SLACK: i64 = 1;

/// Fewest bytes of output that a program answers by itself: OpenSSH does so after 96 KiB.
const OUTPUT_BYTES_MIN: u64 = 16 * 1024;

/// Longest time after output in which a program answers it, in seconds.
const ANSWER_TIME_MAX: i64 = 2;

/// Memory of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beats {
    /// Time of the last byte of either direction; `None` before the first.
    heard_at: Option<i64>,
    /// Length of the last piece of input, and the silence before it.
    last: Option<(usize, i64)>,
    /// Bytes of output since the last input.
    output: u64,
}

impl Beats {
    /// Takes note of output.
    pub(crate) fn output(&mut self, bytes: usize, now: i64) {
        self.heard_at = Some(now);
        self.output = self.output.saturating_add(bytes as u64);
    }

    /// Returns whether a piece of input counts as a person's.
    pub(crate) fn input(&mut self, bytes: usize, now: i64) -> bool {
        let silence = now.saturating_sub(self.heard_at.unwrap_or(now));
        let answers = self.output >= OUTPUT_BYTES_MIN && silence <= ANSWER_TIME_MAX;
        let beats = silence >= SILENCE_MIN
            && self.last.is_some_and(|(length, before)| {
                length == bytes && before.abs_diff(silence) <= SILENCE_SLACK.unsigned_abs()
            });
        *self = Self { heard_at: Some(now), last: Some((bytes, silence)), output: 0 };
        bytes > SMALL_BYTES_MAX || !(answers || beats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays pieces of input and output, and returns what counts of the input.
    fn counted(pieces: &[(i64, i64)]) -> Vec<bool> {
        let (mut beats, mut found) = (Beats::default(), Vec::new());
        for (now, bytes) in pieces {
            let length = usize::try_from(bytes.unsigned_abs()).unwrap();
            match bytes {
                0.. => found.push(beats.input(length, *now)),
                _ => beats.output(length, *now),
            }
        }
        found
    }

    #[test]
    fn keys_count_also_slow_ones_and_the_first() {
        // Each is echoed.
        let keys: Vec<_> = [0, 1, 2, 4, 9, 30, 32, 3_000].iter().flat_map(|at| [(*at, 36), (*at, -36)]).collect();
        assert_eq!(counted(&keys), [true; 8]);
        assert_eq!(counted(&[(0, 36), (2, 36), (4, 36), (6, 36), (8, 36)]), [true; 5], "one every two seconds");
    }

    #[test]
    fn keep_alive_counts_once_and_then_no_more() {
        let beats: Vec<_> = (1..=40).flat_map(|count| [(count * 15, 52), (count * 15, -28)]).collect();
        let pieces = [&[(0, 36), (0, -36)][..], &beats].concat();
        let found = counted(&pieces);
        assert_eq!(found[..2], [true, true], "the key, and what may be one");
        assert!(found[2..].iter().all(|counts| !counts), "{found:?}");
    }

    #[test]
    fn output_between_keep_alives_does_not_make_them_count() {
        let mut pieces = vec![(0, 52), (0, -28), (15, 52), (15, -28), (30, 52), (30, -28)];
        // A line every 22 s puts the next keep-alive off.
        for count in 0..20 {
            let line = 37 + count * 22;
            pieces.extend([(line, -120), (line + 15, 52), (line + 15, -28)]);
        }
        let found = counted(&pieces);
        assert!(found[2..].iter().all(|counts| !counts), "{found:?}");
    }

    #[test]
    fn answers_to_much_output_do_not_count_and_large_input_always_does() {
        let flood: Vec<_> = (1..50).flat_map(|at| [(at, -100_000), (at, 36)]).collect();
        assert!(counted(&flood).iter().all(|counts| !counts));
        assert_eq!(counted(&[(1, -100_000), (1, 4_096), (16, -100), (31, 4_096)]), [true, true]);
    }

    #[test]
    fn typing_after_a_long_output_counts() {
        assert_eq!(counted(&[(1, -100_000), (40, 36), (41, -36), (41, 36)]), [true, true]);
    }
}
