//! Channel as an async byte stream. Dropping it resets the channel unless it is over.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tunnel_proto::id::ChannelId;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;
use tunnel_proto::mux::{OpenError, Read, Room};
use tunnel_proto::reason::Reason;
use tunnel_proto::target::Target;

use crate::session::Session;

/// A channel's bytes. Reads end with the peer's finish; `shutdown` finishes this side and leaves the other open.
#[derive(Debug)]
pub struct ChannelIo {
    session: Session,
    state: ChannelIoState,
    /// Bytes taken from the machine and not yet by the reader.
    unread: Bytes,
}

#[derive(Debug)]
enum ChannelIoState {
    Unopened {
        target: Target,
        accepted: Option<oneshot::Sender<Result<(), Reason>>>,
        reader: Option<Waker>,
    },
    /// Finished before its first byte, so there never was a channel: nothing comes back either.
    Unused,
    Open(ChannelId),
    Failed(OpenError),
}

/// Reason why a channel's read or write failed; the source of the `io::Error` that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The channel was reset.
    #[error("the channel was reset: {0}")]
    Reset(Reason),
    /// The channel could not be opened.
    #[error("the channel could not be opened: {0}")]
    Open(OpenError),
    /// This side was finished already.
    #[error("this side of the channel was finished")]
    Finished,
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        let kind = match error {
            ChannelError::Reset(_) => io::ErrorKind::ConnectionReset,
            ChannelError::Open(_) => io::ErrorKind::NotConnected,
            ChannelError::Finished => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}

impl ChannelError {
    /// Finds the channel's fault in an error's chain of sources.
    #[must_use]
    pub fn find(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(*found);
            }
            // An `io::Error` hides its payload from `source`.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = match inner {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }
}

impl ChannelIo {
    pub(crate) fn unopened(session: Session, target: Target, accepted: oneshot::Sender<Result<(), Reason>>) -> Self {
        let state = ChannelIoState::Unopened { target, accepted: Some(accepted), reader: None };
        Self { session, state, unread: Bytes::new() }
    }

