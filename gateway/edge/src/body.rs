//! Bodies on their way through: streamed both ways, never gathered, and with a guard that acts when they end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::activity::UserActivity;
use super::event_streams::EventStream;
use super::headers;
use super::upstream::relay::Relayed;
use super::upstream::{PooledHttp1, http1};
use super::watches::WatchUse;
use gateway_http::respond::Failure;
use gateway_net::limits::UsagePermits;
use gateway_types::ActivityKind;

/// Permits that a request holds until its last byte: of its workspace, its sender and its port.
#[derive(Debug)]
pub(super) struct RequestPermits {
    pub(super) _workspace: OwnedSemaphorePermit,
    pub(super) _usage: UsagePermits,
}

/// Request body as the app gets it.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// No body.
    Empty,
    /// Body streamed from the user.
    Streaming(Box<Upload>),
}

/// A user's body and its progress.
#[derive(Debug)]
pub(super) struct Upload {
    incoming: Incoming,
    /// Frame read ahead, before the app's connection asked for one.
    first: Option<Frame<Bytes>>,
    /// Place in which its bytes are noted as use of the workspace.
    activity: Option<UserActivity>,
    progress: Arc<UploadProgress>,
}

/// Progress of an upload, read by the task that waits for the answer.
#[derive(Debug)]
pub(super) struct UploadProgress {
    bytes: AtomicU64,
    /// Fewest bytes in one interval for the body to count as moving.
    least: u64,
    /// Set while the next bytes are awaited from the user, and not held up by the app.
    waits: AtomicBool,
}

impl UploadProgress {
    fn new(least: u64) -> Self {
        Self { bytes: AtomicU64::new(0), least, waits: AtomicBool::new(false) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether enough bytes have come since the count stood at `bytes`.
    pub(super) fn has_moved_since(&self, bytes: u64) -> bool {
        self.bytes().saturating_sub(bytes) >= self.least
    }

    /// Returns whether it is the user who keeps the exchange waiting.
    pub(super) fn waits_for_user(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    /// Wraps a user's body, of which `least` bytes must come in each interval, and which counts as use in `activity`.
    pub(super) fn new(
        incoming: Incoming,
        least: u64,
        activity: Option<&UserActivity>,
    ) -> (Self, Option<Arc<UploadProgress>>) {
        if incoming.is_end_stream() {
            return (Self::Empty, None);
        }
        let progress = Arc::new(UploadProgress::new(least));
        let upload = Upload { incoming, first: None, activity: activity.cloned(), progress: progress.clone() };
        (Self::Streaming(Box::new(upload)), Some(progress))
    }

    /// Waits at most `patience` for the first frame or the end of the body.
    ///
    /// # Errors
    /// [`Failure`] when the user's body broke off.
    ///
    /// Cancel safety: nothing is lost.
    pub(super) async fn begin(&mut self, patience: Duration) -> Result<(), Failure> {
        let Self::Streaming(upload) = self else { return Ok(()) };
        let first = poll_fn(|context| {
            loop {
                match std::task::ready!(Pin::new(&mut upload.incoming).poll_frame(context)) {
                    // An empty frame may be the end, and says nothing otherwise.
                    Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                    frame => return Poll::Ready(frame.transpose()),
                }
            }
        });
        match tokio::time::timeout(patience, first).await {
            Ok(Ok(Some(frame))) => upload.first = Some(frame),
            Ok(Ok(None)) => *self = Self::Empty,
            Ok(Err(_)) => return Err(Failure::BadRequest { reason: "body" }),
            Err(_elapsed) => {}
        }
        Ok(())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self::Streaming(upload) = self.get_mut() else { return Poll::Ready(None) };
        let Upload { incoming, first, activity, progress } = &mut **upload;
        let frame = match first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(incoming).poll_frame(context),
        };
        progress.waits.store(frame.is_pending(), Ordering::Relaxed);
        let frame = std::task::ready!(frame);
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            progress.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            if let Some(activity) = activity {
                activity.note(ActivityKind::Upload);
            }
        }
        Poll::Ready(frame.map(|frame| frame.map(clean_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming(upload) => upload.first.is_none() && upload.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming(upload) if upload.first.is_some() => SizeHint::new(),
            Self::Streaming(upload) => upload.incoming.size_hint(),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A sender that knows the length or the last frame does not poll for the end. A body that is given up half-way
        // takes its connection along, so that one is not used again either.
        self.progress.waits.store(false, Ordering::Relaxed);
    }
}

/// Response body as the user gets it.
#[derive(Debug)]
pub enum ResponseBody {
    /// Page or document of the gateway itself.
    Own(Bytes),
    /// Body streamed from the app.
    App(Box<Download>),
    /// Event stream of the API.
    Events(Box<EventBody>),
    /// File served by the API.
    File(Box<OfFile>),
}

/// A file under way to the user.
#[derive(Debug)]
pub struct OfFile {
    body: axum::body::Body,
    /// Bytes still to come.
    left: u64,
}

impl OfFile {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.left = self.left.saturating_sub(data.len() as u64);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::File)))
    }
}

