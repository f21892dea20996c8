//! Encodes frames to gRPC messages to HTTP/2 data, without touching payloads.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame as BodyFrame};
use parking_lot::Mutex;
use tunnel_proto::frame::{Body as FrameBody, Frame};
use tunnel_proto::hello::Hello;

use crate::pace::Pace;
use crate::session::LinkHold;

/// Length of the gRPC message prefix: one flag byte and four of length.
pub const PREFIX_BYTES: usize = 5;

/// Small frames are gathered up to this size before they are handed to HTTP/2 as one piece.
const BATCH_BYTES: usize = 16 * 1024;

/// Payloads up to this size are copied into the batch. Larger ones ride along as they are.
const COPY_BYTES_MAX: usize = 2 * 1024;

/// The buffer for heads grows by this much at once.
const HEADS_BYTES: usize = 4 * 1024;

/// Most bytes of the head of a Data frame (see [`tunnel_proto::limit::FRAME_OVERHEAD_BYTES_MAX`]).
const HEAD_BYTES_MAX: usize = tunnel_proto::limit::FRAME_OVERHEAD_BYTES_MAX;

/// A batch, whatever it ends with, fits into the largest message of a WebSocket that a peer accepts.
const _: () = assert!(
    BATCH_BYTES + COPY_BYTES_MAX + 2 * (PREFIX_BYTES + HEAD_BYTES_MAX) + tunnel_proto::limit::PAYLOAD_BYTES_MAX
        <= tunnel_proto::limit::FRAME_BYTES_MAX
);

/// Some whole gRPC messages: encoded frames, and at most one payload behind them that was not copied.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    head: Bytes,
    payload: Bytes,
}

impl Chunk {
    /// Makes a chunk of a head and what follows it.
    #[must_use]
    pub fn new(head: Bytes, payload: Bytes) -> Self {
        Self { head, payload }
    }
}

impl From<Bytes> for Chunk {
    fn from(head: Bytes) -> Self {
        Self { head, payload: Bytes::new() }
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.head.is_empty() { &self.payload } else { &self.head }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let filled = self.head.chunks_vectored(slices);
        filled + slices.get_mut(filled..).map_or(0, |rest| self.payload.chunks_vectored(rest))
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head.len());
        self.head.advance(of_head);
        self.payload.advance(count - of_head);
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        if length <= self.head.len() {
            return self.head.split_to(length);
        }
        if self.head.is_empty() {
            return self.payload.copy_to_bytes(length);
        }
        let mut copy = BytesMut::with_capacity(length);
        copy.put(self.take(length));
        copy.freeze()
    }
}

/// Appends a frame as a gRPC message; returns the payload that has to follow.
pub(super) fn encode(frame: Frame, head: &mut BytesMut) -> Bytes {
    let start = head.len();
    head.put_bytes(0, PREFIX_BYTES);
    let payload = frame.encode(head);
    let length = head.len() - start - PREFIX_BYTES + payload.len();
    if let Some(prefix) = head.get_mut(start + 1..start + PREFIX_BYTES) {
        // Frames are far below 4 GiB: the machine cuts payloads to size.
        prefix.copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
    payload
}

/// Encodes a Hello as a gRPC message, as an agent sends it.
#[must_use]
pub fn hello_message(hello: &Hello) -> Bytes {
    let mut message = BytesMut::new();
    let hello = Frame { sequence: 0, acknowledged: 0, body: FrameBody::Hello(Box::new(hello.clone())) };
    // Only data frames have a payload beside the head.
    drop(encode(hello, &mut message));
    message.freeze()
}

/// Body of one direction of the RPC: a first frame, then the frames of the session.
#[derive(Debug)]
pub struct Outgoing {
    first: Option<Frame>,
    source: FrameSource,
    pace: Arc<Pace>,
    buffer: BytesMut,
    direction: BodyDirection,
    /// Whether the frame that ends the session was handed over.
    closed: bool,
    /// Whether the trailers were handed over.
    finished: bool,
}

/// Half of the RPC that a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyDirection {
    Request,
    /// Ends with its status in trailers, as gRPC has it.
    Response,
}

/// Source of frames. An agent's session starts only after the gateway's Welcome, when its body is already being sent.
#[derive(Debug, Clone)]
pub(super) enum FrameSource {
    Link(LinkHold),
    Later(Arc<Mutex<FrameSlot>>),
    /// The last frame of a request was handed over. Ending the body now would let HTTP/2 cancel a stream whose answer
    /// is not read any more, and with it the unwritten bytes: the last frame itself. The gateway ends the stream
    /// instead.
    Said,
    Ended,
}

