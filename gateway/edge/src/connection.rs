//! A user's connection: HTTP/1.1 or HTTP/2, under the limits of the configuration.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Version, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Sleep;
use tracing::debug;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;

use self::http2::Http2Guest;
use super::service::{Edge, Failures, Form, Origin};
use gateway_config::Config;
use gateway_http::respond::{Failure, Wants};
use gateway_net::listen::Connection;
use gateway_net::stream::{Alpn, ClientStream};
use gateway_types::Limit;
use http1_guard::answer::to_bytes;
use http1_guard::{GuardedStream, HeadFault, RefusedRequest, RequestCounts, Watcher};

mod http2;

/// Windows of one HTTP/2 stream and connection of a user, in bytes. Large enough that small unread frames do not
/// exhaust the library's budget for them, small enough that a connection cannot hold much.
const H2_STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const H2_CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// Send buffer of one HTTP/2 stream towards a user, in bytes: one bulk frame. Unsent data of a response or a WebSocket
/// counts in its channel's window; this is the part that the library keeps while its user does not read.
const H2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Largest HTTP/2 frame that is accepted.
const H2_FRAME_BYTES: u32 = 64 * 1024;

/// Largest HTTP/2 header section that the library hands on, at least, in bytes. Above it the library refuses by itself,
/// without an explanation; below it the gateway enforces `limits.header_bytes`. Cookies that an app has tossed to its
/// neighbours fill this much, and the user must be told how to get rid of them.
const H2_HEADER_LIST_BYTES: u32 = 1024 * 1024;

/// Most streams that a client may reset before they are taken, and most that the library may reset for a client's
/// mistakes, over the life of a connection. Resets of streams that were taken are counted by `http2_meter`.
const H2_UNTAKEN_RESETS: usize = 20;
const H2_ERROR_RESETS: usize = 256;

/// Time that a client who is turned away gets to read the reason, and bytes of its request that are read meanwhile: a
/// close with bytes unread resets the connection, and the reset can overtake the answer (RFC 9112, section 9.6).
const TURN_AWAY: Duration = Duration::from_millis(250);
const TURN_AWAY_BYTES: usize = 64 * 1024;

/// Deadline in a drain for the first request of a connection that was accepted before and is unused: the request may be
/// on its way.
const FIRST_REQUEST_IN_DRAIN: Duration = Duration::from_millis(500);

/// Users are asked for signs of life so much more rarely than agents: a silent phone had better sleep.
const USERS_FACTOR: u32 = 2;

/// Header fields that hyper takes without allocating.
const HEADERS_DEFAULT: usize = 100;

/// Smallest read buffer that hyper allows.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

/// Serves connections of users.
#[derive(Clone, Debug)]
pub struct Server {
    edge: Arc<Edge>,
    builder: auto::Builder<TokioExecutor>,
    header_bytes: usize,
    header_timeout: Duration,
    resets_per_second: u32,
}

/// Returns the size of an HTTP/1.1 connection's read buffer: room for the largest head, and in whole bulk frames, because
/// it bounds the pieces of a request's body too. A piece that is a few bytes longer than a frame makes two frames, which
/// cost an upload a third of its speed.
fn buffer_bytes(header_bytes: usize) -> usize {
    let frames = header_bytes / PAYLOAD_BYTES_ALONE * PAYLOAD_BYTES_ALONE;
    if frames > 0 { frames } else { header_bytes.max(BUFFER_BYTES_MIN) }
}

