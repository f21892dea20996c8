//! The accept loop that survives everything, and handshakes that keep nobody waiting.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::Acceptor;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tracing::{debug, warn};
use tunnel_link::drain::Drain;
use tunnel_link::socket;

use super::stream::Stream;
use super::tls::Tls;

/// Connections that the kernel keeps for us while we are busy.
const BACKLOG: u32 = 1024;

/// Pause after an accept error that another accept would meet again at once, such as no free file descriptor.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

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

    /// Accepts until the drain begins; each connection is served by `serve` in a task of its own, handshake included.
    ///
    /// At the bound on connections, new ones wait in the kernel's backlog.
    pub async fn run<F, S>(self, drain: Drain, serve: S)
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(Connection) -> F + Clone + Send + Sync + 'static,
    {
        let mut draining = std::pin::pin!(drain.draining().cancelled());
        loop {
            let accepted = tokio::select! {
                () = draining.as_mut() => return,
                accepted = self.accept() => accepted,
            };
            let (stream, peer, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(listener = self.what, %error, "accept failed");
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            };
            let serve = serve.clone();
            let tls = self.tls.clone();
            let handshakes = self.handshakes.clone();
            let (what, limit) = (self.what, self.handshake_timeout);
            drain.spawn(async move {
                match secure(stream, tls, handshakes, limit).await {
                    Ok(stream) => serve(Connection { stream, peer, permit }).await,
                    Err(error) => debug!(listener = what, %peer, %error, "TLS handshake failed"),
                }
            });
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        // The permit first: a connection that cannot be served stays in the backlog. The semaphore is never closed.
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = self.socket.accept().await?;
        match self.kind {
            Kind::User => socket::tune(&stream)?,
            Kind::Link => socket::tune_link(&stream)?,
        }
        Ok((stream, peer, permit))
    }
}

/// Shakes hands. Each wait for the other end has the limit; the wait for a turn has none, because every turn ends.
async fn secure(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    handshakes: Arc<Semaphore>,
    limit: Duration,
) -> io::Result<Stream> {
    let Some(tls) = tls else { return Ok(Stream::Plain(stream)) };
    // Who has not even said hello takes nobody's turn. The work begins with the answer to it.
    let hello = timeout(limit, LazyConfigAcceptor::new(Acceptor::default(), stream)).await??;
    let _permit = handshakes.acquire_owned().await.map_err(io::Error::other)?;
    let stream = timeout(limit, hello.into_stream(tls.current())).await??;
    Ok(Stream::Tls(Box::new(stream)))
}
