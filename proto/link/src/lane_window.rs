//! Window of a lane between two replicas: how many bytes the one at which the lane ends may have on their way to the one that
//! carries it to its agent. It follows the rate of the agent's link, so that little waits at the carrier, and the scheduler at the
//! lane's end chooses what goes next.
//!
//! HTTP/2's own window between the two has one size for every lane, and is given back as soon as bytes are read. The carrier
//! therefore says, among the agent's bytes, how much it has handed on and how much may be on the way: a [`Grant`].
//!
//! [`SendWindow`] and [`TakeWindow`] are pure; [`LaneTaking`] wakes the task that sends grants.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tunnel_proto::limit::PAYLOAD_BYTES_ALONE;

use crate::pace::{FRAME_TIME, Pace};
use crate::session::register;

/// Bytes that a lane may have on the way before its carrier has said anything.
pub(crate) const LANE_BYTES_FIRST: u32 = 16 * 1024;

/// Bounds of a window. The largest is a chunk of bulk, and with what HTTP/2 adds less than 64 KiB; the smallest keeps a link of
/// 10 Mbit/s busy over 3 ms between replicas.
const LANE_BYTES_MIN: u32 = 4 * 1024;
const LANE_BYTES_MAX: u32 = 60 * 1024;

/// Time that a window takes on the agent's link, in frames of [`FRAME_TIME`]: a grant's way, and a frame that leaves meanwhile.
/// A keystroke waits so long at the carrier.
const WINDOW_FRAMES: usize = 3;

/// Longest [`Grant`] or beginning of a piece on the wire, in bytes.
const GRANT_BYTES: usize = 12;
const PIECE_HEAD_BYTES: usize = 4;

/// Bit of a piece's head that says that it is a grant.
const GRANT_BIT: u32 = 1 << 31;

/// The carrier's word about a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Bytes that it has handed on since the lane began on this stream.
    pub taken: u64,
    /// Bytes that may be on their way beyond those.
    pub window: u32,
}

/// The sender's half.
#[derive(Debug)]
pub(crate) struct SendWindow {
    sent: u64,
    granted: Grant,
}

impl SendWindow {
    pub(crate) fn new(first: u32) -> Self {
        Self { sent: 0, granted: Grant { taken: 0, window: first } }
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Takes the carrier's word. It is an older replica's or a wrong one's if it takes back what it said, or takes what was not
    /// sent: then the first word counts.
    pub(crate) fn granted(&mut self, grant: Grant) {
        let window = grant.window.clamp(LANE_BYTES_MIN, LANE_BYTES_MAX);
        self.granted =
            Grant { taken: grant.taken.clamp(self.granted.taken, self.sent.max(self.granted.taken)), window };
    }

    /// Returns how many bytes may be sent; `None` while less than half of the window is free, because many small frames cost
    /// more than a few.
    pub(crate) fn room(&self) -> Option<usize> {
        let on_the_way = self.sent - self.granted.taken;
        let free = u64::from(self.granted.window).saturating_sub(on_the_way);
        (free >= u64::from(self.granted.window / 2)).then_some(usize::try_from(free).unwrap_or(usize::MAX))
    }
}

/// The carrier's half.
#[derive(Debug)]
struct TakeWindow {
    taken: u64,
    granted: Grant,
}

impl TakeWindow {
    fn new(first: u32) -> Self {
        Self { taken: 0, granted: Grant { taken: 0, window: first } }
    }

    fn taken(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Returns whether enough was taken for a grant, if the window is to have this size.
    fn is_due(&self, window: u32) -> bool {
        self.taken - self.granted.taken >= u64::from(window.min(self.granted.window) / 4)
            && self.taken > self.granted.taken
    }

    fn grant(&mut self, window: u32) -> Grant {
        self.granted = Grant { taken: self.taken, window };
        self.granted
    }
}

/// Counts what the carrier hands on, and makes grants of it: shared by both halves of a carried lane.
#[derive(Debug)]
pub struct LaneTaking {
    /// Of the agent's link.
    pace: Arc<Pace>,
    state: Mutex<TakingState>,
}

#[derive(Debug)]
struct TakingState {
    window: TakeWindow,
    /// The task that sends grants.
    sender: Option<Waker>,
}

impl LaneTaking {
    /// Makes it for a lane on a link of this pace, whose other end begins as `Pace::of_carried` does.
    #[must_use]
    pub fn new(pace: Arc<Pace>) -> Arc<Self> {
        let state = TakingState { window: TakeWindow::new(LANE_BYTES_FIRST), sender: None };
        Arc::new(Self { pace, state: Mutex::new(state) })
    }

