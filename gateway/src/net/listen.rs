//! The accept loop that survives everything, and handshakes that keep nobody waiting.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustls::server::Acceptor;
use thiserror::Error;
use tokio::io::ReadBuf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use tunnel_link::drain::Drain;
use tunnel_link::socket;

use super::stream::Stream;
use super::tls::Tls;
use super::workers::{Worker, Workers};

/// Connections that the kernel keeps for us while we are busy.
const BACKLOG: u32 = 4096;

/// Pause after an accept error that another accept would meet again at once, such as no free file descriptor.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// How much of the first bytes of a connection is looked at to find out where it belongs; enough for a request line and
/// the fields that come early.
const FIRST_BYTES: usize = 1024;

/// How long a connection's first bytes are waited for before it is served anywhere.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Unsent bytes that the kernel holds for one user (`TCP_NOTSENT_LOWAT`), in bytes: above it the socket is not writable.
///
/// Without it the kernel takes some 4 MiB for each user who stops reading. A thousand of them spend what the kernel has
/// for all TCP of the machine, and then it drops what everybody else is sent: their requests take seconds. What is
/// under way to a user who reads does not count, so a long link is not slowed; what is left is two bulk frames, one to
/// send while the next is made.
const USER_QUEUE_BYTES: usize = 128 * 1024;

/// An address cannot be listened on. The text says which, why, and what to change.
#[derive(Debug, Error)]
#[error("cannot listen on {address} ({what}): {error}; choose another address with {flag} or the key {key}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Whom the listener is for.
    pub what: &'static str,
    /// The flag that changes it.
    pub flag: &'static str,
    /// The key that changes it.
    pub key: &'static str,
    /// The kernel's answer.
    #[source]
    pub error: io::Error,
}

/// A bound listener and its limits.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    what: &'static str,
    tls: Option<Arc<Tls>>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    handshake_timeout: Duration,
    kind: Kind,
}

/// Which socket options a connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From a user: any client.
    User,
    /// From an agent: a link.
    Link,
}

/// What a listener is made from.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Whom it is for; in errors and logs.
    pub what: &'static str,
    /// The flag and the key that change its address.
    pub named: (&'static str, &'static str),
    /// Certificates, if it speaks TLS.
    pub tls: Option<Arc<Tls>>,
    /// Connections at once.
    pub connections_max: usize,
    /// Handshakes at once.
    pub handshakes_max: usize,
    /// For each of the two waits of a handshake: for the client's hello, and for the rest.
    pub handshake_timeout: Duration,
    /// Which socket options its connections get.
    pub kind: Kind,
}

/// An accepted connection after its handshake.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    /// The other end.
    pub peer: SocketAddr,
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
        let (flag, key) = options.named;
        let socket = bind().map_err(|error| BindError { address, what: options.what, flag, key, error })?;
        Ok(Self {
            socket,
            what: options.what,
            tls: options.tls,
            connections: Arc::new(Semaphore::new(options.connections_max)),
            handshakes: Arc::new(Semaphore::new(options.handshakes_max)),
            handshake_timeout: options.handshake_timeout,
            kind: options.kind,
        })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts until `stop`; each connection is served by `serve` in a task of the drain, handshake included, on the
    /// thread that `placing` says.
    ///
    /// At the bound on connections, new ones wait in the kernel's backlog.
    pub async fn run<F, S>(self, drain: Drain, stop: CancellationToken, placing: Placing, serve: S)
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
            let host = Host {
                what: self.what,
                tls: self.tls.clone(),
                handshakes: self.handshakes.clone(),
                limit: self.handshake_timeout,
                peer,
                permit,
                serve: serve.clone(),
            };
            match &placing {
                Placing::Here => drain.spawn(async move {
                    if let Some(hello) = host.hello(stream).await {
                        host.welcome(hello).await;
                    }
                }),
                Placing::ByPeer(workers) => {
                    let worker = workers.of(peer);
                    host.place(Hello::Unread(stream), worker, &drain);
                }
                Placing::ByRequest(workers, place) => {
                    let (workers, place, drain_of_task) = (workers.clone(), place.clone(), drain.clone());
                    drain.spawn(async move {
                        let Some(hello) = host.hello(stream).await else { return };
                        let worker = hello.ask(&*place).await.or_else(|| workers.next());
                        match worker {
                            Some(worker) if !worker.is_here() => host.place(hello, Some(worker), &drain_of_task),
                            Some(_) | None => host.welcome(hello).await,
                        }
                    });
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        // The permit first: a connection that cannot be served stays in the backlog. The semaphore is never closed.
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = self.socket.accept().await?;
        let tuned = match self.kind {
            Kind::User => {
                socket::limit_queue(&stream, USER_QUEUE_BYTES);
                socket::tune(&stream).and_then(|()| socket::probe(&stream))
            }
            Kind::Link => socket::tune_link(&stream),
        };
        // A client that is gone by now is no trouble of the listener's: whoever serves it finds out.
        if let Err(error) = tuned {
            debug!(listener = self.what, %peer, %error, "a connection was gone at once");
        }
        Ok((stream, peer, permit))
    }
}

