//! A connection to an app that is driven by whoever uses it: while a request is under way its own task moves the bytes,
//! and nobody does while the connection is idle. That saves a task, and the switches to it and back, per request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tracing::debug;
use tunnel_link::channel_io::ChannelIo;

use crate::edge::body::RequestBody;

/// How often in a row a connection is polled because its own parts woke each other, before other tasks get a turn.
const ROUNDS_MAX: usize = 8;

type Connection = http1::Connection<TokioIo<ChannelIo>, RequestBody>;

/// Both ends of an HTTP/1.1 connection to an app: the one that sends requests, and the one that moves bytes.
#[derive(Debug)]
pub(in crate::edge) struct Driven {
    /// Sends. Nothing moves before [`Driven::poll`].
    pub(in crate::edge) sender: http1::SendRequest<RequestBody>,
    /// `None` once it has ended.
    connection: Option<Connection>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Whom the parts of one connection wake. They wake each other all the time, and that is no reason to schedule a task
/// that is polling them at this moment.
#[derive(Debug)]
struct Bell {
    /// A part was woken since the connection was last polled.
    rung: AtomicBool,
    /// The task of the request under way, except while it is polling.
    user: AtomicWaker,
    /// Nobody uses the connection, so what happens on it is for the pool to look at.
    idle: AtomicBool,
    pool: Arc<Notify>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.user.wake();
        if self.idle.load(Ordering::SeqCst) {
            self.pool.notify_one();
        }
    }
}

impl Driven {
    /// Makes a connection over a channel. Nothing is sent before the first request. `pool` hears when something happens
    /// to it while it is idle.
    pub(super) async fn new(channel: ChannelIo, pool: Arc<Notify>) -> Result<Box<Self>, hyper::Error> {
        let (sender, connection) = http1::Builder::new().handshake(TokioIo::new(channel)).await?;
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(true),
            user: AtomicWaker::new(),
            idle: AtomicBool::new(false),
            pool,
        });
        let waker = Waker::from(bell.clone());
        Ok(Box::new(Self { sender, connection: Some(connection), bell, waker }))
    }

    /// Moves bytes until `step`, which waits for something that comes of that and of nothing else, is ready.
    ///
    /// Cancel safety: nothing is lost; the next poll goes on.
    pub(in crate::edge) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        drop(self.bell.user.take());
        for _ in 0..ROUNDS_MAX {
            // It is asked again whenever bytes were moved, so it need not be woken.
            if let Poll::Ready(ready) = step(&mut Context::from_waker(Waker::noop())) {
                return Poll::Ready(ready);
            }
            if !self.is_disturbed() {
                // First the waker, then the look: whoever rings in between finds the one or leaves the other.
                self.bell.user.register(context.waker());
                if !self.is_disturbed() {
                    return Poll::Pending;
                }
                drop(self.bell.user.take());
            }
            self.move_bytes();
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Drives until the connection ends, which it does once nothing is left to send; for when nobody waits for an answer.
    pub(super) async fn run(self: Box<Self>) {
        let Self { sender, connection, .. } = *self;
        drop(sender);
        if let Some(connection) = connection
            && let Err(error) = connection.await
        {
            debug!(%error, "connection to an app ended");
        }
    }

    /// Polls the connection if one of its parts was woken.
    fn move_bytes(&mut self) {
        if !self.bell.rung.swap(false, Ordering::SeqCst) {
            return;
        }
        if let Some(connection) = &mut self.connection
            && let Poll::Ready(result) = Pin::new(connection).poll(&mut Context::from_waker(&self.waker))
        {
            if let Err(error) = result {
                debug!(%error, "connection to an app ended");
            }
            // Who waits for an answer hears why there is none.
            self.connection = None;
        }
    }

    /// Takes it out of its user's hands, after an answer. Returns whether it can be used again.
    pub(super) fn rest(&mut self) -> bool {
        drop(self.bell.user.take());
        let is_usable = self.is_usable();
        self.bell.idle.store(true, Ordering::SeqCst);
        if self.is_disturbed() {
            self.bell.pool.notify_one();
        }
        is_usable
    }

    /// Puts it into the hands of a request. Returns whether it is still open.
    pub(super) fn awake(&mut self) -> bool {
        self.bell.idle.store(false, Ordering::SeqCst);
        self.is_usable()
    }

    /// Returns whether something happened to it since it was last looked at.
    pub(super) fn is_disturbed(&self) -> bool {
        self.bell.rung.load(Ordering::SeqCst)
    }

    /// Looks at what happened to it, if anything. Returns whether a request could be sent on it.
    pub(super) fn is_usable(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            if !self.is_disturbed() {
                break;
            }
            self.move_bytes();
        }
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_none()
    }
}
