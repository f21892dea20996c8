//! HTTP/1.1 connection to an app over a channel, driven by the request that waits for its answer: it has no task of its
//! own. The rules are in the pure parts below; this is the shell that polls the channel.
//!
//! Bytes of bodies are handed on as they come, both ways.

mod body;
mod decoder;
mod digits;
mod request;
mod response;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Sleep;
use tunnel_link::channel_io::ChannelIo;

use self::decoder::{Decoder, FrameFound, HeadFound};
use self::request::{Framing, Length};
pub(crate) use self::response::Head;
use crate::body::RequestBody;

/// Longest wait for an app's `100 Continue` before the body is sent all the same (RFC 9110, section 10.1.1: a client is
/// not to wait for ever).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason an exchange has no answer, or a body no end.
#[derive(Debug, Error)]
pub enum Error {
    /// The channel broke.
    #[error(transparent)]
    Channel(#[from] io::Error),
    /// The app finished the connection before it answered.
    #[error("the connection ended before an answer")]
    Closed,
    /// The app finished the connection within its answer.
    #[error("the connection ended within an answer")]
    Incomplete,
    /// The bytes are a record of TLS.
    #[error("an answer in TLS to a request without it")]
    Tls,
    /// The bytes are no answer, or one that could be read in two ways.
    #[error("not the head of an HTTP/1 response")]
    Head,
    /// The bytes are no chunked body.
    #[error("not a chunked body")]
    Body,
    /// The request cannot be written as it is, or its body is not as long as its head says.
    #[error("the request contradicts itself")]
    Request,
    /// The user's body broke off.
    #[error(transparent)]
    User(hyper::Error),
}

/// A request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Bytes,
    is_head: bool,
    can_repeat: bool,
    upload: Upload,
}

impl Outgoing {
    /// Writes a request's head. Its body waits for the app's `100 Continue` if `asks_first`.
    ///
    /// # Errors
    /// [`Error::Request`] for one that cannot be written.
    pub(crate) fn new(parts: &Parts, body: RequestBody, asks_first: bool) -> Result<Self, Error> {
        let length = match body.size_hint().exact() {
            _ if body.is_end_stream() => Length::None,
            Some(length) => Length::Known(length),
            None => Length::Unknown,
        };
        let (head, framing) = request::encode(parts, length)?;
        // Only a request without a body and with an idempotent method (RFC 9110, section 9.2.2) is sent again after it
        // was sent.
        let can_repeat = length == Length::None && parts.method.is_idempotent();
        let upload = match framing {
            Framing::None | Framing::Sized { left: 0 } => Upload::Done,
            Framing::Sized { .. } | Framing::Chunked { .. } => {
                Upload::Sending { body, framing, hold: asks_first.then_some(Hold { late: None }) }
            }
        };
        Ok(Self { head, is_head: parts.method == Method::HEAD, can_repeat, upload })
    }

    /// Returns the same request once more, if it may be sent twice.
    pub(crate) fn again(&self) -> Option<Self> {
        self.can_repeat.then(|| Self { head: self.head.clone(), upload: Upload::Done, ..*self })
    }
}

/// Progress of the request's body.
#[derive(Debug)]
enum Upload {
    /// There is none, or it is sent.
    Done,
    /// It comes from the user.
    Sending { body: RequestBody, framing: Framing, hold: Option<Hold> },
    /// The app answered without asking for it. Kept until the exchange is over, so that the user's connection is still
    /// looked after.
    NotAsked { _body: RequestBody },
    /// The channel takes no more; its reading half has the reason.
    Broken,
}

/// Holds a body back until the app says `100 Continue`.
#[derive(Debug)]
struct Hold {
    /// Starts when the body could first be sent.
    late: Option<Pin<Box<Sleep>>>,
}

impl Hold {
    fn begin(&mut self) {
        self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(CONTINUE_TIMEOUT)));
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.late {
            Some(late) => late.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

/// Waker of an idle connection.
#[derive(Debug)]
struct Bell {
    /// Something came since the connection was last looked at.
    rung: AtomicBool,
    pool: Arc<Notify>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.pool.notify_one();
    }
}

