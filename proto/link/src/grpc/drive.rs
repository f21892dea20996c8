//! Loop that feeds a session with the frames of its link.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes};
use tokio::time::Sleep;
use tunnel_proto::mux::SessionError;

use super::decode::FrameReader;
use crate::session::{LinkEnd, LinkHold, Taken};

/// Delay of a timer that shows that this process stood still: it was frozen, or starved of its processor.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Time for frames that arrived during a standstill to get here before the peer counts as silent.
const STALL_GRACE: Duration = Duration::from_secs(1);

/// Feeds a session with the frames of its link, until either ends or another link takes over. Returns which.
///
/// Cancel safety: not resumable; dropping it leaves the session without input, so call [`LinkHold::lost`] then.
pub async fn drive<B>(link: &LinkHold, mut reader: FrameReader<B>) -> LinkEnd
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    drive_by(link, &mut reader).await
}

/// Like [`drive`], for a reader that is used when the session is over: to wait for the peer to end the link, so that the frame
/// which says why gets there.
///
/// Cancel safety: that of [`drive`].
pub async fn drive_by<B>(link: &LinkHold, reader: &mut FrameReader<B>) -> LinkEnd
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    match feed(link, reader).await {
        Ok(Fed::LinkGone) => link.lost(),
        Ok(Fed::Replaced) => LinkEnd::Replaced,
        // A frame that says why may still be sent. If the session was over already, this changes nothing.
        Err(error) => link.fail(error),
    }
}

/// Reason why no more frames come.
enum Fed {
    /// No frames can be sent on it either.
    LinkGone,
    Replaced,
}

async fn feed<B>(link: &LinkHold, reader: &mut FrameReader<B>) -> Result<Fed, SessionError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let session = link.session();
    let mut ended = pin!(session.ended());
    let mut replaced = pin!(link.replaced());
    let mut timer = pin!(Timer::new());
    // The reader of the handshake may hold frames that came with it.
    if !take_buffered(link, reader).await? {
        return Ok(Fed::Replaced);
    }
    loop {
        timer.as_mut().arm(link.poll_timeout());
        tokio::select! {
            () = &mut ended => return Err(session.end().unwrap_or(SessionError::Ended)),
            () = &mut replaced => return Ok(Fed::Replaced),
            more = reader.fill() => match more {
                Ok(true) if take_buffered(link, reader).await? => {}
                Ok(true) => return Ok(Fed::Replaced),
                Ok(false) => return Ok(Fed::LinkGone),
                Err(error) => {
                    tracing::debug!(%error, "the link broke");
                    return Ok(Fed::LinkGone);
                }
            },
            () = timer.as_mut() => link.handle_timeout()?,
        }
    }
}

/// Hands over every whole frame that the reader holds. Returns whether the link still carries the session.
async fn take_buffered<B>(link: &LinkHold, reader: &mut FrameReader<B>) -> Result<bool, SessionError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    loop {
        match link.handle_frames(|| reader.next_buffered())? {
            Taken::All => break,
            Taken::Ignored => return Ok(false),
            // The tasks that the frames woke may wait for this very thread.
            Taken::Some => tokio::task::yield_now().await,
        }
    }
    // A link that always has more would never let go of the thread either.
    tokio::task::coop::consume_budget().await;
    Ok(true)
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
        let (Some(mut sleep), Some(armed)) = (this.sleep.as_pin_mut(), *this.armed) else { return Poll::Pending };
        ready!(sleep.as_mut().poll(context));
        let now = tokio::time::Instant::now();
        if now.into_std().saturating_duration_since(armed) > STALLED_AFTER {
            // The peer may have been there all the time.
            let grace = now + STALL_GRACE;
            sleep.as_mut().reset(grace);
            *this.armed = Some(grace.into_std());
            ready!(sleep.poll(context));
        }
        *this.armed = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::BytesMut;
    use http_body::Frame as Piece;
    use http_body_util::StreamBody;
    use tunnel_proto::frame::{Body as FrameBody, Frame};
    use tunnel_proto::mux::{Settings, Side};

    use super::*;
    use crate::grpc::encode::encode;
    use crate::session::Session;
    use crate::shuttle::sessions;

    type Pieces = tokio::sync::mpsc::Receiver<Bytes>;

    fn reader(mut pieces: Pieces) -> FrameReader<impl Body<Data = Bytes, Error = Infallible> + Unpin> {
        FrameReader::new(StreamBody::new(futures_util::stream::poll_fn(move |context| {
            pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Piece::data(piece))))
        })))
    }

    fn ping() -> Bytes {
        let mut bytes = BytesMut::new();
        let payload = encode(Frame { sequence: 0, acknowledged: 0, body: FrameBody::Ping { token: 1 } }, &mut bytes);
        assert!(payload.is_empty());
        bytes.freeze()
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_spoke_while_this_process_stood_still_is_not_missed() {
        for _ in 0..50 {
            let (session, _other) = sessions();
            let link = session.link();
            let (sender, pieces) = tokio::sync::mpsc::channel(1);
            let mut driving = pin!(drive(&link, reader(pieces)));
            assert!(futures_util::poll!(driving.as_mut()).is_pending());
            sender.send(ping()).await.expect("read");
            // Much longer than the keepalive's timeout, and no task ran meanwhile.
            tokio::time::advance(Duration::from_secs(60)).await;
            assert!(futures_util::poll!(driving.as_mut()).is_pending());
            assert_eq!(session.end(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_was_silent_while_this_process_stood_still_is_missed_soon_after() {
        let (session, _other) = sessions();
        let link = session.link();
        let (_sender, pieces) = tokio::sync::mpsc::channel(1);
        let mut driving = pin!(drive(&link, reader(pieces)));
        assert!(futures_util::poll!(driving.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(60)).await;
        let end = tokio::time::timeout(2 * STALL_GRACE, driving).await.expect("missed");
        assert_eq!(end, LinkEnd::Over(SessionError::KeepaliveTimedOut));
    }

    #[tokio::test]
    async fn what_still_comes_on_a_link_that_was_replaced_is_left_alone() {
        for _ in 0..100 {
            let settings = Settings { resume_grace: Some(Duration::from_secs(30)), ..Settings::new(Side::Gateway) };
            let session = Session::new(settings);
            let link = session.link();
            let (sender, pieces) = tokio::sync::mpsc::channel(4);
            let mut driving = pin!(drive(&link, reader(pieces)));
            assert!(futures_util::poll!(driving.as_mut()).is_pending());
            for _ in 0..4 {
                sender.send(ping()).await.expect("read");
            }
            drop(session.resume(0).expect("nothing was sent"));
            assert_eq!(driving.await, LinkEnd::Replaced);
            assert!(!session.was_heard());
        }
    }

    #[tokio::test]
    async fn flood_lets_others_run() {
        // More pings in one piece than are taken under one lock, and always another piece.
        let flood = futures_util::stream::repeat_with(|| Ok::<_, Infallible>(Piece::data(ping().repeat(1_000).into())));
        let session = Session::new(Settings::new(Side::Agent));
        let link = session.link();
        let driving = drive(&link, FrameReader::new(StreamBody::new(flood)));
        let other = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            end = driving => panic!("{end:?}"),
            () = other => {}
        }
    }
}
