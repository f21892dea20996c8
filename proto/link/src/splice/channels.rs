//! Joins two channels, of two sessions: bytes both ways without a copy, each half closed on its own, and a reset of one with its
//! reason for the other.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tunnel_proto::reason::Reason;

use super::SplicedBytes;
use crate::channel_io::{ChannelError, ChannelIo};

/// Copies until both directions have ended. Nothing waits in between: bytes are taken from one channel once the other has room
/// for some, so a slow reader at one end fills the other end's window and no more.
///
/// # Errors
/// The reason with which one channel was reset, after the other one was too.
///
/// Cancel safety: not resumable; dropping it resets both.
pub async fn splice_channels(one: ChannelIo, other: ChannelIo) -> Result<SplicedBytes, Reason> {
    let mut pair = ChannelPair { one, other, inward_over: false, outward_over: false, copied: SplicedBytes::default() };
    let (broken, error) = match poll_fn(|context| pair.poll(context)).await {
        Ok(()) => return Ok(pair.copied),
        Err(broken) => broken,
    };
    let reason = reason_of(&error);
    match broken {
        PairSide::One => pair.other.reset(reason),
        PairSide::Other => pair.one.reset(reason),
    }
    Err(reason)
}

struct ChannelPair {
    one: ChannelIo,
    other: ChannelIo,
    inward_over: bool,
    outward_over: bool,
    copied: SplicedBytes,
}

/// Channel of a pair.
#[derive(Clone, Copy)]
enum PairSide {
    One,
    Other,
}

/// Half of a copy that failed.
enum CopyEnd {
    From(io::Error),
    To(io::Error),
}

impl ChannelPair {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), (PairSide, io::Error)>> {
        let Self { one, other, inward_over, outward_over, copied } = self;
        let inward = poll_copy(one, other, inward_over, &mut copied.inward, context);
        let inward = inward.map_err(|end| match end {
            CopyEnd::From(error) => (PairSide::One, error),
            CopyEnd::To(error) => (PairSide::Other, error),
        })?;
        let outward = poll_copy(other, one, outward_over, &mut copied.outward, context);
        let outward = outward.map_err(|end| match end {
            CopyEnd::From(error) => (PairSide::Other, error),
            CopyEnd::To(error) => (PairSide::One, error),
        })?;
        if inward.is_ready() && outward.is_ready() {
            return Poll::Ready(Ok(()));
        }
        // A channel that is waited for in neither direction would not say that its other end is gone.
        for (channel, side) in [(one, PairSide::One), (other, PairSide::Other)] {
            if let Poll::Ready(error) = channel.poll_reset(context) {
                return Poll::Ready(Err((side, error.into())));
            }
        }
        Poll::Pending
    }
}

/// Copies one direction as far as it goes.
fn poll_copy(
    from: &mut ChannelIo,
    to: &mut ChannelIo,
    is_over: &mut bool,
    copied: &mut u64,
    context: &mut Context<'_>,
) -> Poll<Result<(), CopyEnd>> {
    while !*is_over {
        ready!(to.poll_room(context)).map_err(CopyEnd::To)?;
        match ready!(from.poll_bytes(context)).map_err(CopyEnd::From)? {
            None => {
                ready!(Pin::new(&mut *to).poll_shutdown(context)).map_err(CopyEnd::To)?;
                *is_over = true;
            }
            Some(mut bytes) => {
                let written = to.poll_write_bytes(context, &mut bytes);
                from.put_back(bytes);
                *copied += ready!(written).map_err(CopyEnd::To)? as u64;
            }
        }
    }
    Poll::Ready(Ok(()))
}