    pub(crate) fn open(session: Session, channel: ChannelId) -> Self {
        Self { session, state: ChannelIoState::Open(channel), unread: Bytes::new() }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Ends the channel at once with a reason for the peer.
    pub fn reset(self, reason: Reason) {
        if let ChannelIoState::Open(channel) = self.state {
            self.session.reset(channel, reason);
        }
    }

    /// Takes the next bytes as they came, without a copy. `None` at the end.
    pub fn poll_bytes(&mut self, context: &Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.unread))));
        }
        match &mut self.state {
            ChannelIoState::Unopened { reader, .. } => {
                *reader = Some(context.waker().clone());
                Poll::Pending
            }
            ChannelIoState::Unused => Poll::Ready(Ok(None)),
            ChannelIoState::Failed(error) => Poll::Ready(Err(ChannelError::Open(*error).into())),
            ChannelIoState::Open(channel) => self.session.poll_read(*channel, context).map(taken),
        }
    }

    /// Like [`ChannelIo::poll_bytes`], for bytes that go on to a consumer which may be slow to take them: they count in
    /// the channel's window, which is within a budget, until they are dropped. Not for bytes that are kept until more
    /// come.
    pub fn poll_lent(&mut self, context: &Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        match &self.state {
            ChannelIoState::Open(channel) if self.unread.is_empty() => {
                self.session.poll_lend(*channel, context).map(taken)
            }
            ChannelIoState::Open(_)
            | ChannelIoState::Unopened { .. }
            | ChannelIoState::Unused
            | ChannelIoState::Failed(_) => self.poll_bytes(context),
        }
    }

    /// Gives bytes back that were taken and not used: they are the next to be taken. Only for the bytes that were taken
    /// last.
    pub fn put_back(&mut self, bytes: Bytes) {
        debug_assert!(self.unread.is_empty() || bytes.is_empty(), "bytes are put back out of order");
        if !bytes.is_empty() {
            self.unread = bytes;
        }
    }

    /// Waits until at least one byte can be written; returns the number that can.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<io::Result<usize>> {
        match &self.state {
            ChannelIoState::Unopened { .. } => Poll::Ready(Ok(PAYLOAD_BYTES_ALONE)),
            ChannelIoState::Unused => Poll::Ready(Err(ChannelError::Finished.into())),
            ChannelIoState::Failed(error) => Poll::Ready(Err(ChannelError::Open(*error).into())),
            ChannelIoState::Open(channel) => self.session.poll_room(*channel, context).map(written),
        }
    }

    /// Waits for the channel's end by a reset. For a caller that waits for neither bytes nor room and still has to
    /// hear that its peer is gone.
    pub fn poll_reset(&mut self, context: &Context<'_>) -> Poll<ChannelError> {
        match &self.state {
            ChannelIoState::Unopened { .. } | ChannelIoState::Unused => Poll::Pending,
            ChannelIoState::Failed(error) => Poll::Ready(ChannelError::Open(*error)),
            ChannelIoState::Open(channel) => self.session.poll_reset(*channel, context).map(ChannelError::Reset),
        }
    }

    /// Writes as much of `bytes` as there is room for, without copying; the rest stays in `bytes`. Returns the number
    /// of bytes taken.
    pub fn poll_write_bytes(&mut self, context: &Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<usize>> {
        let offered = bytes.len();
        let channel = match &mut self.state {
            ChannelIoState::Open(channel) => *channel,
            ChannelIoState::Unused => return Poll::Ready(Err(ChannelError::Finished.into())),
            ChannelIoState::Failed(error) => return Poll::Ready(Err(ChannelError::Open(*error).into())),
            ChannelIoState::Unopened { target, accepted, reader } => {
                let reader = reader.take();
                let opened = match accepted.take() {
                    Some(accepted) => self.session.open_with(*target, bytes, accepted),
                    None => Err(OpenError::Ended),
                };
                let result = match opened {
                    Ok(channel) => {
                        self.state = ChannelIoState::Open(channel);
                        Ok(channel)
                    }
                    Err(error) => {
                        self.state = ChannelIoState::Failed(error);
                        Err(ChannelError::Open(error))
                    }
                };
                if let Some(reader) = reader {
                    reader.wake();
                }
                result?
            }
        };
        // Bytes that travel with the open frame are written already.
        if !bytes.is_empty() {
            match self.session.poll_write(channel, context, bytes) {
                Poll::Ready(Room::Bytes(_)) => {}
                Poll::Ready(room) => return Poll::Ready(written(room)),
                Poll::Pending if bytes.len() == offered => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(offered - bytes.len()))
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.state {
            ChannelIoState::Open(channel) => {
                self.session.finish(*channel);
                Ok(())
            }
            ChannelIoState::Unopened { reader, .. } => {
                let reader = reader.take();
                self.state = ChannelIoState::Unused;
                if let Some(reader) = reader {
                    reader.wake();
                }
                Ok(())
            }
            ChannelIoState::Unused => Ok(()),
            ChannelIoState::Failed(error) => Err(ChannelError::Open(*error).into()),
        }
    }
}

fn taken(read: Read) -> io::Result<Option<Bytes>> {
    match read {
        Read::Bytes(bytes) => Ok(Some(bytes)),
        Read::End | Read::Pending => Ok(None),
        Read::Reset(reason) => Err(ChannelError::Reset(reason).into()),
    }
}

fn written(room: Room) -> io::Result<usize> {
    match room {
        Room::Bytes(bytes) => Ok(bytes),
        Room::Finished | Room::Pending => Err(ChannelError::Finished.into()),
        Room::Reset(reason) => Err(ChannelError::Reset(reason).into()),
    }
}

impl Drop for ChannelIo {
    fn drop(&mut self) {
        if let ChannelIoState::Open(channel) = self.state {
            self.session.release(channel);
        }
    }
}

impl AsyncRead for ChannelIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_empty() {
            match this.poll_bytes(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(Some(bytes))) => this.unread = bytes,
            }
        }
        let taken = this.unread.len().min(buffer.remaining());
        buffer.put_slice(this.unread.get(..taken).unwrap_or_default());
        this.unread.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ChannelIo {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.poll_room(context))?;
        let taken = buffer.len().min(room).min(PAYLOAD_BYTES_ALONE);
        let mut bytes = Bytes::copy_from_slice(buffer.get(..taken).unwrap_or(buffer));
        self.poll_write_bytes(context, &mut bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.poll_room(context))?;
        let wanted = total.min(room).min(PAYLOAD_BYTES_ALONE);
        let mut gathered = BytesMut::with_capacity(wanted);
        for buffer in buffers {
            let taken = buffer.len().min(wanted - gathered.len());
            gathered.extend_from_slice(buffer.get(..taken).unwrap_or_default());
        }
        self.poll_write_bytes(context, &mut gathered.freeze())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written bytes are on their way: the link takes them as soon as it can.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish())
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;

    use super::*;

    const FAULT: ChannelError = ChannelError::Reset(Reason::AppReset);

    /// A stream that is broken for the same reason in both directions.
    struct BrokenStream;

    impl AsyncRead for BrokenStream {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(FAULT.into()))
        }
    }

    impl AsyncWrite for BrokenStream {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(FAULT.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn fault_is_found_through_wrapped_io_errors() {
        assert_eq!(ChannelError::find(&FAULT), Some(FAULT));
        let once = io::Error::from(FAULT);
        assert_eq!(ChannelError::find(&once), Some(FAULT));
        let twice = io::Error::new(io::ErrorKind::InvalidData, once);
        assert_eq!(ChannelError::find(&twice), Some(FAULT));
        let boxed = io::Error::other(Box::<dyn std::error::Error + Send + Sync>::from(twice));
        assert_eq!(ChannelError::find(&boxed), Some(FAULT));
        assert_eq!(ChannelError::find(&io::Error::from(io::ErrorKind::BrokenPipe)), None);
        assert_eq!(ChannelError::find(&io::Error::other("something else")), None);
    }

    #[tokio::test]
    async fn fault_is_found_through_errors_of_both_http_versions() {
        let request = || http::Request::new(http_body_util::Empty::<Bytes>::new());

        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(BrokenStream)).await.expect("HTTP/1.1 says nothing yet");
        let (answer, connection) = tokio::join!(sender.send_request(request()), connection);
        let found = [answer.err(), connection.err()].map(|error| error.and_then(|error| ChannelError::find(&error)));
        assert!(found.contains(&Some(FAULT)), "{found:?}");

        let executor = hyper_util::rt::TokioExecutor::new();
        let handshake = hyper::client::conn::http2::handshake::<_, _, http_body_util::Empty<Bytes>>;
        let found = match handshake(executor, TokioIo::new(BrokenStream)).await {
            Err(error) => ChannelError::find(&error),
            Ok((mut sender, connection)) => {
                let (answer, connection) = tokio::join!(sender.send_request(request()), connection);
                let errors = [answer.err(), connection.err()];
                errors.into_iter().flatten().find_map(|error| ChannelError::find(&error))
            }
        };
        assert_eq!(found, Some(FAULT));
    }
}