    /// Counts bytes that have left for the agent.
    pub fn taken(&self, bytes: usize) {
        let window = self.window();
        let waker = {
            let mut state = self.state.lock();
            state.window.taken(bytes);
            if state.window.is_due(window) { state.sender.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the next grant once one is due.
    pub fn poll_grant(&self, context: &Context<'_>) -> Poll<Grant> {
        let window = self.window();
        let mut state = self.state.lock();
        if state.window.is_due(window) {
            return Poll::Ready(state.window.grant(window));
        }
        register(&mut state.sender, context);
        Poll::Pending
    }

    fn window(&self) -> u32 {
        window_of(self.pace.frame_max())
    }
}

/// Returns the window for a link that takes frames of this size, each in [`FRAME_TIME`].
fn window_of(frame_max: usize) -> u32 {
    if frame_max >= PAYLOAD_BYTES_ALONE {
        return LANE_BYTES_MAX;
    }
    u32::try_from(WINDOW_FRAMES * frame_max).unwrap_or(u32::MAX).clamp(LANE_BYTES_MIN, LANE_BYTES_MAX)
}

const _: () = assert!(FRAME_TIME.as_millis() * (WINDOW_FRAMES as u128) == 3);

/// Makes heads of pieces and grants. A piece is a number of bytes, 31 bits, and so many bytes; a grant is a bit that is set, the
/// window, and 64 bits for what was taken. All numbers are big-endian.
#[derive(Debug, Default)]
pub struct PieceEncoder {
    heads: BytesMut,
}

impl PieceEncoder {
    /// Returns the head of a piece of this many bytes.
    ///
    /// # Panics
    /// Never: a piece is at most a frame of HTTP/2, below 2^24 bytes.
    pub fn head(&mut self, bytes: usize) -> Bytes {
        self.reserve(PIECE_HEAD_BYTES);
        self.heads.put_u32(u32::try_from(bytes).unwrap_or(0) & !GRANT_BIT);
        self.heads.split().freeze()
    }

    /// Returns a grant.
    pub fn grant(&mut self, grant: Grant) -> Bytes {
        self.reserve(GRANT_BYTES);
        self.heads.put_u32(grant.window | GRANT_BIT);
        self.heads.put_u64(grant.taken);
        self.heads.split().freeze()
    }

    fn reserve(&mut self, bytes: usize) {
        if self.heads.capacity() < bytes {
            self.heads.reserve(32 * GRANT_BYTES);
        }
    }
}

/// Takes pieces and grants apart that come in cuts of any size. Holds what is left of one cut.
#[derive(Debug, Default)]
pub struct PieceDecoder {
    input: Bytes,
    /// Beginning of a head whose rest has not come.
    head: [u8; GRANT_BYTES],
    filled: u8,
    /// Bytes that are left of the piece.
    left: usize,
}

/// What a [`PieceDecoder`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the lane.
    Bytes(Bytes),
    /// The carrier's word.
    Grant(Grant),
}

impl PieceDecoder {
    /// Takes the next cut. The one before has been read to its end.
    pub fn feed(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "the cut before is read first");
        self.input = input;
    }

    /// Returns what is next; `None` if the input is read to its end.
    pub fn next_piece(&mut self) -> Option<Piece> {
        loop {
            if self.left > 0 {
                if self.input.is_empty() {
                    return None;
                }
                let bytes = self.input.split_to(self.left.min(self.input.len()));
                self.left -= bytes.len();
                return Some(Piece::Bytes(bytes));
            }
            let filled = usize::from(self.filled);
            let is_grant = filled > 0 && self.head[0] & 0x80 != 0;
            let wanted = if is_grant { GRANT_BYTES } else { PIECE_HEAD_BYTES };
            if filled < wanted {
                if self.input.is_empty() {
                    return None;
                }
                // One byte at first: it says how long the head is.
                let more = if filled == 0 { 1 } else { (wanted - filled).min(self.input.len()) };
                self.input.copy_to_slice(self.head.get_mut(filled..filled + more)?);
                self.filled += u8::try_from(more).unwrap_or(u8::MAX);
                continue;
            }
            self.filled = 0;
            let mut head = &self.head[..];
            let first = head.get_u32();
            if is_grant {
                return Some(Piece::Grant(Grant { window: first & !GRANT_BIT, taken: head.get_u64() }));
            }
            self.left = usize::try_from(first).unwrap_or(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Item {
        Bytes(Vec<u8>),
        Grant(u32, u64),
    }

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let item = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Item::Bytes),
            (0..GRANT_BIT, any::<u64>()).prop_map(|(window, taken)| Item::Grant(window, taken)),
        ];
        prop::collection::vec(item, 0..20)
    }

    proptest! {
        #[test]
        fn pieces_and_grants_come_out_as_they_went_in_whatever_the_cuts(
            items in items(),
            cuts in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let mut encoder = PieceEncoder::default();
            let (mut wire, mut bytes, mut grants) = (Vec::new(), Vec::new(), Vec::new());
            for item in items {
                match item {
                    Item::Bytes(piece) => {
                        wire.extend_from_slice(&encoder.head(piece.len()));
                        wire.extend_from_slice(&piece);
                        bytes.extend(piece);
                    }
                    Item::Grant(window, taken) => {
                        let grant = Grant { taken, window };
                        wire.extend_from_slice(&encoder.grant(grant));
                        grants.push(grant);
                    }
                }
            }
            let (mut decoder, mut wire, mut cuts) = (PieceDecoder::default(), Bytes::from(wire), cuts.iter().cycle());
            let (mut got, mut got_grants) = (Vec::new(), Vec::new());
            while !wire.is_empty() {
                decoder.feed(wire.split_to((*cuts.next().expect("endless")).min(wire.len())));
                while let Some(piece) = decoder.next_piece() {
                    match piece {
                        Piece::Bytes(piece) => got.extend_from_slice(&piece),
                        Piece::Grant(grant) => got_grants.push(grant),
                    }
                }
            }
            prop_assert_eq!(got, bytes);
            prop_assert_eq!(got_grants, grants);
        }

        /// A sender that always has something, a carrier that takes at its own pace, and grants that arrive late.
        #[test]
        fn lane_never_stands_still_and_never_has_more_on_the_way_than_its_windows(
            steps in prop::collection::vec((1_usize..20_000, 1_usize..30_000), 1..200),
        ) {
            let (mut sender, mut carrier) = (SendWindow::new(LANE_BYTES_FIRST), TakeWindow::new(LANE_BYTES_FIRST));
            let (mut waiting, mut grants) = (0_usize, VecDeque::new());
            for (frame_max, takes) in steps {
                while let Some(room) = sender.room() {
                    prop_assert!(room > 0);
                    sender.sent(room);
                    waiting += room;
                }
                prop_assert!(waiting <= usize::try_from(LANE_BYTES_MAX).expect("small"));
                let bytes = takes.min(waiting);
                carrier.taken(bytes);
                waiting -= bytes;
                let window = window_of(frame_max);
                if carrier.is_due(window) {
                    grants.push_back(carrier.grant(window));
                }
                // With nothing left at the carrier, what it has not said is too little to stop the sender.
                if waiting == 0 {
                    grants.drain(..).for_each(|grant| sender.granted(grant));
                    prop_assert!(sender.room().is_some());
                } else if let Some(grant) = grants.pop_front() {
                    sender.granted(grant);
                }
            }
        }
    }

    #[test]
    fn window_follows_the_link() {
        assert_eq!(window_of(PAYLOAD_BYTES_ALONE), LANE_BYTES_MAX);
        assert_eq!(window_of(2_500), 7_500);
        assert_eq!(window_of(100), LANE_BYTES_MIN);
        assert_eq!(window_of(50_000), LANE_BYTES_MAX);
    }

    #[test]
    fn word_that_cannot_be_true_changes_nothing() {
        let mut sender = SendWindow::new(LANE_BYTES_FIRST);
        sender.sent(1_000);
        sender.granted(Grant { taken: u64::MAX, window: u32::MAX });
        assert_eq!(sender.room(), Some(usize::try_from(LANE_BYTES_MAX).expect("small")));
        sender.granted(Grant { taken: 0, window: 0 });
        assert_eq!(sender.room(), Some(usize::try_from(LANE_BYTES_MIN).expect("small")), "taken stays");
    }
}
