//! Writes lines into a stream that may refuse them, and keeps account of those that it refused.

use std::io::{self, ErrorKind, Write};

use super::backlog::count_lines;

/// Longest piece that is written at once, in bytes: a pipe takes as much in one go, and so does not mix it with lines of
/// other programs (POSIX `PIPE_BUF`, 4096 on Linux).
const PIECE_BYTES_MAX: usize = 4096;

/// Reason of the loss of lines if the reader of the stream does not read.
pub(crate) const NO_READER: &str = "they were not read in time";

/// Lines that could not be written, and have not been mentioned.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owed {
    lines: u64,
    because: String,
}

/// A stream and its history.
#[derive(Debug)]
pub(crate) struct Delivery<W> {
    stream: W,
    owed: Owed,
    /// Whether the last line that was begun has no end.
    is_torn: bool,
}

impl<W: Write> Delivery<W> {
    pub(crate) fn new(stream: W) -> Self {
        Self { stream, owed: Owed::default(), is_torn: false }
    }

    /// Returns whether lines were lost that the stream does not say yet.
    pub(crate) fn owes(&self) -> bool {
        self.owed.lines > 0
    }

    /// Writes lines, before them the report that is owed, and after them the report that `refused` lines found no room.
    /// Returns the number of the lines that the stream did not take.
    pub(crate) fn deliver(&mut self, lines: &[u8], refused: u64, report: impl Fn(u64, &str) -> String) -> u64 {
        self.settle(&report);
        let mut lost = 0_u64;
        let mut rest = lines;
        while let Some((piece, after)) = split(rest) {
            rest = after;
            lost = lost.saturating_add(self.piece(piece));
        }
        if refused > 0 {
            self.owe(refused, NO_READER);
            if lost == 0 {
                self.settle(&report);
            }
        }
        lost
    }

    /// Mentions lost lines, if the stream takes the report.
    fn settle(&mut self, report: impl Fn(u64, &str) -> String) {
        if self.owes() && self.write(report(self.owed.lines, &self.owed.because).as_bytes()).is_ok() {
            self.owed = Owed::default();
        }
    }

    /// Writes some whole lines; returns the number of those that were lost.
    fn piece(&mut self, piece: &[u8]) -> u64 {
        let Err((written, error)) = self.write(piece) else { return 0 };
        let lost = count_lines(piece.get(written..).unwrap_or_default());
        self.owe(lost, &error.to_string());
        lost
    }

    fn owe(&mut self, lines: u64, because: &str) {
        self.owed.lines = self.owed.lines.saturating_add(lines);
        because.clone_into(&mut self.owed.because);
    }

    /// Writes a text, on a line of its own if the one before it has no end.
    fn write(&mut self, text: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.is_torn {
            push(&mut self.stream, b"\n")?;
            self.is_torn = false;
        }
        let done = push(&mut self.stream, text);
        if let Err((written, _)) = &done {
            self.is_torn = *written > 0 && text.get(written - 1) != Some(&b'\n');
        }
        done
    }
}

/// Cuts off as many whole lines as may be written at once, at least one; returns them and the rest.
fn split(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    if lines.is_empty() {
        return None;
    }
    let end = |within: &[u8]| within.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
    let first = lines.get(..PIECE_BYTES_MAX).map_or(Some(lines.len()), end);
    let at = first.or_else(|| lines.iter().position(|byte| *byte == b'\n').map(|at| at + 1)).unwrap_or(lines.len());
    lines.split_at_checked(at)
}

/// Writes all of a text; says how much of it went out before an error.
fn push(stream: &mut impl Write, text: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with some room.
    #[derive(Default)]
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.text.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn report(lines: u64, because: &str) -> String {
        format!("lost {lines}: {because}\n")
    }

    fn text(delivery: &Delivery<Disk>) -> &str {
        std::str::from_utf8(&delivery.stream.text).unwrap()
    }

    #[test]
    fn full_disk_costs_lines_and_says_so_once_there_is_room() {
        let mut delivery = Delivery::new(Disk { room: 6, ..Disk::default() });
        assert_eq!(delivery.deliver(b"one\ntwo\nthree\n", 0, report), 2);
        assert_eq!(delivery.deliver(b"four\n", 0, report), 1);
        assert!(delivery.owes());
        assert_eq!(text(&delivery), "one\ntw");
        delivery.stream.room = 1000;
        assert_eq!(delivery.deliver(b"five\n", 0, report), 0);
        assert_eq!(delivery.deliver(b"six\n", 0, report), 0);
        assert!(!delivery.owes());
        // The torn line has an end, and nothing is glued to it.
        assert_eq!(text(&delivery), "one\ntw\nlost 3: no storage space\nfive\nsix\n");
    }

    #[test]
    fn lines_that_found_no_room_are_mentioned_after_those_that_did() {
        let mut delivery = Delivery::new(Disk { room: 1000, ..Disk::default() });
        delivery.deliver(b"one\n", 7, report);
        assert!(!delivery.owes());
        assert_eq!(text(&delivery), format!("one\nlost 7: {NO_READER}\n"));
    }

    #[test]
    fn report_that_is_lost_too_is_owed_still() {
        let mut delivery = Delivery::new(Disk::default());
        for _ in 0..3 {
            delivery.deliver(b"", 2, report);
        }
        delivery.stream.room = 1000;
        delivery.deliver(b"", 0, report);
        assert_eq!(text(&delivery), format!("lost 6: {NO_READER}\n"));
    }

    #[test]
    fn pieces_are_whole_lines() {
        let line = |length: usize| [vec![b'x'; length - 1], vec![b'\n']].concat();
        let lines = [line(3000), line(1000), line(200), line(9000), line(10), vec![b'y'; 5]].concat();
        let (mut pieces, mut rest) = (Vec::new(), lines.as_slice());
        while let Some((piece, after)) = split(rest) {
            pieces.push(piece.len());
            rest = after;
        }
        assert_eq!(pieces, [4000, 200, 9000, 15]);
    }
}