fn reason_of(error: &io::Error) -> Reason {
    match ChannelError::find(error) {
        Some(ChannelError::Reset(reason)) => reason,
        Some(ChannelError::Open(_) | ChannelError::Finished) | None => Reason::SessionLost,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::poll;
    use std::pin::pin;

    use super::*;
    use crate::session::Session;
    use crate::shuttle::{joined, sessions, settle};
    use tunnel_proto::limit::WINDOW_BYTES_MAX;

    /// A user's end and an app's, and between them two sessions that are spliced.
    struct Hop {
        user: ChannelIo,
        app: ChannelIo,
        sessions: [Session; 4],
    }

    impl Hop {
        fn new() -> (Self, impl Future<Output = Result<SplicedBytes, Reason>>) {
            let (edge, near) = sessions();
            let (far, agent) = sessions();
            let (user, inner) = joined(&edge, &near);
            let (outer, app) = joined(&far, &agent);
            (Self { user, app, sessions: [edge, near, far, agent] }, splice_channels(outer, inner))
        }

        fn settle(&self) {
            let [edge, near, far, agent] = &self.sessions;
            settle(edge, near);
            settle(far, agent);
        }
    }

    fn write(io: &mut ChannelIo, bytes: &'static [u8]) {
        let written =
            io.poll_write_bytes(&Context::from_waker(std::task::Waker::noop()), &mut Bytes::from_static(bytes));
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == bytes.len()), "{written:?}");
    }

    fn read(io: &mut ChannelIo) -> Poll<io::Result<Option<Bytes>>> {
        io.poll_bytes(&Context::from_waker(std::task::Waker::noop()))
    }

    fn finish(io: &mut ChannelIo) {
        assert!(Pin::new(io).poll_shutdown(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
    }

    #[tokio::test]
    async fn bytes_and_half_closes_pass_in_both_directions() {
        let (mut hop, copying) = Hop::new();
        let mut copying = pin!(copying);
        write(&mut hop.user, b"question");
        finish(&mut hop.user);
        hop.settle();
        assert!(poll!(copying.as_mut()).is_pending());
        hop.settle();
        assert!(matches!(read(&mut hop.app), Poll::Ready(Ok(Some(bytes))) if bytes == "question"));
        assert!(matches!(read(&mut hop.app), Poll::Ready(Ok(None))));
        write(&mut hop.app, b"answer");
        finish(&mut hop.app);
        hop.settle();
        assert_eq!(copying.await, Ok(SplicedBytes { inward: 6, outward: 8 }));
        hop.settle();
        assert!(matches!(read(&mut hop.user), Poll::Ready(Ok(Some(bytes))) if bytes == "answer"));
        assert!(matches!(read(&mut hop.user), Poll::Ready(Ok(None))));
    }

    #[tokio::test]
    async fn reset_passes_with_its_reason_also_behind_a_half_close() {
        for is_half_closed in [false, true] {
            let (mut hop, copying) = Hop::new();
            let mut copying = pin!(copying);
            if is_half_closed {
                finish(&mut hop.app);
                hop.settle();
            }
            assert!(poll!(copying.as_mut()).is_pending());
            hop.settle();
            hop.app.reset(Reason::AppReset);
            let [edge, near, far, agent] = &hop.sessions;
            settle(far, agent);
            assert_eq!(poll!(copying.as_mut()), Poll::Ready(Err(Reason::AppReset)));
            settle(edge, near);
            let mut taken = read(&mut hop.user);
            while let Poll::Ready(Ok(_)) = taken {
                taken = read(&mut hop.user);
            }
            let Poll::Ready(Err(error)) = taken else { panic!("{taken:?}") };
            assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::AppReset)));
        }
    }

    #[tokio::test]
    async fn end_of_a_session_is_the_reset_of_the_other_one() {
        let (mut hop, copying) = Hop::new();
        let mut copying = pin!(copying);
        assert!(poll!(copying.as_mut()).is_pending());
        hop.sessions[2].close(Reason::Revoked, "the token was revoked");
        assert_eq!(copying.await, Err(Reason::SessionLost));
        hop.settle();
        let Poll::Ready(Err(error)) = read(&mut hop.user) else { panic!("it goes on") };
        assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::SessionLost)));
    }

    /// What a user does not take waits at the ends, and not here.
    #[tokio::test]
    async fn reader_that_stands_still_fills_one_window_of_each_session() {
        let (mut hop, copying) = Hop::new();
        let mut copying = pin!(copying);
        let context = Context::from_waker(std::task::Waker::noop());
        let (mut piece, mut sent) = (Bytes::from(vec![7; 64 * 1024]), 0_usize);
        for _ in 0..10_000 {
            let mut bytes = piece.clone();
            match hop.app.poll_write_bytes(&context, &mut bytes) {
                Poll::Ready(written) => sent += written.expect("room"),
                Poll::Pending => {}
            }
            hop.settle();
            assert!(poll!(copying.as_mut()).is_pending());
            hop.settle();
        }
        let most = 2 * usize::try_from(WINDOW_BYTES_MAX).expect("it fits");
        assert!(sent > 0 && sent <= most + 3 * piece.len(), "{sent} bytes waited");
        // And goes on once it is read.
        let mut taken = 0;
        while taken < sent {
            match read(&mut hop.user) {
                Poll::Ready(Ok(Some(bytes))) => taken += bytes.len(),
                Poll::Pending => {
                    hop.settle();
                    assert!(poll!(copying.as_mut()).is_pending());
                    hop.settle();
                }
                other => panic!("{other:?}"),
            }
        }
        piece.clear();
        assert!(hop.sessions.iter().all(|session| session.broken_invariant().is_none()));
    }
}
