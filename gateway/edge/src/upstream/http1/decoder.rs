//! Decodes the responses of one connection from its bytes, in whatever pieces they come. Pure: no channel, no clock.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::Error;
use super::body::{Body, BodyPart};
use super::response::{self, Head, Parsed};

/// A head up to this length is parsed whenever more of it comes, so that invalid bytes are recognised early.
const HEAD_BYTES_SHORT: usize = 1024;

/// Beginning of an alert of any version of TLS in use (RFC 8446, section 5.1).
const TLS_RECORD: [u8; 2] = [21, 3];

/// Follows one connection. First [`Decoder::expect`], then [`Decoder::head`] until a final head comes, then
/// [`Decoder::frame`] until the end; whenever they ask for more, [`Decoder::push`] or [`Decoder::finish`].
#[derive(Debug)]
pub(super) struct Decoder {
    state: DecoderState,
    /// Bytes received and not decoded.
    unread: Bytes,
    /// The app finished the connection.
    is_finished: bool,
    /// The connection may be used again after this response, as far as its head goes.
    is_kept: bool,
}

#[derive(Debug)]
enum DecoderState {
    /// No response is awaited.
    Idle,
    /// In a head.
    Head { answers_head: bool, looked: Looked },
    /// Behind a head.
    Body(Body),
    /// The connection is no longer HTTP.
    Switched,
    /// The bytes were invalid.
    Broken,
}

/// Bytes of a head that were looked at in vain.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    /// Length at the last parse, which found the head incomplete.
    parsed: usize,
    /// Length that was searched and has no end of the head.
    searched: usize,
}

/// Result of looking for a head.
#[derive(Debug, PartialEq)]
pub(super) enum HeadFound {
    /// The answer's head. That of a 101 ends the HTTP on this connection.
    Final(Head),
    /// An interim answer, of which only `100 Continue` matters.
    Interim(StatusCode),
    /// Nothing until more bytes arrive.
    More,
}

