//! Joins a channel with a socket: bytes both ways, each half closed on its own, memory bounded by the channel's room.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;
use tunnel_proto::reason::Reason;

use crate::channel_io::ChannelIo;

/// A first read is this large; it grows to a whole frame while reads fill it, so an idle channel holds little.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Copies until both directions have ended, or one failed.
///
/// # Errors
/// The socket's error, after the channel was reset with [`Reason::AppReset`]; or the channel's, which wraps a
/// [`ChannelError`](crate::channel_io::ChannelError).
///
/// Cancel safety: not resumable; dropping it resets the channel and closes the socket.
pub async fn splice<S>(channel: ChannelIo, socket: S) -> io::Result<Copied>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut splice = Splice {
        channel,
        socket,
        inward: Inward { pending: Bytes::new(), state: InwardState::Open },
        outward: Outward { pending: Bytes::new(), buffer: BytesMut::new(), read_bytes: READ_BYTES_MIN, state: OutwardState::Open },
        copied: Copied::default(),
    };
    let result = poll_fn(|context| splice.poll(context)).await;
    match result {
        Ok(()) => Ok(splice.copied),
        Err(Side::Channel(error)) => Err(error),
        Err(Side::Socket(error)) => {
            splice.channel.reset(Reason::AppReset);
            Err(error)
        }
    }
}

/// Bytes copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
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
    copied: Copied,
}

/// Channel to socket.
struct Inward {
    pending: Bytes,
    state: InwardState,
}

/// Socket to channel.
struct Outward {
    pending: Bytes,
    buffer: BytesMut,
    read_bytes: usize,
    state: OutwardState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutwardState {
    Open,
    ShuttingDown,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InwardState {
    Open,
    /// The app closed its reading side, but may still be writing: an early answer to a large upload.
    Discarding,
    ShuttingDown,
    Over,
}

/// Whose fault an error is.
enum Side {
    Channel(io::Error),
    Socket(io::Error),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Splice<S> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Side>> {
        let inward = self.poll_inward(context)?;
        let outward = self.poll_outward(context)?;
        if inward.is_ready() && outward.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_inward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Side>> {
        loop {
            match self.inward.state {
                InwardState::Over => return Poll::Ready(Ok(())),
                InwardState::ShuttingDown => {
                    // An app that has closed already cannot be told; its reading half decides.
                    drop(ready!(Pin::new(&mut self.socket).poll_shutdown(context)));
                    self.inward.state = InwardState::Over;
                }
                InwardState::Discarding => match ready!(self.channel.poll_bytes(context)).map_err(Side::Channel)? {
                    Some(bytes) => drop(bytes),
                    None => self.inward.state = InwardState::Over,
                },
                InwardState::Open if self.inward.pending.is_empty() => {
                    match ready!(self.channel.poll_bytes(context)).map_err(Side::Channel)? {
                        Some(bytes) => self.inward.pending = bytes,
                        None => self.inward.state = InwardState::ShuttingDown,
                    }
                }
                InwardState::Open => {
                    let pending = &mut self.inward.pending;
                    match ready!(Pin::new(&mut self.socket).poll_write(context, pending)) {
                        Ok(written) if written > 0 => {
                            pending.advance(written);
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

    fn poll_outward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Side>> {
        loop {
            match self.outward.state {
                OutwardState::Over => return Poll::Ready(Ok(())),
                OutwardState::ShuttingDown => {
                    ready!(Pin::new(&mut self.channel).poll_shutdown(context)).map_err(Side::Channel)?;
                    self.outward.state = OutwardState::Over;
                }
                OutwardState::Open if !self.outward.pending.is_empty() => {
                    let written = ready!(self.channel.poll_write_bytes(context, &mut self.outward.pending))
                        .map_err(Side::Channel)?;
                    self.copied.outward += written as u64;
                }
                OutwardState::Open => {
                    // Room first, then the read: what is read can be handed on and does not have to be held here.
                    let room = ready!(self.channel.poll_room(context)).map_err(Side::Channel)?;
                    let read = ready!(self.poll_read_socket(context, room)).map_err(Side::Socket)?;
                    if read == 0 {
                        self.outward.state = OutwardState::ShuttingDown;
                    } else {
                        self.outward.pending = self.outward.buffer.split().freeze();
                    }
                }
            }
        }
    }

    fn poll_read_socket(&mut self, context: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        let wanted = self.outward.read_bytes.min(room).min(PAYLOAD_BYTES_ALONE);
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
                let next = if read == wanted { wanted * 4 } else { read * 2 };
                self.outward.read_bytes = next.clamp(READ_BYTES_MIN, PAYLOAD_BYTES_ALONE);
                Poll::Ready(Ok(read))
            }
        }
    }
}
