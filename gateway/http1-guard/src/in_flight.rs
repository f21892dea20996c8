//! Progress of the requests of one connection, shared by the service that answers them and the stream they come on.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

/// Counts the requests of one connection: taken by the service, given a response, and done with to the last byte.
///
/// Relaxed is enough everywhere: the service and the stream belong to the same task.
#[derive(Debug, Default)]
pub struct RequestCounts {
    taken: AtomicU64,
    answered: AtomicU64,
    ended: AtomicU64,
    switched: AtomicBool,
    /// Enough bytes came to tell HTTP/1.1 from HTTP/2.
    version_known: AtomicBool,
}

impl RequestCounts {
    /// Counts a request that the service takes: it is under way until the result is dropped.
    #[inline]
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.taken.fetch_add(1, Ordering::Relaxed);
        InFlight { counts: self.clone() }
    }

    /// Returns whether the connection showed its version of HTTP. Until then the library waits without a limit.
    #[inline]
    #[must_use]
    pub fn is_version_known(&self) -> bool {
        self.version_known.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn version_is_known(&self) {
        self.version_known.store(true, Ordering::Relaxed);
    }

    /// Returns the number of requests that the service took.
    #[inline]
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the number of responses that the service gave.
    #[inline]
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns whether exactly `heads` requests were taken, and none is under way.
    #[inline]
    pub(crate) fn is_quiet_after(&self, heads: u64) -> bool {
        self.taken() == heads && self.ended.load(Ordering::Relaxed) == heads
    }

    /// Returns whether the connection speaks another protocol now.
    #[inline]
    pub(crate) fn is_switched(&self) -> bool {
        self.switched.load(Ordering::Relaxed)
    }
}

/// One request under way.
#[derive(Debug)]
pub struct InFlight {
    counts: Arc<RequestCounts>,
}

impl InFlight {
    /// Ties the request to its response: it is under way until that has been handed on.
    #[inline]
    #[must_use]
    pub fn answered<B>(self, response: Response<B>) -> Response<CountedBody<B>> {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.counts.switched.store(true, Ordering::Relaxed);
        }
        response.map(|body| CountedBody { body, _in_flight: self })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A response's body, under way until it is dropped.
#[derive(Debug)]
pub struct CountedBody<B> {
    body: B,
    _in_flight: InFlight,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