/// Filled once, or given up.
#[derive(Debug)]
pub(super) enum FrameSlot {
    /// No session yet; the request's body waits.
    Empty(Option<Waker>),
    /// The link whose frames the body carries.
    Filled(LinkHold),
    /// It will never be filled: the body ends, and with it the stream and the connection.
    GivenUp,
}

/// The end of a slot that fills it. Dropped unfilled, it gives the slot up: a request whose answer is not waited for
/// any more would keep its connection for ever.
#[derive(Debug)]
pub struct Filler {
    slot: Arc<Mutex<FrameSlot>>,
}

impl Filler {
    /// Makes both ends of a slot.
    pub(super) fn new() -> (Self, Arc<Mutex<FrameSlot>>) {
        let slot = Arc::new(Mutex::new(FrameSlot::Empty(None)));
        (Self { slot: slot.clone() }, slot)
    }

    /// Hands the link over; the first one counts.
    pub(super) fn fill(&self, link: LinkHold) {
        self.settle(FrameSlot::Filled(link));
    }

    fn settle(&self, settled: FrameSlot) {
        let waker = {
            let mut slot = self.slot.lock();
            let FrameSlot::Empty(waker) = &mut *slot else { return };
            let waker = waker.take();
            *slot = settled;
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.settle(FrameSlot::GivenUp);
    }
}

impl Outgoing {
    /// Makes a response body: Welcome, then the session's frames.
    #[must_use]
    pub fn response(welcome: Frame, link: LinkHold, pace: Arc<Pace>) -> Self {
        Self::new(welcome, FrameSource::Link(link), pace, BodyDirection::Response)
    }

    /// Makes a request body: Hello, then the session once the slot is filled.
    pub(super) fn request(hello: Frame, slot: Arc<Mutex<FrameSlot>>, pace: Arc<Pace>) -> Self {
        Self::new(hello, FrameSource::Later(slot), pace, BodyDirection::Request)
    }

    fn new(first: Frame, source: FrameSource, pace: Arc<Pace>, direction: BodyDirection) -> Self {
        Self { first: Some(first), source, pace, buffer: BytesMut::new(), direction, closed: false, finished: false }
    }

