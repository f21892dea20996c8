//! Connections to apps over channels: HTTP/1.1 ones pooled per session and port, one HTTP/2 connection where an app
//! speaks that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;
use tunnel_link::drain::Drain;
use tunnel_proto::id::SessionId;
use tunnel_proto::reason::Reason;

use super::body::{Progress, RequestBody};
use crate::model::Port;
use crate::sessions::registry::LiveSession;

/// Idle connections kept per port. More than this many at once is a burst; keeping them would hold the app's sockets.
const IDLE_PER_PORT_MAX: usize = 256;

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

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
    /// Drives the connections; cut when the gateway stops.
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
    sender: http1::SendRequest<RequestBody>,
    since: Instant,
}

/// The use of one connection for one request.
#[derive(Debug)]
pub(super) struct Lease {
    upstreams: Arc<Upstreams>,
    key: Key,
    /// `None` for HTTP/2, which needs no giving back.
    sender: Option<http1::SendRequest<RequestBody>>,
    /// The request's body, if it has one.
    upload: Option<Arc<Progress>>,
    /// Tells a body that is held back that nobody will ask for it any more.
    _over: Option<oneshot::Sender<()>>,
}

impl Lease {
    /// Ties the lease to the body that is being sent; `over` goes when the lease does.
    pub(super) fn watch(&mut self, upload: Option<Arc<Progress>>, over: Option<oneshot::Sender<()>>) {
        self.upload = upload;
        self._over = over;
    }

    /// Returns the connection to the pool after its response came to an end.
    pub(super) fn give_back(self) {
        let Some(sender) = self.sender else { return };
        // An answer that came before the upload's end leaves a connection that nothing else can be sent on.
        let is_uploading = self.upload.is_some_and(|upload| !upload.is_finished());
        if is_uploading || sender.is_closed() {
            return;
        }
        let mut pools = self.upstreams.pools.lock();
        let pool = pools.entry(self.key).or_default();
        if pool.idle.len() < IDLE_PER_PORT_MAX {
            pool.idle.push(Idle { sender, since: Instant::now() });
        }
    }
}

/// A connection that a request can be sent on.
#[derive(Debug)]
pub(super) struct Http1 {
    /// Sends.
    pub(super) sender: http1::SendRequest<RequestBody>,
    /// For a new connection only.
    pub(super) accepted: Option<Accepted>,
    key: Key,
}

impl Http1 {
    /// Splits into what the response is awaited with and what gives the connection back.
    pub(super) fn lease(self, upstreams: &Arc<Upstreams>) -> Lease {
        Lease { upstreams: upstreams.clone(), key: self.key, sender: Some(self.sender), upload: None, _over: None }
    }
}

impl Upstreams {
    /// Makes an empty pool that keeps idle connections for `idle_max`.
    #[must_use]
    pub fn new(idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { pools: Mutex::default(), idle_max, tasks: Drain::default() })
    }

    /// Returns an idle connection to a port, if there is a live one.
    pub(super) fn reuse(&self, session: &LiveSession, port: Port) -> Option<Http1> {
        let key = (session.id, port);
        let mut pools = self.pools.lock();
        let pool = pools.get_mut(&key)?;
        while let Some(idle) = pool.idle.pop() {
            if idle.sender.is_ready() {
                return Some(Http1 { sender: idle.sender, accepted: None, key });
            }
        }
        None
    }

    /// Makes a connection to a port over a new channel. Nothing is sent before the first request: it travels with the
    /// channel's open.
    pub(super) async fn connect(&self, session: &LiveSession, port: Port) -> Result<Http1, hyper::Error> {
        let (channel, accepted) = session.channel(port);
        let (sender, connection) = http1::Builder::new().handshake::<_, RequestBody>(TokioIo::new(channel)).await?;
        let connection = connection.with_upgrades();
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection to an app ended");
            }
        });
        Ok(Http1 { sender, accepted: Some(accepted), key: (session.id, port) })
    }

    /// Returns the HTTP/2 connection to a port, made anew if there is none.
    pub(super) async fn http2(
        self: &Arc<Self>,
        session: &LiveSession,
        port: Port,
    ) -> Result<(http2::SendRequest<RequestBody>, Option<Accepted>, Lease), hyper::Error> {
        let key = (session.id, port);
        let lease = Lease { upstreams: self.clone(), key, sender: None, upload: None, _over: None };
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
                () = tokio::time::sleep(SWEEP_INTERVAL.min(self.idle_max)) => self.sweep_once(Instant::now()),
            }
        }
        self.pools.lock().clear();
    }

    fn sweep_once(&self, now: Instant) {
        let mut pools = self.pools.lock();
        let keys: Vec<_> = pools.keys().copied().collect();
        for key in keys {
            let Entry::Occupied(mut entry) = pools.entry(key) else { continue };
            let pool = entry.get_mut();
            let is_idle = |since| now.duration_since(since) >= self.idle_max;
            pool.idle.retain(|idle| !idle.sender.is_closed() && !is_idle(idle.since));
            pool.http2.take_if(|shared| shared.sender.is_closed() || is_idle(shared.since));
            if pool.idle.is_empty() && pool.http2.is_none() {
                entry.remove();
            }
        }
    }

    /// Cuts every connection to an app.
    pub async fn close(&self) {
        self.pools.lock().clear();
        self.tasks.run(Duration::ZERO).await;
    }
}
