//! Bounds the bytes below the scheduler: one chunk, and a kernel queue of a few milliseconds.
//!
//! Bytes that HTTP/2, TLS or the kernel hold cannot be overtaken any more. So nothing is handed down while something is
//! still there, and on a slow link frames and the kernel's queue get smaller with its rate: a keystroke then waits
//! behind milliseconds of another user's download, not behind its buffers. The rate is measured where the socket says
//! that it is full, and while it never does, everything stays as large as throughput wants it.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel_proto::limit::{INTERACTIVE_BYTES_MAX, PAYLOAD_BYTES_ALONE};

use crate::lane_window::{Grant, LANE_BYTES_FIRST, SendWindow};
use crate::session::register;

/// Longest time that one frame takes on the link.
pub(crate) const FRAME_TIME: Duration = Duration::from_millis(1);

/// Longest time that unsent bytes stay in the kernel: enough to bridge the time until this process runs again.
const QUEUE_TIME: Duration = Duration::from_millis(1);

/// Bounds of the kernel's queue of unsent bytes.
const QUEUE_BYTES_MIN: usize = 2 * 1024;
pub(crate) const QUEUE_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a chunk beside its payload: heads of HTTP/2, gRPC and the frame, and a TLS record's.
const CHUNK_OVERHEAD: usize = 64;

/// Number of segments from which on a last one that is not full makes no difference.
const SEGMENTS_MANY: usize = 16;

/// Largest segment that is filled, that of Ethernet: two larger ones would make others wait too long.
const SEGMENT_BYTES_MAX: usize = 1500;

/// Bytes that a stream takes without being full, after which it has no bound that matters.
const EASY_BYTES: usize = 4 * QUEUE_BYTES_MAX;

/// Shortest measurement, so that the clock's and the scheduler's grain do not matter.
const WINDOW_MIN: Duration = Duration::from_millis(4);

/// State shared by the link's writer and the stream below it.
#[derive(Debug)]
pub struct Pace {
    /// Largest payload of one frame now.
    frame_max: AtomicUsize,
    /// Whether the writer had nothing to send: the time until it has is not the link's.
    idle: AtomicBool,
    /// Whether the stream says that the last chunk has left.
    gated: bool,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Whether a chunk was handed down and is not in the kernel yet.
    busy: bool,
    /// Present on a lane that another replica carries; on the heap, because most links are none.
    window: Option<Box<SendWindow>>,
    waker: Option<Waker>,
}

impl Pace {
    /// Makes the pace of a stream that is not [`PacedStream`]: nothing is bounded.
    #[must_use]
    pub fn unbounded() -> Arc<Self> {
        Arc::new(Self::new(false))
    }

    /// Makes the pace of a lane that another replica carries: it has as many bytes on the way as that one grants.
    #[must_use]
    pub fn of_carried() -> Arc<Self> {
        let pace = Self::new(false);
        pace.gate.lock().window = Some(Box::new(SendWindow::new(LANE_BYTES_FIRST)));
        Arc::new(pace)
    }

