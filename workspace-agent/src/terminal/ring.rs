//! Last output of a terminal in bounded memory, addressed by the number of the byte.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Longest search behind a cut for the beginning of a line, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// The last bytes of a stream. Each has a number: how many came before it.
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    start: u64,
    bytes_max: usize,
}

impl Ring {
    /// Makes an empty ring that keeps so many bytes. It takes no memory before they come.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), start: 0, bytes_max }
    }

    /// Adds new bytes, and forgets the oldest if there is no room.
    pub fn push(&mut self, new: &[u8]) {
        let unkept = new.len().saturating_sub(self.bytes_max);
        let kept = new.get(unkept..).unwrap_or_default();
        let excess = (self.bytes.len() + kept.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(kept);
        self.start += (excess + unkept) as u64;
    }

    /// Returns the number of the first byte that is kept.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the number of the byte that comes next.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns at most `bytes_max` bytes from a number on; `None` if that one is not kept any more, or has not come yet.
    #[must_use]
    pub fn piece(&self, from: u64, bytes_max: usize) -> Option<Bytes> {
        let skipped = usize::try_from(from.checked_sub(self.start)?).ok()?;
        let length = self.bytes.len().checked_sub(skipped)?.min(bytes_max);
        let (front, back) = self.bytes.as_slices();
        let mut piece = BytesMut::with_capacity(length);
        let of_front = front.get(skipped.min(front.len())..).unwrap_or_default();
        piece.extend_from_slice(of_front.get(..length).unwrap_or(of_front));
        let of_back = back.get(skipped.saturating_sub(front.len())..).unwrap_or_default();
        piece.extend_from_slice(of_back.get(..length - piece.len()).unwrap_or_default());
        Some(piece.freeze())
    }

    /// Returns the place at which a page that has seen nothing begins: at the first byte, or if that was forgotten,
    /// behind the first end of a line, so that no character and hardly ever a control sequence is cut in two.
    #[must_use]
    pub fn beginning(&self) -> u64 {
        if self.start == 0 {
            return 0;
        }
        let line = self.bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        self.start + line.map_or(0, |end| end as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn beginning_is_a_line_once_bytes_were_forgotten() {
        let mut ring = Ring::new(16);
        assert_eq!((ring.beginning(), ring.piece(0, 9)), (0, Some(Bytes::new())));
        ring.push(b"first\nsecond\n");
        assert_eq!(ring.beginning(), 0);
        ring.push(b"third\n");
        assert_eq!((ring.start(), ring.beginning(), ring.end()), (3, 6, 19));
        assert_eq!(ring.piece(6, 99).as_deref(), Some(&b"second\nthird\n"[..]));
        assert_eq!((ring.piece(2, 9), ring.piece(20, 9)), (None, None));
        ring.push(&[b'x'; 40]);
        assert_eq!((ring.start(), ring.beginning()), (43, 43), "no line ends there");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_end_of_what_came(
            pushes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            bytes_max in 1..64_usize, from in 0..400_u64, length in 0..80_usize,
        ) {
            let mut ring = Ring::new(bytes_max);
            let mut all = Vec::new();
            for push in &pushes {
                ring.push(push);
                all.extend_from_slice(push);
                prop_assert!(ring.end() - ring.start() <= bytes_max as u64);
            }
            prop_assert_eq!(ring.end(), all.len() as u64);
            let piece = ring.piece(from, length);
            if (ring.start()..=ring.end()).contains(&from) {
                let rest = &all[usize::try_from(from).unwrap()..];
                prop_assert_eq!(piece.as_deref(), Some(&rest[..length.min(rest.len())]));
            } else {
                prop_assert_eq!(piece, None);
            }
            prop_assert!((ring.start()..=ring.end()).contains(&ring.beginning()));
        }
    }
}
