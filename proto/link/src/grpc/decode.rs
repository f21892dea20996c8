//! Decodes HTTP/2 data to gRPC messages to frames. The payload of a whole bulk frame in one piece is sliced, not
//! copied.
//!
//! Credit counts payload, so a payload that waits for its reader must not keep much more memory than its own length. A
//! slice keeps all of the buffer that HTTP/2 read into, with everything else that came in it: padding, frames for
//! channels that are gone, pings. So a payload stays a slice only if it is at least half of the largest size of that
//! buffer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use thiserror::Error;
use tunnel_proto::frame::{Body as FrameBody, Frame, FrameError, Open};
use tunnel_proto::limit::{FRAME_BYTES_MAX, SLICE_BYTES_MIN};
use tunnel_proto::mux::SessionError;

use super::encode::PREFIX_BYTES;

/// Reads frames from the body of one direction of the RPC.
#[derive(Debug)]
pub struct FrameReader<B> {
    body: B,
    /// Last piece from HTTP/2.
    piece: Bytes,
    /// The last large piece, while more come: HTTP/2 then reads the next one into a buffer of its own instead of enlarging
    /// the one that this piece lies in.
    held: Bytes,
    /// The beginning of a message that did not end within its piece.
    partial: BytesMut,
    /// Whether nothing is known of the buffers that pieces lie in: no payload stays a slice of one.
    copies: bool,
    trailers: Option<HeaderMap>,
}

/// Longest piece that is not held: buffers for such pieces are half of the memory that a slice may keep, and twice that
/// once they are enlarged.
const HELD_BYTES_MIN: usize = SLICE_BYTES_MIN / 2;

/// Reason why no frame could be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The link broke.
    #[error("the link broke")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The peer sent something that is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl<B> FrameReader<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    /// Wraps a body.
    #[must_use]
    pub fn new(body: B) -> Self {
        let (piece, held, partial) = (Bytes::new(), Bytes::new(), BytesMut::new());
        Self { body, piece, held, partial, copies: false, trailers: None }
    }

    /// Wraps a body whose pieces may lie in buffers of any size.
    #[must_use]
    pub(crate) fn copying(body: B) -> Self {
        Self { copies: true, ..Self::new(body) }
    }

    /// Returns the body that is read from.
    pub(super) fn body(&self) -> &B {
        &self.body
    }

    /// Returns the body, for a reader of its bytes. What was read of it and not decoded is lost: of an agent that waits for
    /// its Welcome that is nothing.
    #[must_use]
    pub fn into_body(self) -> B {
        self.body
    }

    /// Waits for more bytes. `false` at the end of the stream.
    ///
    /// # Errors
    /// [`ReadError::Body`] when the link broke.
    ///
    /// Cancel safety: safe; bytes are taken only by the call that returns.
    pub async fn fill(&mut self) -> Result<bool, ReadError> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, ReadError>> {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(frame)) => frame.map_err(|error| ReadError::Body(error.into()))?,
                Poll::Ready(None) => return Poll::Ready(Ok(false)),
                Poll::Pending => {
                    // An idle link keeps no buffer.
                    self.held = Bytes::new();
                    return Poll::Pending;
                }
            };
            match frame.into_data() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    debug_assert!(self.piece.is_empty(), "filled before the last piece was used up");
                    if piece.len() > HELD_BYTES_MIN {
                        self.held = piece.clone();
                    }
                    self.piece = piece;
                    return Poll::Ready(Ok(true));
                }
                Err(other) => self.trailers = other.into_trailers().ok(),
            }
        }
    }

    /// Returns the next whole frame of the bytes [filled in](Self::fill), if there is one.
    pub fn next_buffered(&mut self) -> Option<Result<Frame, SessionError>> {
        match self.next_message() {
            Ok(None) => None,
            Ok(Some(message)) => Some(message.decode().map_err(SessionError::from)),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Waits for the next frame; `None` at the end of the stream. For the handshake.
    ///
    /// # Errors
    /// [`ReadError`] when the link broke or the peer sent something that is not a frame.
    ///
    /// Cancel safety: safe; nothing is lost between calls.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(Some(message.decode()?));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Returns the trailers, once the end was reached.
    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        if self.partial.is_empty() {
            let Some(length) = message_length(&self.piece)? else { return Ok(self.keep_rest()) };
            if self.piece.len() < PREFIX_BYTES + length {
                return Ok(self.keep_rest());
            }
            self.piece.advance(PREFIX_BYTES);
            let slice_min = if self.copies { usize::MAX } else { SLICE_BYTES_MIN };
            return Ok(Some(Message { bytes: self.piece.split_to(length), slice_min }));
        }
        // Complete the prefix first: it tells how much belongs to this message.
        self.move_to_partial(PREFIX_BYTES);
        let Some(length) = message_length(&self.partial)? else { return Ok(None) };
        self.move_to_partial(PREFIX_BYTES + length);
        if self.partial.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.partial.advance(PREFIX_BYTES);
        let bytes = std::mem::take(&mut self.partial);
        Ok(Some(Message { slice_min: bytes.capacity().div_ceil(2), bytes: bytes.freeze() }))
    }

    fn keep_rest(&mut self) -> Option<Message> {
        if !self.piece.is_empty() {
            self.partial.extend_from_slice(&self.piece);
            self.piece = Bytes::new();
        }
        None
    }

    /// Moves bytes over until the partial message holds `target`. It grows by received bytes, never by an announced
    /// length.
    fn move_to_partial(&mut self, target: usize) {
        let missing = target.saturating_sub(self.partial.len()).min(self.piece.len());
        self.partial.extend_from_slice(&self.piece.split_to(missing));
    }
}

