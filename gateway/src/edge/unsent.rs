//! What of a response waits in the HTTP library because its user does not read: bounded for each response, and counted.
//!
//! The library takes from a body until buffers of its own are full. These differ by version and setting, they are counted
//! in no budget, and one that is full holds whole pieces of what came off the tunnel. So the body itself holds back: it
//! gives no more while [`UNSENT_BYTES`] of what it gave are not yet with the kernel or with TLS, and then its channel's
//! credit, which is counted, stops the app.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};

use crate::telemetry::Level;

/// A response gives nothing more while this many of its bytes wait to be written.
///
/// A piece is given whole, so a user who stops reading leaves up to this plus one piece behind: a bulk frame of 64 KiB,
/// less where windows are small because many have stopped. One bulk frame for each write is what the tunnel brings and
/// what four TLS records take; smaller frames still share a write. Less would give each of those a system call of its own.
pub(super) const UNSENT_BYTES: usize = 16 * 1024;

/// A body that waits until what it gave was written.
#[derive(Debug)]
pub(super) struct Bounded<B> {
    body: B,
    level: Level,
    /// Made for the first piece that is not the last one.
    unsent: Option<Arc<Unsent>>,
}

/// What one response gave and nobody wrote yet.
#[derive(Debug)]
struct Unsent {
    bytes: AtomicUsize,
    /// The same over all responses.
    level: Level,
    giver: AtomicWaker,
}

/// A piece of a response on its way to the user's socket. It is written when it is dropped.
struct Piece {
    bytes: Bytes,
    unsent: Arc<Unsent>,
}

impl<B> Bounded<B> {
    /// Bounds `body`; `level` counts what all bodies have waiting.
    pub(super) fn new(body: B, level: Level) -> Self {
        Self { body, level, unsent: None }
    }
}

impl Unsent {
    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Acquire) >= UNSENT_BYTES
    }

    /// Waits until there is room.
    fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_full() {
            self.giver.register(context.waker());
            // What was written between the look and the registration woke nobody.
            if self.is_full() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn piece(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        self.level.rise(bytes.len());
        Bytes::from_owner(Piece { bytes, unsent: self.clone() })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.unsent.level.fall(self.bytes.len());
        let before = self.unsent.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        if before - self.bytes.len() < UNSENT_BYTES {
            self.unsent.giver.wake();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Bounded<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, level, unsent } = self.get_mut();
        if let Some(unsent) = unsent {
            ready!(unsent.poll_room(context));
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                // Most answers are one piece. It is the last that this response leaves anywhere, so it is not tracked.
                if unsent.is_none() && body.is_end_stream() {
                    return frame;
                }
                frame.map_data(|bytes| {
                    let new = || Unsent { bytes: AtomicUsize::new(0), level: level.clone(), giver: AtomicWaker::new() };
                    unsent.get_or_insert_with(|| Arc::new(new())).piece(bytes)
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicU64;

    use http::Response;
    use hyper::server::conn::{http1, http2};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinSet;

    use super::*;

    /// A bulk frame of the tunnel, nearly.
    const PIECE_BYTES: usize = 64 * 1024;

    /// Gives `left` pieces and counts how many were asked for.
    struct Endless {
        left: u64,
        given: Arc<AtomicU64>,
    }

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            self.given.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; PIECE_BYTES])))))
        }
    }

    fn body(left: u64, given: &Arc<AtomicU64>, level: &Level) -> Bounded<Endless> {
        Bounded::new(Endless { left, given: given.clone() }, level.clone())
    }

    fn poll(body: &mut Bounded<Endless>) -> Poll<Option<Bytes>> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let frame = Pin::new(body).poll_frame(&mut context);
        frame.map(|frame| frame.map(|frame| frame.expect("infallible").into_data().expect("data")))
    }

    #[test]
    fn body_gives_the_next_piece_when_the_last_one_was_written() {
        let (given, level) = (Arc::default(), Level::default());
        let mut body = body(2, &given, &level);
        let Poll::Ready(Some(mut first)) = poll(&mut body) else { panic!("a piece") };
        assert!(poll(&mut body).is_pending());
        let part = first.split_to(PIECE_BYTES - 1);
        drop(part);
        assert!(poll(&mut body).is_pending(), "the last byte keeps the whole piece");
        assert_eq!(level.get(), PIECE_BYTES as u64);
        drop(first);
        assert_eq!(level.get(), 0);
        assert!(matches!(poll(&mut body), Poll::Ready(Some(_))));
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }

    #[tokio::test]
    async fn body_that_waits_hears_from_another_thread_when_its_piece_was_written() {
        let (given, level) = (Arc::default(), Level::default());
        let mut body = body(2, &given, &level);
        let Poll::Ready(Some(first)) = poll(&mut body) else { panic!("a piece") };
        let written = std::thread::spawn(move || drop(first));
        let second = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        assert!(second.is_some());
        written.join().expect("dropped");
    }

    /// Asks for endless bodies, reads the first `read` bytes of what comes and stops. Returns how many pieces were taken
    /// from each body on average when nothing moves any more.
    async fn taken(mut user: DuplexStream, said: &[u8], given: &AtomicU64, read: usize) -> u64 {
        user.write_all(said).await.expect("a server");
        let mut first = vec![0; read];
        user.read_exact(&mut first).await.expect("a response");
        // One thread, no clock: once every task has nothing to do, yielding changes nothing.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        given.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn http1_takes_one_piece_for_a_user_who_does_not_read() {
        let (given, level): (Arc<AtomicU64>, _) = (Arc::default(), Level::default());
        let (user, socket) = tokio::io::duplex(4096);
        let mut tasks = JoinSet::new();
        let (counted, shown) = (given.clone(), level.clone());
        tasks.spawn(async move {
            let service = service_fn(move |_| {
                let body = body(u64::MAX, &counted, &shown);
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            // As large as a request head may be.
            http1::Builder::new().max_buf_size(1 << 20).serve_connection(TokioIo::new(socket), service).await.ok();
        });
        assert_eq!(taken(user, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &given, 512).await, 1);
        tasks.join_next().await;
        assert_eq!(level.get(), 0, "a connection that ended holds nothing");
    }

    #[tokio::test]
    async fn http2_takes_one_piece_of_each_stream_for_a_user_who_does_not_read() {
        let (given, level): (Arc<AtomicU64>, _) = (Arc::default(), Level::default());
        let (user, socket) = tokio::io::duplex(4096);
        let mut tasks = JoinSet::new();
        let (counted, shown) = (given.clone(), level.clone());
        tasks.spawn(async move {
            let service = service_fn(move |_| {
                let body = body(u64::MAX, &counted, &shown);
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_send_buf_size(1 << 20).serve_connection(TokioIo::new(socket), service).await.ok();
        });
        let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // Windows of 2^30 for each stream and for the connection (RFC 9113, sections 6.5.2 and 6.9).
        said.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x40, 0, 0, 0]);
        said.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0]);
        for stream in [1, 3, 5] {
            // GET, http, /, and `:authority: a`, from the static table (RFC 7541, appendix A).
            said.extend([0, 0, 6, 1, 5, 0, 0, 0, stream, 0x82, 0x86, 0x84, 0x41, 1, b'a']);
        }
        assert_eq!(taken(user, &said, &given, 512).await, 3);
        tasks.join_next().await;
        assert_eq!(level.get(), 0, "a connection that ended holds nothing");
    }
}
