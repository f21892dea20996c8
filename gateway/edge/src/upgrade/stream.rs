//! Carries an upgraded connection until it ends: bytes both ways, and a last message if the protocol has a place for
//! one.
//!
//! Only a WebSocket has such a place: a close frame between two frames towards the user (RFC 6455, section 5.5.1). An
//! end made by the app is passed on as it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::TryFutureExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tracing::debug;
use tunnel_link::channel_io::ChannelError;
use tunnel_link::raw::{CUT_TIMEOUT, code};
use tunnel_link::splice::splice_idle;
use tunnel_proto::reason::Reason;

use crate::activity::{InputRule, UserActivity};
use crate::forward::failure_of_channel;
use crate::upstream::http1::Http1Connection;
use crate::watches::WatchUse;
use crate::websocket::frames::{Frames, close_frame};
use gateway_http::respond::Failure;
use gateway_types::{ActivityKind, Port};

/// The close code for a workspace that cannot be reached any more (RFC 6455, section 7.4.1): not the app's doing.
const LOST: u16 = 1011;

/// Last message to the user's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Farewell {
    code: u16,
    reason: &'static str,
    /// Time limit for sending it.
    timeout: Duration,
}

/// Joins the user's connection with the app's channel until both directions have ended, one broke, `drained` is over
/// (its value is the time left for the last message), or the user's access ends. `frames` knows those of a WebSocket.
pub(super) async fn carry(
    user: OnUpgrade,
    app: Box<Http1Connection>,
    frames: StreamFrames,
    idle: Duration,
    watch: &WatchUse,
    drained: impl Future<Output = Duration>,
) {
    let ends = async { tokio::try_join!(user.map_err(anyhow::Error::from), app.into_stream().map_err(Into::into)) };
    let ends = tokio::select! {
        biased;
        ends = ends => ends,
        () = watch.wait() => return debug!("stream cut before it began: access ended"),
    };
    let (user, app) = match ends {
        Ok(ends) => ends,
        Err(error) => return debug!(%error, "stream did not begin"),
    };
    let mut user = UserEnd { io: TokioIo::new(user), frames: frames.outward, input: frames.input };
    let farewell = tokio::select! {
        biased;
        ended = splice_idle(app, &mut user, Some(idle)) => match ended {
            Ok(_copied) => return debug!("stream ended"),
            Err(error) => {
                debug!(%error, "stream broke");
                match farewell(&error) {
                    Some(farewell) => farewell,
                    None => return,
                }
            }
        },
        () = watch.wait() => {
            Farewell { code: code::ACCESS_ENDED, reason: watch.why().code(), timeout: CUT_TIMEOUT }
        }
        timeout = drained => Farewell { code: code::DRAINING, reason: Failure::Draining.code(), timeout },
    };
    // Here the channel is gone: whatever the user's end does, no byte passes any more.
    debug!(?farewell, "stream cut");
    user.say(farewell).await;
}

/// Finds the last message for a stream that broke. `None` if the app or the user broke it.
fn farewell(error: &io::Error) -> Option<Farewell> {
    let error = ChannelError::find(error)?;
    let (code, reason) = match error {
        ChannelError::Reset(Reason::AppReset | Reason::Cancelled) => return None,
        ChannelError::Reset(Reason::Shutdown) => (code::DRAINING, Failure::Draining.code()),
        ChannelError::Reset(_) | ChannelError::Open(_) | ChannelError::Finished => {
            (LOST, failure_of_channel(error).code())
        }
    };
    Some(Farewell { code, reason, timeout: CUT_TIMEOUT })
}

/// Positions in the frames of a stream.
pub(super) struct StreamFrames {
    /// Of the bytes towards the user; `None` if it is no WebSocket.
    pub(super) outward: Option<Frames>,
    /// Of the bytes from the user, if they count as use of the workspace.
    pub(super) input: Option<Input>,
}

/// What a user sends, as far as it counts as use of the workspace.
pub(super) struct Input {
    user: UserActivity,
    rule: InputRule,
    /// `None` if it is no WebSocket: then every byte counts.
    frames: Option<Frames>,
}

impl Input {
    pub(super) fn new(user: UserActivity, port: Port, is_websocket: bool) -> Self {
        Self { user, rule: InputRule::of(port), frames: is_websocket.then(Frames::default) }
    }

