//! One link's hold on a session: it carries frames until it is lost or another link takes over.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tunnel_proto::frame::Frame;
use tunnel_proto::mux::SessionError;

use super::state::{Current, SessionState, register};
use super::{FRAMES_PER_LOCK, Session, now};

/// Hold of one link on a session. Frames and calls of a link after another one took over are ignored, so that a byte
/// which was on its way for long cannot arrive twice.
#[derive(Clone, Debug)]
pub struct LinkHold {
    session: Session,
    number: u64,
    replaced: CancellationToken,
}

/// End of a link's hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The link is gone; the session waits for another one.
    Lost,
    /// Another link carries the session now.
    Replaced,
    /// The session is over.
    Over(SessionError),
}

/// Result of handling frames that arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All were handled.
    All,
    /// There are more: call again.
    Some,
    /// Another link carries the session now; the rest is of no interest.
    Ignored,
}

impl LinkEnd {
    /// Returns the reason why the session is over, if it is.
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
    pub fn link(&self) -> LinkHold {
        let state = self.shared.state.lock();
        LinkHold { session: self.clone(), number: state.link.number, replaced: state.link.replaced.clone() }
    }

    /// Goes on over a new link whose other end received every frame up to `peer_received`. A link that still held the
    /// session loses it. Returns the new hold, and the highest frame number received here.
    ///
    /// # Errors
    /// [`SessionError`] when the session is over or the two sides' books do not fit together; it has ended then.
    pub fn resume(&self, peer_received: u64) -> Result<(LinkHold, u64), SessionError> {
        let resumed = self.with(|state| {
            state.mux.link_lost(now());
            let received = state.mux.received();
            state.mux.resume(now(), peer_received)?;
            // The writer of the link before, which has nothing to say any more. It has to hear that, or its stream
            // never ends.
            let stale = state.transmit.take();
            let number = state.link.number + 1;
            let before = std::mem::replace(&mut state.link, Current::new(number));
            Ok((number, received, state.link.replaced.clone(), before.replaced, stale))
        });
        match resumed {
            Ok((number, received, replaced, before, stale)) => {
                before.cancel();
                if let Some(stale) = stale {
                    stale.wake();
                }
                Ok((LinkHold { session: self.clone(), number, replaced }, received))
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

    /// Records the reason why the machine has ended, if it has, and tells all waiting tasks.
    fn record_end(&self, error: &SessionError) {
        let ended = self.with(|state| {
            let ended = state.mux.is_ended();
            if ended {
                state.end.get_or_insert_with(|| error.clone());
            }
            ended
        });
        if ended {
            self.tell_end(true);
        }
    }
}

impl LinkHold {
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

    /// Notes that the link is gone. The session waits for another one if that was agreed on, and ends otherwise.
    pub fn lost(&self) -> LinkEnd {
        let holds = self.session.with(|state| {
            let holds = self.holds(state);
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

    /// Waits, after the link was lost, until another one has taken over or the session is over, which is at the latest
    /// when its grace is.
    ///
    /// Cancel safety: safe; no task ends the grace then, so call it again.
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
                    if let Err(error) = self.handle_timeout() {
                        self.session.record_end(&error);
                    }
                }
            }
        }
    }

    /// Fills a batch of frames to send, or waits for one. `false` when there will be no more.
    ///
    /// No frame has more than `frame_max` bytes of payload.
    pub(crate) fn poll_transmit_within(
        &self,
        context: &Context<'_>,
        frame_max: usize,
        mut sink: impl FnMut(Frame) -> bool,
    ) -> Poll<bool> {
        let now = now();
        let mut over = false;
        let polled = self.session.with(|state| {
            if !self.holds(state) {
                return Poll::Ready(false);
            }
            state.mux.limit_frames(frame_max);
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

    #[cfg(test)]
    pub(crate) fn poll_transmit(&self, context: &Context<'_>, sink: impl FnMut(Frame) -> bool) -> Poll<bool> {
        self.poll_transmit_within(context, usize::MAX, sink)
    }

    /// Notes that the link's outgoing half is gone: frames about the session's end are never sent.
    pub(crate) fn transmit_gone(&self) {
        let (waker, is_said) = self.session.with(|state| {
            let holds = self.holds(state);
            state.link.mute |= holds;
            let is_over = !state.mux.is_up() && !state.mux.is_detached();
            (if holds { state.transmit.take() } else { None }, holds && is_over)
        });
        drop(waker);
        if is_said {
            self.session.shared.said.cancel();
        }
    }

    /// Takes frames that arrived together. `next` gives one after the other; its error ends the session too.
    pub(crate) fn handle_frames(
        &self,
        mut next: impl FnMut() -> Option<Result<Frame, SessionError>>,
    ) -> Result<Taken, SessionError> {
        let now = now();
        self.session.with(|state| {
            if !self.holds(state) {
                return Ok(Taken::Ignored);
            }
            for _ in 0..FRAMES_PER_LOCK {
                let Some(frame) = next() else { return Ok(Taken::All) };
                frame.and_then(|frame| state.mux.handle_frame(now, frame))?;
                state.link.heard = true;
            }
            Ok(Taken::Some)
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

    /// Ends the session, because the peer broke a rule on this link or timed out; unless another link has it by now or
    /// it waits for one.
    pub(crate) fn fail(&self, error: SessionError) -> LinkEnd {
        // Under one hold of the lock: another link may be about to take over, and that one broke no rule.
        let (end, is_said) = self.session.with(|state| {
            if !self.holds(state) {
                return (LinkEnd::Replaced, None);
            }
            if state.mux.is_detached() {
                return (LinkEnd::Lost, None);
            }
            let is_said = state.close(error.reason(), error.reason().text(), error);
            (LinkEnd::Over(state.end.clone().unwrap_or(SessionError::Ended)), Some(is_said))
        });
        if let Some(is_said) = is_said {
            self.session.tell_end(is_said);
        }
        end
    }

    fn holds(&self, state: &SessionState) -> bool {
        state.link.number == self.number
    }
}

#[cfg(test)]
mod tests;
