//! One link's hold on a session: it carries frames until it is lost or another link takes over.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tunnel_proto::frame::Frame;
use tunnel_proto::mux::SessionError;

use super::state::{State, register};
use super::{FRAMES_PER_LOCK, Session, now};

/// One link's hold on a session. What a link says or does after another one took over is ignored, so that a byte which
/// was on its way for long cannot arrive twice.
#[derive(Clone, Debug)]
pub struct Link {
    session: Session,
    number: u64,
    replaced: CancellationToken,
}

/// How a link's hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The link is gone; the session waits for another one.
    Lost,
    /// Another link carries the session now.
    Replaced,
    /// The session is over.
    Over(SessionError),
}

impl LinkEnd {
    /// Returns why the session is over, if it is.
    #[must_use]
    pub fn over(self) -> Option<SessionError> {
        match self {
            Self::Over(error) => Some(error),
            Self::Lost | Self::Replaced => None,
        }
    }
}

impl Session {
    /// Returns the hold of the link that carries the session now. Each link has one reader and one writer.
    #[must_use]
    pub fn link(&self) -> Link {
        let state = self.shared.state.lock();
        Link { session: self.clone(), number: state.link.number, replaced: state.link.replaced.clone() }
    }

    /// Goes on over a new link whose other end received every frame up to `peer_received`. A link that still held the
    /// session loses it. Returns the new hold, and the highest frame number received here.
    ///
    /// # Errors
    /// [`SessionError`] when the session is over or the two sides' books do not fit together; it has ended then.
    pub fn resume(&self, peer_received: u64) -> Result<(Link, u64), SessionError> {
        let resumed = self.with(|state| {
            state.mux.link_lost(now());
            let received = state.mux.received();
            state.mux.resume(now(), peer_received)?;
            Ok(state.next_link(received))
        });
        match resumed {
            Ok((number, received, before, replaced)) => {
                before.cancel();
                Ok((Link { session: self.clone(), number, replaced }, received))
            }
            Err(error) => {
                self.record_end(&error);
                Err(error)
            }
        }
    }

    /// Returns whether the session waits for a link. One load of an atomic: it is asked for each request.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.shared.detached.load(Ordering::Relaxed)
    }

    /// Waits until a link carries the session, at most for `patience`. Returns whether one does.
    ///
    /// Cancel safety: safe.
    pub async fn attached(&self, patience: Duration) -> bool {
        let link = self.link();
        if self.is_detached() {
            tokio::select! {
                () = link.replaced() => {}
                () = self.ended() => {}
                () = tokio::time::sleep(patience) => {}
            }
        }
        !self.is_detached() && !self.is_ended()
    }

    /// Returns the highest frame number received in order; final while the session is detached.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.shared.state.lock().mux.received()
    }

    /// Returns whether the peer has said anything over the link that carries the session now. Until then, it may not
    /// know that the link is up.
    #[must_use]
    pub fn was_heard(&self) -> bool {
        self.shared.state.lock().link.heard
    }

    /// Records why the machine has ended, if it has, and tells everybody.
    fn record_end(&self, error: &SessionError) {
        let ended = self.with(|state| {
            let ended = state.mux.is_ended();
            if ended {
                state.end.get_or_insert_with(|| error.clone());
            }
            ended
        });
        if ended {
            self.shared.said.cancel();
            self.shared.ended.cancel();
        }
    }
}

impl Link {
    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Completes when another link has taken over.
    ///
    /// Cancel safety: safe.
    pub async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// The link is gone. The session waits for another one if that was agreed on, and ends otherwise.
    pub fn lost(&self) -> LinkEnd {
        let holds = self.session.with(|state| {
            let holds = state.link.number == self.number;
            if holds {
                state.mux.link_lost(now());
            }
            holds
        });
        if !holds {
            return LinkEnd::Replaced;
        }
        self.session.record_end(&SessionError::Ended);
        self.session.end().map_or(LinkEnd::Lost, LinkEnd::Over)
    }

