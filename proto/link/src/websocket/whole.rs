//! Whole gRPC messages of a body whose pieces may end anywhere: a message of a WebSocket holds nothing else.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use tunnel_proto::frame::FrameError;

use super::MESSAGE_BYTES_MAX;
use crate::grpc::{self, Chunk, Code, PREFIX_BYTES, RpcRefused, message_length};
use crate::pace::Pace;

/// The outgoing half of a link that is carried here from elsewhere.
pub(super) type RelayedBody = Pin<Box<dyn Body<Data = Bytes, Error = RpcRefused> + Send>>;

/// Gathers the pieces of a relayed body to whole messages. At its end, or when it breaks, trailers say so.
pub(super) struct WholeMessages {
    /// `None` once it is over.
    body: Option<RelayedBody>,
    pace: Arc<Pace>,
    /// What is not sent: less than one message, and at most one piece more.
    pending: BytesMut,
}

impl WholeMessages {
    pub(super) fn new(body: RelayedBody, pace: Arc<Pace>) -> Self {
        Self { body: Some(body), pace, pending: BytesMut::new() }
    }

    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        // As frames of a session: the next message is made once the one before has left.
        if self.pace.poll_turn(context).is_pending() {
            return Poll::Pending;
        }
        loop {
            match whole_bytes(&self.pending) {
                Ok(0) => {}
                Ok(length) => {
                    self.pace.hand_down(length);
                    let messages = self.pending.split_to(length).freeze();
                    return Poll::Ready(Some(Ok(Frame::data(Chunk::from(messages)))));
                }
                Err(refused) => {
                    self.body = None;
                    self.pending.clear();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers_of(&refused)))));
                }
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            let polled = body.as_mut().poll_frame(context);
            if polled.is_pending() {
                self.pace.rest();
            }
            match ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.pending.extend_from_slice(&data),
                    Err(other) => {
                        let trailers = other.into_trailers().unwrap_or_default();
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                },
                Some(Err(refused)) => {
                    self.body = None;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers_of(&refused)))));
                }
                None => self.body = None,
            }
        }
    }
}

impl std::fmt::Debug for WholeMessages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WholeMessages").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Returns the length of the whole messages at the beginning, as many as fit into one message of a WebSocket.
fn whole_bytes(bytes: &[u8]) -> Result<usize, RpcRefused> {
    let mut whole = 0;
    let broken = |error: FrameError| RpcRefused {
        code: Code::Unavailable,
        message: format!("the lane is broken: {error}"),
        retry_after: None,
    };
    while let Some(length) = message_length(bytes.get(whole..).unwrap_or_default()).map_err(broken)? {
        let end = whole + PREFIX_BYTES + length;
        if end > bytes.len() || end > MESSAGE_BYTES_MAX {
            break;
        }
        whole = end;
    }
    Ok(whole)
}

pub(super) fn trailers_of(refused: &RpcRefused) -> HeaderMap {
    let mut response: Response<()> = grpc::refuse_response(refused);
    std::mem::take(response.headers_mut())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use bytes::Buf;
    use tunnel_proto::limit::FRAME_BYTES_MAX;

    use super::*;

    struct Pieces(VecDeque<Result<Bytes, RpcRefused>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = RpcRefused;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, RpcRefused>>> {
            Poll::Ready(self.0.pop_front().map(|piece| piece.map(Frame::data)))
        }
    }

    fn message(length: usize) -> Vec<u8> {
        let prefix = u32::try_from(length).expect("short").to_be_bytes();
        // Bytes that begin trailers, if a message of a WebSocket begins with one.
        [&[0][..], &prefix, &vec![0x80; length]].concat()
    }

    fn frames(pieces: impl IntoIterator<Item = Result<Bytes, RpcRefused>>) -> Vec<Result<Bytes, HeaderMap>> {
        let mut body = WholeMessages::new(Box::pin(Pieces(pieces.into_iter().collect())), Pace::unbounded());
        let mut context = Context::from_waker(Waker::noop());
        let mut frames = Vec::new();
        while let Poll::Ready(Some(Ok(frame))) = body.poll_frame(&mut context) {
            frames.push(match frame.into_data() {
                Ok(mut chunk) => Ok(chunk.copy_to_bytes(chunk.remaining())),
                Err(frame) => Err(frame.into_trailers().expect("trailers")),
            });
        }
        frames
    }

    #[test]
    fn messages_are_whole_however_their_bytes_came() {
        let all = [message(0), message(300), message(FRAME_BYTES_MAX), message(7)].concat();
        for piece in [1, 4, 5, 6, 1_000, 16_384, all.len()] {
            let pieces = all.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece)));
            let frames: Vec<_> = frames(pieces).into_iter().map(|frame| frame.expect("data")).collect();
            assert_eq!(frames.concat(), all);
            for frame in frames {
                assert!(frame.len() <= MESSAGE_BYTES_MAX);
                assert_eq!(whole_bytes(&frame).ok(), Some(frame.len()), "whole messages");
            }
        }
    }

    #[test]
    fn end_of_a_lane_is_said_in_trailers_and_part_of_a_message_is_not_sent() {
        let broken = || RpcRefused { code: Code::Unavailable, message: "gone".into(), retry_after: None };
        let part = Bytes::from(message(9)).split_to(8);
        let of_broken = frames([Ok(message(1).into()), Ok(part.clone()), Err(broken())]);
        assert_eq!(of_broken[0], Ok(message(1).into()));
        let status = of_broken[1].as_ref().expect_err("trailers").get("grpc-status").cloned();
        assert_eq!((of_broken.len(), status), (2, Some(http::HeaderValue::from_static("14"))));
        assert_eq!(frames([Ok(part)]), []);
        let too_long = [&[0][..], &u32::MAX.to_be_bytes()].concat();
        assert!(frames([Ok(too_long.into()), Ok(message(1).into())])[0].is_err());
    }
}
