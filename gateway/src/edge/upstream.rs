//! Connections to apps over channels: HTTP/1.1 ones pooled per session and port, one HTTP/2 connection where an app
//! speaks that.

mod driven;

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::debug;
use tunnel_link::drain::Drain;
use tunnel_proto::id::SessionId;
use tunnel_proto::reason::Reason;

pub(super) use self::driven::Driven;
use super::body::{Progress, RequestBody};
use crate::model::Port;
use crate::sessions::registry::LiveSession;

/// Idle connections kept per port. More than this many at once is a burst; keeping them would hold the app's sockets.
const IDLE_PER_PORT_MAX: usize = 256;

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// How soon after something happened to an idle connection, most often its end, the pool looks at it; not at once,
/// because apps end connections in batches.
const SWEEP_DELAY: Duration = Duration::from_millis(20);

/// Windows of the HTTP/2 connection to an app, in bytes. The channel's credit is what bounds memory.
const H2_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Hears when the port answered, or why it did not.
pub(super) type Accepted = oneshot::Receiver<Result<(), Reason>>;

type Key = (SessionId, Port);

/// All connections to apps.
#[derive(Debug)]
pub struct Upstreams {
    pools: Mutex<HashMap<Key, Pool>>,
    idle_max: Duration,
    /// Something happened to a connection that nobody uses.
    disturbed: Arc<Notify>,
    /// Drives the connections that no request drives; cut when the gateway stops.
    tasks: Drain,
}

#[derive(Debug, Default)]
struct Pool {
    /// Used longest ago first; taken from the end, so that a quiet port shrinks to few connections.
    idle: Vec<Idle>,
    http2: Option<Shared>,
}

/// An HTTP/2 connection. It ends by itself once it is no longer kept here and its last call is over.
#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    /// When its latest call began.
    since: Instant,
}

#[derive(Debug)]
struct Idle {
    driven: Box<Driven>,
    since: Instant,
}

/// The use of one connection for one request.
#[derive(Debug)]
pub(super) struct Lease {
    upstreams: Arc<Upstreams>,
    key: Key,
    link: Link,
    /// Tells a body that is held back that nobody will ask for it any more.
    _over: Option<oneshot::Sender<()>>,
}

/// Who moves the bytes of a request and its answer.
#[derive(Debug)]
enum Link {
    /// Whoever waits for them.
    Own(Box<Driven>),
    /// A task. The connection ends when it has nothing to do any more and this is dropped.
    Task { _sender: Option<http1::SendRequest<RequestBody>> },
}

impl Lease {
    /// Ties the lease to the body that is being sent; `over` goes when the lease does.
    pub(super) fn watch(mut self, upload: Option<&Progress>, over: Option<oneshot::Sender<()>>) -> Self {
        self._over = over;
        match self.link {
            // An answer that came before the upload's end. A user who reads it slowly must not hold the upload back.
            Link::Own(driven) if upload.is_some_and(|upload| !upload.is_finished()) => {
                self.upstreams.tasks.spawn(driven.run());
                self.link = Link::Task { _sender: None };
            }
            link @ (Link::Own(_) | Link::Task { .. }) => self.link = link,
        }
        self
    }

    /// Polls for a part of the answer, and moves the connection's bytes if that is this lease's business.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match &mut self.link {
            Link::Own(driven) => driven.poll(context, step),
            Link::Task { .. } => step(context),
        }
    }

    /// The connection has become a stream: what would send requests on it is of no more use, and it has a buffer.
    pub(super) fn upgraded(&mut self) {
        if let Link::Task { _sender } = &mut self.link {
            *_sender = None;
        }
    }

    /// Returns the connection to the pool after its response came to an end.
    pub(super) fn give_back(self) {
        let Link::Own(mut driven) = self.link else { return };
        if !driven.rest() {
            if !driven.is_over() {
                // The app has the whole answer out, and not yet all of the request in.
                self.upstreams.tasks.spawn(driven.run());
            }
            return;
        }
        let mut pools = self.upstreams.pools.lock();
        let pool = pools.entry(self.key).or_default();
        if pool.idle.len() < IDLE_PER_PORT_MAX {
            pool.idle.push(Idle { driven, since: Instant::now() });
        }
    }
}

/// A connection that a request can be sent on.
#[derive(Debug)]
pub(super) struct Http1 {
    /// Sends, and moves the bytes.
    pub(super) driven: Box<Driven>,
    /// For a new connection only.
    pub(super) accepted: Option<Accepted>,
    key: Key,
}

impl Http1 {
    /// Turns into what gives the connection back after the response.
    pub(super) fn lease(self, upstreams: &Arc<Upstreams>) -> Lease {
        Lease { upstreams: upstreams.clone(), key: self.key, link: Link::Own(self.driven), _over: None }
    }
}

/// A connection for one request that may turn it into something else. A task drives it.
#[derive(Debug)]
pub(super) struct Upgradable {
    /// Sends.
    pub(super) sender: http1::SendRequest<RequestBody>,
    /// Hears when the port answered.
    pub(super) accepted: Option<Accepted>,
    key: Key,
}

