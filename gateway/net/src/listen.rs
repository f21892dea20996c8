//! Accept loop that survives every error, and handshakes that hold up no other connection.

mod reception;

use std::future::Future;
use std::io;
use std::net::{self, IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use tunnel_link::drain::Drain;
use tunnel_link::socket;

use self::reception::{ClientHello, Reception};
use super::stream::ClientStream;
use super::tls::Tls;
use super::workers::{Worker, Workers};
use crate::limits::{Guest, UsageLimits};
use gateway_config::IpNetwork;
use gateway_types::Limit;

/// Connections that the kernel queues while this process is busy.
const BACKLOG: u32 = 4096;

/// Pause after an accept error that the next accept would meet again at once, such as no free file descriptor.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Once fewer than this part of `limits.connections` is free, idle connections make room: as many again, or one in
/// `SHED_PART` of all if none is free.
const SPARE_PART: usize = 16;
const SHED_PART: usize = 4;

/// Interval at which further connections are asked to make room while none is free.
const SHED_INTERVAL: Duration = Duration::from_millis(250);

/// Unsent bytes that the kernel holds for one user (`TCP_NOTSENT_LOWAT`), in bytes: above it the socket is not writable.
///
/// Without it the kernel takes some 4 MiB for each user who stops reading. A thousand of them use up the kernel's
/// memory for all TCP of the machine; it then drops packets for all others too, whose requests take seconds. Bytes in
/// flight to a user who reads do not count, so a long link is not slowed; what is left is two bulk frames, one to send
/// while the next is made.
const USER_QUEUE_BYTES: usize = 128 * 1024;

/// Failure to listen on an address. The text says which, why, and what to change.
#[derive(Debug, Error)]
#[error("cannot listen on {address} ({what}): {error}; choose another address with {flag} or the key {key}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Clients that the listener is for.
    pub what: &'static str,
    /// The flag that changes it.
    pub flag: &'static str,
    /// The key that changes it.
    pub key: &'static str,
    /// The kernel's answer.
    #[source]
    pub error: io::Error,
}

impl BindError {
    fn of(address: SocketAddr, options: &ListenerOptions, error: io::Error) -> Self {
        let (flag, key) = options.named;
        Self { address, what: options.what, flag, key, error }
    }
}

/// A bound listener and its limits.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    what: &'static str,
    tls: Option<Arc<Tls>>,
    connections: Arc<Semaphore>,
    /// Number of connections kept free as far as idle ones can be closed.
    spare: usize,
    handshakes: Arc<Semaphore>,
    handshake_timeout: Duration,
    stalled_timeout: Duration,
    policy: Arc<AcceptPolicy>,
}

/// Clients of a listener; they need different socket options, and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// From a user: any client.
    User,
    /// From an agent: a link.
    Link,
    /// From an operator.
    Operator,
}

/// Admission to a listener.
#[derive(Clone, Debug)]
pub struct AcceptPolicy {
    /// Clients of the listener.
    pub kind: ClientKind,
    /// Limits that all connections share.
    pub limits: Arc<UsageLimits>,
    /// Load balancers that name the client of a connection with the PROXY protocol.
    pub trusted: Arc<[IpNetwork]>,
}

impl AcceptPolicy {
    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }
}

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Clients that it is for; in errors and logs.
    pub what: &'static str,
    /// The flag and the key that change its address.
    pub named: (&'static str, &'static str),
    /// Certificates, if it speaks TLS.
    pub tls: Option<Arc<Tls>>,
    /// Connections at once.
    pub connections_max: usize,
    /// Handshakes at once.
    pub handshakes_max: usize,
    /// Time limit for each of the two waits of a handshake: for the client's hello, and for the rest.
    pub handshake_timeout: Duration,
    /// Longest time that a user may leave sent bytes unread before the connection is given up.
    pub stalled_timeout: Duration,
    /// Admission to the listener.
    pub policy: AcceptPolicy,
}

