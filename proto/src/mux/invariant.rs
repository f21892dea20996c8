//! Invariants between any two calls. Tests, fuzz targets and the simulation check them after every step.

use super::channel::{Channel, SendState};
use super::schedule::QueueMembership;
use super::{Mux, State};
#[cfg(any(test, feature = "model"))]
use crate::id::ChannelId;

impl Mux {
    /// Returns the first broken invariant, if any.
    ///
    /// # Invariants
    /// Each window is the sum of outstanding, buffered and owed bytes; the budget is the sum of the windows, of the
    /// bytes that channels which are gone have lent, and of those kept to be sent again, and within its bound; exactly
    /// the unacknowledged frames are kept, and together with the opens that wait for the link they are charged; queues
    /// and their byte counts agree; received bytes lie in few pieces; channels that can send wait for their turn, and
    /// no others do.
    #[must_use]
    pub fn broken_invariant(&self) -> Option<&'static str> {
        let mut windows = 0;
        let mut queued = 0;
        let mut scheduled = 0;
        for channel in self.channels.values() {
            let Channel::Live(live) = channel else { continue };
            if !live.recv.credit.is_conserved() {
                return Some("credit is not conserved");
            }
            let buffered: usize = live.recv.queue.iter().map(bytes::Bytes::len).sum();
            if buffered + live.recv.lent as usize != live.recv.credit.buffered() as usize {
                return Some("bytes buffered and bytes accounted for differ");
            }
            if !live.recv.is_compact() {
                return Some("buffered bytes lie in too many small pieces");
            }
            let waiting: usize = live.send.queue.iter().map(bytes::Bytes::len).sum();
            if waiting != live.send.queued {
                return Some("bytes queued and bytes counted differ");
            }
            if live.send.ready() > 0 && live.send.place == QueueMembership::Idle {
                return Some("a channel that can send does not wait for its turn");
            }
            if live.send.state == SendState::Finished && waiting > 0 {
                return Some("a finished half still has bytes");
            }
            windows += u64::from(live.recv.credit.window());
            scheduled += usize::from(live.send.place != QueueMembership::Idle);
            queued += waiting;
        }
        if windows + self.orphaned + self.replay.held() != self.budget.reserved() {
            return Some("the budget is not the sum of what is promised, lent and kept to be sent again");
        }
        if self.budget.reserved() > self.settings.session_budget {
            return Some("the promises exceed the budget");
        }
        let broken = self.replay.broken_invariant(self.control.iter());
        if broken.is_some() {
            return broken;
        }
        let (sent, acknowledged) = self.numbering.sent();
        let kept = if self.settings.resume_grace.is_some() { sent - acknowledged } else { 0 };
        if !self.is_ended() && !matches!(self.state, State::Closing { .. }) && self.replay.len() as u64 != kept {
            return Some("an unacknowledged frame is not kept, or one too many is");
        }
        if scheduled != self.schedule.len() {
            return Some("a channel waits for its turn twice, or after its end");
        }
        (queued != self.queued_bytes).then_some("the session's queued bytes are counted wrong")
    }

    /// Returns the credit to send on a channel and the credit to receive, by this side's books.
    #[cfg(any(test, feature = "model"))]
    #[must_use]
    pub fn credit_books(&self, channel: ChannelId) -> Option<(u32, u32)> {
        match self.channels.get(&channel)? {
            Channel::Live(live) => Some((live.send.credit.available(), live.recv.credit.outstanding())),
            Channel::Reset(_) => None,
        }
    }
}