impl Upgradable {
    /// Turns into what ends the connection after its response, unless that was an upgrade.
    pub(super) fn lease(self, upstreams: &Arc<Upstreams>) -> Lease {
        let link = Link::Task { _sender: Some(self.sender) };
        Lease { upstreams: upstreams.clone(), key: self.key, link, _over: None }
    }
}

impl Upstreams {
    /// Makes an empty pool that keeps idle connections for `idle_max`.
    #[must_use]
    pub fn new(idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { pools: Mutex::default(), idle_max, disturbed: Arc::default(), tasks: Drain::default() })
    }

    /// Returns an idle connection to a port, if there is a live one.
    pub(super) fn reuse(&self, session: &LiveSession, port: Port) -> Option<Http1> {
        let key = (session.id, port);
        loop {
            // Looked at outside of the lock: it may have ended, and that wakes others.
            let mut driven = self.pools.lock().get_mut(&key)?.idle.pop()?.driven;
            if driven.awake() {
                return Some(Http1 { driven, accepted: None, key });
            }
        }
    }

    /// Makes a connection to a port over a new channel. Nothing is sent before the first request: it travels with the
    /// channel's open.
    pub(super) async fn connect(&self, session: &LiveSession, port: Port) -> Result<Http1, hyper::Error> {
        let (channel, accepted) = session.channel(port);
        let driven = Driven::new(channel, self.disturbed.clone()).await?;
        Ok(Http1 { driven, accepted: Some(accepted), key: (session.id, port) })
    }

    /// Like [`Upstreams::connect`], for a request that asks for another protocol.
    pub(super) async fn connect_upgradable(
        &self,
        session: &LiveSession,
        port: Port,
    ) -> Result<Upgradable, hyper::Error> {
        let (channel, accepted) = session.channel(port);
        let (sender, connection) = http1::Builder::new().handshake::<_, RequestBody>(TokioIo::new(channel)).await?;
        let connection = connection.with_upgrades();
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection to an app ended");
            }
        });
        Ok(Upgradable { sender, accepted: Some(accepted), key: (session.id, port) })
    }

    /// Returns the HTTP/2 connection to a port, made anew if there is none.
    pub(super) async fn http2(
        self: &Arc<Self>,
        session: &LiveSession,
        port: Port,
    ) -> Result<(http2::SendRequest<RequestBody>, Option<Accepted>, Lease), hyper::Error> {
        let key = (session.id, port);
        let lease = Lease { upstreams: self.clone(), key, link: Link::Task { _sender: None }, _over: None };
        if let Some(sender) = self.shared(key) {
            return Ok((sender, None, lease));
        }
        let (channel, accepted) = session.channel(port);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(H2_WINDOW_BYTES)
            .initial_connection_window_size(H2_WINDOW_BYTES)
            .handshake::<_, RequestBody>(TokioIo::new(channel))
            .await?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "HTTP/2 connection to an app ended");
            }
        });
        let shared = Shared { sender: sender.clone(), since: Instant::now() };
        self.pools.lock().entry(key).or_default().http2 = Some(shared);
        Ok((sender, Some(accepted), lease))
    }

    fn shared(&self, key: Key) -> Option<http2::SendRequest<RequestBody>> {
        let mut pools = self.pools.lock();
        let shared = pools.get_mut(&key)?.http2.as_mut().filter(|shared| !shared.sender.is_closed())?;
        shared.since = Instant::now();
        Some(shared.sender.clone())
    }

    /// Returns how many idle connections are kept.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.pools.lock().values().map(|pool| pool.idle.len()).sum()
    }

    /// Closes what was idle for too long, what the app closed, and what belongs to sessions that are gone; until the
    /// gateway drains, and then everything that is idle.
    pub async fn sweep(self: Arc<Self>, drain: Drain) {
        loop {
            tokio::select! {
                () = drain.draining().cancelled() => break,
                () = self.disturbed.notified() => tokio::time::sleep(SWEEP_DELAY).await,
                () = tokio::time::sleep(SWEEP_INTERVAL.min(self.idle_max)) => {}
            }
            self.sweep_once(Instant::now());
        }
        self.clear();
    }

    fn sweep_once(&self, now: Instant) {
        let is_too_old = |since| now.duration_since(since) >= self.idle_max;
        // What ends here wakes others, so it ends when the lock is released.
        let (mut disturbed, mut old, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        self.pools.lock().retain(|key, pool| {
            old.extend(pool.idle.extract_if(.., |idle| is_too_old(idle.since)));
            let looked_at = pool.idle.extract_if(.., |idle| idle.driven.is_disturbed());
            disturbed.extend(looked_at.map(|idle| (*key, idle)));
            calls.extend(pool.http2.take_if(|shared| shared.sender.is_closed() || is_too_old(shared.since)));
            !pool.idle.is_empty() || pool.http2.is_some()
        });
        for (key, mut idle) in disturbed {
            if idle.driven.is_usable() {
                self.pools.lock().entry(key).or_default().idle.push(idle);
            }
        }
    }

    /// Cuts every connection to an app.
    pub async fn close(&self) {
        self.clear();
        self.tasks.run(Duration::ZERO).await;
    }

    fn clear(&self) {
        let pools = std::mem::take(&mut *self.pools.lock());
        drop(pools);
    }
}
