//! Arithmetic of a link: times at which bytes leave and arrive, and the number that may wait. Pure: time and chance are
//! arguments.
//!
//! It has two parts. A [`DelayedWire`] is one direction of the link: all connections share its rate. A [`DelayLine`]
//! holds one connection's bytes under way in that direction, in order.
//!
//! A byte stream cannot lose bytes, so loss is an imitation: when a packet is lost, the wire is idle for one
//! retransmission ([`DelayedWire::accept`]). It shows the effect of waiting behind a loss on latency; it does not show how a
//! congestion controller answers to loss. For that, real packets have to be lost.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::Instant;

use super::spec::{LinkSpec, PACKET_BYTES};

/// The shortest pause after a loss: a sender notices no sooner than its timers and the other side's answers allow.
const RETRANSMISSION_MIN: Duration = Duration::from_millis(20);

/// Room that a full queue waits for before more is read: one read per packet would cost more than the packets.
const REFILL: Duration = Duration::from_micros(500);

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayedWire {
    /// Time at which the last accepted byte leaves; `None` before the first.
    leaves: Option<Instant>,
    /// Time at which the last accepted byte arrives: later bytes arrive no sooner.
    arrives: Option<Instant>,
}

/// Two dice, each from 0 up to, but not, 1.
#[derive(Clone, Copy, Debug)]
pub struct Rolls {
    /// Decides about loss.
    pub loss: f64,
    /// Decides about jitter.
    pub jitter: f64,
}

impl DelayedWire {
    /// Returns the time from which the queue has room worth a read.
    #[must_use]
    pub fn room_from(&self, spec: &LinkSpec, now: Instant) -> Instant {
        let Some(leaves) = self.leaves else { return now };
        // The queue is counted as a time and not in bytes: the rate may just have changed.
        let full = spec.own_queue();
        let fills_to = full.saturating_sub(REFILL.min(full / 2));
        leaves.checked_sub(fills_to).map_or(now, |from| from.max(now))
    }

    /// Returns how many bytes may be taken now.
    #[must_use]
    pub fn room_bytes(&self, spec: &LinkSpec, now: Instant) -> usize {
        let waits = self.leaves.map_or(Duration::ZERO, |leaves| leaves.saturating_duration_since(now));
        match spec.own_queue().checked_sub(waits) {
            // Less than a packet is no use, and would make many small reads.
            Some(room) => spec.bytes_in(room).max(PACKET_BYTES),
            None => 0,
        }
    }

    /// Takes `bytes` and returns when the last of them arrives on the other side.
    pub fn accept(&mut self, spec: &LinkSpec, now: Instant, bytes: usize, rolls: Rolls) -> Instant {
        let starts = self.leaves.map_or(now, |leaves| leaves.max(now));
        let mut leaves = starts + spec.time_of(bytes);
        if spec.loss > 0.0 && rolls.loss < loss_of(spec.loss, bytes) {
            leaves += (spec.delay * 2).max(RETRANSMISSION_MIN);
        }
        self.leaves = Some(leaves);
        let arrives = leaves + spec.delay + spec.jitter.mul_f64(rolls.jitter.clamp(0.0, 1.0));
        let arrives = self.arrives.map_or(arrives, |before| before.max(arrives));
        self.arrives = Some(arrives);
        arrives
    }
}

/// The chance that at least one packet of `bytes` is lost.
fn loss_of(loss: f64, bytes: usize) -> f64 {
    let packets = u32::try_from(bytes.div_ceil(PACKET_BYTES)).unwrap_or(u32::MAX);
    1.0 - (1.0 - loss).powf(f64::from(packets))
}

/// Bytes of one connection under way in one direction.
#[derive(Debug, Default)]
pub struct DelayLine {
    pieces: VecDeque<Piece>,
    held_bytes: usize,
}

#[derive(Debug)]
struct Piece {
    arrives: Instant,
    /// Empty for the end of the stream.
    bytes: Bytes,
}

impl DelayLine {
    /// Adds bytes that arrive at `arrives`.
    ///
    /// Invariants: `bytes` is not empty; that would be an end.
    pub fn push(&mut self, arrives: Instant, bytes: Bytes) {
        debug_assert!(!bytes.is_empty(), "an empty piece is the end of the stream");
        self.held_bytes += bytes.len();
        self.pieces.push_back(Piece { arrives, bytes });
    }

    /// Adds the end of the stream.
    pub fn push_end(&mut self, arrives: Instant) {
        self.pieces.push_back(Piece { arrives, bytes: Bytes::new() });
    }

