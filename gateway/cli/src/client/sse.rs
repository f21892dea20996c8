//! Reads server-sent events (HTML Living Standard, section 9.2.6): pure, from bytes as they come to events as they end.

use std::collections::VecDeque;

/// Largest event, in bytes: those of a workspace have some KiB.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// Its kind; empty for `message`, the kind of those that say none.
    pub(crate) kind: String,
    /// Its data.
    pub(crate) data: String,
}

/// A server sent an event that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Parser of a stream, with the part that has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// A line has just ended with a CR: an LF is part of that end.
    is_after_cr: bool,
    /// The event that has not ended yet.
    event: StreamEvent,
    has_data: bool,
    ready: VecDeque<StreamEvent>,
}

impl Reader {
    /// Takes bytes that came.
    ///
    /// # Errors
    /// [`TooLong`]; the bytes after it mean nothing.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        for byte in bytes {
            let was_after_cr = std::mem::replace(&mut self.is_after_cr, *byte == b'\r');
            match byte {
                b'\n' if was_after_cr => {}
                b'\r' | b'\n' => self.end_line(),
                byte => {
                    if self.line.len() + self.event.data.len() >= EVENT_BYTES_MAX {
                        return Err(TooLong);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(())
    }

    /// Returns the next event that has ended.
    pub(super) fn pop(&mut self) -> Option<StreamEvent> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            // One without data is no event.
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(event);
            }
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            // A comment, an id, or a time for reconnecting: nothing that is used here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = Reader::default();
        chunks.iter().for_each(|chunk| reader.push(chunk).unwrap());
        std::iter::from_fn(|| reader.pop()).map(|event| (event.kind, event.data)).collect()
    }

    fn event(kind: &str, data: &str) -> (String, String) {
        (kind.to_owned(), data.to_owned())
    }

    #[test]
    fn events_are_read_with_any_line_end_and_what_means_nothing_is_left_out() {
        let text = b": still here\n\nretry: 2000\n\nid: 3\nevent: state\ndata: {\"a\":1}\n\n";
        assert_eq!(read(&[text]), [event("state", "{\"a\":1}")]);
        assert_eq!(read(&[b"data: a\r\ndata:b\r\n\r\nevent: x\r\rdata\r\r"]), [event("", "a\nb"), event("", "")]);
        assert_eq!(read(&[b"event: lost\n\ndata: x\n\n"]), [event("", "x")], "a kind does not outlive its event");
        assert_eq!(read(&[b"data: x"]), [], "it has not ended");
        assert_eq!(read(&[b"data:  x: y\n\n"]), [event("", " x: y")]);
    }

    #[test]
    fn event_that_never_ends_is_refused() {
        let mut reader = Reader::default();
        assert_eq!(reader.push(&vec![b'x'; EVENT_BYTES_MAX + 1]), Err(TooLong));
        let mut reader = Reader::default();
        let line = format!("data: {}\n", "x".repeat(1000));
        assert!((0..1000).any(|_| reader.push(line.as_bytes()).is_err()));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_chunks_end(
            text in "(event: [a-z]{1,5}\n|data: [a-zé\u{1f600}]{0,6}\n|:[a-z]{0,3}\n|\r\n|\r|\n){0,12}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[bytes]));
        }
    }
}
