//! Frames that were sent and not yet acknowledged, which a new link starts with.
//!
//! Payloads are kept, not copied. Kept frames, and the opens that wait for the link, count against the session's budget
//! and against a bound that its lanes share. If there is no more room, nothing new is sent until the peer acknowledges
//! something. The application sees that as a lack of room to write, and as a refusal of new channels.

use std::collections::VecDeque;
use std::sync::Arc;

use super::budget::{Budget, ReplicaBudget};
use crate::frame::{Body, Grant, Open};
use crate::limit::{
    PAYLOAD_BYTES_MAX, REPLAY_BYTES_FREE, REPLAY_CONTROL_DIVISOR, REPLAY_FRAME_BYTES, REPLAY_STEP_BYTES,
};

/// Numbered frames in the order in which they were sent.
#[derive(Debug)]
pub(super) struct Replay {
    /// The last one has the highest number that was given out.
    frames: VecDeque<Body>,
    /// Their cost.
    bytes: u64,
    /// Cost of the opens that wait for the link: they are charged before they are sent.
    waiting: u64,
    /// Number of the last ones that have to be sent again.
    again: usize,
    /// Part of the session's budget that is held for them.
    held: u64,
    /// Bound on the bytes that lanes of one session hold together; as many of it are reserved as are held.
    bound: Budget,
    /// Part of the bound that payload may take.
    data_max: u64,
}

/// Kind of a frame, for the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Payload of a channel.
    Data,
    /// Frames that open, accept, grant and end.
    Control,
}

/// Returns the bound on all kept frames if payload has the bound `replay_max`.
pub(super) fn bound_of(replay_max: u64) -> u64 {
    replay_max.saturating_add(control_of(replay_max))
}

fn control_of(replay_max: u64) -> u64 {
    (replay_max / REPLAY_CONTROL_DIVISOR).max(REPLAY_STEP_BYTES)
}

impl Replay {
    /// Starts with nothing. `shared` is the bound of all lanes of the session, if there are several.
    pub(super) fn new(replay_max: u64, shared: Option<Arc<ReplicaBudget>>) -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
            waiting: 0,
            again: 0,
            held: 0,
            bound: Budget::new(bound_of(replay_max), shared),
            data_max: replay_max,
        }
    }

    /// Charges an open with so many first bytes that is about to wait for the link. Returns whether there was room for it.
    pub(super) fn admit(&mut self, first: usize, budget: &mut Budget) -> bool {
        let cost = (first + REPLAY_FRAME_BYTES) as u64;
        let sum = self.charged() + cost;
        while self.held < sum && sum > REPLAY_BYTES_FREE as u64 {
            if !self.step(FrameKind::Control, budget) {
                self.settle(budget);
                return false;
            }
        }
        self.waiting += cost;
        true
    }

    /// Takes an open that was [admitted](Self::admit) off the waiting ones: it leaves for the link, and is kept from
    /// then on or forgotten.
    pub(super) fn depart(&mut self, body: &Body) {
        self.waiting -= cost(body).min(self.waiting);
    }

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

    /// Marks all frames that are left to be sent again, because the link is gone.
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

    /// Returns whether one more frame may be sent, and reserves what it may cost.
    pub(super) fn has_room(&mut self, kind: FrameKind, budget: &mut Budget) -> bool {
        self.needs_no_step(kind) || self.step(kind, budget)
    }

    /// Returns whether [`Replay::has_room`] would say yes, without reserving anything.
    pub(super) fn could_have_room(&self, kind: FrameKind, budget: &Budget) -> bool {
        self.needs_no_step(kind) || (self.bound.free() >= self.step_above(kind) && budget.fits(REPLAY_STEP_BYTES))
    }

    /// Returns whether one more frame fits into what is held already, or into what is free. Something is always free
    /// once the peer has acknowledged all sent frames, so that a session always makes progress.
    fn needs_no_step(&self, kind: FrameKind) -> bool {
        let held = match kind {
            FrameKind::Data => self.held.min(self.data_max),
            FrameKind::Control => self.held,
        };
        self.charged() < held || self.bytes < REPLAY_BYTES_FREE as u64
    }

    /// Holds one step more of the budget.
    fn step(&mut self, kind: FrameKind, budget: &mut Budget) -> bool {
        if self.bound.free() < self.step_above(kind) || !self.bound.reserve(REPLAY_STEP_BYTES) {
            return false;
        }
        if !budget.reserve(REPLAY_STEP_BYTES) {
            self.bound.release(REPLAY_STEP_BYTES);
            return false;
        }
        self.held += REPLAY_STEP_BYTES;
        true
    }

    /// Returns the bytes of the bound that have to be free for a step.
    fn step_above(&self, kind: FrameKind) -> u64 {
        match kind {
            FrameKind::Data => REPLAY_STEP_BYTES + control_of(self.data_max),
            FrameKind::Control => REPLAY_STEP_BYTES,
        }
    }

    fn charged(&self) -> u64 {
        self.bytes + self.waiting
    }

    /// Returns the cost of kept and of waiting frames, in bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.charged()
    }

    /// Returns the part of the budget that is held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Returns how many frames are kept.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns an error in the counts, if there is one; for the invariants. `control` are the frames that wait for the
    /// link.
    pub(super) fn broken_invariant<'a>(&self, control: impl Iterator<Item = &'a Body>) -> Option<&'static str> {
        if self.bytes != self.frames.iter().map(cost).sum::<u64>() || self.again > self.frames.len() {
            return Some("what is kept to be sent again is counted wrong");
        }
        let opens: u64 = control.filter(|body| matches!(body, Body::Open(_))).map(cost).sum();
        if self.waiting != opens {
            return Some("the opens that wait for the link are counted wrong");
        }
        if self.bound.reserved() != self.held {
            return Some("what is held of the budget and of the bound on what is kept differ");
        }
        let most = self.held + REPLAY_BYTES_FREE as u64 + LAST_FRAME_BYTES;
        (self.charged() > most).then_some("more is kept than is charged")
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, budget: &mut Budget) {
        self.frames = VecDeque::new();
        self.bytes = 0;
        self.waiting = 0;
        self.again = 0;
        self.settle(budget);
    }

    /// Gives back what is not needed. Two steps stay, so that a busy session does not go to the budget for each frame;
    /// an idle one holds nothing.
    pub(super) fn settle(&mut self, budget: &mut Budget) {
        let charged = self.charged();
        let keep = if charged == 0 { 0 } else { charged + 2 * REPLAY_STEP_BYTES };
        while self.held > keep {
            let step = REPLAY_STEP_BYTES.min(self.held);
            self.held -= step;
            self.bound.release(step);
            budget.release(step);
        }
        if self.frames.is_empty() && self.frames.capacity() > IDLE_CAPACITY {
            self.frames = VecDeque::new();
        }
    }
}

