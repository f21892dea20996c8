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

/// Payloads up to this size are copied into the batch; larger ones ride along as they are.
const COPY_BYTES_MAX: usize = 2 * 1024;

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
        if length == self.head.len() {
            return std::mem::take(&mut self.head);
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

/// Filled once.
#[derive(Debug, Default)]
pub(super) struct Slot {
    session: Option<Session>,
    waker: Option<Waker>,
}

impl Slot {
    pub(super) fn fill(slot: &Arc<Mutex<Self>>, session: Session) {
        let waker = {
            let mut slot = slot.lock();
            slot.session = Some(session);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
        let session = match &self.source {
            Source::Ended => return Poll::Ready(None),
            Source::Session(session) => session.clone(),
            Source::Later(slot) => {
                let mut slot = slot.lock();
                let Some(session) = slot.session.take() else {
                    slot.waker = Some(context.waker().clone());
                    return Poll::Pending;
                };
                drop(slot);
                self.source = Source::Session(session.clone());
                session
            }
        };
        let buffer = &mut self.buffer;
        let mut payload = Bytes::new();
        let batch = session.poll_transmit(context, |frame| {
            payload = encode(frame, buffer);
            if payload.len() > COPY_BYTES_MAX {
                return false;
            }
            buffer.extend_from_slice(&payload);
            payload = Bytes::new();
            buffer.len() < BATCH_BYTES
        });
        match batch {
            Poll::Pending => Poll::Pending,
            Poll::Ready(true) => Poll::Ready(Some(Chunk { head: buffer.split().freeze(), payload })),
            Poll::Ready(false) => {
                self.source = Source::Ended;
                Poll::Ready(None)
            }
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
