//! Joins a channel with a socket: bytes both ways, each half closed on its own, memory bounded by the channel's room.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;
use tunnel_proto::reason::Reason;

use crate::channel_io::ChannelIo;

mod channels;

pub use self::channels::splice_channels;

/// Size of the first read; it grows to a whole frame while reads fill it, so an idle channel holds little.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Time for a broken socket's last bytes to reach their reader before the channel is reset. An app that answers without
/// reading the whole request and closes makes its kernel send a reset right behind the answer (RFC 9112, section 9.6),
/// and a channel's reset takes back bytes that were not read yet.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Copies until both directions have ended, or one failed.
///
/// # Errors
/// The socket's error, after the channel was reset with [`Reason::AppReset`]; or the channel's, which wraps a
/// [`ChannelError`](crate::channel_io::ChannelError).
///
/// Cancel safety: not resumable; dropping it resets the channel and closes the socket.
pub async fn splice<S>(channel: ChannelIo, socket: S) -> io::Result<SplicedBytes>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    splice_idle(channel, socket, None).await
}

/// Like [`splice`], and ends with [`io::ErrorKind::TimedOut`] when no byte moved either way for `idle`.
///
/// # Errors
/// As for [`splice`].
///
/// Cancel safety: not resumable; dropping it resets the channel and closes the socket.
pub async fn splice_idle<S>(channel: ChannelIo, socket: S, idle: Option<Duration>) -> io::Result<SplicedBytes>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut splice = Splice {
        channel,
        socket,
        inward: Inward { pending: Bytes::new(), unflushed: false, state: InwardState::Open },
        outward: Outward {
            pending: Bytes::new(),
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            state: OutwardState::Open,
        },
        copied: SplicedBytes::default(),
    };
    let result = loop {
        let before = splice.copied;
        let copy = poll_fn(|context| splice.poll(context));
        let Some(idle) = idle else { break copy.await };
        match tokio::time::timeout(idle, copy).await {
            Ok(result) => break result,
            // One timer for the whole wait, not one per byte: it is looked at when it fires.
            Err(_elapsed) if splice.copied == before => {
                splice.channel.reset(Reason::TimedOut);
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(_elapsed) => {}
        }
    };
    match result {
        Ok(()) => Ok(splice.copied),
        Err(SpliceSide::Channel(error)) => Err(error),
        Err(SpliceSide::Socket(error)) => {
            splice.channel.reset(Reason::AppReset);
            Err(error)
        }
    }
}

/// Bytes copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplicedBytes {
    /// From the channel into the socket.
    pub inward: u64,
    /// From the socket into the channel.
    pub outward: u64,
}

struct Splice<S> {
    channel: ChannelIo,
    socket: S,
    inward: Inward,
    outward: Outward,
    copied: SplicedBytes,
}

/// Channel to socket.
struct Inward {
    pending: Bytes,
    /// Whether something was written that the socket may still hold.
    unflushed: bool,
    state: InwardState,
}

/// Socket to channel.
struct Outward {
    pending: Bytes,
    buffer: BytesMut,
    read_bytes: usize,
    state: OutwardState,
}