    fn pass(&mut self, bytes: &[u8]) {
        let Self { user, rule, frames } = self;
        match frames {
            Some(frames) => frames.pass_with(bytes, |opcode, length| {
                if let Some(kind) = rule.judge(opcode, length) {
                    user.note(kind);
                }
            }),
            None if bytes.is_empty() => {}
            None => user.note(ActivityKind::Stream),
        }
    }
}

/// The user's end, and the position in frames of the bytes towards it.
struct UserEnd<S> {
    io: S,
    frames: Option<Frames>,
    input: Option<Input>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> UserEnd<S> {
    /// Sends the last message, if it would not be taken for the app's bytes, and lets the user's end answer: a close
    /// with bytes unread resets the connection, and the reset can overtake the message.
    async fn say(mut self, Farewell { code, reason, timeout }: Farewell) {
        if !self.frames.is_some_and(Frames::is_at_border) {
            return;
        }
        let said = async {
            self.io.write_all(&close_frame(code, reason)).await?;
            self.io.flush().await?;
            self.io.shutdown().await?;
            let mut scratch = [0; 1024];
            while self.io.read(&mut scratch).await? > 0 {}
            io::Result::Ok(())
        };
        // A failure cannot be reported: the peer is gone.
        drop(tokio::time::timeout(timeout, said).await);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UserEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if let (Poll::Ready(Ok(())), Some(input)) = (&read, &mut self.input) {
            input.pass(buffer.filled().get(before..).unwrap_or_default());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UserEnd<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        if let Some(frames) = &mut self.frames {
            frames.pass(bytes.get(..written).unwrap_or(bytes));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what an app said so far, then a farewell; returns what the user's end has read.
    async fn heard(frames: Option<Frames>, said: &[u8]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut user = UserEnd { io: near, frames, input: None };
        user.write_all(said).await.expect("room");
        let farewell = Farewell { code: 1008, reason: "no_such_host", timeout: Duration::from_secs(5) };
        let mut bytes = Vec::new();
        // The user's end ends too when it has read all, so that neither end waits for the timeout.
        let hear = async {
            far.read_to_end(&mut bytes).await.expect("bytes");
            drop(far);
        };
        tokio::join!(user.say(farewell), hear);
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn last_word_comes_between_frames_and_nowhere_else() {
        let close = close_frame(1008, "no_such_host");
        let websocket = || Some(Frames::default());
        assert_eq!(heard(websocket(), b"").await, close);
        assert_eq!(heard(websocket(), &[0x81, 1, b'x']).await, [&[0x81, 1, b'x'][..], &close].concat());
        for unfinished in [&[0x81][..], &[0x81, 2, b'x'], &[0x82, 126, 0]] {
            assert_eq!(heard(websocket(), unfinished).await, unfinished, "inside a frame");
        }
        let closing = close_frame(1000, "");
        assert_eq!(heard(websocket(), &closing).await, closing, "the app has had the last word");
        assert_eq!(heard(None, b"x").await, b"x", "no WebSocket");
    }

    #[tokio::test(start_paused = true)]
    async fn user_who_does_not_read_is_not_waited_for() {
        let (near, far) = tokio::io::duplex(1);
        let user = UserEnd { io: near, frames: Some(Frames::default()), input: None };
        let began = tokio::time::Instant::now();
        user.say(Farewell { code: 1008, reason: "no_such_host", timeout: CUT_TIMEOUT }).await;
        assert_eq!(began.elapsed(), CUT_TIMEOUT);
        drop(far);
    }

    #[test]
    fn what_the_app_broke_is_passed_on_without_a_word() {
        let of = |reason| farewell(&ChannelError::Reset(reason).into()).map(|told| (told.code, told.reason));
        assert_eq!(of(Reason::AppReset), None);
        assert_eq!(of(Reason::Cancelled), None);
        assert_eq!(of(Reason::SessionLost), Some((LOST, "session_lost")));
        assert_eq!(of(Reason::Shutdown), Some((code::DRAINING, "draining")));
        assert_eq!(farewell(&io::ErrorKind::TimedOut.into()), None);
        assert_eq!(farewell(&io::ErrorKind::BrokenPipe.into()), None);
    }
}
