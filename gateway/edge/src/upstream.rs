//! Connections to apps over channels: HTTP/1.1 ones pooled per session, port and owner, and one HTTP/2 connection per
//! owner for apps that speak it.

pub(super) mod http1;
mod owner;
pub(super) mod relay;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::debug;
use tunnel_link::drain::Drain;
use tunnel_proto::hello::AppProtocol;
use tunnel_proto::id::SessionId;
use tunnel_proto::reason::Reason;

use self::http1::Http1Connection;
use self::owner::KeptFor;
pub(super) use self::owner::{AnonymousClient, Owner};
use self::relay::Relayed;
use super::body::RequestBody;
use gateway_agents::registry::LiveSession;
use gateway_types::Port;

/// Idle connections kept per port, of all owners together, and as many HTTP/2 ones. More than this many at once is a burst;
/// keeping them would hold the app's sockets.
const IDLE_PER_PORT_MAX: usize = 256;

/// Interval at which idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Delay between an event on an idle connection, most often its end, and the pool's check of it; not at once, because
/// apps end connections in batches.
const SWEEP_DELAY: Duration = Duration::from_millis(20);

/// Windows of the HTTP/2 connection to an app, in bytes. The channel's credit is what bounds memory.
const H2_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Receives the port's answer, or the reason of its refusal.
pub(super) type Accepted = oneshot::Receiver<Result<(), Reason>>;

/// The port of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PoolKey {
    session: SessionId,
    port: Port,
}

/// All connections to apps.
#[derive(Debug)]
pub struct Upstreams {
    /// Written by each request, so with a lock for each shard of its keys. No connection is dropped under one: that wakes
    /// other tasks, and may come back here.
    pools: DashMap<PoolKey, Pool>,
    idle_max: Duration,
    /// Notified of an event on an idle connection.
    disturbed: Arc<Notify>,
    /// Tasks that move bytes outside of a request's own task; cut when the gateway stops.
    tasks: Drain,
    /// Number of clients that asked for something without a sign-in.
    clients: AtomicU64,
}

#[derive(Debug, Default)]
struct Pool {
    /// Least recently used first; taken from the end, so that a quiet port shrinks to few connections.
    idle: Vec<Idle>,
    /// In the order in which they were made.
    http2: Vec<SharedHttp2>,
}

impl Pool {
    /// Keeps a connection. Returns the one removed to make room: a client's first, then the least recently used.
    fn keep(&mut self, idle: Idle) -> Option<Idle> {
        let is_full = self.idle.len() >= IDLE_PER_PORT_MAX;
        let gone = is_full.then(|| {
            let place = self.idle.iter().position(|idle| !idle.owner.is_user()).unwrap_or(0);
            self.idle.remove(place)
        });
        self.idle.push(idle);
        gone
    }

    /// Takes the most recently used connection of an owner.
    fn take(&mut self, owner: &Owner) -> Option<Idle> {
        let place = self.idle.iter().rposition(|idle| idle.owner.is(owner))?;
        Some(self.idle.remove(place))
    }

    /// Keeps an HTTP/2 connection. Returns those that must not be used again: the owner's former one, and one removed
    /// to make room.
    fn share(&mut self, shared: SharedHttp2, owner: &Owner) -> Vec<SharedHttp2> {
        let mut gone: Vec<SharedHttp2> = self.http2.extract_if(.., |shared| shared.owner.is(owner)).collect();
        if self.http2.len() >= IDLE_PER_PORT_MAX {
            let oldest = self.http2.iter().enumerate().min_by_key(|(_, shared)| shared.since).map(|(place, _)| place);
            gone.extend(oldest.map(|place| self.http2.remove(place)));
        }
        self.http2.push(shared);
        gone
    }

    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.http2.is_empty()
    }
}

/// An HTTP/2 connection. It ends by itself once it is no longer kept here and its last call is over.
#[derive(Debug)]
struct SharedHttp2 {
    sender: http2::SendRequest<RequestBody>,
    owner: KeptFor,
    /// Start of its latest call.
    since: Instant,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Http1Connection>,
    owner: KeptFor,
    since: Instant,
}

/// An HTTP/1.1 connection of the pool, used for one request. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct PooledHttp1 {
    /// Sends, and receives.
    pub(super) connection: Box<Http1Connection>,
    upstreams: Arc<Upstreams>,
    key: PoolKey,
    /// Lives until the connection is kept for it, or gone.
    owner: Owner,
}

impl PooledHttp1 {
    /// Returns the connection to the pool after its response came to an end, if it is good for another one.
    pub(super) fn give_back(self) {
        let Self { mut connection, upstreams, key, owner } = self;
        if !connection.rest() {
            return;
        }
        let (owner, client) = owner.into_kept(key);
        let idle = Idle { connection, owner, since: Instant::now() };
        let gone = upstreams.pools.entry(key).or_default().keep(idle);
        // Outside of the lock, as below: dropping a connection wakes other tasks. A client whose connection has ended
        // by now takes along what was just kept for it.
        drop((gone, client));
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
        let (pools, disturbed, tasks) = (DashMap::new(), Arc::default(), Drain::default());
        Arc::new(Self { pools, idle_max, disturbed, tasks, clients: AtomicU64::new(0) })
    }

