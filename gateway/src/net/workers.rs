//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on its thread, and users' connections go to the thread of the agent that they ask for. Where they
//! do not share one, each request wakes the other thread and back; threads that steal tasks from each other do that all
//! the time (stack notes, 2.5).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

/// The threads, and whose turn it is. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    handles: Arc<[Handle]>,
    next: Arc<AtomicUsize>,
}

/// Keeps the threads. Dropping it stops them, and with them what still runs there.
#[derive(Debug)]
pub struct Threads {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads beside the calling one, which drives `own` and gets its share of connections, so that there are
    /// `count` in all. With one, everything runs on the calling thread.
    ///
    /// # Errors
    /// The system's, when it gives no more threads.
    pub fn start(own: &Handle, count: usize) -> io::Result<(Self, Threads)> {
        let mut threads = Threads { stop: CancellationToken::new(), threads: Vec::new() };
        let mut handles = vec![own.clone()];
        for number in 1..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            handles.push(runtime.handle().clone());
            let stop = threads.stop.clone();
            let name = format!("worker-{number}");
            let run = move || runtime.block_on(stop.cancelled());
            threads.threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        Ok((Self { handles: handles.into(), next: Arc::default() }, threads))
    }

    /// Uses the runtime of whoever accepts, for tests and for programs that bring their own.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns whether there is a choice.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.handles.len() > 1
    }

    /// Returns the worker whose turn it is; `None` without workers.
    #[must_use]
    pub fn next(&self) -> Option<Worker> {
        self.worker(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the worker that has the connection from this address, if it was placed by that; `None` without workers.
    #[must_use]
    pub fn of(&self, peer: SocketAddr) -> Option<Worker> {
        let mut hasher = DefaultHasher::new();
        peer.hash(&mut hasher);
        // What is cut off on machines of 32 bits makes no difference to a choice.
        self.worker(usize::try_from(hasher.finish() >> 32).unwrap_or_default())
    }

    fn worker(&self, number: usize) -> Option<Worker> {
        self.handles.get(number.checked_rem(self.handles.len())?).cloned().map(Worker)
    }
}

/// One of the threads.
#[derive(Clone, Debug)]
pub struct Worker(Handle);

impl Worker {
    /// Returns whether this is the thread that asks.
    pub(super) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.0.id())
    }

    /// Moves a stream here from the thread that accepted it.
    pub(super) fn adopt(&self, stream: TcpStream) -> io::Result<TcpStream> {
        let stream = stream.into_std()?;
        let _entered = self.0.enter();
        TcpStream::from_std(stream)
    }

    /// Runs a task here.
    pub(super) fn spawn(&self, drain: &Drain, task: impl Future<Output = ()> + Send + 'static) {
        let _entered = self.0.enter();
        drain.spawn(task);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            drop(thread.join());
        }
    }
}
