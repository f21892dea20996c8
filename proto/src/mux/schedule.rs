//! Scheduler of sends: interactive channels first, then bulk in turn, a frame each; neither can starve the other.

use std::collections::VecDeque;

use crate::id::ChannelId;
use crate::limit::{
    FRAME_OVERHEAD_BYTES_MAX, INTERACTIVE_BURST_BYTES, INTERACTIVE_BYTES_MAX, PAYLOAD_BYTES_ALONE, PAYLOAD_BYTES_SHARED,
};

/// Queue in which a channel waits. Lives inside the channel, so that it is in at most one queue at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueMembership {
    /// Nothing to send, or no credit.
    #[default]
    Idle,
    /// In the interactive queue.
    Interactive,
    /// In the bulk ring.
    Bulk,
}

/// Turn of a channel to send, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The channel; it has been taken out of its queue.
    pub(super) channel: ChannelId,
    /// At most this much payload in one frame.
    pub(super) bytes_max: usize,
}

/// The queues of the channels that can send.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    interactive: VecDeque<ChannelId>,
    bulk: VecDeque<ChannelId>,
    /// Interactive bytes sent since a bulk channel last had its turn.
    burst: usize,
}

impl Schedule {
    /// Puts a channel that can send into the queue it belongs to, unless it waits already.
    pub(super) fn enqueue(&mut self, channel: ChannelId, place: &mut QueueMembership, bulk: bool) {
        match *place {
            QueueMembership::Idle => {}
            // A keystroke that has become bulk is noticed at its turn.
            QueueMembership::Interactive | QueueMembership::Bulk => return,
        }
        if bulk {
            *place = QueueMembership::Bulk;
            self.bulk.push_back(channel);
        } else {
            *place = QueueMembership::Interactive;
            self.interactive.push_back(channel);
        }
    }

    /// Returns the next turn. The caller sends, calls [`Schedule::sent`], and enqueues the channel again if it has
    /// more.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let bulk_is_due = self.burst >= INTERACTIVE_BURST_BYTES && !self.bulk.is_empty();
        if !bulk_is_due && let Some(channel) = self.interactive.pop_front() {
            return Some(Turn { channel, bytes_max: INTERACTIVE_BYTES_MAX });
        }
        let channel = self.bulk.pop_front()?;
        self.burst = 0;
        // Bulk beside bulk needs no small frames: the measured rate of a slow link keeps its frames short.
        let quiet = self.interactive.is_empty();
        Some(Turn { channel, bytes_max: if quiet { PAYLOAD_BYTES_ALONE } else { PAYLOAD_BYTES_SHARED } })
    }

    /// Accounts for a sent frame.
    pub(super) fn sent(&mut self, turn: Turn, bytes: usize) {
        let interactive = turn.bytes_max == INTERACTIVE_BYTES_MAX;
        if interactive && !self.bulk.is_empty() {
            // A frame of one byte costs the link its overhead too.
            self.burst = self.burst.saturating_add(bytes + FRAME_OVERHEAD_BYTES_MAX);
        }
    }

    /// Forgets a channel that is gone.
    pub(super) fn remove(&mut self, channel: ChannelId, place: QueueMembership) {
        match place {
            QueueMembership::Idle => {}
            QueueMembership::Interactive => self.interactive.retain(|other| *other != channel),
            QueueMembership::Bulk => self.bulk.retain(|other| *other != channel),
        }
    }

    /// Returns the number of waiting channels.
    pub(super) fn len(&self) -> usize {
        self.interactive.len() + self.bulk.len()
    }

    /// Returns whether no channel waits.
    pub(super) fn is_empty(&self) -> bool {
        self.interactive.is_empty() && self.bulk.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1 << 20;

    struct World {
        schedule: Schedule,
        places: Vec<(ChannelId, QueueMembership, usize)>,
    }

    impl World {
        fn new(queued: &[usize]) -> Self {
            let mut world = Self { schedule: Schedule::default(), places: Vec::new() };
            for (number, ready) in queued.iter().enumerate() {
                let channel = ChannelId::new(number as u64);
                let mut place = QueueMembership::Idle;
                world.schedule.enqueue(channel, &mut place, *ready > INTERACTIVE_BYTES_MAX);
                world.places.push((channel, place, *ready));
            }
            world
        }

        fn step(&mut self) -> Option<(u64, usize)> {
            let turn = self.schedule.next()?;
            let (channel, place, ready) =
                self.places.iter_mut().find(|(channel, ..)| *channel == turn.channel).expect("known channel");
            let bytes = turn.bytes_max.min(*ready);
            *ready -= bytes;
            self.schedule.sent(turn, bytes);
            *place = QueueMembership::Idle;
            if *ready > 0 {
                self.schedule.enqueue(*channel, place, *ready > INTERACTIVE_BYTES_MAX);
            }
            Some((channel.get(), bytes))
        }
    }

    #[test]
    fn keystroke_goes_ahead_of_bulk_that_waited_longer() {
        let mut world = World::new(&[MANY, MANY, 10]);
        assert_eq!(world.step(), Some((2, 10)));
        assert_eq!(world.step(), Some((0, PAYLOAD_BYTES_ALONE)));
        assert_eq!(world.step(), Some((1, PAYLOAD_BYTES_ALONE)));
        assert_eq!(world.step(), Some((0, PAYLOAD_BYTES_ALONE)));
    }

    #[test]
    fn bulk_sends_large_frames_until_an_interactive_channel_waits() {
        let mut world = World::new(&[MANY, MANY]);
        assert_eq!(world.step(), Some((0, PAYLOAD_BYTES_ALONE)));
        let mut place = QueueMembership::Idle;
        world.schedule.enqueue(ChannelId::new(9), &mut place, false);
        world.schedule.burst = INTERACTIVE_BURST_BYTES;
        assert_eq!(world.step(), Some((1, PAYLOAD_BYTES_SHARED)));
    }

    #[test]
    fn bulk_is_never_starved_by_interactive_channels() {
        let mut schedule = Schedule::default();
        let bulk = ChannelId::new(1);
        let chatter = ChannelId::new(2);
        schedule.enqueue(bulk, &mut QueueMembership::Idle, true);
        let mut bulk_turns = 0;
        for _ in 0..200 {
            schedule.enqueue(chatter, &mut QueueMembership::Idle, false);
            let turn = schedule.next().expect("somebody waits");
            schedule.sent(turn, turn.bytes_max);
            if turn.channel == bulk {
                bulk_turns += 1;
                schedule.enqueue(bulk, &mut QueueMembership::Idle, true);
            }
        }
        assert!(bulk_turns >= 4, "bulk had {bulk_turns} of 200 turns");
    }

    #[test]
    fn bulk_channels_share_by_bytes() {
        let mut world = World::new(&[MANY, MANY, MANY]);
        let mut sent = [0; 3];
        for _ in 0..30 {
            let (channel, bytes) = world.step().expect("bulk waits");
            sent[usize::try_from(channel).expect("small")] += bytes;
        }
        assert_eq!(sent[0], sent[1]);
        assert_eq!(sent[1], sent[2]);
    }
}