/// An idle session keeps a queue of at most so many places.
const IDLE_CAPACITY: usize = 16;

/// Most bytes of the last frame beyond what is held: a whole frame goes as long as there is any room.
const LAST_FRAME_BYTES: u64 = (PAYLOAD_BYTES_MAX + REPLAY_FRAME_BYTES) as u64;

/// Returns the cost of a kept frame, in bytes of memory.
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
        | Body::OpenLane(_)
        | Body::Seal(_)
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
        let mut replay = Replay::new(10 * MIB, None);
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
        assert_eq!(replay.broken_invariant([].iter()), None);
    }

    #[test]
    fn room_ends_at_the_bound_and_at_the_budget_and_comes_back_with_acknowledgements() {
        let mut budget = Budget::new(MIB, None);
        let mut replay = Replay::new(10 * MIB, None);
        let mut sent = 0;
        while replay.has_room(FrameKind::Data, &mut budget) {
            replay.keep(data(60_000));
            sent += 1;
        }
        assert_eq!(budget.reserved(), MIB, "the budget was the bound");
        assert!(!replay.could_have_room(FrameKind::Data, &budget));
        assert!(replay.bytes() < MIB + 70_000);
        replay.acknowledge(sent, sent, &mut budget);
        assert_eq!((budget.reserved(), replay.held(), replay.len()), (0, 0, 0));
        assert!(replay.could_have_room(FrameKind::Data, &budget));

        let mut spent = Budget::new(MIB, None);
        assert!(spent.reserve(MIB));
        let mut replay = Replay::new(10 * MIB, None);
        assert!(replay.has_room(FrameKind::Data, &mut spent), "a little always goes");
        replay.keep(data(REPLAY_BYTES_FREE));
        assert!(!replay.has_room(FrameKind::Data, &mut spent));
    }

    fn open(bytes: usize) -> Body {
        Body::Open(Open {
            channel: ChannelId::new(1),
            port: 1,
            tls: crate::target::AppTls::None,
            credit_bytes: 1,
            payload: Bytes::from(vec![0; bytes]),
        })
    }

    #[test]
    fn opens_are_charged_before_they_are_sent_and_refused_at_the_bound() {
        let mut budget = Budget::new(100 * MIB, None);
        let mut replay = Replay::new(MIB, None);
        let mut control = Vec::new();
        while replay.admit(2048, &mut budget) {
            control.push(open(2048));
            assert_eq!(replay.broken_invariant(control.iter()), None);
        }
        assert_eq!(budget.reserved(), bound_of(MIB), "the bound was the bound");
        assert!(replay.bytes() <= bound_of(MIB));
        // Sent, they cost what they cost before.
        let waited = replay.bytes();
        let sent = control.len() as u64;
        for body in control.drain(..) {
            replay.depart(&body);
            replay.keep(body);
        }
        assert_eq!(replay.bytes(), waited);
        assert_eq!(replay.broken_invariant([].iter()), None);
        replay.acknowledge(sent, sent, &mut budget);
        assert_eq!((budget.reserved(), replay.bytes()), (0, 0));
        assert!(replay.admit(2048, &mut budget));
    }

    #[test]
    fn lanes_share_one_bound_and_payload_leaves_room_for_opens() {
        let shared = ReplicaBudget::new(bound_of(MIB));
        let mut lanes: Vec<_> =
            (0..8).map(|_| (Replay::new(MIB, Some(shared.clone())), Budget::new(100 * MIB, None))).collect();
        let mut kept = 0;
        for (replay, budget) in &mut lanes {
            while replay.has_room(FrameKind::Data, budget) {
                replay.keep(data(60_000));
            }
            kept += replay.bytes();
        }
        assert_eq!(shared.reserved(), MIB, "payload ends at its bound");
        // Each lane has a little that is free, and a last frame.
        assert!(kept <= MIB + 8 * (REPLAY_BYTES_FREE as u64 + LAST_FRAME_BYTES), "{kept}");
        let (replay, budget) = &mut lanes[7];
        assert!(!replay.has_room(FrameKind::Data, budget) && replay.has_room(FrameKind::Control, budget));
        assert!(replay.admit(2048, budget));
        drop(lanes);
        assert_eq!(shared.reserved(), 0, "a lane that is gone gives its part back");
    }
}