/// Result of looking for a part of the body.
#[derive(Debug, PartialEq)]
pub(super) enum FrameFound {
    /// A part of the body.
    Data(Bytes),
    /// Trailers behind it.
    Trailers(HeaderMap),
    /// Nothing until more bytes arrive.
    More,
    /// The end.
    End,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { state: DecoderState::Idle, unread: Bytes::new(), is_finished: false, is_kept: true }
    }

    /// Awaits the response to a request; to HEAD it has no body.
    pub(super) fn expect(&mut self, answers_head: bool) {
        self.state = DecoderState::Head { answers_head, looked: Looked::default() };
    }

    /// Excludes the connection from further use, whatever the app says.
    pub(super) fn keep_not(&mut self) {
        self.is_kept = false;
    }

    /// Takes received bytes.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if self.unread.is_empty() {
            self.unread = bytes;
            return;
        }
        // Only a head that did not come in one piece waits here. Its buffer grows by doubling.
        let waiting = std::mem::take(&mut self.unread);
        let mut gathered = waiting.try_into_mut().unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
        gathered.extend_from_slice(&bytes);
        self.unread = gathered.freeze();
    }

    /// Takes the connection's end.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Looks for the next head.
    ///
    /// # Errors
    /// [`Error::Head`] for bytes that are no head, [`Error::Tls`] for those of TLS, [`Error::Closed`] when none can come any more.
    pub(super) fn head(&mut self) -> Result<HeadFound, Error> {
        let DecoderState::Head { answers_head, looked } = &mut self.state else { return Err(Error::Closed) };
        if self.unread.is_empty() || !looked.is_worth_another(&self.unread) {
            return if self.is_finished { Err(Error::Closed) } else { Ok(HeadFound::More) };
        }
        match response::parse(&mut self.unread, *answers_head) {
            Ok(Some(parsed)) => Ok(self.behind_head(parsed)),
            Ok(None) if self.is_finished => Err(Error::Closed),
            Ok(None) => {
                looked.parsed = self.unread.len();
                Ok(HeadFound::More)
            }
            Err(error) => {
                self.state = DecoderState::Broken;
                // Mostly an alert, of a server to which a request in the clear is a broken ClientHello.
                Err(if self.unread.starts_with(&TLS_RECORD) { Error::Tls } else { error })
            }
        }
    }

    fn behind_head(&mut self, parsed: Parsed) -> HeadFound {
        let Parsed { head, coming, is_kept } = parsed;
        match head.status {
            StatusCode::SWITCHING_PROTOCOLS => self.state = DecoderState::Switched,
            status if status.is_informational() => {
                self.is_kept &= is_kept;
                if let DecoderState::Head { looked, .. } = &mut self.state {
                    *looked = Looked::default();
                }
                return HeadFound::Interim(status);
            }
            _ => {
                self.is_kept &= is_kept;
                self.state = DecoderState::Body(Body::new(coming));
            }
        }
        HeadFound::Final(head)
    }

    /// Looks for the next part of the body.
    ///
    /// # Errors
    /// [`Error::Body`] for bytes that are no body, [`Error::Incomplete`] when the connection ended before it.
    pub(super) fn frame(&mut self) -> Result<FrameFound, Error> {
        let DecoderState::Body(body) = &mut self.state else { return Err(Error::Incomplete) };
        let found = match body.take(&mut self.unread) {
            Ok(BodyPart::More) if self.is_finished => body.finish().map(|()| FrameFound::End),
            Ok(BodyPart::More) => Ok(FrameFound::More),
            Ok(BodyPart::Data(data)) => Ok(FrameFound::Data(data)),
            Ok(BodyPart::Trailers(trailers)) => Ok(FrameFound::Trailers(trailers)),
            Ok(BodyPart::End) => Ok(FrameFound::End),
            Err(error) => Err(error),
        };
        if found.is_err() {
            self.state = DecoderState::Broken;
        }
        found
    }

    /// Returns whether the next bytes belong to a body. Nothing of those is kept undecoded.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.state, DecoderState::Body(_))
    }

    /// Returns whether the response is there to its last byte.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, DecoderState::Body(Body::Over))
    }

    /// Returns the number of bytes of the body still to come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self.state {
            DecoderState::Body(Body::Over) => Some(0),
            DecoderState::Body(Body::Sized { left }) => Some(left),
            DecoderState::Body(Body::Chunked { .. } | Body::UntilEnd)
            | DecoderState::Idle
            | DecoderState::Head { .. }
            | DecoderState::Switched
            | DecoderState::Broken => None,
        }
    }

    /// Returns whether another request may follow. Not with bytes left over: they would be taken for its answer.
    pub(super) fn is_reusable(&self) -> bool {
        self.is_over() && self.is_kept && self.is_drained()
    }

    /// Returns whether everything that came is decoded, and more may come.
    pub(super) fn is_drained(&self) -> bool {
        !self.is_finished && self.unread.is_empty()
    }

    /// Takes the bytes that came and were not decoded; for a connection that has switched.
    pub(super) fn into_rest(self) -> Bytes {
        self.unread
    }
}

impl Looked {
    /// Says whether to parse a head again: while it is short, when its end may have come, or when it has doubled.
    /// Otherwise a head that comes byte by byte would be read a hundred thousand times.
    fn is_worth_another(&mut self, unread: &[u8]) -> bool {
        let fresh = unread.get(self.searched.saturating_sub(b"\n\r".len())..).unwrap_or_default();
        self.searched = unread.len();
        if unread.len() <= HEAD_BYTES_SHORT
            || unread.len() > response::HEAD_BYTES_MAX
            || unread.len() >= self.parsed.saturating_mul(2)
        {
            return true;
        }
        // Empty lines before a head are its parser's to skip, and end nothing.
        let begins = unread.first().is_some_and(|first| !matches!(first, b'\r' | b'\n'));
        let ends = |window: &[u8]| window.starts_with(b"\n\n") || window == b"\n\r\n";
        begins && (fresh.windows(b"\n\r\n".len()).any(ends) || fresh.ends_with(b"\n\n"))
    }
}

#[cfg(test)]
mod tests;
