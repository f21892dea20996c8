//! Tells the HTTP version of an agent's connection from its first bytes, which are then read again by the server for
//! that version. Ends a connection that sends more than an agent does before it is admitted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::carry::LaneQueue;
use super::data_frames::DataFrames;
use super::handshake_limit::{ALLOWANCE_BYTES, GOAWAY, HandshakeLimit};
use gateway_net::stream::{Alpn, ClientStream};

/// Beginning of an HTTP/2 connection, and of no other: the method of its preface is reserved for it (RFC 9113, section
/// 3.4).
const BEGIN: [u8; 4] = *b"PRI ";

/// A connection whose first bytes were looked at. A few bytes larger than the stream: most of them are idle links.
#[derive(Debug)]
pub(super) struct PeekedStream {
    stream: ClientStream,
    bytes: [u8; BEGIN.len()],
    /// Number of bytes looked at, and given to the reader.
    read: u8,
    given: u8,
    http2: bool,
    /// Present until an agent is admitted.
    limit: Option<Arc<HandshakeLimit>>,
    /// Bytes that may still be read until then.
    allowance: usize,
    /// Present on the connection of a relay lane that passes through here.
    queue: Option<Arc<LaneQueue>>,
    /// Present until an agent is admitted, and on the connection of such a lane.
    frames: Option<Box<DataFrames>>,
    /// Something was written since the library last had nothing left to write.
    unflushed: bool,
    /// Set once it sent more than that.
    end: Option<Box<CloseLinger>>,
}

/// Last steps of a connection that sent too much.
#[derive(Debug)]
struct CloseLinger {
    /// Rest of the last message; empty if there is no place for it, in the middle of another frame.
    saying: Bytes,
    is_shut: bool,
    /// Bytes still to read: a close with bytes unread resets the connection, and the reset can overtake the last
    /// message.
    left: usize,
    until: Pin<Box<Sleep>>,
}

/// Time, and number of bytes, for which a connection is read on after its last message.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 512 * 1024;

impl PeekedStream {
    /// Waits until the HTTP version of a connection is clear. A handshake that settled it needs no look. `None` when
    /// the connection broke, or sent nothing in time.
    pub(super) async fn look(stream: ClientStream, limit: Duration) -> Option<Self> {
        if let Some(alpn) = stream.negotiated().alpn {
            return Some(Self::of(stream, [0; BEGIN.len()], 0, alpn == Alpn::Http2));
        }
        Box::pin(tokio::time::timeout(limit, Self::read(stream))).await.ok()?.ok()
    }

    async fn read(mut stream: ClientStream) -> io::Result<Self> {
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
        Ok(Self::of(stream, bytes, read, http2))
    }

    fn of(stream: ClientStream, bytes: [u8; BEGIN.len()], read: u8, http2: bool) -> Self {
        Self {
            stream,
            bytes,
            read,
            given: 0,
            http2,
            limit: None,
            allowance: ALLOWANCE_BYTES,
            queue: None,
            frames: None,
            unflushed: false,
            end: None,
        }
    }

    /// Reads no more than an agent needs to be admitted, until one is.
    pub(super) fn behind(self, limit: Arc<HandshakeLimit>) -> Self {
        Self { limit: Some(limit), frames: Some(Box::new(DataFrames::new())), ..self }
    }

    /// Returns whether it is HTTP/2; all else is taken for HTTP/1.1.
    pub(super) fn is_http2(&self) -> bool {
        self.http2
    }
}

impl PeekedStream {
    /// Bounds the unsent bytes in the kernel's queue.
    pub(super) fn limit_queue(&self, bytes: usize) -> Option<usize> {
        self.stream.limit_queue(bytes)
    }
}

impl PeekedStream {
    fn poll_read_on(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.is_some() {
            return self.poll_end(context);
        }
        if let Some(limit) = self.limit.take_if(|limit| limit.is_open()) {
            self.queue = limit.queue();
            self.frames = self.frames.take().filter(|_| self.queue.is_some());
        }
        if let Some(queue) = &self.queue {
            ready!(queue.poll_room(context));
        }
        if self.limit.is_some() && self.allowance == 0 {
            let saying = if self.unflushed { Bytes::new() } else { Bytes::from_static(&GOAWAY) };
            let until = Box::pin(tokio::time::sleep(LINGER));
            self.end = Some(Box::new(CloseLinger { saying, is_shut: false, left: LINGER_BYTES, until }));
            return self.poll_end(context);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        if self.limit.is_some() {
            self.allowance = self.allowance.saturating_sub(new.len());
        }
        self.follow(new);
        read
    }

    /// Follows frames, and counts the data of a relay lane.
    fn follow(&mut self, read: &[u8]) {
        if let Some(frames) = &mut self.frames {
            let data = frames.read(read);
            if let Some(queue) = &self.queue {
                queue.read(data);
            }
        }
    }

    /// Sends the last message, gives the other end time to read it, and then ends the stream for the library.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        let calm =
            || Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "it sends too much before its Hello")));
        while !end.saying.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &end.saying) {
                Poll::Ready(Ok(written)) if written > 0 => end.saying.advance(written),
                Poll::Ready(Ok(_) | Err(_)) => return calm(),
                Poll::Pending => break,
            }
        }
        if end.until.as_mut().poll(context).is_ready() {
            return calm();
        }
        if end.saying.is_empty() && !end.is_shut {
            end.is_shut = true;
            // A stream that cannot be flushed or shut down is over all the same once the time is.
            drop(Pin::new(&mut self.stream).poll_flush(context));
            drop(Pin::new(&mut self.stream).poll_shutdown(context));
        }
        let mut scratch = [0; 4096];
        while end.left > 0 {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => end.left = end.left.saturating_sub(buffer.filled().len()),
                Ok(()) | Err(_) => return calm(),
            }
        }
        calm()
    }
}

