//! A pair of sessions over an imaginary wire, driven by bytes and compared with what should happen.
//!
//! Property tests and the fuzz target `pair_vs_model` share it. The model of a channel's direction is two numbers:
//! how many bytes were written and how many were read; the bytes themselves are a function of their position.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    reason = "a broken law ends the test case"
)]

mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use self::wire::{Sums, on_wire, pattern};
use super::{Mux, MuxEvent, Read, ReplicaBudget, Room, Settings, Side};
use crate::frame::Frame;
use crate::id::ChannelId;
use crate::reason::Reason;

/// Length of one operation in bytes.
pub const OPERATION_BYTES: usize = 4;

const GATEWAY: usize = 0;
const AGENT: usize = 1;

/// Two sessions, the wires between them, and the model.
#[derive(Debug)]
pub struct World {
    now: Instant,
    sides: [Mux; 2],
    /// Frames on their way to the side of the same index, encoded.
    wires: [VecDeque<Bytes>; 2],
    channels: BTreeMap<ChannelId, [Half; 2]>,
    replica: std::sync::Arc<ReplicaBudget>,
    /// Whether the wire is broken: frames go nowhere. A side may not have noticed yet.
    broken: bool,
}

/// Actions and observations of one side on one channel.
#[derive(Debug, Default, Clone)]
struct Half {
    written: u64,
    read: u64,
    finished: bool,
    saw_end: bool,
    held: bool,
    reset: bool,
    accepted: bool,
    /// The application was told to wait and does so: it looks again only when an event says so.
    waits_to_read: bool,
    waits_to_write: bool,
}

impl World {
    /// Makes a pair whose budgets are small enough to be felt.
    #[must_use]
    pub fn new(now: Instant, budget: u64) -> Self {
        let replica = ReplicaBudget::new(budget.saturating_mul(2));
        let settings = |side| Settings {
            channels_max: 12,
            session_budget: budget,
            replica_budget: Some(replica.clone()),
            resume_grace: Some(Duration::from_secs(3600)),
            replay_max: budget / 2,
            ..Settings::new(side)
        };
        Self {
            now,
            sides: [Mux::new(settings(Side::Gateway), now), Mux::new(settings(Side::Agent), now)],
            wires: [VecDeque::new(), VecDeque::new()],
            channels: BTreeMap::new(),
            replica,
            broken: false,
        }
    }

    /// Carries out the operations that `script` spells, then lets everything come to rest and checks what is left.
    ///
    /// # Panics
    /// When a law is broken.
    pub fn run(&mut self, script: &[u8]) {
        for operation in script.chunks_exact(OPERATION_BYTES) {
            let [verb, side, low, high] = operation else {
                continue;
            };
            self.step(*verb, usize::from(*side) % 2, u16::from_le_bytes([*low, *high]));
            self.check();
        }
        self.come_to_rest();
        self.check_at_rest();
    }

    fn step(&mut self, verb: u8, side: usize, number: u16) {
        match verb % 16 {
            0 | 1 => self.open(number),
            2..=4 => self.write(side, number),
            5..=7 => self.read(side, number),
            8 => self.finish(side, number),
            9 if number.is_multiple_of(4) => self.reset(side, number),
            9 => self.accept(number),
            10 if number.is_multiple_of(3) => self.release(side, number),
            10 if number % 3 == 1 => self.cut_or_mend(number),
            11 => self.now += Duration::from_millis(u64::from(number % 64)),
            12 | 13 => self.transmit(side, usize::from(number % 8) + 1),
            _ => self.deliver(side, usize::from(number % 8) + 1),
        }
    }

    /// Breaks the wire with all that is on it, or joins the sides with a new one. Sides notice at different times.
    fn cut_or_mend(&mut self, number: u16) {
        if self.broken {
            self.mend();
            return;
        }
        self.broken = true;
        self.wires = [VecDeque::new(), VecDeque::new()];
        let noticed = [number & 0x40 == 0, number & 0x80 == 0];
        for (side, noticed) in self.sides.iter_mut().zip(noticed) {
            if noticed {
                assert!(side.link_lost(self.now), "the session waits for a link");
            }
        }
    }