    /// Takes the word of the replica that carries a lane.
    pub fn granted(&self, grant: Grant) {
        let waker = {
            let mut gate = self.gate.lock();
            let Some(window) = &mut gate.window else { return };
            window.granted(grant);
            window.room().and_then(|_room| gate.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the largest payload of a frame now: what the link takes in [`FRAME_TIME`], if that is known.
    pub(crate) fn frame_max(&self) -> usize {
        self.frame_max.load(Ordering::Relaxed)
    }

    fn new(gated: bool) -> Self {
        Self {
            frame_max: AtomicUsize::new(PAYLOAD_BYTES_ALONE),
            idle: AtomicBool::new(false),
            gated,
            gate: Mutex::default(),
        }
    }

    /// Waits until the chunk before has left, and the window has room. Returns the largest payload of the next frame.
    pub(crate) fn poll_turn(&self, context: &Context<'_>) -> Poll<usize> {
        let mut gate = self.gate.lock();
        let room = gate.window.as_ref().map_or(Some(usize::MAX), |window| window.room());
        let Some(room) = room.filter(|_room| !gate.busy) else {
            register(&mut gate.waker, context);
            return Poll::Pending;
        };
        Poll::Ready(self.frame_max().min(room.saturating_sub(CHUNK_OVERHEAD)))
    }

    /// Notes that a chunk of so many bytes is handed down.
    pub(crate) fn hand_down(&self, bytes: usize) {
        let mut gate = self.gate.lock();
        gate.busy = self.gated;
        if let Some(window) = &mut gate.window {
            window.sent(bytes);
        }
    }

    /// Notes that there is nothing to hand down.
    pub(crate) fn rest(&self) {
        self.idle.store(true, Ordering::Relaxed);
    }

    /// Notes that everything has left.
    fn left(&self) {
        let waker = {
            let mut gate = self.gate.lock();
            gate.busy = false;
            gate.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A link's stream that measures how fast it drains. HTTP/2 flushes it whenever everything that it had is written.
pub struct PacedStream<S> {
    stream: S,
    pace: Arc<Pace>,
    rate: WriteRate,
    limit_queue: LimitQueue<S>,
    queue_bytes: usize,
    segment_bytes: Option<usize>,
}

/// Bounds the unsent bytes in a stream's kernel queue, if it has one. Returns the largest segment that the stream is sent
/// in, in bytes, if that is known.
pub type LimitQueue<S> = fn(&S, usize) -> Option<usize>;

impl<S> PacedStream<S> {
    /// Wraps a stream.
    #[must_use]
    pub fn new(stream: S, limit_queue: LimitQueue<S>) -> (Self, Arc<Pace>) {
        let pace = Arc::new(Pace::new(true));
        let segment_bytes = limit_queue(&stream, QUEUE_BYTES_MAX);
        let (rate, queue_bytes) = (WriteRate::default(), QUEUE_BYTES_MAX);
        (Self { stream, pace: pace.clone(), rate, limit_queue, queue_bytes, segment_bytes }, pace)
    }

    fn blocked(&mut self) {
        if self.pace.idle.swap(false, Ordering::Relaxed) {
            self.rate.restart();
        }
        self.rate.blocked(now());
        self.apply();
    }

    fn flushed(&mut self) {
        self.rate.flushed();
        self.apply();
        self.pace.left();
    }

    fn apply(&mut self) {
        let frame_max = in_whole_segments(self.rate.bytes_in(FRAME_TIME), self.segment_bytes);
        let frame_max = frame_max.clamp(INTERACTIVE_BYTES_MAX, PAYLOAD_BYTES_ALONE);
        self.pace.frame_max.store(frame_max, Ordering::Relaxed);
        let queue = self.rate.bytes_in(QUEUE_TIME).clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX);
        // The kernel is told of halves and doubles only, or of the end of all limits.
        let differs = queue > 2 * self.queue_bytes || 2 * queue < self.queue_bytes;
        if differs || (queue == QUEUE_BYTES_MAX && self.queue_bytes != queue) {
            self.queue_bytes = queue;
            self.segment_bytes = (self.limit_queue)(&self.stream, queue);
        }
    }
}

/// Makes a payload so large that its chunk fills the segments that it is sent in, two at least. On a link that loses
/// packets TCP may send so many segments and not so many bytes, and then bytes that are missing in each are missing in
/// the rate.
fn in_whole_segments(payload: usize, segment: Option<usize>) -> usize {
    match segment {
        Some(segment @ CHUNK_OVERHEAD..=SEGMENT_BYTES_MAX) if payload / segment < SEGMENTS_MANY => {
            (payload / segment).max(2) * segment - CHUNK_OVERHEAD
        }
        Some(_) | None => payload,
    }
}

/// Reads the clock: time comes from the shell.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Rate at which a stream takes bytes, as far as it has ever been full. Pure.
#[derive(Debug, Default)]
struct WriteRate {
    /// Bytes a second; `None` while nothing bounds it.
    estimate: Option<f64>,
    /// Time at which the stream was full, and the bytes that it has taken since.
    window: Option<(Instant, usize)>,
    /// Bytes taken since it was last full.
    easy: usize,
}

impl WriteRate {
    fn written(&mut self, bytes: usize) {
        self.easy += bytes;
        if let Some((_, taken)) = &mut self.window {
            *taken += bytes;
        }
    }

    /// Notes that the stream is full: the bytes that it took since it was full before show its rate.
    fn blocked(&mut self, now: Instant) {
        self.easy = 0;
        let Some((since, taken)) = self.window else {
            self.window = Some((now, 0));
            return;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < WINDOW_MIN || taken == 0 {
            return;
        }
        let sample = taken as f64 / elapsed.as_secs_f64();
        self.estimate = Some(self.estimate.map_or(sample, |before| 0.5f64.mul_add(sample - before, before)));
        self.window = Some((now, 0));
    }

    /// Notes that the stream took everything. A stream that takes much and is never full is faster than was thought; a
    /// few chunks say nothing, because a kernel wakes its writer when half of the queue is free.
    fn flushed(&mut self) {
        if self.easy < EASY_BYTES {
            return;
        }
        self.easy = 0;
        self.window = None;
        self.estimate = self.estimate.map(|rate| rate * 1.25).filter(|rate| *rate < RATE_UNBOUNDED);
    }

    /// Forgets the measurement after the writer rested: the time since is not the stream's.
    fn restart(&mut self) {
        self.window = None;
    }

    /// Returns the number of bytes that the stream takes in some time.
    fn bytes_in(&self, time: Duration) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "casts from floats saturate")]
        self.estimate.map_or(usize::MAX, |rate| (rate * time.as_secs_f64()) as usize)
    }
}

/// Rate from which on nothing is bounded any more.
const RATE_UNBOUNDED: f64 = 1e9;

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> PacedStream<S> {
    fn count(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(bytes)) => self.rate.written(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.blocked(),
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.count(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.count(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        match &polled {
            Poll::Ready(Ok(())) => this.flushed(),
            // A writer that waits for its turn hears of the end elsewhere.
            Poll::Ready(Err(_)) => {}
            // TLS takes more than its socket does.
            Poll::Pending => this.blocked(),
        }
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<S: fmt::Debug> fmt::Debug for PacedStream<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Paced").field("stream", &self.stream).field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Lets a stream of `rate` bytes a second be full, again and again, for a second.
    fn saturated(rate: &mut WriteRate, bytes_per_second: usize, start: Instant) -> Instant {
        let mut now = start;
        for _ in 0..100 {
            rate.blocked(now);
            now += 10 * MS;
            rate.written(bytes_per_second / 100);
        }
        rate.blocked(now);
        now
    }

    #[test]
    fn slow_link_gets_small_frames_and_a_fast_one_large_ones() {
        let start = now();
        let mut rate = WriteRate::default();
        assert_eq!(rate.bytes_in(FRAME_TIME), usize::MAX, "nothing is known");
        let later = saturated(&mut rate, 2_500_000, start);
        let frame = rate.bytes_in(FRAME_TIME);
        assert!((2_400..2_600).contains(&frame), "{frame}");
        saturated(&mut rate, 125_000_000, later);
        assert!(rate.bytes_in(FRAME_TIME) > PAYLOAD_BYTES_ALONE);
    }

    #[test]
    fn small_frames_fill_their_segments() {
        for (payload, segment, expected) in [
            (0, Some(1448), 2 * 1448 - CHUNK_OVERHEAD),
            (2_500, Some(1448), 2 * 1448 - CHUNK_OVERHEAD),
            (5_000, Some(1448), 3 * 1448 - CHUNK_OVERHEAD),
            (16 * 1448, Some(1448), 16 * 1448),
            (usize::MAX, Some(1448), usize::MAX),
            (2_500, Some(65_483), 2_500),
            (2_500, Some(0), 2_500),
            (2_500, None, 2_500),
        ] {
            assert_eq!(in_whole_segments(payload, segment), expected, "{payload} {segment:?}");
        }
    }

    #[test]
    fn rest_is_not_slowness_and_an_easy_flush_undoes_the_estimate() {
        let start = now();
        let mut rate = WriteRate::default();
        rate.blocked(start);
        rate.written(100_000);
        rate.restart();
        rate.blocked(start + Duration::from_secs(3600));
        assert_eq!(rate.bytes_in(FRAME_TIME), usize::MAX);
        saturated(&mut rate, 1_000_000, start + Duration::from_secs(3600));
        // A kernel that was full takes a chunk or two before it is full again.
        rate.written(2 * PAYLOAD_BYTES_ALONE);
        rate.flushed();
        let before = rate.bytes_in(FRAME_TIME);
        for _ in 0..100 {
            rate.written(EASY_BYTES);
            rate.flushed();
        }
        assert!(before < 2_000 && rate.bytes_in(FRAME_TIME) == usize::MAX);
    }
}
