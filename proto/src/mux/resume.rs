//! Loss and resumption of links: a session lives on without one, goes on over the next, and ends.
//!
//! ```text
//!               link_lost                 grace is over
//!   Up ───────────────────────► Detached ───────────────► Ended
//!    ▲                             │                        ▲
//!    └──────── resume ─────────────┘                        │ Close frame sent, or link_lost
//!   Up ── close, or a rule was broken ─────────────────► Closing
//! ```

use std::time::Instant;

use super::{Mux, MuxEvent, SessionError, State};
use crate::frame::Body;
use crate::reason::Reason;

impl Mux {
    /// Ends the session: every channel is reset, and if there is a link, one Close frame is still sent, behind a drain
    /// that was requested with [`Mux::drain`].
    pub fn close(&mut self, reason: Reason, detail: &str) {
        match self.state {
            State::Up => {
                self.end_channels(Reason::SessionLost);
                self.state = State::Closing { reason, detail: detail.to_owned() };
            }
            State::Detached { .. } => self.end_at_once(),
            State::Closing { .. } | State::Ended => {}
        }
    }

    /// Notes that the link is gone. The session waits for another one, or ends if that was not agreed on. Returns
    /// whether it waits.
    pub fn link_lost(&mut self, now: Instant) -> bool {
        match self.state {
            State::Up if self.settings.resume_grace.is_some() => {
                self.replay.rewind();
                self.state = State::Detached { since: now };
            }
            State::Up | State::Closing { .. } => self.end_at_once(),
            State::Detached { .. } | State::Ended => {}
        }
        self.is_detached()
    }

    /// Returns whether a link carries the session.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Returns whether the session waits for a link.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached { .. })
    }

    /// Returns the highest frame number received in order, which the other side is told in the handshake of a new
    /// link. Final only while [detached](Mux::is_detached).
    #[must_use]
    pub fn received(&self) -> u64 {
        self.numbering.received()
    }

    /// Goes on over a new link whose other end has received everything up to `peer_received`. The rest is sent again
    /// before anything new, in the same order and with the same numbers.
    ///
    /// # Errors
    /// [`SessionError`] when the two sides' books do not fit together; the session has ended then.
    pub fn resume(&mut self, now: Instant, peer_received: u64) -> Result<(), SessionError> {
        if !self.is_detached() {
            return Err(SessionError::Ended);
        }
        if let Err(error) = self.numbering.resume(peer_received) {
            self.end_at_once();
            return Err(error);
        }
        self.forget_acknowledged();
        self.keepalive.restart(now);
        self.state = State::Up;
        self.stats.links += 1;
        // It was not numbered, so it may have been lost; unless it still waits for a link.
        if !self.control.iter().any(|body| matches!(body, Body::Drain { .. })) {
            self.control.extend(self.drain.clone());
        }
        Ok(())
    }

    /// Returns the time of the next [`Mux::handle_timeout`]; `None` after the end.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Up => {
                let keepalive = self.keepalive.deadline();
                Some(self.numbering.due().map_or(keepalive, |due| due.min(keepalive)))
            }
            State::Detached { since } => Some(since + self.settings.resume_grace.unwrap_or_default()),
            State::Closing { .. } | State::Ended => None,
        }
    }

    /// Acts on time that passed.
    ///
    /// # Errors
    /// [`SessionError::KeepaliveTimedOut`] when the peer was silent for too long: the link is dead, and so is the
    /// session unless it [waits](Mux::is_detached) for another. [`SessionError::LinkLost`] when none came in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), SessionError> {
        match self.state {
            State::Up => {
                self.numbering.handle_timeout(now);
                if self.keepalive.handle_timeout(now).is_ok() {
                    return Ok(());
                }
                if self.settings.resume_grace.is_none() {
                    return Err(self.fail(SessionError::KeepaliveTimedOut));
                }
                self.link_lost(now);
                Err(SessionError::KeepaliveTimedOut)
            }
            State::Detached { .. } if self.poll_timeout().is_some_and(|due| due <= now) => {
                self.end_at_once();
                Err(SessionError::LinkLost)
            }
            State::Detached { .. } | State::Closing { .. } | State::Ended => Ok(()),
        }
    }

    /// Ends the session for a rule that the peer broke, and keeps the reason for the Close frame.
    pub(super) fn fail(&mut self, error: SessionError) -> SessionError {
        self.end_channels(Reason::SessionLost);
        self.state = match &error {
            SessionError::Closed { .. } | SessionError::LinkLost | SessionError::Ended => State::Ended,
            SessionError::Frame(_)
            | SessionError::Sequence { .. }
            | SessionError::Acknowledged { .. }
            | SessionError::Unexpected { .. }
            | SessionError::ChannelOrder { .. }
            | SessionError::ChannelUnknown { .. }
            | SessionError::Exhausted
            | SessionError::KeepaliveTimedOut => {
                State::Closing { reason: error.reason(), detail: error.reason().text().to_owned() }
            }
        };
        error
    }

    /// Forgets the kept frames that the peer has by now.
    pub(super) fn forget_acknowledged(&mut self) {
        let (sent, acknowledged) = self.numbering.sent();
        self.replay.acknowledge(sent, acknowledged, &mut self.budget);
    }

    /// Ends the session without a word: there is no link to say one on.
    fn end_at_once(&mut self) {
        self.end_channels(Reason::SessionLost);
        self.state = State::Ended;
    }

    fn end_channels(&mut self, reason: Reason) {
        let live: Vec<_> = self.channels.keys().copied().collect();
        for channel in live {
            if self.discard(channel, reason) {
                self.events.push_back(MuxEvent::Reset(channel, reason));
            }
        }
        // A peer that was asked to go, and has not heard it yet, would take the end for a failure.
        self.control.retain(|body| matches!(body, Body::Drain { .. }));
        self.grants_due.clear();
        self.replay.clear(&mut self.budget);
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