    fn mend(&mut self) {
        for side in &mut self.sides {
            side.link_lost(self.now);
        }
        let received = [GATEWAY, AGENT].map(|side| self.sides[side].received());
        for side in [GATEWAY, AGENT] {
            self.sides[side].resume(self.now, received[1 - side]).expect("honest books fit together");
            self.events(side);
        }
        self.broken = false;
    }

    fn open(&mut self, number: u16) {
        let mut first = pattern(GATEWAY, 0, usize::from(number % 4096));
        let wanted = first.len();
        if let Ok(channel) = self.sides[GATEWAY].open(self.now, 8080, &mut first) {
            let written = (wanted - first.len()) as u64;
            let half = Half { held: true, ..Half::default() };
            self.channels.insert(channel, [Half { written, ..half.clone() }, Half { held: false, ..half }]);
        }
    }

    fn accept(&mut self, number: u16) {
        let Some(channel) = self.pick(AGENT, number) else {
            return;
        };
        self.sides[AGENT].accept(channel);
        self.channels.get_mut(&channel).expect("picked")[AGENT].accepted = true;
    }

    /// Picks a channel that the side holds.
    fn pick(&self, side: usize, number: u16) -> Option<ChannelId> {
        let held: Vec<_> = self.channels.iter().filter(|(_, halves)| halves[side].held).map(|(id, _)| *id).collect();
        (!held.is_empty()).then(|| held[usize::from(number) % held.len()])
    }

    fn write(&mut self, side: usize, number: u16) {
        let Some(channel) = self.pick(side, number) else {
            return;
        };
        let half = &mut self.channels.get_mut(&channel).expect("picked")[side];
        // Sizes of both classes, keystrokes and bulk.
        let length = if number.is_multiple_of(2) { usize::from(number % 64) + 1 } else { usize::from(number) * 3 + 1 };
        let mut bytes = pattern(side, half.written, length);
        match self.sides[side].write(channel, &mut bytes) {
            Room::Bytes(written) => {
                assert!(!half.finished, "wrote after finish");
                assert_eq!(written, length - bytes.len(), "what was taken and what is left");
                half.written += written as u64;
                half.waits_to_write = false;
            }
            Room::Finished => assert!(half.finished, "room is finished without a finish"),
            Room::Reset(_) => half.reset = true,
            Room::Pending => half.waits_to_write = true,
        }
    }

    fn read(&mut self, side: usize, number: u16) {
        let Some(channel) = self.pick(side, number) else {
            return;
        };
        self.read_channel(side, channel);
    }

    fn read_channel(&mut self, side: usize, channel: ChannelId) -> bool {
        let read = self.sides[side].read(channel);
        let [gateway, agent] = self.channels.get_mut(&channel).expect("known");
        let (half, other) = if side == GATEWAY { (gateway, agent) } else { (agent, gateway) };
        match read {
            Read::Bytes(bytes) => {
                assert!(!half.saw_end, "bytes after the end");
                assert_eq!(bytes, pattern(1 - side, half.read, bytes.len()), "other bytes than were written");
                half.read += bytes.len() as u64;
                assert!(half.read <= other.written, "more bytes than were written");
                true
            }
            Read::End => {
                assert!(other.finished, "an end that nobody wrote");
                assert_eq!(half.read, other.written, "the end came before all bytes");
                half.saw_end = true;
                false
            }
            Read::Reset(_) => {
                half.reset = true;
                false
            }
            Read::Pending => {
                half.waits_to_read = true;
                false
            }
        }
    }

    fn finish(&mut self, side: usize, number: u16) {
        let Some(channel) = self.pick(side, number) else {
            return;
        };
        self.sides[side].finish(channel);
        self.channels.get_mut(&channel).expect("picked")[side].finished = true;
    }

    fn reset(&mut self, side: usize, number: u16) {
        let Some(channel) = self.pick(side, number) else {
            return;
        };
        self.sides[side].reset(channel, Reason::Cancelled);
        self.mark_reset(channel);
    }

