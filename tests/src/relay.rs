//! A TCP relay that breaks connections as networks do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends see the other one close.
    End,
    /// Both ends see a reset.
    Reset,
    /// Nothing moves any more, and nobody is told.
    Stall,
}

/// Every way in which a connection breaks.
pub const CUTS: [Cut; 3] = [Cut::End, Cut::Reset, Cut::Stall];

/// A relay to one address.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    cuts: watch::Sender<Cut>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    is_up: AtomicBool,
    /// Bytes after which the next connection is reset; `usize::MAX` for never.
    fuse: AtomicUsize,
    connections: AtomicUsize,
}

impl Relay {
    /// Starts it.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (cuts, cut) = watch::channel(Cut::End);
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            is_up: AtomicBool::new(true),
            fuse: AtomicUsize::new(usize::MAX),
            connections: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, shared.clone(), cut));
        Self { address, cuts, shared, _tasks: tasks }
    }

    /// Breaks every connection that there is.
    pub fn cut(&self, how: Cut) {
        self.cuts.send_replace(how);
    }

    /// Leads new connections to another address.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().expect("no panic") = target;
    }

    /// Takes no new connections.
    pub fn down(&self) {
        self.shared.is_up.store(false, Ordering::SeqCst);
    }

    /// Takes new connections again.
    pub fn up(&self) {
        self.shared.is_up.store(true, Ordering::SeqCst);
    }

    /// Resets the next connection after so many bytes of both directions together.
    pub fn break_next_after(&self, bytes: usize) {
        self.shared.fuse.store(bytes, Ordering::SeqCst);
    }

    /// Returns how many connections it took so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, cut: watch::Receiver<Cut>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        if !shared.is_up.load(Ordering::SeqCst) {
            near.set_zero_linger().ok();
            continue;
        }
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let mut cut = cut.clone();
        cut.mark_unchanged();
        connections.spawn(carry(near, shared.clone(), cut));
        while connections.try_join_next().is_some() {}
    }
}

/// Carries one connection until it is broken, or ends by itself.
async fn carry(mut near: TcpStream, shared: Arc<Shared>, mut cut: watch::Receiver<Cut>) {
    let target = *shared.target.lock().expect("no panic");
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("a socket");
    }
    let left = AtomicUsize::new(shared.fuse.swap(usize::MAX, Ordering::SeqCst));
    let how = {
        let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
        // Half of a link is of no use: both directions end together.
        tokio::select! {
            changed = cut.changed() => changed.map_or(Cut::End, |()| *cut.borrow()),
            how = pump(near_in, far_out, &left) => how,
            how = pump(far_in, near_out, &left) => how,
        }
    };
    match how {
        Cut::End => {
            near.shutdown().await.ok();
            far.shutdown().await.ok();
        }
        Cut::Reset => {
            near.set_zero_linger().ok();
            far.set_zero_linger().ok();
        }
        Cut::Stall => std::future::pending().await,
    }
}

/// Copies one direction until it ends, or until the fuse that both share has burnt down.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, left: &AtomicUsize) -> Cut {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let allowed = left.load(Ordering::SeqCst).min(read);
        if read == 0 || to.write_all(&buffer[..allowed]).await.is_err() {
            return Cut::End;
        }
        if allowed < read {
            return Cut::Reset;
        }
        if left.load(Ordering::SeqCst) != usize::MAX {
            left.fetch_sub(allowed, Ordering::SeqCst);
        }
    }
}
