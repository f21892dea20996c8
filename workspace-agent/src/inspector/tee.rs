//! A connection to an app with a recorder beside it, which gets a copy of what has passed: after a read, the bytes that were read; after
//! a write, those that the connection has taken. Nothing is passed on by the recorder, so it can hold up, reorder or change nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::exchange::Way;
use super::recorder::Recorder;

/// A connection that is recorded.
#[derive(Debug)]
pub struct Tee<S> {
    /// The connection.
    pub(crate) socket: S,
    recorder: Recorder,
}

impl<S> Tee<S> {
    /// Joins them.
    pub(crate) fn new(socket: S, recorder: Recorder) -> Self {
        Self { socket, recorder }
    }

    /// Ends the record for a reason, and returns the connection.
    pub(crate) fn into_socket(mut self, why: &'static str) -> S {
        self.recorder.give_up(why, Instant::now());
        self.socket
    }

    /// Returns the recorder.
    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tee<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let had_room = buffer.remaining() > 0;
        if let Err(error) = ready!(Pin::new(&mut this.socket).poll_read(context, buffer)) {
            this.recorder.give_up("the app broke the connection", Instant::now());
            return Poll::Ready(Err(error));
        }
        match buffer.filled().get(before..).unwrap_or_default() {
            [] if had_room => this.recorder.end(Way::Outward, Instant::now()),
            read => this.recorder.read(Way::Outward, read, Instant::now()),
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tee<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.socket).poll_write(context, bytes))?;
        this.recorder.read(Way::Inward, bytes.get(..written).unwrap_or_default(), Instant::now());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
        this.recorder.end(Way::Inward, Instant::now());
        Poll::Ready(Ok(()))
    }
}
