//! Guards a stream with a [`Watcher`]: ambiguous heads never come through, and the library's own answers to malformed
//! ones go out as the caller's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tracing::debug;

use crate::answer::own_error;
use crate::in_flight::RequestCounts;
use crate::watcher::{Ambiguity, RefusedRequest, Watcher};

/// Time, and number of bytes, for which a connection is read on after its last answer: a close with bytes unread resets
/// it, and the reset can overtake the answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// Preface of an HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Answer to a missing preface: empty settings, and the end of the connection for a protocol error (sections 6.5 and
/// 6.8).
const NO_PREFACE: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// The caller's watch over a connection that turned out to be HTTP/2. It lives as long as the stream, whatever the
/// connection speaks: permits of a connection may be kept in it.
pub trait Http2Watch {
    /// Begins, behind the client's preface.
    fn begin(&mut self);

    /// Looks at received bytes, before the library sees them.
    ///
    /// # Errors
    /// The connection has to end, and these bytes are not passed on.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Http2End>;

    /// Looks at bytes that went out.
    fn send(&mut self, bytes: &[u8]);
}

/// The end of a connection over HTTP/2.
#[derive(Debug)]
pub struct Http2End {
    /// The frame that says why; none if the last bytes that went out did not end a frame.
    pub last_frame: Option<Bytes>,
}

/// A watched stream. `answer` makes the bytes of a refusal.
#[derive(Debug)]
pub struct GuardedStream<S, A, W> {
    stream: S,
    watcher: Watcher,
    counts: Arc<RequestCounts>,
    answer: A,
    phase: Phase,
    /// Rest of the HTTP/2 preface that is still to be compared, while the connection may turn out to be HTTP/2.
    preface: &'static [u8],
    /// The connection has to be HTTP/2.
    must_be_http2: bool,
    /// The preface came.
    is_http2: bool,
    /// The caller's answer in the place of the library's, and the number of bytes of the library's.
    substitute: Option<(Bytes, usize)>,
    /// Something was written since the library last had nothing left to write.
    unflushed: bool,
    /// Number of responses that the service had given when everything was written.
    answers_written: u64,
    /// Reader that waits for the turn of its refusal.
    reader: Option<Waker>,
    http2: W,
}

#[derive(Debug)]
enum Phase {
    /// Bytes go through.
    Open,
    /// An ambiguous head came; the requests before it are answered first.
    Refused(RefusedRequest),
    /// The refusal is being written.
    Saying(Bytes),
    /// A body has an ambiguous end: the library hears that it broke, and answers.
    Broken,
    /// Everything is said; the other end gets time to read it.
    Lingering(Linger),
    Over,
}

#[derive(Debug)]
struct Linger {
    is_shut: bool,
    left: usize,
    until: Pin<Box<Sleep>>,
}

impl Linger {
    fn new() -> Self {
        Self { is_shut: false, left: LINGER_BYTES, until: Box::pin(tokio::time::sleep(LINGER)) }
    }
}