    fn release(&mut self, side: usize, number: u16) {
        let Some(channel) = self.pick(side, number) else {
            return;
        };
        self.sides[side].release(channel);
        let halves = self.channels.get_mut(&channel).expect("picked");
        halves[side].held = false;
        // The wire knows more than the application: its peer's finish may have arrived without being read.
        if !(halves[side].finished && halves[side].saw_end) {
            self.mark_reset(channel);
        }
    }

    fn mark_reset(&mut self, channel: ChannelId) {
        for half in self.channels.get_mut(&channel).expect("known") {
            half.reset = true;
        }
    }

    fn transmit(&mut self, side: usize, frames: usize) {
        for _ in 0..frames {
            let Some(frame) = self.sides[side].poll_transmit(self.now) else {
                break;
            };
            let mut head = BytesMut::new();
            let payload = frame.encode(&mut head);
            head.extend_from_slice(&payload);
            if self.broken {
                continue;
            }
            self.wires[1 - side].push_back(head.freeze());
        }
        self.events(side);
    }

    fn deliver(&mut self, side: usize, frames: usize) {
        for _ in 0..frames {
            let Some(bytes) = self.wires[side].pop_front() else {
                break;
            };
            let frame = Frame::decode(bytes).expect("own frames decode");
            self.sides[side].handle_frame(self.now, frame).expect("an honest peer breaks no rule");
            self.events(side);
        }
    }

    fn events(&mut self, side: usize) {
        while let Some(event) = self.sides[side].poll_event() {
            match event {
                MuxEvent::Opened(open) => {
                    assert_eq!(side, AGENT, "only agents accept");
                    let half = &mut self.channels.get_mut(&open.channel).expect("opened by the gateway")[AGENT];
                    half.held = true;
                    // Some ports answer at once, others later.
                    half.accepted = open.channel.get().is_multiple_of(2);
                    if half.accepted {
                        self.sides[AGENT].accept(open.channel);
                    }
                }
                MuxEvent::Reset(channel, reason) => {
                    assert_ne!(reason, Reason::Protocol, "an honest peer was blamed");
                    let halves = self.channels.get_mut(&channel).expect("known");
                    if reason == Reason::Overloaded {
                        halves.iter_mut().for_each(|half| half.reset = true);
                    }
                    assert!(halves[side].reset, "a reset that nobody made");
                }
                MuxEvent::Accepted(channel) => {
                    assert!(self.channels[&channel][AGENT].accepted, "an accept that nobody made");
                    self.channels.get_mut(&channel).expect("known")[GATEWAY].accepted = true;
                }
                MuxEvent::Readable(channel) => {
                    self.channels.get_mut(&channel).expect("known")[side].waits_to_read = false;
                }
                MuxEvent::Writable(channel) => {
                    self.channels.get_mut(&channel).expect("known")[side].waits_to_write = false;
                }
                MuxEvent::Draining { .. } => panic!("nobody drains here"),
                MuxEvent::LaneWanted(_) => panic!("a lane that is not wanted"),
                MuxEvent::Sealed(_) => panic!("a seal that was not made"),
            }
        }
    }

    fn check(&self) {
        for side in &self.sides {
            assert_eq!(side.broken_invariant(), None);
        }
        let wires = [on_wire(&self.wires[GATEWAY]), on_wire(&self.wires[AGENT])];
        for channel in self.channels.keys() {
            self.check_books(*channel, &wires);
        }
    }