/// A whole message.
struct Message {
    bytes: Bytes,
    /// Shortest payload that is worth the memory which the message keeps.
    slice_min: usize,
}

impl Message {
    /// Reads the frame. A payload that is small for the memory that its message keeps is copied out of it: a slice
    /// would keep all of that for as long as the channel is not read, and credit counts only its few bytes.
    fn decode(self) -> Result<Frame, FrameError> {
        let mut frame = Frame::decode(self.bytes)?;
        if let FrameBody::Data { payload, .. } | FrameBody::Open(Open { payload, .. }) = &mut frame.body
            && payload.len() < self.slice_min
        {
            *payload = Bytes::copy_from_slice(payload);
        }
        Ok(frame)
    }
}

/// Reads the prefix of a gRPC message: its length, or `None` if the prefix is not complete.
///
/// # Errors
/// [`FrameError`] for a message that is compressed, or longer than [`FRAME_BYTES_MAX`].
pub fn message_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some([compressed, length @ ..]) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    if *compressed != 0 {
        return Err(FrameError::Field { field: "compression flag" });
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge { bytes: length });
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use proptest::prelude::*;
    use tunnel_proto::id::ChannelId;

    use super::*;
    use crate::grpc::encode::encode;

    fn messages(payloads: &[Vec<u8>]) -> (Vec<Frame>, Vec<u8>) {
        let mut bytes = BytesMut::new();
        let frames: Vec<_> = payloads
            .iter()
            .zip(1..)
            .map(|(payload, sequence)| Frame {
                sequence,
                acknowledged: 0,
                body: FrameBody::Data { channel: ChannelId::new(1), payload: payload.clone().into() },
            })
            .collect();
        for frame in &frames {
            let payload = encode(frame.clone(), &mut bytes);
            bytes.extend_from_slice(&payload);
        }
        (frames, bytes.to_vec())
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting_into_pieces(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..400), 1..8),
            cuts in proptest::collection::vec(1_usize..300, 1..40),
        ) {
            let (frames, bytes) = messages(&payloads);
            let mut pieces = Vec::new();
            let mut rest = Bytes::from(bytes);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                pieces.push(Ok::<_, std::io::Error>(http_body::Frame::data(rest.split_to((*cut).min(rest.len())))));
            }
            let body = StreamBody::new(futures_util::stream::iter(pieces));
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
            let read = runtime.block_on(async {
                let mut reader = FrameReader::new(body);
                let mut read = Vec::new();
                while let Some(frame) = reader.next().await.expect("own frames decode") { read.push(frame) }
                read
            });
            prop_assert_eq!(read, frames);
        }
    }

    #[tokio::test]
    async fn announced_length_beyond_the_bound_is_refused_before_anything_is_kept() {
        let mut reader = FrameReader::new(Full::new(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff])));
        let error = reader.next().await.expect_err("too large");
        assert!(matches!(error, ReadError::Frame(FrameError::TooLarge { .. })), "{error:?}");
        assert_eq!(reader.partial.capacity(), 0);
    }

    /// Reads the one Data frame of a piece; returns its payload, and whether that lies in the piece.
    async fn read_one(bytes: Vec<u8>) -> (Bytes, bool) {
        let piece = Bytes::from(bytes);
        let within = piece.as_ptr_range();
        let mut reader = FrameReader::new(Full::new(piece));
        assert!(reader.fill().await.expect("readable"));
        let frame = reader.next_buffered().expect("a frame").expect("it decodes");
        let FrameBody::Data { payload, .. } = frame.body else { panic!("{frame:?}") };
        let is_slice = within.contains(&payload.as_ptr());
        (payload, is_slice)
    }

    #[tokio::test]
    async fn small_payload_lets_go_of_its_piece_and_a_bulk_one_is_a_slice_of_it() {
        use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;
        for (length, is_kept) in [
            (1, false),
            (2_049, false),
            (SLICE_BYTES_MIN - 1, false),
            (SLICE_BYTES_MIN, true),
            (PAYLOAD_BYTES_ALONE, true),
        ] {
            let (_, bytes) = messages(&[vec![7; length]]);
            let (payload, is_slice) = read_one(bytes).await;
            assert_eq!((payload.len(), is_slice), (length, is_kept));
        }
    }

    /// A Data frame with an unknown field of so many bytes behind its payload.
    fn padded(payload: usize, padding: usize) -> Vec<u8> {
        let (_, mut bytes) = messages(&[vec![7; payload]]);
        // Field 100 with a length, both as protobuf has them.
        let digit = |shift: u32| u8::try_from(padding >> shift & 0x7f).expect("seven bits");
        bytes.extend([0xa2, 0x06, digit(0) | 0x80, digit(7) | 0x80, digit(14)]);
        bytes.resize(bytes.len() + padding, 0);
        let length = u32::try_from(bytes.len() - PREFIX_BYTES).expect("short");
        bytes[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[tokio::test]
    async fn padding_is_not_kept_with_the_payload_that_it_came_with() {
        let (payload, is_slice) = read_one(padded(2_049, 100_000)).await;
        assert_eq!((payload.len(), is_slice), (2_049, false));
    }

    #[tokio::test]
    async fn payload_of_a_message_that_was_cut_keeps_at_most_twice_its_length() {
        for (length, padding) in [(3_000, 100_000), (40_000, 80_000), (65_000, 0), (65_000, 60_000)] {
            let bytes = Bytes::from(padded(length, padding));
            for cut in [3, 2_000, bytes.len() / 2, bytes.len() - 1] {
                let pieces = [bytes.slice(..cut), bytes.slice(cut..)]
                    .map(|piece| Ok::<_, std::io::Error>(http_body::Frame::data(piece)));
                let mut reader = FrameReader::new(StreamBody::new(futures_util::stream::iter(pieces)));
                let frame = reader.next().await.expect("readable").expect("a frame");
                let FrameBody::Data { payload, .. } = frame.body else { panic!("{frame:?}") };
                assert_eq!(payload.len(), length);
                // The one owner of its memory, so all of that can be seen.
                let kept = payload.try_into_mut().expect("nobody else has it").capacity();
                assert!(kept <= 2 * length, "{length} bytes keep {kept}");
            }
        }
    }

    #[tokio::test]
    async fn idle_reader_holds_no_piece() {
        let (_, bytes) = messages(&[vec![7; SLICE_BYTES_MIN]]);
        let piece = Bytes::from(bytes);
        let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(http_body::Frame::data(piece.clone()))]);
        let stream = futures_util::StreamExt::chain(pieces, futures_util::stream::pending());
        let mut reader = FrameReader::new(StreamBody::new(stream));
        drop(reader.next().await.expect("readable").expect("a frame"));
        assert!(!piece.is_unique(), "the next piece gets a buffer of its own");
        let mut next = std::pin::pin!(reader.next());
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        assert!(piece.is_unique());
    }

    #[tokio::test]
    async fn reader_keeps_nothing_between_messages() {
        let (frames, bytes) = messages(&[vec![7; 5_000], vec![8; 5_000]]);
        let pieces = [&bytes[..3], &bytes[3..4_000], &bytes[4_000..]]
            .map(|piece| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::copy_from_slice(piece))));
        let mut reader = FrameReader::new(StreamBody::new(futures_util::stream::iter(pieces)));
        assert_eq!(reader.next().await.expect("readable").as_ref(), frames.first());
        assert_eq!(reader.next().await.expect("readable").as_ref(), frames.last());
        assert_eq!((reader.partial.capacity(), reader.piece.len()), (0, 0));
        assert!(reader.next().await.expect("the end").is_none());
    }

    #[tokio::test]
    async fn compressed_message_is_refused_by_name() {
        let mut reader = FrameReader::new(Full::new(Bytes::from_static(&[1, 0, 0, 0, 0])));
        let error = reader.next().await.expect_err("compressed");
        assert!(matches!(error, ReadError::Frame(FrameError::Field { field: "compression flag" })), "{error:?}");
    }
}
