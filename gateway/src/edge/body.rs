//! Bodies on their way through: streamed both ways, never gathered, and with a guard that acts when they end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::headers;
use super::living::UnderWay;
use super::upstream::Lease;

/// How long an app may take to say `100 Continue` before the body is sent all the same (RFC 9110, section 10.1.1: a
/// client is not to wait for ever).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// What the app gets as a request body.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// Nothing.
    Empty,
    /// What the user sends.
    Streaming(Box<Upload>),
}

/// A user's body and how far it is.
#[derive(Debug)]
pub(super) struct Upload {
    incoming: Incoming,
    /// While it is closed, nothing is read, and so the user is not told to continue either.
    gate: Option<Gate>,
    progress: Arc<Progress>,
}

/// Holds a body back until the app says `100 Continue`.
#[derive(Debug)]
pub(super) struct Gate {
    /// `None` after the app gave its final answer without asking for the body, which is now of no use to anybody.
    opened: Option<oneshot::Receiver<()>>,
    /// Ends with the exchange.
    over: oneshot::Receiver<()>,
    /// Starts when the body is first asked for.
    late: Option<Pin<Box<Sleep>>>,
}

impl Gate {
    /// Makes a gate that `opened` opens; it stops to wait when the other end of `over` is gone.
    pub(super) fn new(opened: oneshot::Receiver<()>, over: oneshot::Receiver<()>) -> Self {
        Self { opened: Some(opened), over, late: None }
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        if let Some(opened) = &mut self.opened {
            match Pin::new(opened).poll(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => self.opened = None,
                Poll::Pending => {
                    let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(CONTINUE_TIMEOUT)));
                    return late.as_mut().poll(context).map(Ok);
                }
            }
        }
        // The answer may still be on its way, and an error here would cut it off.
        Pin::new(&mut self.over).poll(context).map(|_| Err(UploadError::NotAsked))
    }
}

/// Why a body does not go on to the app.
#[derive(Debug, Error)]
pub(super) enum UploadError {
    /// The user broke it off.
    #[error(transparent)]
    User(#[from] hyper::Error),
    /// The app answered without asking for it.
    #[error("the app answered without asking for the body")]
    NotAsked,
}

/// How far a body is; read by whoever waits for the answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    frames: AtomicU64,
    finished: AtomicBool,
}

impl Progress {
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    /// Wraps a user's body. It is held back until `gate` opens, if there is one.
    pub(super) fn new(incoming: Incoming, gate: Option<Gate>) -> (Self, Option<Arc<Progress>>) {
        if incoming.is_end_stream() {
            return (Self::Empty, None);
        }
        let progress = Arc::new(Progress::default());
        let upload = Upload { incoming, gate, progress: progress.clone() };
        (Self::Streaming(Box::new(upload)), Some(progress))
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self::Streaming(upload) = self.get_mut() else { return Poll::Ready(None) };
        if let Some(gate) = &mut upload.gate {
            std::task::ready!(gate.poll_open(context))?;
            upload.gate = None;
        }
        let frame = std::task::ready!(Pin::new(&mut upload.incoming).poll_frame(context));
        upload.progress.frames.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(frame.map(|frame| frame.map(clean_trailers).map_err(UploadError::User)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming(upload) => upload.gate.is_none() && upload.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming(upload) => upload.incoming.size_hint(),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Whoever sends a body does not ask for its end if it knows the last frame, or the length. A body that is given up
        // half-way takes its connection along, so that one is not used again either.
        self.progress.finished.store(true, Ordering::Relaxed);
    }
}

/// What the user gets as a response body.
#[derive(Debug)]
pub enum ResponseBody {
    /// The gateway's own words.
    Own(Bytes),
    /// What the app sends.
    App(Box<Download>),
}

/// An app's body. Dropping it before its end closes the channel, so the app hears of it.
#[derive(Debug)]
pub struct Download {
    incoming: Incoming,
    /// Goes back to the pool when the body has come to its end.
    lease: Option<Lease>,
    /// Why there is no more.
    broken: Option<hyper::Error>,
    _slot: OwnedSemaphorePermit,
    watch: UnderWay,
    /// Waits for the end of access, once the body has kept anybody waiting: most are over before.
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Download {
    fn poll_app(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = &mut self.incoming;
        match &mut self.lease {
            Some(lease) => lease.poll(context, |context| Pin::new(&mut *incoming).poll_frame(context)),
            None => Pin::new(incoming).poll_frame(context),
        }
    }
}

impl ResponseBody {
    pub(super) fn app(incoming: Incoming, lease: Lease, slot: OwnedSemaphorePermit, watch: UnderWay) -> Self {
        Self::App(Box::new(Download { incoming, lease: Some(lease), broken: None, _slot: slot, watch, ended: None }))
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Own(bytes)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::App(download) => {
                if let Some(error) = download.broken.take() {
                    return Poll::Ready(Some(Err(error)));
                }
                if download.watch.is_ended() {
                    // Without its connection the body breaks off, and so the user's connection does.
                    drop(download.lease.take());
                }
                let Poll::Ready(frame) = download.poll_app(context) else {
                    let Download { watch, ended, .. } = &mut **download;
                    let ended = ended.get_or_insert_with(|| Box::pin(watch.wait_owned()));
                    std::task::ready!(ended.as_mut().poll(context));
                    drop(download.lease.take());
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                };
                let Download { incoming, lease, broken, .. } = &mut **download;
                let is_over = frame.is_none() || incoming.is_end_stream();
                if is_over && let Some(lease) = lease.take() {
                    lease.give_back();
                }
                if let Some(Err(error)) = frame {
                    // The user's connection is about to break for it. What came before goes out first.
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
            Self::App(download) => download.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::App(download) => download.incoming.size_hint(),
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // Bodies that were over before they began (HEAD, 204, 304) are never polled.
        if self.incoming.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
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