    /// Creates the owner of requests that a client sends without a sign-in.
    pub(super) fn client(self: &Arc<Self>) -> Arc<AnonymousClient> {
        Arc::new(AnonymousClient::new(self.clients.fetch_add(1, Ordering::Relaxed), self.clone()))
    }

    /// Returns an idle connection of an owner to a port, if there is a live one.
    pub(super) fn reuse(self: &Arc<Self>, session: &LiveSession, port: Port, owner: &Owner) -> Option<PooledHttp1> {
        let key = PoolKey { session: session.id, port };
        loop {
            // Checked outside of the lock: the connection may have ended, and that wakes other tasks.
            let mut idle = self.pools.get_mut(&key)?.take(owner)?;
            if idle.connection.is_usable() {
                let owner = idle.owner.into_owner(owner);
                return Some(PooledHttp1 { connection: idle.connection, upstreams: self.clone(), key, owner });
            }
        }
    }

    /// Makes a connection to a port over a new channel. Nothing is sent before the first request: it travels with the
    /// channel's open.
    pub(super) fn connect(
        self: &Arc<Self>,
        session: &LiveSession,
        port: Port,
        owner: &Owner,
    ) -> (PooledHttp1, Accepted) {
        let (channel, accepted) = session.channel(port, AppProtocol::Http1);
        let connection = Http1Connection::new(channel, self.disturbed.clone());
        let key = PoolKey { session: session.id, port };
        let pooled = PooledHttp1 { connection, upstreams: self.clone(), key, owner: owner.clone() };
        (pooled, accepted)
    }

    /// Returns the HTTP/2 connection of an owner to a port, made anew if there is none.
    pub(super) async fn http2(
        &self,
        session: &LiveSession,
        port: Port,
        owner: &Owner,
    ) -> Result<(http2::SendRequest<RequestBody>, Option<Accepted>), hyper::Error> {
        let key = PoolKey { session: session.id, port };
        if let Some(sender) = self.shared(key, owner) {
            return Ok((sender, None));
        }
        let (channel, accepted) = session.channel(port, AppProtocol::Http2);
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
        let (kept, client) = owner.clone().into_kept(key);
        let shared = SharedHttp2 { sender: sender.clone(), owner: kept, since: Instant::now() };
        let gone = self.pools.entry(key).or_default().share(shared, owner);
        drop((gone, client));
        Ok((sender, Some(accepted)))
    }

    fn shared(&self, key: PoolKey, owner: &Owner) -> Option<http2::SendRequest<RequestBody>> {
        let mut pool = self.pools.get_mut(&key)?;
        let shared = pool.http2.iter_mut().find(|shared| shared.owner.is(owner))?;
        if shared.sender.is_closed() {
            return None;
        }
        shared.since = Instant::now();
        Some(shared.sender.clone())
    }

    /// Drops the connections to a port that are kept for a client.
    fn forget(&self, key: PoolKey, client: u64) {
        let mut gone: (Vec<Idle>, Vec<SharedHttp2>) = (Vec::new(), Vec::new());
        self.pools.remove_if_mut(&key, |_, pool| {
            gone.0.extend(pool.idle.extract_if(.., |idle| idle.owner.is_client(client)));
            gone.1.extend(pool.http2.extract_if(.., |shared| shared.owner.is_client(client)));
            pool.is_empty()
        });
        drop(gone);
    }

    /// Returns the number of idle connections that are kept.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.pools.iter().map(|pool| pool.idle.len()).sum()
    }

    /// Closes connections that were idle for too long, that the app closed, or whose session is gone, until the gateway
    /// drains; then closes all idle ones.
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
        // Dropping a connection wakes other tasks, so it waits until the lock is released.
        let (mut disturbed, mut old, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        self.pools.retain(|key, pool| {
            old.extend(pool.idle.extract_if(.., |idle| is_too_old(idle.since)));
            let looked_at = pool.idle.extract_if(.., |idle| idle.connection.is_disturbed());
            disturbed.extend(looked_at.map(|idle| (*key, idle)));
            calls.extend(pool.http2.extract_if(.., |shared| shared.sender.is_closed() || is_too_old(shared.since)));
            !pool.is_empty()
        });
        for (key, mut idle) in disturbed {
            if idle.connection.is_usable() {
                let gone = self.pools.entry(key).or_default().keep(idle);
                drop(gone);
            }
        }
    }

    /// Returns a guard that cuts the pool's tasks when it is dropped.
    pub fn cut_on_drop(&self) -> DropGuard {
        self.tasks.cut_on_drop()
    }

    /// Cuts every connection to an app.
    pub async fn close(&self) {
        self.clear();
        self.tasks.run(Duration::ZERO).await;
    }

    fn clear(&self) {
        let keys: Vec<PoolKey> = self.pools.iter().map(|pool| *pool.key()).collect();
        for key in keys {
            drop(self.pools.remove(&key));
        }
    }
}
