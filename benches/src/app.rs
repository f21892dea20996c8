//! App behind the tunnel, which the profiles talk to.
//!
//! | path | answer |
//! | --- | --- |
//! | `GET /bytes/N` | N bytes |
//! | `GET /pattern/N?seed=S&from=P` | N bytes that depend on their position |
//! | `GET /delay/MS` | a small text after so many milliseconds |
//! | `GET /events?interval_ms=N` | server-sent events with sequence numbers and times |
//! | `POST /upload` | `{"bytes":N}` |
//! | `POST /digest?seed=S` | `{"bytes":N,"fnv1a64":"…","wrong_at":null}`; with a seed, where the body leaves its pattern |
//! | `GET /ws` | a WebSocket that echoes |
//! | `GET /raw` with `Upgrade: raw` | a byte stream that echoes |

mod events;
mod streams;

use std::convert::Infallible;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel_link::socket::limit_queue;

use crate::pattern::{Checker, Digest};
use crate::payload::Payload;
use events::EndlessEvents;

/// Unsent bytes that the kernel may hold for one connection, in bytes. It would take some 4 MiB for each that stops
/// reading, and here the app shares its kernel's memory for TCP with the gateway: a thousand such connections use it
/// up.
const QUEUE_BYTES: usize = 256 * 1024;

/// Pause after a failed accept: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type AppAnswer = Response<Either<Payload, EndlessEvents>>;

/// Serves the app until `stop`.
///
/// # Errors
/// None at present; failures of one connection end that connection.
///
/// # Cancel safety
/// Dropping it ends all connections except upgraded ones, which end with `stop`.
pub async fn serve(listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let mut connections = JoinSet::new();
    let upgraded = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, upgraded.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    connections.shutdown().await;
    upgraded.close();
    upgraded.wait().await;
    Ok(())
}

async fn connection(stream: TcpStream, upgraded: TaskTracker, stop: CancellationToken) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    limit_queue(&stream, QUEUE_BYTES);
    let service = service_fn(|request| {
        let (upgraded, stop) = (upgraded.clone(), stop.clone());
        async move { Ok::<_, Infallible>(answer(request, &upgraded, &stop).await) }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.with_upgrades().await {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(request: Request<Incoming>, upgraded: &TaskTracker, stop: &CancellationToken) -> AppAnswer {
    let path = request.uri().path().to_owned();
    let (first, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match (request.method(), first) {
        (&Method::GET | &Method::HEAD, "bytes") => match rest.parse() {
            Ok(left) => ok(Payload::Fill { left }),
            Err(_) => plain(StatusCode::BAD_REQUEST, "/bytes/N"),
        },
        (&Method::GET, "pattern") => match rest.parse() {
            Ok(left) => {
                let position = query(&request, "from").unwrap_or(0);
                ok(Payload::Pattern { seed: query(&request, "seed").unwrap_or(0), position, left })
            }
            Err(_) => plain(StatusCode::BAD_REQUEST, "/pattern/N?seed=S"),
        },
        (&Method::GET, "delay") => {
            tokio::time::sleep(Duration::from_millis(rest.parse().unwrap_or(0))).await;
            plain(StatusCode::OK, "late\n")
        }
        (&Method::GET, "events") => events(&request),
        (&Method::POST, "upload") => json(upload(request.into_body()).await),
        (&Method::POST, "digest") => {
            let seed = query(&request, "seed");
            json(digest(request.into_body(), seed).await)
        }
        (&Method::GET, "ws") => streams::websocket(request, upgraded, stop).map(Either::Left),
        (&Method::GET, "raw") => streams::raw(request, upgraded, stop).map(Either::Left),
        (&Method::GET | &Method::HEAD, "") => plain(StatusCode::OK, "loadlab app\n"),
        _ => plain(StatusCode::NOT_FOUND, "no such path\n"),
    }
}

/// Returns a parameter of the query.
fn query<T: FromStr>(request: &Request<Incoming>, key: &str) -> Option<T> {
    let pairs = request.uri().query()?.split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == key)?.1.parse().ok()
}

fn ok(payload: Payload) -> AppAnswer {
    Response::new(Either::Left(payload))
}

fn plain(status: StatusCode, text: &'static str) -> AppAnswer {
    let mut answer = ok(Payload::text(text));
    *answer.status_mut() = status;
    answer
}

fn json(text: Option<String>) -> AppAnswer {
    let Some(text) = text else {
        return plain(StatusCode::BAD_REQUEST, "the body ended early\n");
    };
    let mut answer = ok(Payload::text(text));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn events(request: &Request<Incoming>) -> AppAnswer {
    let interval = Duration::from_millis(query(request, "interval_ms").unwrap_or(1000).max(1));
    let size = query(request, "size").unwrap_or(0);
    let mut answer = Response::new(Either::Right(EndlessEvents::new(interval, size)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

async fn upload(mut body: Incoming) -> Option<String> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Some(format!("{{\"bytes\":{bytes}}}"))
}

async fn digest(mut body: Incoming, seed: Option<u64>) -> Option<String> {
    let (mut digest, mut bytes) = (Digest::default(), 0);
    let mut checker = seed.map(|seed| Checker::new(seed, 0));
    while let Some(frame) = body.frame().await {
        let frame = frame.ok()?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        digest.take(data);
        if let Some(checker) = &mut checker {
            checker.take(data);
        }
    }
    let wrong_at = checker.and_then(|checker| checker.wrong_at());
    let wrong_at = wrong_at.map_or_else(|| "null".to_owned(), |at| at.to_string());
    Some(format!("{{\"bytes\":{bytes},\"fnv1a64\":\"{digest}\",\"wrong_at\":{wrong_at}}}"))
}