    /// Returns the bytes under way.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns when the next piece, or the end, arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.pieces.front().map(|piece| piece.arrives)
    }

    /// Tells whether the next piece is the end of the stream.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.pieces.front().is_some_and(|piece| piece.bytes.is_empty())
    }

    /// Lays the pieces that have arrived by `due` into `slices` and returns how many.
    pub fn arrived<'line>(&'line self, due: Instant, slices: &mut [IoSlice<'line>]) -> usize {
        let ready = self.pieces.iter().take_while(|piece| piece.arrives <= due && !piece.bytes.is_empty());
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(ready) {
            *slice = IoSlice::new(&piece.bytes);
            count += 1;
        }
        count
    }

    /// Forgets the first `bytes`, which were delivered.
    pub fn advance(&mut self, mut bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        while let Some(piece) = self.pieces.front_mut() {
            if bytes < piece.bytes.len() {
                piece.bytes.advance(bytes);
                return;
            }
            if piece.bytes.is_empty() {
                return;
            }
            bytes -= piece.bytes.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Rolls = Rolls { loss: 0.999_999, jitter: 0.0 };

    fn link(text: &str) -> LinkSpec {
        text.parse().unwrap()
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn byte_on_an_idle_wire_arrives_after_its_own_time_and_the_delay() {
        let (spec, now) = (link("rate=8mbit,delay=20ms"), Instant::now());
        let mut wire = DelayedWire::default();
        assert_eq!(wire.accept(&spec, now, 1000, NEVER), now + ms(21));
        assert_eq!(wire.accept(&spec, now, 1000, NEVER), now + ms(22), "the second leaves behind the first");
        assert_eq!(wire.accept(&spec, now + ms(100), 1000, NEVER), now + ms(121), "an idle wire saves nothing up");
    }

    #[test]
    fn saturated_wire_carries_its_rate_and_queues_no_more_than_its_half() {
        let (spec, start) = (link("rate=20mbit,delay=40ms"), Instant::now());
        let mut wire = DelayedWire::default();
        let (mut taken, mut now, mut last, mut worst) = (0, start, start, Duration::ZERO);
        while now < start + ms(1000) {
            let bytes = wire.room_bytes(&spec, now).min(spec.piece_bytes());
            if bytes == 0 {
                now = wire.room_from(&spec, now);
                continue;
            }
            last = wire.accept(&spec, now, bytes, NEVER);
            worst = worst.max(last - now);
            taken += bytes;
        }
        let (rate, took) = (2_500_000.0, (last - start - spec.delay).as_secs_f64());
        assert!((f64::from(u32::try_from(taken).unwrap()) / rate / took - 1.0).abs() < 0.01, "{taken} in {took}");
        assert!(worst <= spec.delay + spec.own_queue() + spec.time_of(PACKET_BYTES) + ms(1), "{worst:?}");
    }

    #[test]
    fn connections_share_the_rate_of_a_wire() {
        let (spec, now) = (link("rate=8mbit"), Instant::now());
        let mut wire = DelayedWire::default();
        let first = wire.accept(&spec, now, 5000, NEVER);
        let second = wire.accept(&spec, now, 5000, NEVER);
        assert_eq!((first, second), (now + ms(5), now + ms(10)));
        assert_eq!(wire.room_bytes(&spec, now), 0, "another connection waits too");
    }

    #[test]
    fn jitter_never_reorders() {
        let (spec, now) = (link("delay=10ms,jitter=10ms"), Instant::now());
        let mut wire = DelayedWire::default();
        let late = wire.accept(&spec, now, 10, Rolls { loss: 1.0, jitter: 0.9 });
        let early = wire.accept(&spec, now, 10, Rolls { loss: 1.0, jitter: 0.1 });
        assert_eq!(late, now + ms(19));
        assert_eq!(early, late);
    }

    #[test]
    fn loss_pauses_the_wire_for_one_retransmission() {
        let (spec, now) = (link("rate=8mbit,delay=40ms,loss=1%"), Instant::now());
        let mut wire = DelayedWire::default();
        let lost = wire.accept(&spec, now, 1000, Rolls { loss: 0.009, jitter: 0.0 });
        assert_eq!(lost, now + ms(1 + 80 + 40));
        let kept = wire.accept(&spec, now, 1000, Rolls { loss: 0.011, jitter: 0.0 });
        assert_eq!(kept, now + ms(2 + 80 + 40), "the next waits behind the pause and adds none");
    }

    #[test]
    fn line_delivers_what_arrived_once_and_in_order() {
        let now = Instant::now();
        let mut line = DelayLine::default();
        line.push(now, Bytes::from_static(b"abc"));
        line.push(now + ms(1), Bytes::from_static(b"def"));
        line.push(now + ms(9), Bytes::from_static(b"ghi"));
        line.push_end(now + ms(9));
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(line.arrived(now + ms(1), &mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1]), (&b"abc"[..], &b"def"[..]));
        line.advance(4);
        assert_eq!(line.held_bytes(), 5);
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(line.arrived(now + ms(9), &mut slices), 2, "the end is not bytes");
        assert_eq!(&*slices[0], b"ef");
        line.advance(5);
        assert!(line.is_at_end());
        line.advance(0);
        assert!(line.is_at_end(), "nothing passes the end");
    }
}
