use std::collections::VecDeque;
use std::future::Future;
use std::task::Waker;

use tokio::io::ReadBuf;

use super::*;
use crate::channel_io::ChannelError;
use crate::session::Session;
use crate::shuttle::{Count, joined, sessions, settle};

/// A socket that does what it is told.
#[derive(Default)]
struct Mock {
    /// What reads find, one after the other; then nothing, or the end.
    reads: VecDeque<io::Result<&'static [u8]>>,
    /// How much it takes in all; beyond that, writes wait.
    takes: usize,
    taken: Vec<u8>,
    flushed: usize,
    polls: usize,
}

impl AsyncRead for Mock {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        match self.reads.pop_front() {
            Some(Ok(bytes)) => {
                buffer.put_slice(bytes);
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Mock {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.polls += 1;
        let taken = bytes.len().min(self.takes);
        if taken == 0 {
            return Poll::Pending;
        }
        self.takes -= taken;
        self.taken.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        self.flushed = self.taken.len();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn write(channel: &mut ChannelIo, bytes: &'static [u8]) {
    let mut bytes = Bytes::from_static(bytes);
    assert!(channel.poll_write_bytes(&Context::from_waker(Waker::noop()), &mut bytes).is_ready());
}

fn read(channel: &mut ChannelIo) -> Poll<io::Result<Option<Bytes>>> {
    channel.poll_bytes(&Context::from_waker(Waker::noop()))
}

/// Splices until both ends wait; then the gateway's end goes away.
fn check_that_the_loss_of_the_channel_is_heard(socket: Mock, then: impl FnOnce(&mut ChannelIo, &Session, &Session)) {
    let (gateway, agent) = sessions();
    let (mut here, there) = joined(&gateway, &agent);
    then(&mut here, &gateway, &agent);
    settle(&gateway, &agent);
    let (count, waker) = Count::new();
    let mut joining = std::pin::pin!(splice(there, socket));
    assert!(joining.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    settle(&gateway, &agent);
    let before = count.get();
    drop(here);
    settle(&gateway, &agent);
    assert!(count.get() > before, "nobody was woken");
    let Poll::Ready(Err(error)) = poll(joining.as_mut()) else { panic!("not heard") };
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::Cancelled)));
}

#[test]
fn loss_of_the_channel_is_heard_while_the_socket_takes_nothing() {
    check_that_the_loss_of_the_channel_is_heard(Mock::default(), |here, _, _| write(here, b"stuck"));
}

#[test]
fn loss_of_the_channel_is_heard_after_its_other_end_finished() {
    check_that_the_loss_of_the_channel_is_heard(Mock::default(), |here, _, _| {
        assert!(Pin::new(here).poll_shutdown(&mut Context::from_waker(Waker::noop())).is_ready());
    });
}

#[test]
fn loss_of_the_channel_is_heard_after_the_socket_ended() {
    let socket = Mock { reads: [Ok(&b""[..])].into(), ..Mock::default() };
    check_that_the_loss_of_the_channel_is_heard(socket, |here, _, _| write(here, b"stuck"));
}

#[test]
fn idle_splice_is_not_woken_and_looks_at_its_socket_once_a_poll() {
    let (gateway, agent) = sessions();
    let (_here, there) = joined(&gateway, &agent);
    let (count, waker) = Count::new();
    let mut socket = Mock::default();
    {
        let mut joining = std::pin::pin!(splice(there, Pollable(&mut socket)));
        for _ in 0..10 {
            assert!(joining.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            settle(&gateway, &agent);
        }
    }
    assert_eq!(count.get(), 0);
    assert_eq!(socket.polls, 10, "one read per poll, and no write or flush");
}

/// Lets a test look at its socket afterwards.
struct Pollable<'a>(&'a mut Mock);

impl AsyncRead for Pollable<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Pollable<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

#[test]
fn socket_with_a_buffer_of_its_own_is_flushed_when_the_channel_pauses() {
    let (gateway, agent) = sessions();
    let (mut here, there) = joined(&gateway, &agent);
    write(&mut here, b"a keystroke");
    settle(&gateway, &agent);
    let mut socket = Mock { takes: usize::MAX, ..Mock::default() };
    assert!(poll(std::pin::pin!(splice(there, Pollable(&mut socket)))).is_pending());
    assert_eq!(socket.taken, b"a keystroke");
    assert_eq!(socket.flushed, socket.taken.len());
}

#[tokio::test(start_paused = true)]
async fn words_before_a_broken_socket_are_read_before_the_reset() {
    let (gateway, agent) = sessions();
    let (mut here, there) = joined(&gateway, &agent);
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    let socket = Mock { reads: [Ok(&b"413"[..]), Err(broken())].into(), ..Mock::default() };
    let mut joining = std::pin::pin!(splice(there, socket));
    assert!(poll(joining.as_mut()).is_pending());
    settle(&gateway, &agent);
    assert!(matches!(read(&mut here), Poll::Ready(Ok(Some(bytes))) if bytes == "413"));
    assert!(read(&mut here).is_pending(), "not an end: the app did not say that this was all");
    assert_eq!(joining.await.expect_err("broken").kind(), io::ErrorKind::ConnectionReset);
    settle(&gateway, &agent);
    let Poll::Ready(Err(error)) = read(&mut here) else { panic!("not reset") };
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::AppReset)));
}

#[tokio::test(start_paused = true)]
async fn broken_socket_that_said_nothing_resets_the_channel_at_once() {
    let (gateway, agent) = sessions();
    let (mut here, there) = joined(&gateway, &agent);
    let socket = Mock { reads: [Err(io::ErrorKind::ConnectionReset.into())].into(), ..Mock::default() };
    assert!(poll(std::pin::pin!(splice(there, socket))).is_ready());
    settle(&gateway, &agent);
    let Poll::Ready(Err(error)) = read(&mut here) else { panic!("not reset") };
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::AppReset)));
}

#[test]
fn small_read_does_not_keep_its_buffer() {
    let mut outward = Outward {
        pending: Bytes::new(),
        buffer: BytesMut::with_capacity(PAYLOAD_BYTES_ALONE),
        read_bytes: READ_BYTES_MIN,
        state: OutwardState::Open,
    };
    outward.buffer.extend_from_slice(b"a line of a log");
    let buffer = outward.buffer.as_ptr();
    outward.keep(15);
    assert_eq!(outward.pending, "a line of a log");
    assert_ne!(outward.pending.as_ptr(), buffer, "copied out");
    assert_eq!(outward.buffer.capacity(), PAYLOAD_BYTES_ALONE, "the buffer serves the next read");
    let large = vec![1; PAYLOAD_BYTES_ALONE];
    outward.buffer.extend_from_slice(&large);
    outward.keep(large.len());
    assert_eq!(outward.pending.as_ptr(), buffer, "handed on");
}
