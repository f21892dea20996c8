//! Local end of a raw stream: a channel in the gateway, a socket or a terminal's pipes at the user's.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;

use super::PIECE_BYTES_SMALL;
use crate::channel_io::ChannelIo;

/// One end of the bytes. Each half ends on its own.
pub trait Local {
    /// Takes the next bytes, at most one message of them; `None` at the end.
    fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// Hands over as much of `bytes` as there is room for, at least one; the rest stays there.
    fn poll_give(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>>;

    /// Flushes all bytes that were given.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Notes that no more bytes are given. Bytes that can still be taken stay there.
    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits for the end of everything while no bytes are asked for. If that cannot be known, it never comes.
    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<io::Error>;
}

impl Local for ChannelIo {
    fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.poll_lent(context)
    }

    fn poll_give(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        self.poll_write_bytes(context, bytes).map_ok(|_taken| ())
    }

    fn poll_flush(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(context)
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.poll_reset(context).map(io::Error::from)
    }
}

/// A byte stream as the end of a raw stream.
#[derive(Debug)]
pub struct RawSocket<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S> RawSocket<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Returns the stream; bytes that were read and not taken are lost.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Local for RawSocket<S> {
    fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.buffer.reserve(PAYLOAD_BYTES_ALONE);
        let mut room = (&mut self.buffer).limit(PAYLOAD_BYTES_ALONE);
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut room))?;
        if read == 0 {
            return Poll::Ready(Ok(None));
        }
        if read <= PIECE_BYTES_SMALL {
            let piece = Bytes::copy_from_slice(&self.buffer);
            self.buffer.clear();
            return Poll::Ready(Ok(Some(piece)));
        }
        Poll::Ready(Ok(Some(self.buffer.split().freeze())))
    }

    fn poll_give(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.stream).poll_write(context, bytes))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => {
                bytes.advance(written);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_broken(&mut self, _context: &mut Context<'_>) -> Poll<io::Error> {
        // A socket reports its end to its readers and writers only.
        Poll::Pending
    }
}
