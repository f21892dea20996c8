//! Terminals of this machine, for people behind the gateway: a page, and shells that outlive its connections.
//!
//! They are served as HTTP/1.1 to channels of one port, inside this process: a loopback socket would be open to every
//! user of the machine. The gateway names the user, and says whether they may type, in fields that no client of it can
//! set; without its word no user may type.

mod http;
pub mod job;
mod live;
pub mod message;
mod page;
pub mod ring;
mod shell;
pub mod state;
mod viewer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};
use tunnel_proto::reason::Reason;

pub(crate) use self::http::{Access, is_foreign as is_foreign_page};
use self::job::TerminalJob;
use self::live::LiveTerminal;
use self::message::Size;
pub(crate) use self::shell::{choose as choose_shell, is_foreign};

/// Most terminals at a time.
pub const TERMINALS_MAX: usize = 16;

/// Channels that are served at a time: those of every page, and some for questions.
const CHANNELS_MAX: usize = 256;

/// Bytes between a channel and the page's server, each way: a few messages.
const PIPE_BYTES: usize = 64 * 1024;

/// Time that a terminal that has ended can still be read by pages whose connection broke at that moment.
const ENDED_KEPT: Duration = Duration::from_secs(60);

/// Longest time for the end of all terminals.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of new terminals.
#[derive(Clone, Debug, Default)]
pub struct TerminalOptions {
    /// The shell; `None` for the one of the environment, or one that is there.
    pub shell: Option<PathBuf>,
    /// Directory in which it starts; `None` for this process's.
    pub directory: Option<PathBuf>,
    /// Variables of the shell beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Names of variables of this process that the shell does not get: secrets of the agent.
    pub without: Vec<OsString>,
    /// The job that this machine runs, if it does.
    pub job: Option<Arc<dyn TerminalJob>>,
}

/// The terminals of this machine. Clones are the same terminals; dropping the last one ends them.
#[derive(Clone, Debug)]
pub struct Terminals {
    inner: Arc<TerminalsShared>,
}

#[derive(Debug)]
struct TerminalsShared {
    options: TerminalOptions,
    /// Tells the terminals of this process from those of one before it.
    instance: String,
    live: Mutex<BTreeMap<String, Arc<LiveTerminal>>>,
    made: Mutex<u64>,
    channels: AtomicUsize,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for TerminalsShared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A terminal could not be made.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error("there are {TERMINALS_MAX} terminals already")]
    TooMany,
    #[error("the shell does not start")]
    Shell(#[source] io::Error),
}

impl Terminals {
    /// Makes an empty set of terminals; they are started when users ask for them.
    #[must_use]
    pub fn new(options: TerminalOptions) -> Self {
        let instance = random_name();
        let inner = TerminalsShared {
            options,
            instance,
            live: Mutex::default(),
            made: Mutex::default(),
            channels: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a channel's other end, and serves it.
    ///
    /// # Errors
    /// [`Reason::Overloaded`] when there are too many, [`Reason::PortClosed`] when they were closed.
    pub fn open(&self) -> Result<DuplexStream, Reason> {
        if self.inner.stop.is_cancelled() {
            return Err(Reason::PortClosed);
        }
        let place = ChannelPermit::take(self).ok_or(Reason::Overloaded)?;
        let (near, far) = duplex(PIPE_BYTES);
        let stop = self.inner.stop.clone();
        drop(self.inner.tasks.spawn(async move {
            let place = place;
            // The page of a closed terminal is told so over this channel, and gets the time for that.
            let late = async {
                stop.cancelled().await;
                tokio::time::sleep(CLOSE_TIMEOUT).await;
            };
            tokio::select! {
                () = place.0.serve(far) => {}
                () = late => {}
            }
        }));
        Ok(near)
    }

    /// Serves one channel: requests in HTTP/1.1, and perhaps a terminal at the end.
    ///
    /// Cancel safety: dropping it cuts the connection. Terminals go on.
    pub async fn serve(&self, io: DuplexStream) {
        if let Err(error) = http::serve(self, io).await {
            debug!(%error, "a channel to the terminals broke");
        }
    }

    /// Ends all terminals and waits for them, for a bounded time.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
            debug!("terminals were left behind");
        }
    }

    /// Starts a terminal and returns its id.
    fn make(&self, size: Size) -> Result<String, NotMade> {
        let inner = &self.inner;
        // Held while the shell starts, which does not block: two that are made at once are counted.
        let mut live = inner.live.lock();
        if live.len() >= TERMINALS_MAX {
            let ended = live.iter().find(|(_, terminal)| terminal.look(|state| state.is_ended()));
            let ended = ended.map(|(id, _)| id.clone()).ok_or(NotMade::TooMany)?;
            live.remove(&ended);
        }
        let number = {
            let mut made = inner.made.lock();
            *made += 1;
            *made
        };
        let close = inner.stop.child_token();
        let (terminal, running) = live::start(&inner.options, number, size, close).map_err(NotMade::Shell)?;
        let id = random_name();
        live.insert(id.clone(), terminal);
        drop(live);
        info!(number, "a terminal was opened");
        let (weak, name, stop) = (Arc::downgrade(inner), id.clone(), inner.stop.clone());
        drop(inner.tasks.spawn(async move {
            running.run().await;
            stop.run_until_cancelled(tokio::time::sleep(ENDED_KEPT)).await;
            if let Some(inner) = weak.upgrade() {
                inner.live.lock().remove(&name);
            }
        }));
        Ok(id)
    }

    fn find(&self, id: &str) -> Option<Arc<LiveTerminal>> {
        self.inner.live.lock().get(id).cloned()
    }

    /// Returns the terminals in the order in which they were made.
    fn list(&self) -> Vec<(String, Arc<LiveTerminal>)> {
        let live = self.inner.live.lock();
        let mut list: Vec<_> = live.iter().map(|(id, terminal)| (id.clone(), terminal.clone())).collect();
        list.sort_by_key(|(_, terminal)| terminal.number);
        list
    }

    fn job(&self) -> Option<&Arc<dyn TerminalJob>> {
        self.inner.options.job.as_ref()
    }
}

/// Place for one of [`CHANNELS_MAX`] channels.
struct ChannelPermit(Terminals);

impl ChannelPermit {
    fn take(terminals: &Terminals) -> Option<Self> {
        let channels = &terminals.inner.channels;
        let place = Self(terminals.clone());
        (channels.fetch_add(1, Ordering::Relaxed) < CHANNELS_MAX).then_some(place)
    }
}

impl Drop for ChannelPermit {
    fn drop(&mut self) {
        self.0.inner.channels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes a name that cannot be guessed.
fn random_name() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests;
