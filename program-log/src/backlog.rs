//! Bounded buffer of the lines that wait to be written. Decides and does nothing else.

use std::mem;

/// Most bytes that wait. A program that logs a hundred bytes ten thousand times a second has a second of it here.
pub(crate) const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// Capacity that a buffer keeps once it is empty again: a burst is not paid for in memory for ever. Units: bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// Lines that wait, and a count of those for which there was no room.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Vec<u8>,
    refused: u64,
    /// Whether a batch has been taken and is not written yet.
    is_writing: bool,
    /// Counts batches.
    batch: u64,
    /// The batch that was waited for in vain.
    given_up: Option<u64>,
}

impl Backlog {
    /// Takes lines in; returns the number of those for which there was no room.
    pub(crate) fn push(&mut self, lines: &[u8]) -> u64 {
        if self.waiting.len().saturating_add(lines.len()) > QUEUE_BYTES_MAX {
            let count = count_lines(lines);
            self.refused = self.refused.saturating_add(count);
            return count;
        }
        self.waiting.extend_from_slice(lines);
        0
    }

    /// Returns whether there is something for the writer.
    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.refused > 0
    }

    /// Moves the waiting lines into `batch`, which is empty, and returns the number of lines refused since the last
    /// batch.
    pub(crate) fn take(&mut self, batch: &mut Vec<u8>) -> u64 {
        mem::swap(&mut self.waiting, batch);
        self.batch = self.batch.wrapping_add(1);
        self.is_writing = true;
        mem::take(&mut self.refused)
    }

    /// Notes that the batch is written, as far as it can be.
    pub(crate) fn written(&mut self) {
        self.is_writing = false;
    }

    /// Returns whether all lines that were handed in are written, as far as they can be.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing
    }

    /// Returns whether waiting is of use: not for a stream that has been waited for and took nothing since.
    pub(crate) fn is_worth_waiting(&self) -> bool {
        !(self.is_idle() || self.is_writing && self.given_up == Some(self.batch))
    }

    /// Notes that the batch under way was waited for in vain.
    pub(crate) fn give_up(&mut self) {
        self.given_up = Some(self.batch);
    }
}

/// Empties a buffer, and gives memory back that only a burst needed.
pub(crate) fn recycle(batch: &mut Vec<u8>) {
    batch.clear();
    batch.shrink_to(KEPT_BYTES);
}

/// Counts the lines of a text; a begun one counts.
pub(crate) fn count_lines(text: &[u8]) -> u64 {
    let ends = text.iter().filter(|byte| **byte == b'\n').count();
    let begun = text.last().is_some_and(|byte| *byte != b'\n');
    u64::try_from(ends).unwrap_or(u64::MAX).saturating_add(u64::from(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_bound_are_counted_and_the_others_kept() {
        let mut backlog = Backlog::default();
        let line = [[b'x'; 99].as_slice(), b"\n"].concat();
        let refused: u64 = (0..20_000).map(|_| backlog.push(&line)).sum();
        let mut batch = Vec::new();
        assert_eq!(backlog.take(&mut batch), refused);
        assert!(batch.len() <= QUEUE_BYTES_MAX, "{}", batch.len());
        assert_eq!(count_lines(&batch) + refused, 20_000);
        assert!(refused > 0);
        // What was said once is not said again.
        backlog.written();
        assert!(!backlog.has_work() && backlog.is_idle());
        recycle(&mut batch);
        assert!(batch.capacity() <= 2 * KEPT_BYTES, "{}", batch.capacity());
    }

    #[test]
    fn stream_that_took_nothing_is_waited_for_once() {
        let mut backlog = Backlog::default();
        backlog.push(b"one\n");
        backlog.take(&mut Vec::new());
        assert!(backlog.is_worth_waiting());
        backlog.give_up();
        backlog.push(b"two\n");
        assert!(!backlog.is_worth_waiting());
        // It went on.
        backlog.written();
        assert!(backlog.is_worth_waiting());
    }

    #[test]
    fn begun_line_is_a_line() {
        for (text, count) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)] {
            assert_eq!(count_lines(text.as_bytes()), count, "{text:?}");
        }
    }
}