    /// Waits, after the link was lost, until another one has taken over or the session is over: at the latest when its
    /// grace is.
    ///
    /// Cancel safety: safe; the grace is then nobody's, so call it again.
    pub async fn await_next(&self) -> LinkEnd {
        loop {
            let (deadline, end) = {
                let state = self.session.shared.state.lock();
                (state.mux.poll_timeout().filter(|_| state.mux.is_detached()), state.end.clone())
            };
            if let Some(end) = end {
                return LinkEnd::Over(end);
            }
            let Some(deadline) = deadline else { return LinkEnd::Replaced };
            tokio::select! {
                () = self.replaced.cancelled() => return LinkEnd::Replaced,
                () = self.session.ended() => {}
                () = tokio::time::sleep_until(deadline.into()) => {
                    if let Err(error) = self.session.with(|state| state.mux.handle_timeout(now())) {
                        self.session.record_end(&error);
                    }
                }
            }
        }
    }

    /// Fills a batch of frames to send, or waits for something to say. `false` when there will be nothing more.
    pub(crate) fn poll_transmit(&self, context: &Context<'_>, mut sink: impl FnMut(Frame) -> bool) -> Poll<bool> {
        let now = now();
        let mut over = false;
        let polled = self.session.with(|state| {
            if !self.holds(state) {
                return Poll::Ready(false);
            }
            let mut any = false;
            while let Some(frame) = state.mux.poll_transmit(now) {
                any = true;
                if !sink(frame) {
                    break;
                }
            }
            over = state.mux.is_ended();
            match any {
                true => Poll::Ready(true),
                false if over || state.mux.is_detached() => Poll::Ready(false),
                false => {
                    register(&mut state.transmit, context);
                    Poll::Pending
                }
            }
        });
        if over && polled == Poll::Ready(false) {
            self.session.shared.said.cancel();
        }
        polled
    }

    /// The link's outgoing half is gone: what the session still has to say about its end is never said, unless another
    /// link comes before the end.
    pub(crate) fn transmit_gone(&self) {
        let (waker, never) = self.session.with(|state| {
            let holds = self.holds(state);
            state.link.mute |= holds;
            let is_over = !state.mux.is_up() && !state.mux.is_detached();
            (if holds { state.transmit.take() } else { None }, holds && is_over)
        });
        drop(waker);
        if never {
            self.session.shared.said.cancel();
        }
    }

    /// Takes frames that arrived together. `next` gives one after the other; its error ends the session too. Returns
    /// whether it is to be called again for the rest.
    pub(crate) fn handle_frames(
        &self,
        mut next: impl FnMut() -> Option<Result<Frame, SessionError>>,
    ) -> Result<bool, SessionError> {
        let now = now();
        self.session.with(|state| {
            if !self.holds(state) {
                return Ok(false);
            }
            for _ in 0..FRAMES_PER_LOCK {
                let Some(frame) = next() else { return Ok(false) };
                frame.and_then(|frame| state.mux.handle_frame(now, frame))?;
                state.link.heard = true;
            }
            Ok(true)
        })
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let state = self.session.shared.state.lock();
        state.mux.poll_timeout().filter(|_| self.holds(&state))
    }

    pub(crate) fn handle_timeout(&self) -> Result<(), SessionError> {
        let now = now();
        self.session.with(|state| if self.holds(state) { state.mux.handle_timeout(now) } else { Ok(()) })
    }

    /// The peer broke a rule on this link, or it timed out. Ends the session, unless another link has it by now or it
    /// waits for one.
    pub(crate) fn fail(&self, error: SessionError) -> LinkEnd {
        {
            let state = self.session.shared.state.lock();
            if !self.holds(&state) {
                return LinkEnd::Replaced;
            }
            if state.mux.is_detached() {
                return LinkEnd::Lost;
            }
        }
        self.session.fail(error);
        LinkEnd::Over(self.session.end().unwrap_or(SessionError::Ended))
    }

    fn holds(&self, state: &State) -> bool {
        state.link.number == self.number
    }
}
