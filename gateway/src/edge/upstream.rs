//! Connections to apps over channels: HTTP/1.1 ones pooled per session and port, one HTTP/2 connection where an app
//! speaks that.

pub(super) mod http1;
pub(super) mod relay;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::debug;
use tunnel_link::drain::Drain;
use tunnel_proto::id::SessionId;
use tunnel_proto::reason::Reason;

use self::http1::Connection;
use self::relay::Relayed;
use super::body::RequestBody;
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
    /// Moves what no request's own task does; cut when the gateway stops.
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
    connection: Box<Connection>,
    since: Instant,
}

/// The use of one HTTP/1.1 connection for one request. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Lease {
    /// Sends, and receives.
    pub(super) connection: Box<Connection>,
    upstreams: Arc<Upstreams>,
    key: Key,
}

impl Lease {
    /// Returns the connection to the pool after its response came to an end, if it is good for another one.
    pub(super) fn give_back(self) {
        let Self { mut connection, upstreams, key } = self;
        if !connection.rest() {
            return;
        }
        let mut pools = upstreams.pools.lock();
        let pool = pools.entry(key).or_default();
        if pool.idle.len() < IDLE_PER_PORT_MAX {
            pool.idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Gives the connection to a task, for an answer that came before the request was sent.
    pub(super) fn relay(self) -> Relayed {
        Relayed::start(self.connection, &self.upstreams.tasks)
    }
}

impl Upstreams {
    /// Makes an empty pool that keeps idle connections for `idle_max`.
    #[must_use]
    pub fn new(idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { pools: Mutex::default(), idle_max, disturbed: Arc::default(), tasks: Drain::default() })
    }

    /// Returns an idle connection to a port, if there is a live one.
    pub(super) fn reuse(self: &Arc<Self>, session: &LiveSession, port: Port) -> Option<Lease> {
        let key = (session.id, port);
        loop {
            // Looked at outside of the lock: it may have ended, and that wakes others.
            let mut connection = self.pools.lock().get_mut(&key)?.idle.pop()?.connection;
            if connection.is_usable() {
                return Some(Lease { connection, upstreams: self.clone(), key });
            }
        }
    }

    /// Makes a connection to a port over a new channel. Nothing is sent before the first request: it travels with the
    /// channel's open.
    pub(super) fn connect(self: &Arc<Self>, session: &LiveSession, port: Port) -> (Lease, Accepted) {
        let (channel, accepted) = session.channel(port);
        let connection = Connection::new(channel, self.disturbed.clone());
        (Lease { connection, upstreams: self.clone(), key: (session.id, port) }, accepted)
    }

    /// Returns the HTTP/2 connection to a port, made anew if there is none.
    pub(super) async fn http2(
        &self,
        session: &LiveSession,
        port: Port,
    ) -> Result<(http2::SendRequest<RequestBody>, Option<Accepted>), hyper::Error> {
        let key = (session.id, port);
        if let Some(sender) = self.shared(key) {
            return Ok((sender, None));
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
        Ok((sender, Some(accepted)))
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
            let looked_at = pool.idle.extract_if(.., |idle| idle.connection.is_disturbed());
            disturbed.extend(looked_at.map(|idle| (*key, idle)));
            calls.extend(pool.http2.take_if(|shared| shared.sender.is_closed() || is_too_old(shared.since)));
            !pool.idle.is_empty() || pool.http2.is_some()
        });
        for (key, mut idle) in disturbed {
            if idle.connection.is_usable() {
                self.pools.lock().entry(key).or_default().idle.push(idle);
            }
        }
    }

    /// Returns what cuts its tasks when it is dropped.
    pub(crate) fn cut_on_drop(&self) -> DropGuard {
        self.tasks.cut_on_drop()
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
