//! Accept loop: HTTP/1.1 and HTTP/2 on one port, and an end that is orderly but bounded.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

/// Time that requests may still run after `stop`.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Pause of accepting after a failure such as a lack of file descriptors, which a tight loop would only worsen.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Accepts and serves until `stop` fires, then lets all connections finish within the grace.
pub(super) async fn run(listener: TcpListener, router: Router, stop: CancellationToken, tasks: TaskTracker) {
    let cut = CancellationToken::new();
    let owner = Owner { tasks: tasks.clone(), cut: cut.clone() };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    connections.spawn(connection(socket, peer, router.clone(), owner.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "sample app could not accept a connection");
                    if stop.run_until_cancelled(sleep(ACCEPT_REST)).await.is_none() {
                        break;
                    }
                }
            },
        }
    }
    drop(listener);
    tasks.close();
    let home = async {
        while connections.join_next().await.is_some() {}
        tasks.wait().await;
    };
    if timeout(STOP_GRACE, home).await.is_err() {
        tracing::debug!(connections = connections.len(), "sample app cuts what did not end in time");
        cut.cancel();
        connections.shutdown().await;
    }
}

async fn connection(socket: TcpStream, peer: SocketAddr, router: Router, owner: Owner, stop: CancellationToken) {
    if let Err(error) = serve_connection(socket, peer, router, owner, stop).await {
        // A client that goes away mid-request ends here too, so this is not worth more than a trace.
        tracing::trace!(%peer, error = %error, "connection of the sample app ended");
    }
}

async fn serve_connection(
    socket: TcpStream,
    peer: SocketAddr,
    router: Router,
    owner: Owner,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    no_delay(&socket)?;
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut router = router.clone();
        router.call(request)
    });
    let mut builder = Builder::new(owner);
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).enable_connect_protocol();
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
    tokio::select! {
        ended = serving.as_mut() => return ended,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    serving.await
}

/// Small echoes and events must not wait for the peer's acknowledgement.
fn no_delay(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)
}

/// Owns the tasks that hyper starts for the streams of an HTTP/2 connection.
#[derive(Clone)]
struct Owner {
    tasks: TaskTracker,
    /// Fires when the grace is over.
    cut: CancellationToken,
}

impl<F> Executor<F> for Owner
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, work: F) {
        let cut = self.cut.clone();
        drop(self.tasks.spawn(async move {
            drop(cut.run_until_cancelled_owned(work).await);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{RunningApp, read_past, read_to_end};

    #[tokio::test]
    async fn a_request_that_outlasts_the_grace_is_cut() {
        let app = RunningApp::start().await;
        // The upload promises a byte that never comes, so only the cut can end it.
        let mut socket =
            app.send(b"POST /upload HTTP/1.1\r\nhost: app\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n").await;
        read_past(&mut socket, b"100 Continue").await;
        app.stop();
        app.stopped().await;
        let rest = String::from_utf8(read_to_end(&mut socket).await).unwrap();
        assert!(!rest.contains("200 OK"), "{rest}");
    }

    #[tokio::test]
    async fn a_connection_that_never_speaks_does_not_hold_the_stop() {
        let app = RunningApp::start().await;
        let mut silent = app.send(b"").await;
        let mut known = app.send(b"GET /health HTTP/1.1\r\nhost: app\r\n\r\n").await;
        read_past(&mut known, b"\"status\":\"ok\"").await;
        app.stop();
        app.stopped().await;
        assert_eq!(read_to_end(&mut silent).await, b"");
    }
}