/// An accepted connection after its handshake.
#[derive(Debug)]
pub struct Connection {
    /// Bytes of the connection.
    pub stream: ClientStream,
    /// The other end of the socket.
    pub peer: SocketAddr,
    /// Client of the connection: the other end, or the address that a trusted balancer names.
    pub client: SocketAddr,
    /// Limits of the connection, or the limit that refuses it. A refusal is told only if its answer costs no handshake.
    pub guest: Result<Arc<Guest>, Limit>,
    /// Held for as long as the connection lives.
    pub permit: OwnedSemaphorePermit,
}

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    /// [`BindError`], whose text is meant for the operator.
    pub fn bind(address: SocketAddr, options: ListenerOptions) -> Result<Self, BindError> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // A restart must not wait for the connections of the last run to time out.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        let socket = bind().map_err(|error| BindError::of(address, &options, error))?;
        Ok(Self::on(socket, options))
    }

    /// Takes a socket that already listens, for a listener that is configured at `address`.
    ///
    /// # Errors
    /// [`BindError`], when the runtime cannot watch it.
    pub fn adopt(socket: net::TcpListener, address: SocketAddr, options: ListenerOptions) -> Result<Self, BindError> {
        let socket = TcpListener::from_std(socket).map_err(|error| BindError::of(address, &options, error))?;
        Ok(Self::on(socket, options))
    }

    fn on(socket: TcpListener, options: ListenerOptions) -> Self {
        Self {
            socket,
            what: options.what,
            tls: options.tls,
            connections: Arc::new(Semaphore::new(options.connections_max)),
            spare: (options.connections_max / SPARE_PART).max(1),
            handshakes: Arc::new(Semaphore::new(options.handshakes_max)),
            handshake_timeout: options.handshake_timeout,
            stalled_timeout: options.stalled_timeout,
            policy: Arc::new(options.policy),
        }
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the listening socket.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts until `stop`; `serve` runs for each connection in a task of the drain, handshake included, on the thread
    /// that `placing` chooses.
    ///
    /// Near the limit on connections, users' idle ones are closed for new ones. The rest then waits in the kernel's
    /// backlog. May be run again after `stop`.
    pub async fn run<F, S>(&self, drain: Drain, stop: CancellationToken, placing: Placing, serve: S)
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(Connection) -> F + Clone + Send + Sync + 'static,
    {
        let mut stopped = std::pin::pin!(stop.cancelled());
        loop {
            let accepted = tokio::select! {
                () = stopped.as_mut() => return,
                accepted = self.accept() => accepted,
            };
            let (stream, peer, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !concerns_one_connection(&error) {
                        warn!(listener = self.what, %error, "accept failed");
                        tokio::time::sleep(ERROR_PAUSE).await;
                    }
                    continue;
                }
            };
            let reception = Reception {
                what: self.what,
                tls: self.tls.clone(),
                handshakes: self.handshakes.clone(),
                limit: self.handshake_timeout,
                policy: self.policy.clone(),
                member: (self.policy.kind == ClientKind::User).then(|| Arc::new(self.policy.limits.idle().enter())),
                peer,
                permit,
                serve: serve.clone(),
            };
            match &placing {
                Placing::Here => drain.spawn(async move {
                    reception.handshake_and_serve(ClientHello::Unread(stream)).await;
                }),
                Placing::ByPeer(workers) => {
                    let worker = workers.of(peer);
                    reception.hand_over(ClientHello::Unread(stream), worker, &drain);
                }
                Placing::ByRequest(workers, place) => {
                    let (workers, place, drain_of_task) = (workers.clone(), place.clone(), drain.clone());
                    drain.spawn(async move {
                        let Some(hello) = reception.client_hello(stream).await else { return };
                        let worker = hello.choose_worker(&*place).await.or_else(|| workers.next());
                        match worker {
                            Some(worker) if !worker.is_here() => {
                                reception.hand_over(hello, Some(worker), &drain_of_task)
                            }
                            Some(_) | None => reception.handshake_and_serve(hello).await,
                        }
                    });
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        // The permit first: a connection that cannot be served stays in the backlog.
        let permit = self.room().await?;
        let (stream, peer) = self.socket.accept().await?;
        let tuned = match self.policy.kind {
            ClientKind::User => {
                socket::limit_queue(&stream, USER_QUEUE_BYTES);
                socket::limit_stall(&stream, self.stalled_timeout);
                socket::tune(&stream).and_then(|()| socket::probe(&stream))
            }
            ClientKind::Operator => socket::tune(&stream),
            ClientKind::Link => socket::tune_link(&stream),
        };
        // A client that is gone by now does not concern the listener: the task that serves it finds out.
        if let Err(error) = tuned {
            debug!(listener = self.what, %peer, %error, "a connection was gone at once");
        }
        Ok((stream, peer, permit))
    }

    /// Waits for a free connection, and asks idle ones to leave when few are free.
    ///
    /// Cancel safety: safe.
    async fn room(&self) -> io::Result<OwnedSemaphorePermit> {
        loop {
            let free = self.connections.available_permits();
            if self.policy.kind == ClientKind::User && free < self.spare {
                let wanted = if free > 0 { self.spare } else { self.spare * (SPARE_PART / SHED_PART) };
                self.policy.limits.shed(wanted);
            }
            // The semaphore is never closed.
            match timeout(SHED_INTERVAL, self.connections.clone().acquire_owned()).await {
                Ok(permit) => return permit.map_err(io::Error::other),
                Err(_elapsed) => {}
            }
        }
    }
}

/// Returns whether an error of accept concerns only the connection that was to be accepted, so that the next may
/// succeed. A pause after these would let any client that hangs up early delay all others.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    [ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted].contains(&error.kind())
}

/// Choice of the thread that serves a connection.
#[derive(Clone)]
pub enum Placing {
    /// The accepting thread.
    Here,
    /// A fixed thread for each address.
    ByPeer(Workers),
    /// The thread that the function finds for the requested host; else each in turn.
    ByRequest(Workers, Arc<PlaceBy>),
}

/// Finds the thread for a connection from the first information that a client sends.
pub type PlaceBy = dyn Fn(RoutingHint<'_>) -> Option<Worker> + Send + Sync;

/// First information that a client sends.
#[derive(Clone, Copy, Debug)]
pub enum RoutingHint<'a> {
    /// Name that it asks for in a TLS handshake.
    ServerName(&'a str),
    /// First bytes without TLS. May be cut anywhere.
    Bytes(&'a [u8]),
}

#[cfg(test)]
mod tests;