impl Server {
    /// Makes the server from the limits.
    #[must_use]
    pub fn new(edge: Arc<Edge>, config: &Config) -> Self {
        let Config { limits, timeouts, tunnel, .. } = config;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        let header_bytes = buffer_bytes(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX));
        {
            let mut http1 = builder.http1();
            http1.timer(TokioTimer::new()).header_read_timeout(timeouts.request_header).max_buf_size(header_bytes);
            if limits.headers != HEADERS_DEFAULT {
                http1.max_headers(limits.headers);
            }
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.http2_streams)
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .max_frame_size(H2_FRAME_BYTES)
            .max_send_buf_size(H2_SEND_BUFFER_BYTES)
            .max_pending_accept_reset_streams(H2_UNTAKEN_RESETS)
            .max_local_error_reset_streams(H2_ERROR_RESETS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX).max(H2_HEADER_LIST_BYTES))
            .keep_alive_interval(tunnel.keepalive_interval * USERS_FACTOR)
            .keep_alive_timeout(tunnel.keepalive_timeout * USERS_FACTOR);
        if config.listen.websocket_http2 {
            // Without this, the library refuses extended CONNECT too (RFC 8441, section 3).
            builder.http2().enable_connect_protocol();
        }
        let (header_timeout, resets_per_second) = (timeouts.request_header, limits.http2_resets_per_second);
        Self { edge, builder, header_bytes, header_timeout, resets_per_second }
    }

    /// Serves one connection until it ends, or until the drain lets it finish what it is doing.
    pub fn serve(&self, connection: Connection) -> impl Future<Output = ()> + Send + use<> {
        let Self { edge, builder, header_bytes, header_timeout, resets_per_second } = self.clone();
        async move {
            let Connection { stream, client: peer, guest, permit, .. } = connection;
            let guest = match guest {
                Ok(guest) => guest,
                Err(limit) => return Box::pin(turn_away(&edge, stream, limit)).await,
            };
            let negotiated = stream.negotiated();
            let origin = Arc::new(Origin::new(peer.ip(), negotiated, guest.clone()));
            let counts = Arc::new(RequestCounts::default());
            let refuser = refuser(edge.clone(), origin.clone());
            let http2 = Http2Guest::new(guest.clone(), permit, resets_per_second);
            let mut stream = GuardedStream::new(stream, Watcher::new(header_bytes), counts.clone(), refuser, http2);
            keep_to(origin.negotiated.alpn, &mut stream);
            let refuses = AtomicBool::new(edge.refuses_requests());
            let mut first_request = FirstRequest { edge: &edge, refuses: &refuses, due: None };
            let service = service_fn(|request| {
                let (edge, origin, in_flight) = (edge.clone(), origin.clone(), counts.begin());
                let refuses = refuses.load(Ordering::Relaxed);
                async move {
                    if refuses {
                        return Ok(in_flight.answered(edge.answer_in_drain(&request, &origin)));
                    }
                    let version = request.version();
                    let answer = edge.answer(request, &origin).await;
                    Ok::<_, Infallible>(in_flight.answered(last_before_drain(&edge, version, answer)))
                }
            });
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            // The library's limit on the time of a head begins when it knows the version.
            let mut version_due = Some(Box::pin(tokio::time::sleep(header_timeout)));
            let mut drained = std::pin::pin!(edge.drain.draining().cancelled());
            let (mut is_drain_awaited, mut is_leave_awaited, mut is_draining) = (false, false, false);
            // Polled by hand, because this runs several times for each request: futures that cannot be ready are
            // skipped.
            let result = std::future::poll_fn(|context| {
                if let Poll::Ready(result) = connection.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                // A task keeps its waker, so the signal has to be waited for only once; after that, it wakes.
                if !is_draining && (!is_drain_awaited || edge.drain.is_draining()) {
                    is_drain_awaited = true;
                    let waits = edge.drain.is_draining() && first_request.is_awaited(&counts, context);
                    if !waits && drained.as_mut().poll(context).is_ready() {
                        is_draining = true;
                        connection.as_mut().graceful_shutdown();
                        if let Poll::Ready(result) = connection.as_mut().poll(context) {
                            return Poll::Ready(result);
                        }
                    }
                }
                if !is_leave_awaited || guest.must_leave() {
                    is_leave_awaited = true;
                    if guest.poll_leave(context).is_ready() {
                        debug!(%peer, "an idle connection made room for others");
                        return Poll::Ready(Ok(()));
                    }
                }
                if counts.is_version_known() {
                    version_due = None;
                }
                let Some(due) = &mut version_due else { return Poll::Pending };
                due.as_mut().poll(context).map(|()| {
                    debug!(%peer, "a user's connection stayed silent");
                    Ok(())
                })
            })
            .await;
            if let Err(error) = result {
                debug!(%peer, %error, "connection of a user ended");
            }
        }
    }
}