    fn poll_chunk(&mut self, context: &Context<'_>) -> Poll<Option<Chunk>> {
        if let Some(first) = self.first.take() {
            let payload = encode(first, &mut self.buffer);
            return Poll::Ready(Some(Chunk { head: self.buffer.split().freeze(), payload }));
        }
        if let FrameSource::Later(slot) = &self.source {
            let source = match &mut *slot.lock() {
                FrameSlot::Empty(waker) => {
                    *waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                FrameSlot::Filled(link) => FrameSource::Link(link.clone()),
                FrameSlot::GivenUp => FrameSource::Ended,
            };
            self.source = source;
        }
        let link = match &self.source {
            FrameSource::Link(link) => link,
            FrameSource::Said => return Poll::Pending,
            FrameSource::Later(_) | FrameSource::Ended => return Poll::Ready(None),
        };
        let Poll::Ready(frame_max) = self.pace.poll_turn(context) else { return Poll::Pending };
        let (buffer, closed) = (&mut self.buffer, &mut self.closed);
        let batch_max = BATCH_BYTES.min(frame_max);
        let mut payload = Bytes::new();
        let batch = link.poll_transmit_within(context, frame_max, |frame| {
            if buffer.capacity() - buffer.len() < HEAD_BYTES_MAX {
                buffer.reserve(HEADS_BYTES);
            }
            *closed |= matches!(frame.body, FrameBody::Close { .. });
            payload = encode(frame, buffer);
            if payload.len() > COPY_BYTES_MAX {
                return false;
            }
            buffer.extend_from_slice(&payload);
            payload = Bytes::new();
            buffer.len() < batch_max
        });
        match batch {
            Poll::Pending => {
                // An idle link keeps no buffer.
                self.buffer = BytesMut::new();
                self.pace.rest();
                Poll::Pending
            }
            Poll::Ready(true) => {
                self.pace.hand_down(buffer.len() + payload.len());
                Poll::Ready(Some(Chunk { head: buffer.split().freeze(), payload }))
            }
            Poll::Ready(false) if self.closed && self.direction == BodyDirection::Request => {
                self.source = FrameSource::Said;
                Poll::Pending
            }
            Poll::Ready(false) => {
                self.source = FrameSource::Ended;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let FrameSource::Link(link) = &self.source {
            link.transmit_gone();
        }
    }
}

impl Body for Outgoing {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Chunk>, Infallible>>> {
        match self.poll_chunk(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(chunk)) => Poll::Ready(Some(Ok(BodyFrame::data(chunk)))),
            Poll::Ready(None)
                if self.direction == BodyDirection::Response && !std::mem::replace(&mut self.finished, true) =>
            {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(BodyFrame::trailers(trailers))))
            }
            Poll::Ready(None) => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::*;

    /// What a consumer may do with a buffer.
    #[derive(Clone, Debug)]
    enum EncodeStep {
        Advance(prop::sample::Index),
        Copy(prop::sample::Index),
        Gather(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<EncodeStep>> {
        let step = prop_oneof![
            any::<prop::sample::Index>().prop_map(EncodeStep::Advance),
            any::<prop::sample::Index>().prop_map(EncodeStep::Copy),
            (0_usize..4).prop_map(EncodeStep::Gather),
        ];
        prop::collection::vec(step, 0..12)
    }

    proptest! {
        #[test]
        fn chunk_reads_like_its_bytes_one_after_the_other(
            head in prop::collection::vec(any::<u8>(), 0..40),
            payload in prop::collection::vec(any::<u8>(), 0..40),
            steps in steps(),
        ) {
            let mut model = [head.clone(), payload.clone()].concat();
            let mut chunk = Chunk { head: head.into(), payload: payload.into() };
            for step in steps {
                match step {
                    EncodeStep::Advance(index) => {
                        let count = index.index(model.len() + 1);
                        chunk.advance(count);
                        model.drain(..count);
                    }
                    EncodeStep::Copy(index) => {
                        let count = index.index(model.len() + 1);
                        prop_assert_eq!(chunk.copy_to_bytes(count), model.drain(..count).collect::<Bytes>());
                    }
                    EncodeStep::Gather(count) => {
                        let mut slices = vec![IoSlice::new(&[]); count];
                        let filled = chunk.chunks_vectored(&mut slices);
                        prop_assert!(filled <= count);
                        let gathered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                        prop_assert!(model.starts_with(&gathered));
                        // Two slices are always enough for all of it.
                        prop_assert!(count < 2 || gathered.len() == model.len());
                        prop_assert!(slices[..filled].iter().all(|slice| !slice.is_empty()));
                    }
                }
                prop_assert_eq!(chunk.remaining(), model.len());
                prop_assert!(model.starts_with(chunk.chunk()));
                prop_assert_eq!(chunk.chunk().is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn slot_that_is_dropped_unfilled_ends_its_body() {
        let hello = || Frame { sequence: 0, acknowledged: 0, body: FrameBody::Acknowledge };
        let (filler, slot) = Filler::new();
        let mut body = Outgoing::request(hello(), slot, Pace::unbounded());
        let (count, waker) = crate::shuttle::Count::new();
        let context = Context::from_waker(&waker);
        assert!(matches!(body.poll_chunk(&context), Poll::Ready(Some(_))));
        assert!(body.poll_chunk(&context).is_pending());
        drop(filler);
        assert_eq!(count.get(), 1);
        assert!(matches!(body.poll_chunk(&context), Poll::Ready(None)));
    }

    #[test]
    fn idle_body_keeps_no_buffer_and_small_frames_share_one() {
        let (gateway, agent) = crate::shuttle::sessions();
        let (mut here, _there) = crate::shuttle::joined(&gateway, &agent);
        let welcome = Frame { sequence: 0, acknowledged: 0, body: FrameBody::Acknowledge };
        let mut body = Outgoing::response(welcome, gateway.link(), Pace::unbounded());
        let context = Context::from_waker(Waker::noop());
        assert!(matches!(body.poll_chunk(&context), Poll::Ready(Some(_))));
        for _ in 0..10 {
            // Small, but too large to be joined in the channel's own queue.
            let mut bytes = Bytes::from(vec![1; 600]);
            assert!(here.poll_write_bytes(&context, &mut bytes).is_ready());
        }
        let Poll::Ready(Some(chunk)) = body.poll_chunk(&context) else { panic!("nothing to send") };
        assert!(chunk.payload.is_empty());
        assert!(chunk.head.len() > 10 * (PREFIX_BYTES + 600), "ten messages in one piece");
        let mut bytes = Bytes::from(vec![7; 3 * COPY_BYTES_MAX]);
        let payload = bytes.as_ptr();
        assert!(here.poll_write_bytes(&context, &mut bytes).is_ready());
        let Poll::Ready(Some(chunk)) = body.poll_chunk(&context) else { panic!("nothing to send") };
        assert_eq!(chunk.payload.as_ptr(), payload, "not copied");
        assert!(body.poll_chunk(&context).is_pending());
        assert_eq!(body.buffer.capacity(), 0);
    }
}
