//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on its thread, and users' connections go to the thread of the agent that they ask for. Otherwise
//! each request would wake the other thread and back; a work-stealing runtime does that all the time.

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
use tunnel_link::memory::giving_back;

/// The threads, and the next in turn. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    handles: Arc<[Handle]>,
    next: Arc<AtomicUsize>,
}

/// Handles of the threads. Dropping it stops them, and all that still runs on them.
#[derive(Debug)]
pub struct Threads {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads beside the calling one, which drives `own` and serves its share of connections, so that there are
    /// `count` in all. With a `count` of one, everything runs on the calling thread.
    ///
    /// # Errors
    /// The system's error, if it gives no more threads.
    pub fn start(own: &Handle, count: usize) -> io::Result<(Self, Threads)> {
        let mut threads = Threads { stop: CancellationToken::new(), threads: Vec::new() };
        let mut handles = vec![own.clone()];
        for number in 1..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            handles.push(runtime.handle().clone());
            let stop = threads.stop.clone();
            let name = format!("worker-{number}");
            let run = move || runtime.block_on(giving_back(stop.cancelled()));
            threads.threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        Ok((Self { handles: handles.into(), next: Arc::default() }, threads))
    }

    /// Uses the runtime of the accepting task, for tests and for programs that bring their own.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns whether there is more than one thread.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.handles.len() > 1
    }

    /// Returns the next worker in turn; `None` without workers.
    #[must_use]
    pub fn next(&self) -> Option<Worker> {
        self.worker(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the worker of connections from this address, if they are placed by address; `None` without workers.
    #[must_use]
    pub fn of(&self, peer: SocketAddr) -> Option<Worker> {
        let mut hasher = DefaultHasher::new();
        peer.hash(&mut hasher);
        // Truncation on 32-bit machines does not matter to the choice.
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
    /// Returns whether the caller runs on this thread.
    pub(super) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.0.id())
    }

    /// Moves a stream to this thread from the one that accepted it.
    pub(super) fn adopt(&self, stream: TcpStream) -> io::Result<TcpStream> {
        let stream = stream.into_std()?;
        let _entered = self.0.enter();
        TcpStream::from_std(stream)
    }

    /// Runs a task on this thread.
    pub(super) fn spawn(&self, drain: &Drain, task: impl Future<Output = ()> + Send + 'static) {
        let _entered = self.0.enter();
        drain.spawn(task);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panicked thread has reported its panic.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn one_address_always_has_the_same_worker_and_turns_reach_all() {
        let (workers, _threads) = Workers::start(&Handle::current(), 3).expect("threads");
        let id = |worker: Option<Worker>| worker.expect("a worker").0.id();
        let mut of_addresses = std::collections::HashSet::new();
        for port in 1..100 {
            let peer = SocketAddr::from(([127, 0, 0, 1], port));
            assert_eq!(id(workers.of(peer)), id(workers.of(peer)));
            of_addresses.insert(id(workers.of(peer)));
        }
        assert_eq!(of_addresses.len(), 3);
        let turns: std::collections::HashSet<_> = (0..3).map(|_| id(workers.next())).collect();
        assert_eq!(turns, of_addresses);
        assert!(Workers::none().next().is_none());
    }

    #[tokio::test]
    async fn task_and_stream_move_to_the_worker() {
        let (workers, threads) = Workers::start(&Handle::current(), 2).expect("threads");
        let worker = [workers.next(), workers.next()].into_iter().flatten().find(|worker| !worker.is_here());
        let worker = worker.expect("another thread");
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (here, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let stream = worker.adopt(accepted.expect("accepted").0).expect("moved");
        let (done, is_done) = oneshot::channel();
        let there = worker.clone();
        worker.spawn(&Drain::default(), async move {
            let mut byte = [0];
            let mut stream = stream;
            let read = tokio::io::AsyncReadExt::read(&mut stream, &mut byte).await;
            done.send((there.is_here(), read.ok(), byte)).ok();
        });
        tokio::io::AsyncWriteExt::write_all(&mut here.expect("connected"), b"x").await.expect("written");
        assert_eq!(is_done.await, Ok((true, Some(1), *b"x")));
        drop(threads);
    }
}