/// Returns whether an error of accept is about the connection that was to be accepted: the next one may be good. A pause
/// for these would let anybody who hangs up early hold everybody up.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    [ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted].contains(&error.kind())
}

/// Which thread serves a connection.
#[derive(Clone)]
pub enum Placing {
    /// The one that accepts.
    Here,
    /// A fixed one for each address.
    ByPeer(Workers),
    /// The one that the function finds for what the client asks for; else each in turn.
    ByRequest(Workers, Arc<Place>),
}

/// Finds the thread for a connection from the first that a client says.
pub type Place = dyn Fn(First<'_>) -> Option<Worker> + Send + Sync;

/// The first that a client says.
#[derive(Clone, Copy, Debug)]
pub enum First<'a> {
    /// The name that it asks for in a TLS handshake.
    ServerName(&'a str),
    /// What it sends, without TLS. May be cut anywhere.
    Bytes(&'a [u8]),
}

/// Whoever receives one connection.
struct Host<S> {
    what: &'static str,
    tls: Option<Arc<Tls>>,
    handshakes: Arc<Semaphore>,
    limit: Duration,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    serve: S,
}

/// A connection before its handshake is answered.
enum Hello {
    /// Nothing was read.
    Unread(TcpStream),
    /// There will be no handshake.
    Plain(TcpStream),
    /// The client said its hello.
    Tls(Box<StartHandshake<TcpStream>>),
}

impl Hello {
    /// Asks where the connection belongs.
    async fn ask(&self, place: &Place) -> Option<Worker> {
        match self {
            Self::Unread(_) => None,
            Self::Tls(start) => place(First::ServerName(start.client_hello().server_name()?)),
            // A timer of its own only for clients that connect ahead of time; others have sent something by now.
            Self::Plain(stream) => timeout(
                FIRST_BYTES_TIMEOUT,
                poll_fn(|context| {
                    // On the stack, so that no connection keeps it.
                    let mut bytes = [0; FIRST_BYTES];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    let peeked = ready!(stream.poll_peek(context, &mut buffer));
                    Poll::Ready(peeked.ok().and_then(|_| place(First::Bytes(buffer.filled()))))
                }),
            )
            .await
            .ok()?,
        }
    }

    fn moved(self, worker: &Worker) -> io::Result<Self> {
        Ok(match self {
            Self::Unread(stream) => Self::Unread(worker.adopt(stream)?),
            Self::Plain(stream) => Self::Plain(worker.adopt(stream)?),
            Self::Tls(start) => {
                let StartHandshake { accepted, io, .. } = *start;
                Self::Tls(Box::new(StartHandshake::from_parts(accepted, worker.adopt(io)?)))
            }
        })
    }
}

impl<F, S> Host<S>
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Connection) -> F + Send + Sync + 'static,
{
    /// Waits for the client's hello, if there is to be one. Who has not even said that takes nobody's turn.
    async fn hello(&self, stream: TcpStream) -> Option<Hello> {
        if self.tls.is_none() {
            return Some(Hello::Plain(stream));
        }
        let hello = timeout(self.limit, LazyConfigAcceptor::new(Acceptor::default(), stream)).await;
        let hello = hello.map_err(io::Error::from).flatten();
        hello.map_err(|error| self.complain(&error)).ok().map(|start| Hello::Tls(Box::new(start)))
    }

    /// Serves the connection on another thread, or here if there is none.
    fn place(self, hello: Hello, worker: Option<Worker>, drain: &Drain) {
        let Some(worker) = worker else {
            drain.spawn(self.welcome(hello));
            return;
        };
        match hello.moved(&worker) {
            Ok(hello) => worker.spawn(drain, self.welcome(hello)),
            Err(error) => warn!(listener = self.what, %error, "a connection could not be handed on"),
        }
    }

    /// Shakes hands and serves.
    async fn welcome(self, hello: Hello) {
        let hello = match hello {
            Hello::Unread(stream) => self.hello(stream).await,
            hello @ (Hello::Plain(_) | Hello::Tls(_)) => Some(hello),
        };
        let stream = match hello {
            None => return,
            Some(Hello::Plain(stream) | Hello::Unread(stream)) => Stream::Plain(stream),
            Some(Hello::Tls(start)) => match self.shake(*start).await {
                Ok(stream) => stream,
                Err(error) => return self.complain(&error),
            },
        };
        let Self { peer, permit, serve, .. } = self;
        serve(Connection { stream, peer, permit }).await;
    }

    /// Does the work of a handshake. The wait for the other end has the limit; the wait for a turn has none, because
    /// every turn ends.
    async fn shake(&self, start: StartHandshake<TcpStream>) -> io::Result<Stream> {
        let Some(tls) = &self.tls else { return Err(io::ErrorKind::Unsupported.into()) };
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = timeout(self.limit, start.into_stream(tls.current())).await??;
        Ok(Stream::Tls(Box::new(stream)))
    }

    fn complain(&self, error: &io::Error) {
        debug!(listener = self.what, peer = %self.peer, %error, "TLS handshake failed");
    }
}

#[cfg(test)]
mod tests;