/// A connection. Dropped with a response under way, or a request, it resets its channel, so that the app hears of it.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    channel: ChannelIo,
    decoder: Decoder,
    upload: Upload,
    /// Bytes to write, in order.
    unsent: VecDeque<Bytes>,
    bell: Arc<Bell>,
    idle_waker: Waker,
}

impl Http1Connection {
    /// Makes a connection over a new channel. `pool` is notified when something comes while it is idle.
    pub(super) fn new(channel: ChannelIo, pool: Arc<Notify>) -> Box<Self> {
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), pool });
        let idle_waker = Waker::from(bell.clone());
        let (decoder, unsent) = (Decoder::new(), VecDeque::new());
        Box::new(Self { channel, decoder, upload: Upload::Done, unsent, bell, idle_waker })
    }

    /// Begins an exchange. Nothing moves before [`Http1Connection::poll_head`].
    pub(crate) fn begin(&mut self, request: Outgoing) {
        let Outgoing { head, is_head, upload, .. } = request;
        self.unsent.push_back(head);
        self.upload = upload;
        self.decoder.expect(is_head);
        if is_head {
            // Many small servers send a body all the same, and one that comes late would be taken for the next answer.
            self.decoder.keep_not();
        }
    }

    /// Excludes the connection from use after this exchange.
    pub(crate) fn use_once(&mut self) {
        self.decoder.keep_not();
    }

    /// Moves the request out and waits for the answer's head. A user's body that breaks off fails the exchange.
    ///
    /// Cancel safety: nothing is lost; the next poll goes on.
    pub(crate) fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Head, Error>> {
        self.poll_move(context)?;
        loop {
            match self.decoder.head()? {
                HeadFound::Final(head) => {
                    if matches!(self.upload, Upload::Sending { hold: Some(_), .. })
                        && let Upload::Sending { body, .. } = std::mem::replace(&mut self.upload, Upload::Done)
                    {
                        self.upload = Upload::NotAsked { _body: body };
                    }
                    return Poll::Ready(Ok(head));
                }
                HeadFound::Interim(status) => {
                    if status == StatusCode::CONTINUE
                        && let Upload::Sending { hold, .. } = &mut self.upload
                        && hold.take().is_some()
                    {
                        self.poll_move(context)?;
                    }
                }
                HeadFound::More => {
                    if let Poll::Ready(received) = self.poll_receive(context) {
                        received?;
                        continue;
                    }
                    // Only now: an app that has refused the body gets none of it, however late it is read.
                    ready!(self.poll_let_go(context));
                    self.poll_move(context)?;
                }
            }
        }
    }

    /// Waits until a body was held back for long enough, and releases it.
    fn poll_let_go(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Upload::Sending { hold, .. } = &mut self.upload else { return Poll::Pending };
        let Some(waiting) = hold else { return Poll::Pending };
        ready!(waiting.poll_late(context));
        *hold = None;
        Poll::Ready(())
    }

    /// Waits for the next part of the answer's body, and moves the request's. `None` at the end.
    ///
    /// Cancel safety: nothing is lost; the next poll goes on.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(ready!(self.poll_next(context)).transpose())
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        if self.is_uploading() {
            self.poll_move(context)?;
        }
        loop {
            match self.decoder.frame()? {
                FrameFound::Data(data) => return Poll::Ready(Ok(Some(Frame::data(data)))),
                FrameFound::Trailers(trailers) => return Poll::Ready(Ok(Some(Frame::trailers(trailers)))),
                FrameFound::End => return Poll::Ready(Ok(None)),
                FrameFound::More => ready!(self.poll_receive(context))?,
            }
        }
    }

    /// Moves the request out until it is sent. An error is the user's.
    pub(super) fn poll_upload(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_move(context)?;
        if self.is_uploading() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Waits, after the answer, for anything from the app: nothing that comes now is of use.
    pub(super) fn poll_anything(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.decoder.is_drained() { self.channel.poll_bytes(context).map(drop) } else { Poll::Ready(()) }
    }

    /// Writes as much of the request as there is room for and bytes are there.
    fn poll_move(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        loop {
            while let Some(piece) = self.unsent.front_mut() {
                match self.channel.poll_write_bytes(context, piece) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Ok(_)) if piece.is_empty() => drop(self.unsent.pop_front()),
                    Poll::Ready(Ok(_)) => {}
                    // Its reading half knows the reason, and may have an answer that came before.
                    Poll::Ready(Err(_)) => {
                        self.unsent.clear();
                        self.upload = Upload::Broken;
                        return Ok(());
                    }
                }
            }
            if self.poll_body(context)?.is_pending() || self.unsent.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes the next part of the user's body.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Error> {
        let Upload::Sending { body, framing, hold } = &mut self.upload else { return Ok(Poll::Ready(())) };
        if let Some(waiting) = hold {
            waiting.begin();
            return Ok(Poll::Pending);
        }
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else { return Ok(Poll::Pending) };
        let write = |piece| self.unsent.push_back(piece);
        let is_over = match frame.transpose().map_err(Error::User)?.map(Frame::into_data) {
            None => {
                framing.end(None, write)?;
                true
            }
            Some(Err(frame)) => {
                framing.end(frame.trailers_ref(), write)?;
                true
            }
            Some(Ok(data)) => {
                framing.data(data, write)?;
                // A body of known length needs no end mark.
                if !framing.is_over() && body.is_end_stream() {
                    framing.end(None, |piece| self.unsent.push_back(piece))?;
                }
                framing.is_over()
            }
        };
        if is_over {
            self.upload = Upload::Done;
        }
        Ok(Poll::Ready(()))
    }

    fn poll_receive(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        // A body goes on to a user, who may stop reading; heads are gathered here, and that must not use up the window.
        let bytes =
            if self.decoder.is_in_body() { self.channel.poll_lent(context) } else { self.channel.poll_bytes(context) };
        match ready!(bytes)? {
            Some(bytes) => self.decoder.push(bytes),
            None => self.decoder.finish(),
        }
        Poll::Ready(Ok(()))
    }

    /// Returns whether bytes of the request are still to be sent.
    pub(crate) fn is_uploading(&self) -> bool {
        !self.unsent.is_empty() || matches!(self.upload, Upload::Sending { .. })
    }

    /// Returns whether the answer is there to its last byte.
    pub(crate) fn is_answered(&self) -> bool {
        self.decoder.is_over()
    }

    /// Returns how many bytes of the answer's body are to come, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.decoder.left()
    }

    /// Puts the connection to rest after an answer. Returns whether it can be used again.
    pub(super) fn rest(&mut self) -> bool {
        let is_sent = self.unsent.is_empty() && matches!(self.upload, Upload::Done);
        is_sent && self.decoder.is_reusable() && self.is_quiet()
    }

    /// Returns whether something came since it was last looked at.
    pub(super) fn is_disturbed(&self) -> bool {
        self.bell.rung.load(Ordering::SeqCst)
    }

    /// Looks at what came while it was idle, if anything. Returns whether a request could be sent on it.
    pub(super) fn is_usable(&mut self) -> bool {
        !self.is_disturbed() || self.is_quiet()
    }

    /// Polls the channel, and registers to be woken when something comes. Unrequested bytes end a connection as its end
    /// does: they would be taken for the next answer.
    fn is_quiet(&mut self) -> bool {
        self.bell.rung.store(false, Ordering::SeqCst);
        self.channel.poll_bytes(&Context::from_waker(&self.idle_waker)).is_pending()
    }

    /// Turns into the raw stream, after a 101 and once the request is sent. Bytes that the app sent right behind the
    /// 101 come first.
    pub(crate) async fn into_stream(mut self: Box<Self>) -> Result<ChannelIo, Error> {
        std::future::poll_fn(|context| self.poll_upload(context)).await?;
        let Self { mut channel, decoder, .. } = *self;
        channel.put_back(decoder.into_rest());
        Ok(channel)
    }
}

#[cfg(test)]
mod tests;
