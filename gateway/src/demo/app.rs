//! The sample app that `gateway demo` puts behind the tunnel.
//!
//! It is an ordinary web app that knows nothing of the gateway: a page, a WebSocket echo, an event stream, uploads and
//! downloads of any size in constant memory, and a mirror that shows a request as it arrived. People look at the page;
//! tests use the routes, because each answer shows what the way through the tunnel did to the bytes.
//!
//! | route | answers |
//! | --- | --- |
//! | `/`, `/app.css`, `/app.js`, `/favicon.svg` | the page, with validators |
//! | `/ws` | WebSocket echo, HTTP/1.1 upgrade or extended CONNECT |
//! | `/events` | server-sent events, one a second, resumable |
//! | `POST /upload` | `{bytes, sha256, seconds}` |
//! | `GET /download?bytes=N` | N bytes that depend only on their position |
//! | `ANY /request`, `/request/…` | the request as the app saw it |
//! | `ANY /status/{code}` | that status |
//! | `ANY /slow?seconds=N` | an answer that takes its time |
//! | `/health` | 200, uptime, and what is open right now |

mod assets;
mod echo;
mod events;
mod listen;
mod mirror;
mod open;
mod simple;
mod transfer;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use open::OpenCounts;

/// Serves the sample app on `listener` until `stop` fires.
///
/// Then it accepts nothing more, ends WebSockets (close code 1001) and event streams, lets other requests finish for a
/// short grace and cuts what is left. Every task it started has ended, or was cut, when it returns.
///
/// # Errors
/// Fails if the listener has no local address any more. Trouble with single connections is not an error of the app.
pub async fn serve(listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    serve_app(listener, DemoApp::new(stop)).await
}

async fn serve_app(listener: TcpListener, app: DemoApp) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::debug!(%address, "sample app is listening");
    let (stop, tasks) = (app.stop.clone(), app.tasks.clone());
    listen::run(listener, routes(app), stop, tasks).await;
    tracing::debug!(%address, "sample app has stopped");
    Ok(())
}

/// State that all handlers share. Cloning is cheap.
#[derive(Clone)]
struct DemoApp(Arc<AppShared>);

struct AppShared {
    /// Tick zero of the event stream.
    started: Instant,
    stop: CancellationToken,
    /// Tasks that outlive the request that started them: WebSockets.
    tasks: TaskTracker,
    open: OpenCounts,
    /// Longest wait of a closing WebSocket for its peer.
    close_wait: Duration,
}

impl std::ops::Deref for DemoApp {
    type Target = AppShared;

    fn deref(&self) -> &AppShared {
        &self.0
    }
}

impl DemoApp {
    fn new(stop: CancellationToken) -> Self {
        Self::with_close_wait(stop, echo::CLOSE_WAIT)
    }

    fn with_close_wait(stop: CancellationToken, close_wait: Duration) -> Self {
        let (started, tasks, open) = (Instant::now(), TaskTracker::new(), OpenCounts::default());
        Self(Arc::new(AppShared { started, stop, tasks, open, close_wait }))
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

fn routes(app: DemoApp) -> Router {
    assets::routes()
        .route("/ws", any(echo::upgrade))
        .route("/events", get(events::stream))
        .route("/upload", post(transfer::upload))
        .route("/download", get(transfer::download))
        .route("/request", any(mirror::show))
        .route("/request/", any(mirror::show))
        .route("/request/{*rest}", any(mirror::show))
        .route("/status/{code}", any(simple::status))
        .route("/slow", any(simple::slow))
        .route("/health", get(simple::health))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "the sample app has no such page") })
        .with_state(app)
}

/// A failure of the app itself, as JSON; the text is fixed so that nothing of the request is echoed.
fn problem(status: StatusCode, text: &'static str) -> Response {
    (status, axum::Json(json!({ "error": text }))).into_response()
}

/// Milliseconds since 1970; zero on a machine whose clock stands before that.
#[expect(clippy::disallowed_methods, reason = "the app shows the time of day; nothing is decided by it")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Lower-case hexadecimal digits of `bytes`.
fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::SocketAddr;

    use axum::body::Body;
    use axum::http::Request;
    use axum::response::Response;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;
    use tokio::time::timeout;
    use tower_service::Service;

    use super::*;

    /// Fails the test instead of letting it hang.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Answers one request without a socket.
    pub(super) async fn answer(request: Request<Body>) -> Response {
        let mut router = routes(DemoApp::new(CancellationToken::new()));
        router.call(request).await.unwrap()
    }

    pub(super) async fn json_of(response: Response) -> Value {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    /// The app on a real loopback port.
    pub(super) struct RunningApp {
        pub(super) address: SocketAddr,
        stop: CancellationToken,
        server: JoinSet<io::Result<()>>,
    }

    impl RunningApp {
        pub(super) async fn start() -> Self {
            Self::with_close_wait(echo::CLOSE_WAIT).await
        }

        pub(super) async fn with_close_wait(close_wait: Duration) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let stop = CancellationToken::new();
            let mut server = JoinSet::new();
            server.spawn(serve_app(listener, DemoApp::with_close_wait(stop.clone(), close_wait)));
            Self { address, stop, server }
        }

        pub(super) async fn send(&self, bytes: &[u8]) -> TcpStream {
            let mut socket = TcpStream::connect(self.address).await.unwrap();
            socket.write_all(bytes).await.unwrap();
            socket
        }

        pub(super) fn stop(&self) {
            self.stop.cancel();
        }

        pub(super) async fn stopped(mut self) {
            let ended = patiently(self.server.join_next()).await;
            ended.unwrap().unwrap().unwrap();
        }
    }

    pub(super) async fn patiently<T>(wait: impl Future<Output = T>) -> T {
        timeout(PATIENCE, wait).await.expect("it takes too long")
    }

    /// Reads until `marker` has come and returns all that was read.
    pub(super) async fn read_past(socket: &mut TcpStream, marker: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        while !read.windows(marker.len()).any(|part| part == marker) {
            let more = patiently(socket.read_buf(&mut read)).await.unwrap();
            assert_ne!(more, 0, "ended early: {}", String::from_utf8_lossy(&read));
        }
        read
    }

    pub(super) async fn read_to_end(socket: &mut TcpStream) -> Vec<u8> {
        let mut read = Vec::new();
        patiently(socket.read_to_end(&mut read)).await.unwrap();
        read
    }

    #[test]
    fn hex_of_bytes_is_two_lower_case_digits_each() {
        assert_eq!(hex(&[0x00, 0x0a, 0xff, 0x80]), "000aff80");
    }

    #[tokio::test]
    async fn an_unknown_path_is_not_found() {
        let request = Request::get("/nowhere").body(Body::empty()).unwrap();
        let response = answer(request).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(json_of(response).await["error"], "the sample app has no such page");
    }

    #[tokio::test]
    async fn an_idle_app_stops_at_once() {
        let app = RunningApp::start().await;
        app.stop();
        app.stopped().await;
    }
}
