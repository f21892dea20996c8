//! The port at which other replicas reach this one.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway_net::peers::PeerTls;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use tunnel_link::drain::Drain;

use crate::connection::{PING_INTERVAL, PING_TIMEOUT};
use crate::service::{PeerCalls, PeerService};

/// Most connections: each replica has a few to each other.
const CONNECTIONS_MAX: usize = 1024;

/// Bytes that one lane may have waiting here. They are read at once: what waits for slow users counts in budgets.
const LANE_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The same for all lanes of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Most calls and lanes of one connection at a time.
const STREAMS_MAX: u32 = 100_000;

/// A bound port for other replicas.
#[derive(Debug)]
pub struct PeerListener {
    socket: TcpListener,
    tls: Arc<PeerTls>,
}

impl PeerListener {
    /// Binds it.
    ///
    /// # Errors
    /// The system's.
    pub async fn bind(address: SocketAddr, tls: Arc<PeerTls>) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address).await?, tls })
    }

    /// Returns its address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers other replicas until `stop`. Connections are tasks of `drain`.
    pub async fn run(self, service: Arc<PeerService>, drain: Drain, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a connection of a replica");
                    tokio::time::sleep(PING_INTERVAL).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                debug!(%peer, "too many connections of replicas");
                continue;
            };
            let (service, tls, stop) = (service.clone(), self.tls.clone(), stop.clone());
            drain.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = serve(stream, peer, &tls, service) => {}
                }
            });
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, tls: &PeerTls, service: Arc<PeerService>) {
    stream.set_nodelay(true).ok();
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(refused) => {
            info!(%peer, code = refused.code(), "a caller of the replicas' port was refused: {refused}");
            return;
        }
    };
    let calls = PeerCalls::new(service);
    let handler = service_fn(move |request| {
        let calls = calls.clone();
        async move { Ok::<_, Infallible>(calls.answer(request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(LANE_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler);
    let result = connection.await;
    debug!(%peer, ?result, "the connection of a replica ended");
}
