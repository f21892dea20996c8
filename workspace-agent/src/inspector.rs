//! The request inspector: the last exchanges between users and the apps of this machine, for the workspace's owner alone.
//!
//! A recorder gets a copy of what has passed between a channel and its app ([`Tee`]), reads HTTP/1.1 and WebSockets in it, and keeps a
//! bounded part of them in this process. Credentials are left out before anything is kept. The pages are served as HTTP/1.1 to channels of
//! one port, inside this process, as those of terminals are, and the gateway says in fields that no client can set who asks.
//!
//! * `connection`, `framing`, `websocket` read bytes; `redact` leaves credentials out; `exchange` is what is recorded.
//! * `recorder` takes one connection's bytes, `tee` brings them, `log` keeps the last exchanges within its bounds.
//! * `filter`, `form`, `shown`, `har`, `curl`, `replay` make of them what the pages show; `http`, `page` serve these.

mod connection;
mod curl;
mod exchange;
mod filter;
mod form;
mod framing;
mod har;
mod http;
mod live;
mod log;
mod page;
mod recorder;
mod redact;
mod replay;
#[cfg(test)]
mod samples;
mod send;
mod shown;
mod tee;
mod websocket;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{DuplexStream, duplex};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;
use tunnel_proto::reason::Reason;

use self::log::{Bounds, Log};
use self::recorder::{Origin, Recorder};
pub use self::tee::Tee;
use crate::ports::Ports;

/// Channels that are served at a time: those of every page.
const CHANNELS_MAX: usize = 64;

/// Requests that are sent again at a time.
const REPLAYS_MAX: usize = 8;

/// Bytes between a channel and the pages' server, each way.
const PIPE_BYTES: usize = 64 * 1024;

/// Longest time for the end of its channels.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The request inspector of this machine. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Inspector {
    inner: Arc<InspectorShared>,
}

#[derive(Debug)]
struct InspectorShared {
    log: Arc<Log>,
    channels: AtomicUsize,
    replays: AtomicUsize,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for InspectorShared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Default for Inspector {
    fn default() -> Self {
        Self::new()
    }
}

impl Inspector {
    /// Makes one that has recorded nothing.
    #[must_use]
    pub fn new() -> Self {
        let inner = InspectorShared {
            log: Arc::new(Log::new(Bounds::default())),
            channels: AtomicUsize::new(0),
            replays: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Joins a connection to an app with a recorder. `began` is when the connection was begun.
    pub(crate) fn watch<S>(&self, socket: S, app: WatchedApp, began: Instant) -> Tee<S> {
        let WatchedApp { port, is_tls } = app;
        let origin = Origin { port, is_tls, replay_of: None, began };
        Tee::new(socket, Recorder::new(self.inner.log.clone(), origin, Instant::now()))
    }

    /// Opens a channel's other end, and serves the pages over it. `ports` are those to which requests may be sent again.
    ///
    /// # Errors
    /// [`Reason::Overloaded`] when there are too many, [`Reason::PortClosed`] when the agent ends.
    pub(crate) fn open(&self, ports: &Arc<Ports>) -> Result<DuplexStream, Reason> {
        if self.inner.stop.is_cancelled() {
            return Err(Reason::PortClosed);
        }
        let permit = Permit::take(self, |inner| &inner.channels, CHANNELS_MAX).ok_or(Reason::Overloaded)?;
        let (near, far) = duplex(PIPE_BYTES);
        let (stop, ports) = (self.inner.stop.clone(), ports.clone());
        drop(self.inner.tasks.spawn(async move {
            let inspector = &permit.inspector;
            let served = stop.run_until_cancelled(http::serve(inspector, &ports, far)).await;
            if let Some(Err(error)) = served {
                debug!(%error, "a channel to the inspector broke");
            }
        }));
        Ok(near)
    }

    /// Ends its channels, and waits for them for a bounded time.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
            debug!("channels to the inspector were left behind");
        }
    }
}

/// An app whose connection is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedApp {
    /// Its port.
    pub(crate) port: u16,
    /// Whether it speaks TLS.
    pub(crate) is_tls: bool,
}

/// The right to one of a bounded number.
struct Permit {
    inspector: Inspector,
    counter: fn(&InspectorShared) -> &AtomicUsize,
}

impl Permit {
    fn take(inspector: &Inspector, counter: fn(&InspectorShared) -> &AtomicUsize, most: usize) -> Option<Self> {
        let permit = Self { inspector: inspector.clone(), counter };
        (counter(&inspector.inner).fetch_add(1, Ordering::Relaxed) < most).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        (self.counter)(&self.inspector.inner).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
