//! Relay: a link with delay, rate and faults, for anything that speaks TCP.
//!
//! It stands between a program that dials and one that listens, and behaves as a long or narrow path would: each byte
//! takes its time at the link's rate plus the delay, each direction on its own, all connections together. It holds as
//! many bytes as a real path would: rate times delay on the wire, and a short queue ([`spec::QUEUE_DEFAULT`]). The
//! sockets' receive buffers are part of that queue, so a sender feels the link at once.
//!
//! Limits. It works on byte streams, so the programs' own congestion control sees loopback, loss is a pause (see
//! [`wire`]), the rate counts payload, and a connection's handshake takes one round trip on the link but none in the
//! dialing program.

mod alarm;
mod check;
pub mod cli;
mod pump;
pub mod spec;
pub mod toxic;
pub mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::pump::{ConnectionDirection, LinkDirection, StreamPair, finish_both, reset_on_drop, swallow_both};

pub use self::check::{LinkMeasurement, check};
pub use self::cli::{RelayArgs, run};
pub use self::spec::{BadLink, LinkSpec};
pub use self::toxic::{Toxic, ToxicKind};

/// The kernel's queue of connections that were not accepted yet.
const BACKLOG: i32 = 1024;

/// Largest segment that either side sends into the relay: that of an Ethernet path. Loopback's own, 64 KiB, is larger
/// than a narrow link's whole queue.
const SEGMENT_BYTES: u32 = 1460;

/// Time limit of the relay's connection to the other side.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts links.
#[derive(Debug)]
pub struct Relay;

/// A running link; dropping it resets its connections and ends it.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    control: watch::Sender<Control>,
    shared: Arc<RelayCounters>,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

/// Orders to connections; the counters grow with each order.
#[derive(Clone, Debug, Default)]
struct Control {
    spec: LinkSpec,
    stalled: bool,
    cuts: u64,
    closes: u64,
    half_opens: u64,
}

/// Counters of connections.
#[derive(Debug, Default)]
struct RelayCounters {
    connections: AtomicUsize,
    accepted: AtomicU64,
    up: Counters,
    down: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
}

impl Counters {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Relay {
    /// Starts a link to `to` on a free loopback port, on a thread of its own.
    ///
    /// # Errors
    /// The port cannot be bound or the thread not started.
    pub fn start(to: SocketAddr, spec: LinkSpec) -> io::Result<Handle> {
        Self::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), to, spec)
    }

    /// Starts a link from `listen` to `to`, on a thread of its own.
    ///
    /// # Errors
    /// `listen` cannot be bound or the thread not started.
    pub fn bind(listen: SocketAddr, to: SocketAddr, spec: LinkSpec) -> io::Result<Handle> {
        let listener = listener(listen, &spec)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (control, orders) = watch::channel(Control { spec, ..Control::default() });
        let shared = Arc::new(RelayCounters::default());
        let stop = CancellationToken::new();
        let link = RelayThread { to, orders, shared: Arc::clone(&shared), sides: [side(1)?, side(2)?] };
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || runtime.block_on(stopped.run_until_cancelled(link.accept(listener))).unwrap_or(()))?;
        Ok(Handle { address, control, shared, stop, thread: Some(thread) })
    }
}

fn side(seed: u64) -> io::Result<Arc<LinkDirection>> {
    Ok(Arc::new(LinkDirection::start(SmallRng::seed_from_u64(seed))?))
}

