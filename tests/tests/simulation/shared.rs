//! What every simulated host and the test around them can see: the log, the sessions of both sides, the dials.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gateway_agents::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tunnel_link::session::Session;
use tunnel_proto::hello::Resume;
use tunnel_proto::mux::{ReplicaBudget, SessionError, Side};
use turmoil::net::{TcpListener, TcpStream};

use crate::gateway_host::Gateway;
use crate::middle::Middle;
use crate::net::Shape;

/// The process of a host that serves each connection to a port in a task.
pub(crate) async fn serve_each<F>(port: u16, mut serve: impl FnMut(TcpStream, SocketAddr) -> F) -> turmoil::Result
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // A failed expectation in a task fails the host, and with it the test.
            Some(done) = tasks.join_next(), if !tasks.is_empty() => done?,
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                tasks.spawn(serve(stream, peer));
            }
        }
    }
}

/// Something to do on the gateway's host.
pub(crate) type Job = Box<dyn FnOnce(Arc<Gateway>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// One side's end of one session.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    pub(crate) host: String,
    pub(crate) workspace: String,
    pub(crate) side: Side,
    pub(crate) generation: u64,
    pub(crate) session: Session,
    /// When it ended, and why.
    pub(crate) end: Option<(Duration, SessionError)>,
}

impl Witness {
    /// Returns whether no link carries the session.
    pub(crate) fn is_down(&self) -> bool {
        self.session.is_ended() || self.session.is_detached()
    }
}

/// An attempt of an agent to connect.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) at: Duration,
    pub(crate) workspace: String,
}

#[derive(Default)]
pub(crate) struct Shared {
    log: Mutex<Vec<String>>,
    sessions: Mutex<Vec<Witness>>,
    dials: Mutex<Vec<Dial>>,
    /// The gateway that runs now.
    gateway: Mutex<Option<Running>>,
    /// Agents that stopped for good, and why.
    stopped: Mutex<BTreeMap<String, String>>,
    /// Tells agents to shut down.
    pub(crate) stop: CancellationToken,
    /// Work of users that has begun and not ended.
    pub(crate) jobs: AtomicUsize,
    /// Bytes that apps read to their end, in order of these ends.
    pub(crate) taken: Mutex<Vec<usize>>,
    /// Processes of agents that were started.
    pub(crate) instances: AtomicU64,
    /// What agents were given to come back with, in order.
    pub(crate) resumes: Mutex<Vec<Resume>>,
    pub(crate) middle: Arc<Middle>,
    pub(crate) world: Shape,
}

/// How to reach a running gateway from outside.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) registry: Arc<Registry>,
    pub(crate) budget: Arc<ReplicaBudget>,
    pub(crate) jobs: mpsc::Sender<Job>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed elsewhere still wants to print its log.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The simulation's time; only inside a host.
pub(crate) fn now() -> Duration {
    turmoil::sim_elapsed().expect("inside a simulated host")
}

impl Shared {
    pub(crate) fn new(world: Shape) -> Arc<Self> {
        Arc::new(Self { world, ..Self::default() })
    }

    /// Writes a line of the log, from inside a host.
    pub(crate) fn note(&self, who: &str, what: impl Display) {
        self.note_at(now(), who, what);
    }

    pub(crate) fn note_at(&self, at: Duration, who: &str, what: impl Display) {
        lock(&self.log).push(format!("{:9.3} {who}: {what}", at.as_secs_f64()));
    }

    pub(crate) fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// Records an end of a session; returns its place.
    pub(crate) fn session_up(&self, witness: Witness) -> usize {
        self.note(&witness.host, format_args!("session of {} is up", witness.workspace));
        let mut sessions = lock(&self.sessions);
        sessions.push(witness);
        sessions.len() - 1
    }

    pub(crate) fn session_ended(&self, place: usize, error: SessionError) {
        let witness = {
            let witness = &mut lock(&self.sessions)[place];
            witness.end = Some((now(), error.clone()));
            witness.clone()
        };
        self.note(&witness.host, format_args!("session of {} ended: {error}", witness.workspace));
    }

    pub(crate) fn sessions(&self) -> Vec<Witness> {
        lock(&self.sessions).clone()
    }

    /// Returns the newest session of a workspace as one side sees it.
    pub(crate) fn newest(&self, workspace: &str, side: Side) -> Option<Witness> {
        let is_it = |witness: &&Witness| witness.workspace == workspace && witness.side == side;
        lock(&self.sessions).iter().rev().find(is_it).cloned()
    }

    pub(crate) fn dialed(&self, workspace: &str) {
        lock(&self.dials).push(Dial { at: now(), workspace: workspace.to_owned() });
    }

    pub(crate) fn dials(&self) -> Vec<Dial> {
        lock(&self.dials).clone()
    }

    pub(crate) fn gateway_runs(&self, running: Running) {
        self.jobs.store(0, Ordering::Relaxed);
        *lock(&self.gateway) = Some(running);
    }

    pub(crate) fn gateway(&self) -> Running {
        lock(&self.gateway).clone().expect("a gateway was started")
    }

    pub(crate) fn agent_stopped(&self, host: &str, why: impl Display) {
        self.note(host, format_args!("agent stopped: {why}"));
        lock(&self.stopped).insert(host.to_owned(), why.to_string());
    }

    /// Returns why the agent of a host stopped for good, if it did.
    pub(crate) fn why_stopped(&self, host: &str) -> Option<String> {
        lock(&self.stopped).get(host).cloned()
    }

    pub(crate) fn took(&self, bytes: usize) {
        lock(&self.taken).push(bytes);
    }
}
