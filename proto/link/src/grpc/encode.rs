//! Frames to gRPC messages to HTTP/2 data, without touching payloads.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame as BodyFrame};
use parking_lot::Mutex;
use tunnel_proto::frame::Frame;

use crate::session::Session;

/// Length of the gRPC message prefix: one flag byte and four of length.
pub(super) const PREFIX_BYTES: usize = 5;

/// Small frames are gathered up to this size before they are handed to HTTP/2 as one piece.
const BATCH_BYTES: usize = 16 * 1024;

/// Payloads up to this size are copied: into the batch on the way out, and out of the link's read buffer on the way
/// in, so that a few bytes that nobody reads do not keep all of it. Larger ones ride along as they are.
pub(super) const COPY_BYTES_MAX: usize = 2 * 1024;

/// The buffer for heads grows by this much at once.
const HEADS_BYTES: usize = 4 * 1024;

/// What the head of a Data frame needs at most (see [`tunnel_proto::limit::FRAME_OVERHEAD_BYTES_MAX`]).
const HEAD_BYTES_MAX: usize = tunnel_proto::limit::FRAME_OVERHEAD_BYTES_MAX;

/// Some whole gRPC messages: encoded frames, and at most one payload behind them that was not copied.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    head: Bytes,
    payload: Bytes,
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

/// The body of one direction of the RPC: a first frame, then what the session has to say.
#[derive(Debug)]
pub struct Outgoing {
    first: Option<Frame>,
    source: Source,
    buffer: BytesMut,
    /// gRPC ends a response with its status in trailers; a request just ends.
    trailers: bool,
}

/// Where frames come from. An agent's session starts only after the gateway's Welcome, when its body is already being
/// sent.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Session(Session),
    Later(Arc<Mutex<Slot>>),
    Ended,
}

/// Filled once, or given up.
#[derive(Debug)]
pub(super) enum Slot {
    /// No session yet; the request's body waits.
    Empty(Option<Waker>),
    /// The session that the body is to carry.
    Filled(Session),
    /// Nobody will fill it: the body ends, and with it the stream and the connection.
    GivenUp,
}

/// The end of a slot that fills it. Dropped unfilled, it gives the slot up: a request whose answer nobody waits for
/// any more would keep its connection for ever.
#[derive(Debug)]
pub(super) struct Filler {
    slot: Arc<Mutex<Slot>>,
}

impl Filler {
    /// Makes both ends of a slot.
    pub(super) fn new() -> (Self, Arc<Mutex<Slot>>) {
        let slot = Arc::new(Mutex::new(Slot::Empty(None)));
        (Self { slot: slot.clone() }, slot)
    }

    /// Hands the session over; the first one counts.
    pub(super) fn fill(&self, session: Session) {
        self.settle(Slot::Filled(session));
    }

    fn settle(&self, settled: Slot) {
        let waker = {
            let mut slot = self.slot.lock();
            let Slot::Empty(waker) = &mut *slot else { return };
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
        self.settle(Slot::GivenUp);
    }
}

impl Outgoing {
    /// Makes a response body: Welcome, then the session.
    #[must_use]
    pub fn response(welcome: Frame, session: Session) -> Self {
        Self { first: Some(welcome), source: Source::Session(session), buffer: BytesMut::new(), trailers: true }
    }

    /// Makes a request body: Hello, then the session once the slot is filled.
    pub(super) fn request(hello: Frame, slot: Arc<Mutex<Slot>>) -> Self {
        Self { first: Some(hello), source: Source::Later(slot), buffer: BytesMut::new(), trailers: false }
    }

    fn poll_chunk(&mut self, context: &Context<'_>) -> Poll<Option<Chunk>> {
        if let Some(first) = self.first.take() {
            let payload = encode(first, &mut self.buffer);
            return Poll::Ready(Some(Chunk { head: self.buffer.split().freeze(), payload }));
        }
        if let Source::Later(slot) = &self.source {
            let source = match &mut *slot.lock() {
                Slot::Empty(waker) => {
                    *waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Slot::Filled(session) => Source::Session(session.clone()),
                Slot::GivenUp => Source::Ended,
            };
            self.source = source;
        }
        let Source::Session(session) = &self.source else { return Poll::Ready(None) };
        let buffer = &mut self.buffer;
        let mut payload = Bytes::new();
        let batch = session.poll_transmit(context, |frame| {
            if buffer.capacity() - buffer.len() < HEAD_BYTES_MAX {
                buffer.reserve(HEADS_BYTES);
            }
            payload = encode(frame, buffer);
            if payload.len() > COPY_BYTES_MAX {
                return false;
            }
            buffer.extend_from_slice(&payload);
            payload = Bytes::new();
            buffer.len() < BATCH_BYTES
        });
        match batch {
            Poll::Pending => {
                // An idle link keeps no buffer.
                self.buffer = BytesMut::new();
                Poll::Pending
            }
            Poll::Ready(true) => Poll::Ready(Some(Chunk { head: buffer.split().freeze(), payload })),
            Poll::Ready(false) => {
                self.source = Source::Ended;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Source::Session(session) = &self.source {
            session.transmit_gone();
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
            Poll::Ready(None) if std::mem::take(&mut self.trailers) => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(BodyFrame::trailers(trailers))))
            }
            Poll::Ready(None) => Poll::Ready(None),
        }
    }
}
