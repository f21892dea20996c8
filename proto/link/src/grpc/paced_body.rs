//! Outgoing half of a link that is carried here from elsewhere.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::pace::Pace;

/// A body whose next piece is taken once the one before has left, as frames of a session are: what waits for a slow link then
/// waits where it came from.
#[derive(Debug)]
pub struct PacedBody<B> {
    body: B,
    pace: Arc<Pace>,
}

impl<B> PacedBody<B> {
    /// Wraps a body that is sent on the stream of this pace, and is alone there.
    #[must_use]
    pub fn new(body: B, pace: Arc<Pace>) -> Self {
        Self { body, pace }
    }

    /// Returns body and pace, for a carrier that cuts the body into pieces of its own.
    #[must_use]
    pub fn into_parts(self) -> (B, Arc<Pace>) {
        (self.body, self.pace)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.pace.poll_turn(context).is_pending() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref().map_or(0, Bytes::len) {
                0 => {}
                bytes => self.pace.hand_down(bytes),
            },
            Poll::Ready(_) => {}
            Poll::Pending => self.pace.rest(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    use super::*;
    use crate::pace::PacedStream;

    struct Pieces(VecDeque<&'static [u8]>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(Bytes::from_static(piece)))))
        }
    }

    #[tokio::test]
    async fn next_piece_is_taken_once_the_one_before_has_left() {
        let (mut peer, stream) = tokio::io::duplex(64);
        let (mut stream, pace) = PacedStream::new(stream, |_, _| None);
        let mut body = PacedBody::new(Pieces(VecDeque::from([&b"one"[..], b"", b"two"])), pace);
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().expect("data")),
            Poll::Ready(_) => None,
            Poll::Pending => Some(Bytes::from_static(b"pending")),
        };
        assert_eq!(next().as_deref(), Some(&b"one"[..]));
        assert_eq!(next().as_deref(), Some(&b"pending"[..]));
        stream.write_all(b"one").await.expect("written");
        assert_eq!(next().as_deref(), Some(&b"pending"[..]), "it may still be here");
        std::future::poll_fn(|context| Pin::new(&mut stream).poll_flush(context)).await.expect("flushed");
        assert_eq!(next().as_deref(), Some(&b""[..]));
        assert_eq!(next().as_deref(), Some(&b"two"[..]), "nothing was handed down before it");
        let mut got = [0; 3];
        peer.read_exact(&mut got).await.expect("bytes");
    }
}