fn listener(listen: SocketAddr, spec: &LinkSpec) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Before `listen`: connections inherit the buffers, and the window is agreed on in the handshake.
    tune(&SockRef::from(&socket), spec)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn tune(socket: &SockRef<'_>, spec: &LinkSpec) -> io::Result<()> {
    if let Some(bytes) = spec.receive_buffer_bytes() {
        socket.set_recv_buffer_size(bytes)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_mss(SEGMENT_BYTES)?;
    }
    if let Some(bytes) = spec.send_buffer_bytes() {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

impl Handle {
    /// Returns the address to dial.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections (RST to both sides).
    pub fn cut(&self) {
        self.control.send_modify(|control| control.cuts += 1);
    }

    /// Ends all connections in order (FIN to both sides); bytes on the wire are dropped.
    pub fn close(&self) {
        self.control.send_modify(|control| control.closes += 1);
    }

    /// Makes the path forget all present connections: their bytes are swallowed, for good, and neither side hears of
    /// the other again. New connections work.
    pub fn half_open(&self) {
        self.control.send_modify(|control| control.half_opens += 1);
    }

    /// Makes the link stand still, for present and new connections, until [`Handle::resume`].
    pub fn stall(&self) {
        self.control.send_modify(|control| control.stalled = true);
    }

    /// Ends a stall; nothing was lost.
    pub fn resume(&self) {
        self.control.send_modify(|control| control.stalled = false);
    }

    /// Changes the link's properties. Bytes on the wire keep their time of arrival; present connections keep their
    /// buffers.
    pub fn set(&self, spec: LinkSpec) {
        self.control.send_modify(|control| control.spec = spec);
    }

    /// Returns the link's properties.
    #[must_use]
    pub fn spec(&self) -> LinkSpec {
        self.control.borrow().spec
    }

    /// Returns the live connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns all connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Returns the bytes handed over so far: from the dialing to the listening side, and back.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let read = |counters: &Counters| counters.bytes.load(Ordering::Relaxed);
        (read(&self.shared.up), read(&self.shared.down))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It ends at its next await; a panic there was printed there.
            drop(thread.join());
        }
    }
}

/// State of the relay's thread.
struct RelayThread {
    to: SocketAddr,
    orders: watch::Receiver<Control>,
    shared: Arc<RelayCounters>,
    /// To the listening side, and back.
    sides: [Arc<LinkDirection>; 2],
}

/// Reason that a connection ends before its bytes do.
enum Fault {
    Cut,
    Close,
    HalfOpen,
}

impl RelayThread {
    async fn accept(self, listener: std::net::TcpListener) {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(self.connection(stream))),
                    // Out of descriptors: connections that hold them may end.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Some(_ended) = connections.join_next() => {}
            }
        }
    }

    fn connection(&self, client: TcpStream) -> impl Future<Output = ()> + use<> {
        let (to, shared, orders) = (self.to, Arc::clone(&self.shared), self.orders.clone());
        let [up, down] = self.sides.clone();
        let counted = Counted::new(Arc::clone(&shared));
        async move {
            serve(client, to, &orders, [&*up, &*down], &shared).await;
            drop(counted);
        }
    }
}

/// Counts a connection for as long as it lives.
struct Counted(Arc<RelayCounters>);

impl Counted {
    fn new(shared: Arc<RelayCounters>) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(
    client: TcpStream,
    to: SocketAddr,
    orders: &watch::Receiver<Control>,
    [up, down]: [&LinkDirection; 2],
    shared: &RelayCounters,
) {
    let start = orders.borrow().clone();
    // As if the client's SYN had travelled: its bytes set out one round trip after it dialed.
    let handshake = async {
        tokio::time::sleep(start.spec.delay * 2).await;
        dial(to, &start.spec).await
    };
    let server = tokio::select! {
        dialed = handshake => dialed,
        _fault = fault_after(&start, orders.clone()) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let Ok(server) = server else { return reset_on_drop(&client, &client) };
    drop(client.set_nodelay(true));
    let there = ConnectionDirection::new(StreamPair { from: &client, to: &server }, up, orders.clone(), &shared.up);
    let back = ConnectionDirection::new(StreamPair { from: &server, to: &client }, down, orders.clone(), &shared.down);
    let fault = tokio::select! {
        carried = async { tokio::try_join!(there.carry(), back.carry()) } => match carried {
            Ok(((), ())) => return,
            Err(_) => Fault::Cut,
        },
        fault = fault_after(&start, orders.clone()) => fault,
    };
    match fault {
        Fault::Cut => reset_on_drop(&client, &server),
        Fault::Close => finish_both(&client, &server).await,
        Fault::HalfOpen => swallow_both(&client, &server).await,
    }
}

async fn dial(to: SocketAddr, spec: &LinkSpec) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    tune(&SockRef::from(&socket), spec)?;
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(to)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn fault_after(start: &Control, mut orders: watch::Receiver<Control>) -> Fault {
    loop {
        {
            let now = orders.borrow_and_update();
            if now.cuts != start.cuts {
                return Fault::Cut;
            }
            if now.closes != start.closes {
                return Fault::Close;
            }
            if now.half_opens != start.half_opens {
                return Fault::HalfOpen;
            }
        }
        if orders.changed().await.is_err() {
            return Fault::Cut;
        }
    }
}

#[cfg(test)]
mod tests;