/// A stream of events, open for as long as its reader is authorised.
#[derive(Debug)]
pub struct EventBody {
    body: axum::body::Body,
    /// `None`: the reader is not checked here; the API re-authorises jobs itself.
    follower: Option<Follower>,
}

#[derive(Debug)]
struct Follower {
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _followed: Arc<EventStream>,
}

impl EventBody {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some(follower) = &mut self.follower
            && follower.ended.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        // It breaks off only if the gateway itself does.
        Pin::new(&mut self.body).poll_frame(context).map(|frame| frame?.ok())
    }
}

/// An app's body. Dropping it before its end closes the channel, so the app hears of it.
#[derive(Debug)]
pub struct Download {
    source: BodySource,
    /// Error that ends it.
    broken: Option<BodyError>,
    _permits: RequestPermits,
    /// Ends once the user's access does.
    watch: WatchUse,
    /// Waits for that end, once the body has been pending: most are over before.
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Download {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.watch.is_ended() {
            return Poll::Ready(Some(Err(self.cut())));
        }
        if let Poll::Ready(frame) = self.source.poll_frame(context) {
            return Poll::Ready(frame);
        }
        let Self { watch, ended, .. } = self;
        let ended = ended.get_or_insert_with(|| Box::pin(watch.wait_owned()));
        std::task::ready!(ended.as_mut().poll(context));
        Poll::Ready(Some(Err(self.cut())))
    }

    /// Lets go of the app at once, however long the user takes to read the end.
    fn cut(&mut self) -> BodyError {
        self.source = BodySource::Http1(None);
        BodyError::AccessEnded
    }
}

/// Source of an app's body.
#[derive(Debug)]
pub(super) enum BodySource {
    /// A connection that this body moves. It goes back to the pool at the end, and is `None` then.
    Http1(Option<PooledHttp1>),
    /// A connection that a task moves.
    Relayed(Relayed),
    /// A stream of an HTTP/2 connection.
    Http2(Incoming),
    /// A body whose first bytes were read ahead.
    Begun(Box<BodyStart>),
}

/// First frames of a body, sent before the rest of it.
#[derive(Debug)]
pub(super) struct BodyStart {
    frames: VecDeque<Result<Frame<Bytes>, BodyError>>,
    /// Bytes in the frames.
    bytes: usize,
    rest: BodySource,
}

impl BodyStart {
    /// Copies the first bytes.
    fn beginning(&self) -> Vec<u8> {
        let data = self.frames.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        data.flat_map(|data| data.iter().copied()).collect()
    }
}

