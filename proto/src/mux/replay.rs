//! Frames that were sent and not yet acknowledged: what a new link starts with.
//!
//! Payloads are kept, not copied. What is kept counts against the session's budget; when there is no more room, nothing
//! new is sent until the peer acknowledges something, which reaches the application as a lack of room to write.

use std::collections::VecDeque;

use super::budget::Budget;
use crate::frame::{Body, Grant, Open};
use crate::limit::{REPLAY_BYTES_FREE, REPLAY_FRAME_BYTES, REPLAY_STEP_BYTES};

/// Numbered frames in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The last one has the highest number that was given out.
    frames: VecDeque<Body>,
    /// What they cost.
    bytes: u64,
    /// How many of the last ones have to be sent again.
    again: usize,
    /// What of the budget is held for them.
    held: u64,
}

impl Replay {
    /// Keeps a frame that is being sent.
    pub(super) fn keep(&mut self, body: Body) {
        debug_assert!(!self.is_behind(), "something new went ahead of what has to be sent again");
        self.bytes += cost(&body);
        self.frames.push_back(body);
    }

    /// Forgets frames up to and including number `acknowledged`, of `sent` that were given out.
    pub(super) fn acknowledge(&mut self, sent: u64, acknowledged: u64, budget: &mut Budget) {
        let left = usize::try_from(sent.saturating_sub(acknowledged)).unwrap_or(usize::MAX);
        while self.frames.len() > left {
            let Some(body) = self.frames.pop_front() else { break };
            self.bytes -= cost(&body);
        }
        self.again = self.again.min(self.frames.len());
        self.settle(budget);
    }

    /// The link is gone: everything that is left has to be sent again.
    pub(super) fn rewind(&mut self) {
        self.again = self.frames.len();
    }

    /// Returns the next frame to send again, with its number.
    pub(super) fn next_again(&mut self, sent: u64) -> Option<(u64, Body)> {
        let at = self.frames.len().checked_sub(self.again).filter(|_| self.again > 0)?;
        let body = self.frames.get(at)?.clone();
        // The last frame has number `sent`, so this one has as much less as there are behind it.
        let number = sent.saturating_sub(self.again as u64 - 1);
        self.again -= 1;
        Some((number, body))
    }

    /// Returns whether frames wait to be sent again.
    pub(super) fn is_behind(&self) -> bool {
        self.again > 0
    }

    /// Returns whether one more frame of payload may be sent, and reserves what it may cost.
    pub(super) fn has_room(&mut self, bytes_max: u64, budget: &mut Budget) -> bool {
        if self.needs_no_step() {
            return true;
        }
        let has_room = self.bytes < bytes_max && budget.reserve(REPLAY_STEP_BYTES);
        if has_room {
            self.held += REPLAY_STEP_BYTES;
        }
        has_room
    }

    /// Returns whether [`Replay::has_room`] would say yes, without reserving anything.
    pub(super) fn could_have_room(&self, bytes_max: u64, budget: &Budget) -> bool {
        self.needs_no_step() || (self.bytes < bytes_max && budget.fits(REPLAY_STEP_BYTES))
    }

    /// Returns whether one more frame fits into what is held already, or into what is free.
    fn needs_no_step(&self) -> bool {
        self.bytes < self.held || self.bytes < REPLAY_BYTES_FREE as u64
    }

    /// Returns what is kept, in bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what of the budget is held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Returns how many frames are kept.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether costs and frames agree; for the invariants.
    pub(super) fn is_counted(&self) -> bool {
        self.bytes == self.frames.iter().map(cost).sum::<u64>() && self.again <= self.frames.len()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, budget: &mut Budget) {
        self.frames = VecDeque::new();
        self.bytes = 0;
        self.again = 0;
        self.settle(budget);
    }

    /// Gives back what is not needed. Two steps stay, so that a busy session does not go to the budget for each frame;
    /// an idle one holds nothing.
    fn settle(&mut self, budget: &mut Budget) {
        let keep = if self.frames.is_empty() { 0 } else { self.bytes + 2 * REPLAY_STEP_BYTES };
        while self.held > keep {
            let step = REPLAY_STEP_BYTES.min(self.held);
            self.held -= step;
            budget.release(step);
        }
        if self.frames.is_empty() && self.frames.capacity() > IDLE_CAPACITY {
            self.frames = VecDeque::new();
        }
    }
}

/// An idle session keeps a queue of at most so many places.
const IDLE_CAPACITY: usize = 16;

/// What a kept frame costs, in bytes of memory.
fn cost(body: &Body) -> u64 {
    let more = match body {
        Body::Data { payload, .. } | Body::Open(Open { payload, .. }) => payload.len(),
        Body::Credit { grants } => size_of_val::<[Grant]>(grants),
        Body::Acknowledge
        | Body::Hello(_)
        | Body::Welcome(_)
        | Body::Accept { .. }
        | Body::Finish { .. }
        | Body::Reset { .. }
        | Body::Ping { .. }
        | Body::Pong { .. }
        | Body::Drain { .. }
        | Body::Close { .. } => 0,
    };
    (more + REPLAY_FRAME_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::id::ChannelId;

    const MIB: u64 = 1024 * 1024;

    fn data(bytes: usize) -> Body {
        Body::Data { channel: ChannelId::new(1), payload: Bytes::from(vec![0; bytes]) }
    }

    #[test]
    fn frames_are_sent_again_from_the_first_unacknowledged_one_with_their_numbers() {
        let mut budget = Budget::new(MIB, None);
        let mut replay = Replay::default();
        for size in 1..=5 {
            replay.keep(data(size));
        }
        replay.acknowledge(5, 2, &mut budget);
        assert_eq!(replay.next_again(5), None, "nothing is sent twice on one link");
        replay.rewind();
        assert_eq!(replay.next_again(5), Some((3, data(3))));
        replay.acknowledge(5, 4, &mut budget);
        assert_eq!(replay.next_again(5), Some((5, data(5))), "what was acknowledged meanwhile is left out");
        assert_eq!(replay.next_again(5), None);
        replay.keep(data(6));
        replay.rewind();
        assert_eq!(replay.next_again(6).map(|(number, _)| number), Some(5));
        assert!(replay.is_counted());
    }

    #[test]
    fn room_ends_at_the_bound_and_at_the_budget_and_comes_back_with_acknowledgements() {
        let mut budget = Budget::new(MIB, None);
        let mut replay = Replay::default();
        let mut sent = 0;
        while replay.has_room(10 * MIB, &mut budget) {
            replay.keep(data(60_000));
            sent += 1;
        }
        assert_eq!(budget.reserved(), MIB, "the budget was the bound");
        assert!(!replay.could_have_room(10 * MIB, &budget));
        assert!(replay.bytes() < MIB + 70_000);
        replay.acknowledge(sent, sent, &mut budget);
        assert_eq!((budget.reserved(), replay.held(), replay.len()), (0, 0, 0));
        assert!(replay.could_have_room(10 * MIB, &budget));

        let mut spent = Budget::new(MIB, None);
        assert!(spent.reserve(MIB));
        let mut replay = Replay::default();
        assert!(replay.has_room(10 * MIB, &mut spent), "a little always goes");
        replay.keep(data(REPLAY_BYTES_FREE));
        assert!(!replay.has_room(10 * MIB, &mut spent));
    }
}
