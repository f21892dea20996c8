//! The port or socket at which other replicas reach this one.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gateway_net::host_sockets::HostListener;
use gateway_net::peers::PeerTls;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use tunnel_link::drain::Drain;

use crate::connection::{FRAME_BYTES, PING_INTERVAL, PING_TIMEOUT};
use crate::service::{PeerCalls, PeerService};

/// Most connections: each replica has a few to each other.
const CONNECTIONS_MAX: usize = 1024;

/// Bytes that one lane may have waiting here. They are read at once: what waits for slow users counts in budgets.
const LANE_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The same for all lanes of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Most calls and lanes of one connection at a time.
const STREAMS_MAX: u32 = 100_000;

/// A bound port or socket for other replicas.
#[derive(Debug)]
pub struct PeerListener(PeerSocket);

#[derive(Debug)]
enum PeerSocket {
    /// For replicas that prove their role.
    Tls { socket: TcpListener, tls: Arc<PeerTls> },
    /// For the other processes of this host.
    Host(HostListener),
}

/// A connection that was accepted.
enum Caller {
    Tls { stream: TcpStream, peer: SocketAddr, tls: Arc<PeerTls> },
    Host(UnixStream),
}

impl PeerListener {
    /// Binds a port.
    ///
    /// # Errors
    /// The system's.
    pub async fn bind(address: SocketAddr, tls: Arc<PeerTls>) -> io::Result<Self> {
        Ok(Self(PeerSocket::Tls { socket: TcpListener::bind(address).await?, tls }))
    }

    /// Listens on a socket of this host.
    #[must_use]
    pub fn of_host(socket: HostListener) -> Self {
        Self(PeerSocket::Host(socket))
    }

    /// Cancel safety: safe.
    async fn accept(&self) -> io::Result<Caller> {
        Ok(match &self.0 {
            PeerSocket::Tls { socket, tls } => {
                let (stream, peer) = socket.accept().await?;
                Caller::Tls { stream, peer, tls: tls.clone() }
            }
            PeerSocket::Host(socket) => Caller::Host(socket.accept().await?),
        })
    }

    /// Answers other replicas until `stop`. Connections are tasks of `drain`.
    pub async fn run(self, service: Arc<PeerService>, drain: Drain, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.accept() => accepted,
            };
            let caller = match accepted {
                Ok(caller) => caller,
                Err(error) => {
                    warn!(%error, "cannot accept a connection of a replica");
                    tokio::time::sleep(PING_INTERVAL).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                debug!("too many connections of replicas");
                continue;
            };
            let (service, stop) = (service.clone(), stop.clone());
            drain.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = receive(caller, service) => {}
                }
            });
        }
    }
}

async fn receive(caller: Caller, service: Arc<PeerService>) {
    match caller {
        Caller::Host(stream) => serve(stream, service).await,
        Caller::Tls { stream, peer, tls } => {
            stream.set_nodelay(true).ok();
            match tls.accept(stream).await {
                Ok(stream) => serve(stream, service).await,
                Err(refused) => {
                    info!(%peer, code = refused.code(), "a caller of the replicas' port was refused: {refused}");
                }
            }
        }
    }
}

/// Answers another replica on a stream of a test's making.
#[cfg(feature = "testing")]
pub async fn serve_on(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: Arc<PeerService>) {
    serve(stream, service).await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: Arc<PeerService>) {
    let calls = PeerCalls::new(service);
    let peer = calls.peer();
    let handler = service_fn(move |request| {
        let calls = calls.clone();
        async move { Ok::<_, Infallible>(calls.answer(request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(LANE_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler);
    let result = connection.await;
    debug!(replica = peer.load(Ordering::Relaxed), ?result, "the connection of a replica ended");
}