enum OutwardState {
    Open,
    ShuttingDown,
    Over,
    /// The socket broke after it had sent something; see [`LAST_WORDS`].
    Broken {
        error: Option<io::Error>,
        until: Pin<Box<Sleep>>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InwardState {
    Open,
    /// The app closed its reading side, but may still be writing: an early answer to a large upload.
    Discarding,
    ShuttingDown,
    Over,
}

/// Side of an error.
enum SpliceSide {
    Channel(io::Error),
    Socket(io::Error),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Splice<S> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SpliceSide>> {
        let inward = self.poll_inward(context)?;
        let outward = self.poll_outward(context)?;
        if inward.is_ready() && outward.is_ready() {
            return Poll::Ready(Ok(()));
        }
        // If the socket is the only thing waited for, this task would not hear that the channel's other end is gone.
        if !self.waits_for_channel()
            && let Poll::Ready(error) = self.channel.poll_reset(context)
        {
            return Poll::Ready(Err(SpliceSide::Channel(error.into())));
        }
        Poll::Pending
    }

    /// Returns whether a reset of the channel wakes this task already, because it waits for bytes.
    fn waits_for_channel(&self) -> bool {
        match self.inward.state {
            InwardState::Open => self.inward.pending.is_empty(),
            InwardState::Discarding => true,
            InwardState::ShuttingDown | InwardState::Over => false,
        }
    }

    fn poll_inward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SpliceSide>> {
        loop {
            match self.inward.state {
                InwardState::Over => return Poll::Ready(Ok(())),
                InwardState::ShuttingDown => {
                    // An app that has closed already cannot be told; its reading half decides.
                    drop(ready!(Pin::new(&mut self.socket).poll_shutdown(context)));
                    self.inward.state = InwardState::Over;
                }
                InwardState::Discarding => {
                    match ready!(self.channel.poll_bytes(context)).map_err(SpliceSide::Channel)? {
                        Some(bytes) => drop(bytes),
                        None => self.inward.state = InwardState::Over,
                    }
                }
                InwardState::Open if self.inward.pending.is_empty() => {
                    match self.channel.poll_lent(context).map_err(SpliceSide::Channel)? {
                        Poll::Ready(Some(bytes)) => self.inward.pending = bytes,
                        Poll::Ready(None) => self.inward.state = InwardState::ShuttingDown,
                        Poll::Pending => {
                            self.flush(context);
                            return Poll::Pending;
                        }
                    }
                }
                InwardState::Open => {
                    let pending = &mut self.inward.pending;
                    match ready!(Pin::new(&mut self.socket).poll_write(context, pending)) {
                        Ok(written) if written > 0 => {
                            pending.advance(written);
                            self.inward.unflushed = true;
                            self.copied.inward += written as u64;
                        }
                        Ok(_) | Err(_) => {
                            // If the connection is broken for good, the reading half says so.
                            *pending = Bytes::new();
                            self.inward.state = InwardState::Discarding;
                        }
                    }
                }
            }
        }
    }

    /// A socket with a buffer of its own, as TLS has one, must not keep the last bytes back.
    fn flush(&mut self, context: &mut Context<'_>) {
        if self.inward.unflushed {
            // An error shows again at the next write or read.
            self.inward.unflushed = Pin::new(&mut self.socket).poll_flush(context).is_pending();
        }
    }

    fn poll_outward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SpliceSide>> {
        loop {
            match &mut self.outward.state {
                OutwardState::Over => return Poll::Ready(Ok(())),
                OutwardState::Broken { error, until } => {
                    ready!(until.as_mut().poll(context));
                    let error = error.take().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
                    return Poll::Ready(Err(SpliceSide::Socket(error)));
                }
                OutwardState::ShuttingDown => {
                    ready!(Pin::new(&mut self.channel).poll_shutdown(context)).map_err(SpliceSide::Channel)?;
                    self.outward.state = OutwardState::Over;
                }
                OutwardState::Open if !self.outward.pending.is_empty() => {
                    let written = ready!(self.channel.poll_write_bytes(context, &mut self.outward.pending))
                        .map_err(SpliceSide::Channel)?;
                    self.copied.outward += written as u64;
                }
                OutwardState::Open => {
                    // Room first, then the read: read bytes can be handed on and do not have to be held here.
                    let room = ready!(self.channel.poll_room(context)).map_err(SpliceSide::Channel)?;
                    match ready!(self.poll_read_socket(context, room)) {
                        Ok(0) => self.outward.state = OutwardState::ShuttingDown,
                        Ok(_) => {}
                        Err(error) if self.copied.outward == 0 => return Poll::Ready(Err(SpliceSide::Socket(error))),
                        Err(error) => {
                            let until = Box::pin(tokio::time::sleep(LAST_WORDS));
                            self.outward.state = OutwardState::Broken { error: Some(error), until };
                        }
                    }
                }
            }
        }
    }

    fn poll_read_socket(&mut self, context: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        let wanted = self.outward.read_bytes.min(room).min(PAYLOAD_BYTES_ALONE);
        if wanted <= READ_BYTES_MIN {
            return self.poll_read_small(context, wanted);
        }
        let buffer = &mut self.outward.buffer;
        buffer.reserve(wanted);
        match poll_read_buf(Pin::new(&mut self.socket), context, &mut (&mut *buffer).limit(wanted)) {
            Poll::Pending => {
                // An idle channel keeps no buffer.
                *buffer = BytesMut::new();
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(read)) => {
                self.outward.adapt(read, wanted);
                self.outward.keep(read);
                Poll::Ready(Ok(read))
            }
        }
    }

    /// Reads a little by way of the stack: most polls find nothing, and most messages are small.
    fn poll_read_small(&mut self, context: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        self.outward.buffer = BytesMut::new();
        let mut space = [MaybeUninit::uninit(); READ_BYTES_MIN];
        let mut buffer = ReadBuf::uninit(space.get_mut(..wanted).unwrap_or_default());
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        self.outward.adapt(read, wanted);
        self.outward.pending = Bytes::copy_from_slice(buffer.filled());
        Poll::Ready(Ok(read))
    }
}

impl Outward {
    /// Chooses the size of the next read by the length of this one.
    fn adapt(&mut self, read: usize, wanted: usize) {
        let next = if read == wanted { wanted * 4 } else { read * 2 };
        self.read_bytes = next.clamp(READ_BYTES_MIN, PAYLOAD_BYTES_ALONE);
    }

    /// Keeps read bytes until they are written. Bytes that fill less than half of their buffer are copied out, so that
    /// they do not hold more than twice their length for as long as they are queued, or kept for a resume.
    fn keep(&mut self, read: usize) {
        if read < self.buffer.capacity() / 2 {
            self.pending = Bytes::copy_from_slice(&self.buffer);
            self.buffer.clear();
        } else {
            self.pending = self.buffer.split().freeze();
        }
    }
}

#[cfg(test)]
mod tests;
