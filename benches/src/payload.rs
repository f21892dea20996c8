//! Bodies of requests and responses that cost nearly nothing to make.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::pattern;

/// Bytes of one frame: enough that the costs per frame do not count.
const FRAME_BYTES: usize = 256 * 1024;

/// Content of plain payloads.
static FILL: [u8; FRAME_BYTES] = [b'x'; FRAME_BYTES];

/// A body of known length.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// A text.
    Text(Bytes),
    /// This many bytes of no meaning, without a copy.
    Fill {
        /// Bytes still to come.
        left: u64,
    },
    /// Like `Fill`, with a counter of the taken bytes.
    Counted {
        /// Bytes still to come.
        left: u64,
        /// Bytes taken so far.
        taken: Arc<AtomicU64>,
    },
    /// The pattern of a seed, from a position on.
    Pattern {
        /// Seed of the pattern.
        seed: u64,
        /// Position of the next byte.
        position: u64,
        /// Bytes still to come.
        left: u64,
    },
}

/// Returns `length` bytes of no meaning as one piece, at most [`FRAME_BYTES`].
#[must_use]
pub fn fill_bytes(length: u64) -> Bytes {
    let length = usize::try_from(length).unwrap_or(FRAME_BYTES).min(FRAME_BYTES);
    Bytes::from_static(FILL.split_at(length).0)
}

impl Payload {
    /// Makes a body of a text.
    #[must_use]
    pub fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(text.into())
    }

    /// Returns how many bytes are still to come.
    #[must_use]
    pub const fn left(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Text(text) => text.len() as u64,
            Self::Fill { left } | Self::Counted { left, .. } | Self::Pattern { left, .. } => *left,
        }
    }

    /// Takes the next piece.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        match self {
            Self::Empty => None,
            Self::Text(text) => {
                let text = std::mem::take(text);
                *self = Self::Empty;
                (!text.is_empty()).then_some(text)
            }
            Self::Fill { left } => {
                let piece = fill_bytes(*left);
                *left -= piece.len() as u64;
                (!piece.is_empty()).then_some(piece)
            }
            Self::Counted { left, taken } => {
                let piece = fill_bytes(*left);
                *left -= piece.len() as u64;
                taken.fetch_add(piece.len() as u64, Ordering::Relaxed);
                (!piece.is_empty()).then_some(piece)
            }
            Self::Pattern { seed, position, left } => {
                let length = usize::try_from(*left).unwrap_or(FRAME_BYTES).min(FRAME_BYTES / 4);
                let mut piece = vec![0; length];
                pattern::fill(*seed, *position, &mut piece);
                *position += length as u64;
                *left -= length as u64;
                (length > 0).then(|| Bytes::from(piece))
            }
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_gives_as_many_bytes_as_it_says() {
        let large = FRAME_BYTES as u64 * 2 + 17;
        let payloads = [
            Payload::Empty,
            Payload::text(""),
            Payload::text("twelve bytes"),
            Payload::Fill { left: large },
            Payload::Counted { left: large, taken: Arc::default() },
            Payload::Pattern { seed: 7, position: 3, left: large },
        ];
        for mut payload in payloads {
            let told = payload.left();
            let mut got = 0;
            while let Some(piece) = payload.next_piece() {
                assert!(!piece.is_empty());
                got += piece.len() as u64;
            }
            assert_eq!((got, payload.left()), (told, 0));
        }
    }
}