impl AsyncRead for PeekedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let peeked = self.bytes;
        let left = peeked.get(usize::from(self.given)..usize::from(self.read)).unwrap_or_default();
        if left.is_empty() || buffer.remaining() == 0 {
            return self.poll_read_on(context, buffer);
        }
        let (now, _later) = left.split_at(left.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.follow(now);
        let count = u8::try_from(now.len()).unwrap_or(u8::MAX);
        self.given = self.given.saturating_add(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PeekedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.unflushed = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.end.is_some() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        self.unflushed = true;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        // The library flushes only when it has nothing left to write.
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
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
        let (begun, ()) =
            tokio::join!(PeekedStream::look(ClientStream::Plain(stream), Duration::from_secs(20)), sending);
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

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        (client, listener.accept().await.expect("accepted").0)
    }

    #[tokio::test]
    async fn stranger_is_read_as_far_as_the_allowance_and_then_told_to_be_calm() {
        let (mut client, stream) = connected().await;
        let sent = [&BEGIN[..], &[7; 1 << 18]].concat();
        let reading = async {
            let begun =
                PeekedStream::look(ClientStream::Plain(stream), Duration::from_secs(20)).await.expect("it began");
            let mut begun = begun.behind(Arc::new(HandshakeLimit::default()));
            let (mut read, mut piece) = (0, vec![0; 16 * 1024]);
            let error = loop {
                match begun.read(&mut piece).await {
                    Ok(count) => read += count,
                    Err(error) => break error,
                }
            };
            assert!((ALLOWANCE_BYTES..ALLOWANCE_BYTES + 2 * piece.len()).contains(&read), "{read}");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        };
        let flooding = async {
            client.write_all(&sent).await.expect("it is read to the end");
            client.shutdown().await.expect("finished");
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.expect("no reset comes before the last word");
            said
        };
        let (said, ()) = tokio::join!(flooding, reading);
        assert_eq!(said, GOAWAY);
    }

    #[tokio::test]
    async fn agent_that_is_in_is_read_to_the_end() {
        let (mut client, stream) = connected().await;
        let sent = [&BEGIN[..], &[7; 1 << 20]].concat();
        let reading = async {
            let limit = Arc::new(HandshakeLimit::default());
            let begun =
                PeekedStream::look(ClientStream::Plain(stream), Duration::from_secs(20)).await.expect("it began");
            let mut begun = begun.behind(limit.clone());
            let mut first = vec![0; 1024];
            begun.read_exact(&mut first).await.expect("read");
            limit.open();
            let mut rest = Vec::new();
            begun.read_to_end(&mut rest).await.expect("read");
            first.len() + rest.len()
        };
        let sending = async {
            client.write_all(&sent).await.expect("sent");
            client.shutdown().await.expect("finished");
        };
        let (read, ()) = tokio::join!(reading, sending);
        assert_eq!(read, sent.len());
    }

    /// Frames are not cut, so the rest of one is read although nothing is taken: the other end of the lane hears of whole
    /// frames only, and what it takes is what lets this read on.
    #[tokio::test]
    async fn lane_is_read_to_the_end_of_a_frame_and_no_further_until_that_is_taken() {
        let (mut client, stream) = connected().await;
        let limit = Arc::new(HandshakeLimit::default());
        let mut begun = PeekedStream::of(ClientStream::Plain(stream), BEGIN, 4, true).behind(limit.clone());
        let queue = limit.pass();
        limit.open();
        let frame = [&[0, 0xea, 0x60, 0, 0, 0, 0, 0, 1][..], &[0; 60_000]].concat();
        let sent = [&b"* HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame, &frame].concat();
        client.write_all(&sent).await.expect("there is room in the kernel");
        let mut first = vec![0; BEGIN.len() + 20 + frame.len()];
        begun.read_exact(&mut first).await.expect("all of the first frame");
        let mut more = [0; 100];
        assert_eq!(begun.read(&mut more).now_or_never().map(Result::ok), None, "it waits");
        queue.taken(60_000);
        let mut second = vec![0; frame.len()];
        begun.read_exact(&mut second).await.expect("all of the second frame");
        assert!(begun.read(&mut more).now_or_never().is_none());
    }
}