/// Reason a body broke off.
#[derive(Debug, Error)]
pub enum BodyError {
    /// On an HTTP/1.1 connection.
    #[error(transparent)]
    Http1(http1::Error),
    /// On an HTTP/2 connection.
    #[error(transparent)]
    Http2(hyper::Error),
    /// A file of the gateway's own cannot be read any longer.
    #[error("the file cannot be read")]
    File(#[source] axum::Error),
    /// The user's access ended.
    #[error("access ended")]
    AccessEnded,
}

impl BodySource {
    /// Waits for the first bytes of a body: `least` of them, or as many as come before its end or `until`. Nothing of
    /// it is lost: the returned source sends them again.
    pub(super) async fn begun(self, least: usize, until: Instant) -> (Vec<u8>, Self) {
        let mut begun = BodyStart { frames: VecDeque::new(), bytes: 0, rest: self };
        while begun.bytes < least {
            let next = poll_fn(|context| begun.rest.poll_frame(context));
            let Ok(Some(frame)) = tokio::time::timeout_at(until, next).await else { break };
            let is_broken = frame.is_err();
            begun.bytes += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
            begun.frames.push_back(frame);
            if is_broken {
                break;
            }
        }
        (begun.beginning(), Self::Begun(Box::new(begun)))
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1(None) => Poll::Ready(None),
            Self::Http1(place @ Some(_)) => {
                let Some(pooled) = place else { return Poll::Ready(None) };
                let frame = std::task::ready!(pooled.connection.poll_frame(context));
                if pooled.connection.is_answered()
                    && let Some(pooled) = place.take()
                {
                    pooled.give_back();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Http1)))
            }
            Self::Relayed(relayed) => relayed.poll_frame(context).map_err(BodyError::Http1),
            Self::Http2(incoming) => Pin::new(incoming).poll_frame(context).map_err(BodyError::Http2),
            Self::Begun(begun) => match begun.frames.pop_front() {
                Some(frame) => {
                    begun.bytes -= frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
                    Poll::Ready(Some(frame))
                }
                None => begun.rest.poll_frame(context),
            },
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Http1(pooled) => pooled.as_ref().is_none_or(|pooled| pooled.connection.is_answered()),
            Self::Relayed(relayed) => relayed.is_over(),
            Self::Http2(incoming) => incoming.is_end_stream(),
            Self::Begun(begun) => begun.frames.is_empty() && begun.rest.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match self {
            Self::Http1(pooled) => pooled.as_ref().map_or(Some(0), |pooled| pooled.connection.left()),
            Self::Relayed(relayed) => relayed.left(),
            Self::Http2(incoming) => return incoming.size_hint(),
            Self::Begun(begun) => begun.rest.size_hint().exact().map(|rest| rest + begun.bytes as u64),
        };
        left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl From<PooledHttp1> for BodySource {
    /// Takes the body of an answer whose head came over this connection. If the answer came before the request was
    /// sent, a task moves the connection from now on: a user who reads slowly must not hold the request back.
    fn from(pooled: PooledHttp1) -> Self {
        if pooled.connection.is_uploading() { Self::Relayed(pooled.relay()) } else { Self::Http1(Some(pooled)) }
    }
}

impl ResponseBody {
    /// Wraps an event stream of the API, which ends once its reader is no longer authorised.
    pub fn events(body: axum::body::Body, followed: Option<Arc<EventStream>>) -> Self {
        let follower =
            followed.map(|followed| Follower { ended: Box::pin(followed.wait_owned()), _followed: followed });
        Self::Events(Box::new(EventBody { body, follower }))
    }

    /// Wraps a file of `bytes` bytes.
    pub fn file(body: axum::body::Body, bytes: u64) -> Self {
        Self::File(Box::new(OfFile { body, left: bytes }))
    }

    pub(super) fn app(source: BodySource, permits: RequestPermits, watch: WatchUse) -> Self {
        Self::App(Box::new(Download { source, broken: None, _permits: permits, watch, ended: None }))
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Own(bytes)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => events.poll_next(context).map(|frame| frame.map(Ok)),
            Self::File(file) => file.poll_next(context),
            Self::App(download) => {
                if let Some(error) = download.broken.take() {
                    return Poll::Ready(Some(Err(error)));
                }
                let frame = std::task::ready!(download.poll_next(context));
                let Download { broken, .. } = &mut **download;
                if let Some(Err(error)) = frame {
                    // The error breaks the user's connection. Earlier frames go out first.
                    *broken = Some(error);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(frame.map(|frame| frame.map(clean_trailers)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_empty(),
            Self::App(download) => download.broken.is_none() && download.source.is_over(),
            // A refusal over gRPC has its status in the head, which then has to end the stream.
            Self::Events(events) => events.body.is_end_stream(),
            Self::File(file) => file.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::App(download) => download.source.size_hint(),
            Self::Events(_) => SizeHint::new(),
            Self::File(file) => SizeHint::with_exact(file.left),
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // Bodies that were over before they began (HEAD, 204, 304) are never polled.
        if let BodySource::Http1(place) = &mut self.source
            && let Some(pooled) = place.take_if(|pooled| pooled.connection.is_answered())
        {
            pooled.give_back();
        }
    }
}

fn clean_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            headers::trailers(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_that_is_over_before_it_begins_ends_with_its_head() {
        let is_over = |body| ResponseBody::events(body, None).is_end_stream();
        assert!(is_over(axum::body::Body::empty()));
        assert!(!is_over(axum::body::Body::from("data: more\n\n")));
    }
}
