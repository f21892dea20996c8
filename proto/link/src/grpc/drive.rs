//! The loop that feeds a session with what arrives on its link.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::body::{Body, Bytes};
use tokio::time::Sleep;
use tunnel_proto::mux::SessionError;

use super::decode::FrameReader;
use crate::session::Session;

/// Feeds a session with what arrives on its link, until either ends. Returns why.
///
/// Cancel safety: not resumable; dropping it leaves the session without input, so call [`Session::link_lost`] then.
pub async fn drive<B>(session: &Session, mut reader: FrameReader<B>) -> SessionError
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    match feed(session, &mut reader).await {
        Ok(LinkGone) => session.link_lost(),
        // A frame that says why may still be sent. Of a session that was over already, this changes nothing.
        Err(error) => session.fail(error),
    }
    session.end().unwrap_or(SessionError::Ended)
}

/// The link is gone, so nothing more can be said on it.
struct LinkGone;

async fn feed<B>(session: &Session, reader: &mut FrameReader<B>) -> Result<LinkGone, SessionError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut ended = pin!(session.ended());
    let mut timer = pin!(Timer::new());
    // Who read the handshake may hold frames that came with it.
    take_buffered(session, reader).await?;
    loop {
        timer.as_mut().arm(session.poll_timeout());
        tokio::select! {
            () = &mut ended => return Err(session.end().unwrap_or(SessionError::Ended)),
            more = reader.fill() => match more {
                Ok(true) => take_buffered(session, reader).await?,
                Ok(false) => return Ok(LinkGone),
                Err(error) => {
                    tracing::debug!(%error, "the link broke");
                    return Ok(LinkGone);
                }
            },
            () = timer.as_mut() => session.handle_timeout()?,
        }
    }
}

/// Hands over every whole frame that the reader holds.
async fn take_buffered<B>(session: &Session, reader: &mut FrameReader<B>) -> Result<(), SessionError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    while session.handle_frames(|| reader.next_buffered())? {
        // Those whom the frames woke may wait for this very thread.
        tokio::task::yield_now().await;
    }
    // A link that always has more would never let go of the thread either.
    tokio::task::coop::consume_budget().await;
    Ok(())
}

pin_project_lite::pin_project! {
    /// Completes when the machine's deadline may have passed. The deadline moves with almost every frame, mostly
    /// further away, so a timer that is set stays set and fires too early at times: asking the machine is cheaper
    /// than moving a timer.
    struct Timer {
        #[pin]
        sleep: Option<Sleep>,
        armed: Option<Instant>,
    }
}

impl Timer {
    fn new() -> Self {
        Self { sleep: None, armed: None }
    }

    fn arm(self: Pin<&mut Self>, deadline: Option<Instant>) {
        let mut this = self.project();
        let Some(deadline) = deadline else { return };
        if this.armed.is_some_and(|armed| armed <= deadline) {
            return;
        }
        *this.armed = Some(deadline);
        match this.sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.reset(deadline.into()),
            None => this.sleep.set(Some(tokio::time::sleep_until(deadline.into()))),
        }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        match this.sleep.as_pin_mut() {
            Some(sleep) if this.armed.is_some() => ready!(sleep.poll(context)),
            Some(_) | None => return Poll::Pending,
        }
        *this.armed = None;
        Poll::Ready(())
    }
}