    /// Checks that the credit of a sender is that of its receiver, less the bytes on their way.
    fn check_books(&self, channel: ChannelId, wires: &[Sums; 2]) {
        let (Some(gateway), Some(agent)) =
            (self.sides[GATEWAY].credit_books(channel), self.sides[AGENT].credit_books(channel))
        else {
            return;
        };
        for (from, to, sender, receiver) in [(GATEWAY, AGENT, gateway, agent), (AGENT, GATEWAY, agent, gateway)] {
            let data = wires[to].get(&channel).map_or(0, |sums| sums.0);
            let granted = wires[from].get(&channel).map_or(0, |sums| sums.1);
            // An accept that still waits in the agent's control queue is granted and not yet on the wire, so the two
            // sides are only equal once nothing waits; `check_at_rest` holds them to that.
            let sent = u64::from(sender.0) + data + granted;
            assert!(sent <= u64::from(receiver.1), "credit was made up: {sent} > {}", receiver.1);
        }
    }

    fn come_to_rest(&mut self) {
        if self.broken {
            self.mend();
        }
        for number in 0..self.channels.len() {
            self.accept(number as u16);
        }
        let mut still = 0;
        for _ in 0..100_000 {
            let mut moved = false;
            for side in [GATEWAY, AGENT] {
                moved |= !self.wires[side].is_empty();
                self.deliver(side, usize::MAX);
                let before = self.wires[1 - side].len();
                self.transmit(side, 1000);
                moved |= self.wires[1 - side].len() > before;
                for channel in self.channels.keys().copied().collect::<Vec<_>>() {
                    let half = &self.channels[&channel][side];
                    if half.held && !half.waits_to_read {
                        while self.read_channel(side, channel) {
                            moved = true;
                        }
                    }
                }
            }
            self.check();
            if moved {
                still = 0;
                continue;
            }
            still += 1;
            if still > 1 {
                return;
            }
            // The last frames are acknowledged after a while, and that may make room for more.
            self.now += Duration::from_secs(1);
            for side in &mut self.sides {
                side.handle_timeout(self.now).expect("nobody is missed");
            }
        }
        panic!("the pair never comes to rest");
    }

    fn check_at_rest(&mut self) {
        for (channel, halves) in self.channels.clone() {
            let [gateway, agent] = &halves;
            if gateway.reset || agent.reset {
                continue;
            }
            if agent.held {
                assert_eq!(agent.read, gateway.written, "{channel}: bytes are missing at the agent");
                assert_eq!(agent.saw_end, gateway.finished, "{channel}: the end is missing at the agent");
            }
            if gateway.held {
                assert_eq!(gateway.read, agent.written, "{channel}: bytes are missing at the gateway");
                assert_eq!(gateway.saw_end, agent.finished, "{channel}: the end is missing at the gateway");
                assert_eq!(gateway.accepted, agent.accepted, "{channel}: the accept is missing at the gateway");
            }
            if gateway.held && agent.held {
                // Everything was read, so there is credit for at least half of a window.
                let stuck = [gateway, agent].into_iter().any(|half| half.waits_to_write && !half.finished);
                assert!(!stuck, "{channel}: a writer waits though everything was read");
            }
            if let (Some(gateway), Some(agent)) =
                (self.sides[GATEWAY].credit_books(channel), self.sides[AGENT].credit_books(channel))
            {
                assert_eq!(gateway.0, agent.1, "{channel}: credit towards the agent leaked");
                assert_eq!(agent.0, gateway.1, "{channel}: credit towards the gateway leaked");
            }
        }
        for channel in self.channels.keys().copied().collect::<Vec<_>>() {
            for side in [GATEWAY, AGENT] {
                if self.channels[&channel][side].held {
                    self.sides[side].release(channel);
                    self.channels.get_mut(&channel).expect("known")[side].held = false;
                }
            }
            self.mark_reset(channel);
        }
        self.come_to_rest();
        let [gateway, agent] = [&self.sides[GATEWAY], &self.sides[AGENT]].map(|side| side.stats().frames);
        assert_eq!((gateway.0, agent.0), (agent.2, gateway.2), "a numbered frame was lost or counted twice");
        for side in &self.sides {
            let stats = side.stats();
            assert_eq!(
                (stats.channels_live, stats.window_bytes, stats.queued_bytes, stats.replay_bytes),
                (0, 0, 0, 0),
                "something is left over"
            );
        }
        assert_eq!(self.replica.reserved(), 0, "the replica's budget leaked");
    }
}