impl<S, A, W> GuardedStream<S, A, W>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(RefusedRequest) -> Bytes,
    W: Http2Watch,
{
    /// Guards a new connection whose service counts its requests in `counts`.
    pub fn new(stream: S, watcher: Watcher, counts: Arc<RequestCounts>, answer: A, http2: W) -> Self {
        Self {
            stream,
            watcher,
            counts,
            answer,
            phase: Phase::Open,
            preface: PREFACE,
            must_be_http2: false,
            is_http2: false,
            substitute: None,
            unflushed: false,
            answers_written: 0,
            reader: None,
            http2,
        }
    }

    /// Keeps the connection to HTTP/1.1, which the handshake chose. The library looks at the first bytes all the same,
    /// on a connection that may be upgraded.
    pub fn keep_to_http1(&mut self) {
        self.preface = &[];
        self.watcher.keep_to_http1();
        self.counts.version_is_known();
    }

    /// Keeps the connection to HTTP/2, which the handshake chose: anything but its preface ends the connection.
    pub fn keep_to_http2(&mut self) {
        self.watcher = Watcher::off();
        self.must_be_http2 = true;
    }

    /// Looks at the bytes just read; returns the number of them that go through.
    fn look(&mut self, bytes: &[u8]) -> usize {
        let mut frames = bytes;
        if !self.preface.is_empty() {
            let (compared, left) = self.preface.split_at(self.preface.len().min(bytes.len()));
            let is_same = bytes.starts_with(compared);
            self.preface = if is_same { left } else { &[] };
            if self.preface.is_empty() {
                self.counts.version_is_known();
                if is_same {
                    self.is_http2 = true;
                    self.http2.begin();
                    frames = bytes.get(compared.len()..).unwrap_or_default();
                } else if self.must_be_http2 {
                    debug!("the handshake chose HTTP/2, and something else came");
                    self.phase = Phase::Saying(Bytes::from_static(NO_PREFACE));
                    return 0;
                }
            }
        }
        if self.is_http2 {
            return match self.http2.receive(frames) {
                Ok(()) => bytes.len(),
                Err(Http2End { last_frame }) => {
                    // In the middle of a frame of the library there is no place for another.
                    let last_frame = last_frame.filter(|_| !self.unflushed);
                    self.phase = last_frame.map_or(Phase::Over, Phase::Saying);
                    0
                }
            };
        }
        if self.watcher.is_switching() {
            let is_answered = !self.counts.is_switched() && self.counts.is_quiet_after(self.watcher.heads());
            self.watcher.settle(is_answered);
        }
        match self.watcher.look(bytes) {
            Ok(()) => bytes.len(),
            Err(Ambiguity::Head { request, keep }) => {
                self.phase = Phase::Refused(request);
                keep
            }
            Err(Ambiguity::Body { keep }) => {
                self.phase = Phase::Broken;
                keep
            }
        }
    }

    /// Writes the refusal once its turn has come, and then ends the stream for the library.
    fn poll_refuse(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.phase {
                Phase::Open | Phase::Broken | Phase::Over => return Poll::Ready(()),
                Phase::Refused(request) => {
                    if self.unflushed || !self.counts.is_quiet_after(self.watcher.heads()) {
                        self.reader = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                    self.phase = Phase::Saying((self.answer)(*request));
                }
                Phase::Saying(bytes) if bytes.is_empty() => {
                    // A stream that cannot be flushed cannot be read either.
                    drop(ready!(Pin::new(&mut self.stream).poll_flush(context)));
                    self.phase = Phase::Lingering(Linger::new());
                }
                Phase::Saying(bytes) => match ready!(Pin::new(&mut self.stream).poll_write(context, bytes)) {
                    Ok(written) if written > 0 => bytes.advance(written),
                    Ok(_) | Err(_) => self.phase = Phase::Over,
                },
                Phase::Lingering(_) => return self.poll_linger(context),
            }
        }
    }

    /// Closes the sending side and reads on for a while.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Phase::Lingering(linger) = &mut self.phase else { return Poll::Ready(()) };
        if linger.until.as_mut().poll(context).is_pending() {
            if !linger.is_shut {
                if ready!(Pin::new(&mut self.stream).poll_shutdown(context)).is_err() {
                    linger.left = 0;
                }
                linger.is_shut = true;
            }
            let mut scratch = [0; 4096];
            while linger.left > 0 {
                let mut buffer = ReadBuf::new(&mut scratch);
                let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
                linger.left = match (read, buffer.filled().len()) {
                    (Ok(()), read) if read > 0 => linger.left.saturating_sub(read),
                    (Ok(()) | Err(_), _) => 0,
                };
            }
        }
        self.phase = Phase::Over;
        Poll::Ready(())
    }

    /// Prepares the caller's answer if the `bytes` bytes to be written are the library's own error: the service has
    /// not taken the head, nothing of the service's is unwritten, and the text is that of the library.
    fn substitute(&mut self, first: &[u8], bytes: usize) {
        let taken = self.counts.taken();
        if self.watcher.has_untaken(taken)
            && first.len() == bytes
            && self.substitute.is_none()
            && self.counts.is_quiet_after(taken)
            && self.counts.answered() == self.answers_written
            && let Some(fault) = own_error(first)
        {
            self.substitute = Some(((self.answer)(self.watcher.refusal(fault)), bytes));
        }
    }

    /// Writes the caller's answer instead, if there is one to write. Returns the number of the library's bytes that it
    /// stands for.
    fn poll_substitute(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some((bytes, stands_for)) = &mut self.substitute else { return Poll::Ready(Ok(0)) };
        while !bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            bytes.advance(written);
        }
        Poll::Ready(Ok(std::mem::take(stands_for)))
    }
}

impl<S, A, W: Http2Watch> GuardedStream<S, A, W> {
    /// Shows the first `written` bytes of `slices`, which were written.
    fn count(&mut self, slices: &[IoSlice<'_>], mut written: usize) {
        if !self.is_http2 {
            return;
        }
        for slice in slices {
            let part = slice.get(..written.min(slice.len())).unwrap_or_default();
            self.http2.send(part);
            written -= part.len();
        }
    }

    /// Returns whether the library's writes are discarded: the guard has ended the connection.
    fn is_mute(&self) -> bool {
        self.is_http2 && !matches!(self.phase, Phase::Open)
    }
}

impl<S, A, W> AsyncRead for GuardedStream<S, A, W>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(RefusedRequest) -> Bytes + Unpin,
    W: Http2Watch + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.phase, Phase::Open) {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let passed = this.look(buffer.filled().get(before..).unwrap_or_default());
            buffer.set_filled(before + passed);
            if matches!(this.phase, Phase::Open) || passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
        if matches!(this.phase, Phase::Broken) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        this.poll_refuse(context).map(Ok)
    }
}

impl<S, A, W> AsyncWrite for GuardedStream<S, A, W>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(RefusedRequest) -> Bytes + Unpin,
    W: Http2Watch + Unpin,
{
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.is_mute() {
            return Poll::Ready(Ok(bytes.len()));
        }
        this.unflushed = true;
        this.substitute(bytes, bytes.len());
        match ready!(this.poll_substitute(context))? {
            0 => {
                let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
                this.count(&[IoSlice::new(bytes)], written);
                Poll::Ready(Ok(written))
            }
            written => Poll::Ready(Ok(written)),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.is_mute() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        this.unflushed = true;
        if let Some(first) = slices.iter().find(|slice| !slice.is_empty()) {
            this.substitute(first, slices.iter().map(|slice| slice.len()).sum());
        }
        match ready!(this.poll_substitute(context))? {
            0 => {
                let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
                this.count(slices, written);
                Poll::Ready(Ok(written))
            }
            written => Poll::Ready(Ok(written)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        // The library flushes the stream only when it has nothing left to write.
        self.unflushed = false;
        self.answers_written = self.counts.answered();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The other end may still be sending bytes that will not be read.
        let may_send_more = this.substitute.is_some() || this.watcher.is_within_message();
        if matches!(this.phase, Phase::Broken) || (matches!(this.phase, Phase::Open) && may_send_more) {
            this.phase = Phase::Lingering(Linger::new());
        }
        match this.phase {
            Phase::Lingering(_) => this.poll_linger(context).map(Ok),
            Phase::Open | Phase::Broken | Phase::Refused(_) | Phase::Saying(_) | Phase::Over => {
                Pin::new(&mut this.stream).poll_shutdown(context)
            }
        }
    }
}
