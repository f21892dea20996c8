//! Which HTTP an agent's connection speaks: told from its first bytes, which are then read again by who speaks it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::net::stream::Stream;

/// What only a connection of HTTP/2 begins with: the method of its preface is kept for it (RFC 9113, section 3.4).
const BEGIN: [u8; 4] = *b"PRI ";

/// A connection whose first bytes were looked at. A few bytes larger than the stream: most of them are idle links.
#[derive(Debug)]
pub(super) struct Begun {
    stream: Stream,
    bytes: [u8; BEGIN.len()],
    /// Looked at, and given to the reader.
    read: u8,
    given: u8,
    http2: bool,
}

impl Begun {
    /// Waits until it is clear what a connection speaks. A handshake that settled it needs no look. `None` when it broke
    /// or said nothing in time.
    pub(super) async fn look(stream: Stream, limit: Duration) -> Option<Self> {
        if stream.negotiated().http2 {
            return Some(Self { stream, bytes: [0; BEGIN.len()], read: 0, given: 0, http2: true });
        }
        Box::pin(tokio::time::timeout(limit, Self::read(stream))).await.ok()?.ok()
    }

    async fn read(mut stream: Stream) -> io::Result<Self> {
        let mut bytes = [0; BEGIN.len()];
        let mut read = 0;
        let http2 = loop {
            let (seen, unread) = bytes.split_at_mut(read);
            if !BEGIN.starts_with(seen) {
                break false;
            }
            if unread.is_empty() {
                break true;
            }
            let count = stream.read(unread).await?;
            if count == 0 {
                break false;
            }
            read += count;
        };
        // Four at most.
        let read = u8::try_from(read).unwrap_or_default();
        Ok(Self { stream, bytes, read, given: 0, http2 })
    }

    /// Returns whether it is HTTP/2; all else is taken for HTTP/1.1.
    pub(super) fn is_http2(&self) -> bool {
        self.http2
    }
}

impl Begun {
    /// Bounds the unsent bytes in the kernel's queue.
    pub(super) fn limit_queue(&self, bytes: usize) -> Option<usize> {
        self.stream.limit_queue(bytes)
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.bytes.get(usize::from(self.given)..usize::from(self.read)).unwrap_or_default();
        if left.is_empty() || buffer.remaining() == 0 {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let (now, _later) = left.split_at(left.len().min(buffer.remaining()));
        buffer.put_slice(now);
        let count = u8::try_from(now.len()).unwrap_or(u8::MAX);
        self.given = self.given.saturating_add(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn check(sent: &[&[u8]], http2: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        client.set_nodelay(true).expect("set");
        let sending = async {
            for piece in sent {
                client.write_all(piece).await.expect("sent");
                tokio::task::yield_now().await;
            }
            client.shutdown().await.expect("finished");
        };
        let (begun, ()) = tokio::join!(Begun::look(Stream::Plain(stream), Duration::from_secs(20)), sending);
        let mut begun = begun.expect("readable");
        assert_eq!(begun.is_http2(), http2, "{sent:?}");
        let mut read = Vec::new();
        begun.read_to_end(&mut read).await.expect("readable");
        assert_eq!(read, sent.concat(), "nothing is lost");
    }

    #[tokio::test]
    async fn version_is_told_from_the_first_bytes_and_all_of_them_are_read_again() {
        check(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], true).await;
        check(&[b"P", b"R", b"I", b" ", b"* HTTP/2.0\r\n"], true).await;
        check(&[b"GET / HTTP/1.1\r\n\r\n"], false).await;
        check(&[b"P", b"O", b"ST / HTTP/1.1\r\n\r\n"], false).await;
        check(&[b"PRIVATE / HTTP/1.1\r\n\r\n"], false).await;
        check(&[b"PR"], false).await;
        check(&[], false).await;
    }
}
