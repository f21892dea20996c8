//! HTTP/2 data to gRPC messages to frames. A whole message in one piece is sliced, not copied.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use thiserror::Error;
use tunnel_proto::frame::{Body as FrameBody, Frame, FrameError, Open};
use tunnel_proto::limit::FRAME_BYTES_MAX;
use tunnel_proto::mux::SessionError;

use super::encode::{COPY_BYTES_MAX, PREFIX_BYTES};

/// Reads frames from the body of one direction of the RPC.
#[derive(Debug)]
pub struct FrameReader<B> {
    body: B,
    /// What HTTP/2 handed over last.
    piece: Bytes,
    /// The beginning of a message that did not end within its piece.
    partial: BytesMut,
    trailers: Option<HeaderMap>,
}

/// Why no frame could be read.
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
        Self { body, piece: Bytes::new(), partial: BytesMut::new(), trailers: None }
    }

    /// Returns what is read from.
    pub(super) fn body(&self) -> &B {
        &self.body
    }

    /// Waits for more bytes. `false` at the end of the stream.
    ///
    /// # Errors
    /// [`ReadError::Body`] when the link broke.
    ///
    /// Cancel safety: safe; bytes are taken only by the call that returns.
    pub async fn fill(&mut self) -> Result<bool, ReadError> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(false) };
            let frame = frame.map_err(|error| ReadError::Body(error.into()))?;
            match frame.into_data() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    debug_assert!(self.piece.is_empty(), "filled before the last piece was used up");
                    self.piece = piece;
                    return Ok(true);
                }
                Err(other) => self.trailers = other.into_trailers().ok(),
            }
        }
    }

    /// Returns the next whole frame of what was [filled](Self::fill), if there is one.
    pub fn next_buffered(&mut self) -> Option<Result<Frame, SessionError>> {
        match self.next_message() {
            Ok(None) => None,
            Ok(Some(message)) => Some(Frame::decode(message).map(detach).map_err(SessionError::from)),
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
                return Ok(Some(detach(Frame::decode(message)?)));
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

    fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.partial.is_empty() {
            let Some(length) = message_length(&self.piece)? else { return Ok(self.keep_rest()) };
            if self.piece.len() < PREFIX_BYTES + length {
                return Ok(self.keep_rest());
            }
            self.piece.advance(PREFIX_BYTES);
            return Ok(Some(self.piece.split_to(length)));
        }
        // Complete the prefix first: only then is it known how much belongs to this message.
        self.move_to_partial(PREFIX_BYTES);
        let Some(length) = message_length(&self.partial)? else { return Ok(None) };
        self.move_to_partial(PREFIX_BYTES + length);
        if self.partial.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.partial.advance(PREFIX_BYTES);
        Ok(Some(std::mem::take(&mut self.partial).freeze()))
    }

    fn keep_rest(&mut self) -> Option<Bytes> {
        if !self.piece.is_empty() {
            self.partial.extend_from_slice(&self.piece);
            self.piece = Bytes::new();
        }
        None
    }

    /// Moves bytes over until the partial message holds `target`. It grows by what came, never by what was announced.
    fn move_to_partial(&mut self, target: usize) {
        let missing = target.saturating_sub(self.partial.len()).min(self.piece.len());
        self.partial.extend_from_slice(&self.piece.split_to(missing));
    }
}

/// Copies a small payload out of the piece that it came in. A slice would keep the link's whole read buffer for as
/// long as nobody reads the channel, and credit counts only its few bytes.
fn detach(mut frame: Frame) -> Frame {
    if let FrameBody::Data { payload, .. } | FrameBody::Open(Open { payload, .. }) = &mut frame.body
        && payload.len() <= COPY_BYTES_MAX
    {
        *payload = Bytes::copy_from_slice(payload);
    }
    frame
}

/// Reads the prefix of a message: its length, or `None` if the prefix is not complete.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
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

    #[tokio::test]
    async fn small_payload_lets_go_of_its_piece_and_a_large_one_is_a_slice_of_it() {
        for (length, copied) in [(1, true), (COPY_BYTES_MAX, true), (COPY_BYTES_MAX + 1, false)] {
            let (_, bytes) = messages(&[vec![7; length]]);
            let piece = Bytes::from(bytes);
            let within = piece.as_ptr_range();
            let mut reader = FrameReader::new(Full::new(piece));
            assert!(reader.fill().await.expect("readable"));
            let frame = reader.next_buffered().expect("a frame").expect("own frames decode");
            let FrameBody::Data { payload, .. } = frame.body else { panic!("{frame:?}") };
            assert_eq!(payload.len(), length);
            assert_eq!(within.contains(&payload.as_ptr()), !copied, "{length} bytes");
        }
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
