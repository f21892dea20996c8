//! A terminal that runs: the machine of [`state`](super::state), a shell, and one task that joins them.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use pty_process::{OwnedReadPty, OwnedWritePty, Pty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::message::Size;
use super::shell;
use super::state::{Patience, RING_BYTES_MAX, Terminal};

/// Most bytes of a shell's output that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Messages of typed input that may wait for the shell. Once the queue is full, the user who types waits, and so does
/// their connection.
const INPUTS_MAX: usize = 16;

/// Longest wait for the last output of a shell that has ended: programs that it left running may keep its terminal
/// open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Time that programs have to end once their terminal is closed, before they are killed.
const HANG_UP: Duration = Duration::from_secs(1);

/// A terminal that runs, or has run.
pub(super) struct LiveTerminal {
    /// Its place among the terminals of this agent.
    pub(super) number: u64,
    state: Mutex<Terminal>,
    /// Tells viewers that there may be something for them.
    news: watch::Sender<()>,
    /// Tells the task that a page has shown something, or that the size has changed.
    looked: Notify,
    inputs: mpsc::Sender<Bytes>,
    /// Ends the terminal.
    pub(super) close: CancellationToken,
}

/// State of a terminal's task.
pub(super) struct RunningTerminal {
    live: Arc<LiveTerminal>,
    reader: OwnedReadPty,
    writer: OwnedWritePty,
    child: Child,
    inputs: mpsc::Receiver<Bytes>,
}

/// A shell that has ended by itself.
#[derive(Clone, Copy)]
struct EndedShell {
    status: ExitStatus,
    /// Time until which its last output is awaited.
    until: Instant,
}

impl LiveTerminal {
    /// Makes a terminal of a shell that was started. The second part has to be [run](RunningTerminal::run).
    pub(super) fn new(
        number: u64,
        size: Size,
        pty: Pty,
        child: Child,
        close: CancellationToken,
    ) -> (Arc<Self>, RunningTerminal) {
        let (sender, inputs) = mpsc::channel(INPUTS_MAX);
        let live = Arc::new(Self {
            number,
            state: Mutex::new(Terminal::new(size, RING_BYTES_MAX)),
            news: watch::Sender::new(()),
            looked: Notify::new(),
            inputs: sender,
            close,
        });
        let (reader, writer) = pty.into_split();
        (live.clone(), RunningTerminal { live, reader, writer, child, inputs })
    }

    /// Changes the state machine, and tells the task and all viewers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Terminal) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.looked.notify_one();
        self.news.send_replace(());
        result
    }

    /// Asks the state machine, and tells no other party.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Terminal) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Returns a receiver that tells a viewer that there may be something for it.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Adds output of the shell.
    fn hear(&self, said: &[u8]) {
        self.state.lock().said(said);
        self.news.send_replace(());
    }

    /// Returns the queue of typed input.
    pub(super) fn inputs(&self) -> &mpsc::Sender<Bytes> {
        &self.inputs
    }
}

impl RunningTerminal {
    /// Joins shell and machine until the shell ends or the terminal is closed.
    pub(super) async fn run(mut self) {
        let status = self.join().await;
        // Input that was typed and not read goes with the shell. Closing the terminal hangs up on all programs that
        // still run in it.
        let Self { live, reader, writer, mut child, inputs } = self;
        drop((reader, writer, inputs));
        let status = match status {
            Some(status) => Some(status),
            None => match tokio::time::timeout(HANG_UP, child.wait()).await {
                Ok(status) => status.ok(),
                Err(_elapsed) => {
                    // A child that has ended by itself needs no signal.
                    child.start_kill().ok();
                    child.wait().await.ok()
                }
            },
        };
        debug!(number = live.number, ?status, "a terminal ended");
        live.change(|state| state.ended(status.and_then(shell::status_of)));
    }

    /// Moves bytes; returns the shell's status if it ended by itself.
    async fn join(&mut self) -> Option<ExitStatus> {
        let Self { live, reader, writer, child, inputs } = self;
        let mut buffer = vec![0; READ_BYTES];
        let mut typed = Bytes::new();
        let (mut patience, mut size) = (Patience::default(), live.look(|state| state.size()));
        // Set once the shell has ended.
        let mut over: Option<EndedShell> = None;
        loop {
            let now = Instant::now();
            let (wanted, progress) = live.look(|state| (state.size(), state.progress()));
            if wanted != size {
                size = wanted;
                resize(writer, size);
            }
            let wait = patience.wait_until(progress, now.into_std()).map(Instant::from_std);
            if wait.is_some() {
                over = over.map(|shell| EndedShell { until: now + LAST_WORDS, ..shell });
            }
            tokio::select! {
                () = live.close.cancelled() => return over.map(|shell| shell.status),
                () = live.looked.notified() => {}
                read = reader.read(&mut buffer), if wait.is_none() => match read {
                    Ok(read) if read > 0 => {
                        let said = buffer.get(..read).unwrap_or_default();
                        live.hear(said);
                        // Output that was on its way when the shell ended extends the wait for the last of it.
                        over = over.map(|shell| EndedShell { until: now + LAST_WORDS, ..shell });
                    }
                    // The last program that had the terminal open has ended (Linux says EIO then).
                    Ok(_) | Err(_) => return finished(child, over).await,
                },
                () = at(wait) => {}
                next = inputs.recv(), if typed.is_empty() => typed = next.unwrap_or_default(),
                written = writer.write(&typed), if !typed.is_empty() => match written {
                    Ok(written) => typed.advance(written.min(typed.len())),
                    Err(_) => typed.clear(),
                },
                status = child.wait(), if over.is_none() => match status {
                    Ok(status) => over = Some(EndedShell { status, until: Instant::now() + LAST_WORDS }),
                    Err(_) => return None,
                },
                () = at(over.map(|shell| shell.until)) => return over.map(|shell| shell.status),
            }
        }
    }
}

async fn finished(child: &mut Child, over: Option<EndedShell>) -> Option<ExitStatus> {
    match over {
        Some(shell) => Some(shell.status),
        // A shell may have closed its terminal and go on; it is not waited for longer than any other.
        None => tokio::time::timeout(HANG_UP, child.wait()).await.ok()?.ok(),
    }
}

fn resize(writer: &OwnedWritePty, size: Size) {
    // The kernel refuses only if this is no terminal any more, and reading says that too.
    drop(writer.resize(shell::into_size(size)));
}

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl std::fmt::Debug for LiveTerminal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Live").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Starts a shell for a terminal.
///
/// # Errors
/// As for [`shell::start`].
pub(super) fn start(
    options: &super::TerminalOptions,
    number: u64,
    size: Size,
    close: CancellationToken,
) -> io::Result<(Arc<LiveTerminal>, RunningTerminal)> {
    let (pty, child) = shell::start(options, size)?;
    Ok(LiveTerminal::new(number, size, pty, child, close))
}