/// The first request of a connection that was accepted in a drain, or was unused when the drain began: it is told of
/// the drain, or answered if other replicas serve, and then the connection ends.
struct FirstRequest<'a> {
    edge: &'a Edge,
    refuses: &'a AtomicBool,
    due: Option<Pin<Box<Sleep>>>,
}

impl FirstRequest<'_> {
    /// Returns, in a drain, whether the connection has to stay open for it. Wakes when its time is over.
    fn is_awaited(&mut self, counts: &RequestCounts, context: &mut Context<'_>) -> bool {
        let is_unused = counts.taken() == 0 || self.refuses.load(Ordering::Relaxed);
        if !is_unused || counts.answered() > 0 {
            return false;
        }
        self.refuses.store(self.edge.refuses_requests(), Ordering::Relaxed);
        let due = || Box::pin(tokio::time::sleep(FIRST_REQUEST_IN_DRAIN));
        self.due.get_or_insert_with(due).as_mut().poll(context).is_pending()
    }
}

/// Once a drain is announced, has a client of HTTP/1.1 open a new connection for its next request (RFC 9112, section 9.6), before the
/// drain closes this one while that request may be under way. HTTP/2 has a message for it, which loses none.
fn last_before_drain<B>(edge: &Edge, version: Version, mut answer: Response<B>) -> Response<B> {
    if edge.drain.is_announced() && version < Version::HTTP_2 && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Keeps a connection to the protocol that the handshake chose.
fn keep_to<A>(alpn: Option<Alpn>, stream: &mut GuardedStream<ClientStream, A, Http2Guest>)
where
    A: Fn(RefusedRequest) -> Bytes,
{
    match alpn {
        None => {}
        Some(Alpn::Http1) => stream.keep_to_http1(),
        Some(Alpn::Http2) => stream.keep_to_http2(),
    }
}

/// Makes the answers to heads that never become requests.
fn refuser(edge: Arc<Edge>, origin: Arc<Origin>) -> impl Fn(RefusedRequest) -> Bytes + Send + Unpin + 'static {
    move |RefusedRequest { fault, is_navigation, is_head }| {
        let failure = Failures::of_stranger(failure(fault), &origin);
        let wants = if is_navigation { Wants::Html } else { Wants::Json };
        to_bytes(edge.failures.answer_unread(failure, Form { wants, is_head }, &origin))
    }
}

/// Returns the failure shown to the user. The names are those of `guard`, where both know a fault.
fn failure(fault: HeadFault) -> Failure {
    let reason = match fault {
        HeadFault::TargetTooLong => return Failure::UriTooLong,
        HeadFault::HeadTooLarge => return Failure::HeaderTooLarge,
        HeadFault::CookiesTooLarge => return Failure::CookiesTooLarge,
        HeadFault::BareLineFeed => "bare_line_feed",
        HeadFault::FoldedLine => "folded_line",
        HeadFault::BlankBeforeColon => "blank_before_colon",
        HeadFault::HostDuplicate => "host_duplicate",
        HeadFault::Length => "content_length",
        HeadFault::Encoding => "transfer_encoding",
        HeadFault::LengthAndEncoding => "length_and_encoding",
        HeadFault::Malformed => "malformed",
    };
    Failure::BadRequest { reason }
}

/// Refuses a connection for which there is no room, whatever it asks for.
async fn turn_away(edge: &Edge, mut stream: ClientStream, limit: Limit) {
    let bytes = to_bytes(edge.failures.turned_away(limit));
    let told = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await?;
        let (mut scratch, mut left) = ([0; 4096], TURN_AWAY_BYTES);
        while left > 0 {
            match stream.read(&mut scratch).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    drop(tokio::time::timeout(TURN_AWAY, told).await);
}
