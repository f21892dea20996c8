//! One channel: two halves that end on their own, or together by a reset.
//!
//! ```text
//!            write, finish                     Finish sent
//!  send:  Open ───────────► Finishing ───────────────────► Finished
//!            Finish received
//!  recv:  Open ─────────────────► Finished
//!  both:  any ── reset by us, by the peer, or by the session's end ──► Reset
//! ```
//!
//! The entry leaves the table once the application released its handle and both halves are finished, or it was reset.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::budget::Budget;
use super::credit::{RecvCredit, SendCredit};
use super::schedule::QueueMembership;
use crate::limit::INTERACTIVE_BYTES_MAX;
use crate::reason::Reason;

/// A payload up to this length joins the piece that waits before it, so that a queue is never mostly bookkeeping: a
/// piece of one byte costs about a hundred, and the budget counts payload.
const PIECE_BYTES_SMALL: usize = 512;

/// Pieces grow up to this length by joining.
const PIECE_BYTES_JOINED: usize = 4096;

/// A channel in the table.
#[derive(Debug)]
pub(super) enum Channel {
    /// At least one half is open, or bytes wait to be sent or read.
    Live(Box<OpenChannel>),
    /// It ended at once; the application has not released its handle yet.
    Reset(Reason),
}

/// A channel that is not reset.
#[derive(Debug)]
pub(super) struct OpenChannel {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    /// The port answered, or this is the side that answers.
    pub(super) accepted: bool,
    /// The application still holds its handle.
    pub(super) held: bool,
}

/// Sending half.
#[derive(Debug)]
pub(super) struct SendHalf {
    pub(super) credit: SendCredit,
    pub(super) queue: VecDeque<Bytes>,
    pub(super) queued: usize,
    /// Whether the queue held more than a keystroke since it was last empty: the rest of it is bulk too.
    pub(super) bulk: bool,
    pub(super) state: SendState,
    pub(super) place: QueueMembership,
    /// The application was told to wait for room.
    pub(super) blocked: bool,
}

/// See the diagram above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    Open,
    Finishing,
    Finished,
}

/// Receiving half.
#[derive(Debug)]
pub(super) struct RecvHalf {
    pub(super) credit: RecvCredit,
    pub(super) queue: VecDeque<Bytes>,
    pub(super) finished: bool,
    /// Bytes that the application has and that still count as buffered; see [`Mux::lend`](super::Mux::lend).
    pub(super) lent: u32,
}

impl OpenChannel {
    pub(super) fn new(send_credit: u32, window: u32, window_max: u32, now: Instant) -> Self {
        Self {
            send: SendHalf {
                credit: SendCredit::new(send_credit),
                queue: VecDeque::new(),
                queued: 0,
                bulk: false,
                state: SendState::Open,
                place: QueueMembership::Idle,
                blocked: false,
            },
            recv: RecvHalf {
                credit: RecvCredit::new(window, window_max, now),
                queue: VecDeque::new(),
                finished: false,
                lent: 0,
            },
            accepted: false,
            held: true,
        }
    }

    /// Returns whether nothing more can happen on the wire.
    pub(super) fn is_over(&self) -> bool {
        self.send.state == SendState::Finished && self.recv.finished
    }

    /// Gives the window of a channel that is about to go back, except for lent bytes. Returns their number.
    pub(super) fn settle(&self, budget: &mut Budget) -> u64 {
        let lent = u64::from(self.recv.lent);
        budget.release(u64::from(self.recv.credit.window()) - lent);
        lent
    }
}

impl RecvHalf {
    /// Stores a payload that is within its credit.
    pub(super) fn store(&mut self, payload: Bytes) {
        append(&mut self.queue, payload);
    }

    /// Returns whether the pieces are worth their bookkeeping: of two neighbours at least one is not small, or they
    /// did not fit together.
    pub(super) fn is_compact(&self) -> bool {
        self.queue.len() <= (self.credit.buffered() - self.lent) as usize / (PIECE_BYTES_SMALL / 2) + 1
    }
}

impl SendHalf {
    /// Returns the bytes that could be sent now.
    pub(super) fn ready(&self) -> usize {
        self.queued.min(self.credit.available() as usize)
    }

    /// Stores bytes for which there is room.
    pub(super) fn store(&mut self, piece: Bytes) {
        self.queued += piece.len();
        self.bulk |= self.queued > INTERACTIVE_BYTES_MAX;
        append(&mut self.queue, piece);
    }

    /// Takes one frame's payload, at most `bytes_max`: one contiguous piece.
    pub(super) fn take(&mut self, bytes_max: usize) -> Option<Bytes> {
        let piece = self.queue.front()?.len();
        // A little more than a frame goes in two halves, not in a whole and a crumb.
        let wanted = if piece > bytes_max && piece < 2 * bytes_max { piece.div_ceil(2) } else { piece.min(bytes_max) };
        let taken = self.credit.take(wanted);
        if taken == 0 {
            return None;
        }
        self.queued -= taken;
        self.bulk &= self.queued > 0;
        let front = self.queue.front_mut()?;
        if taken == front.len() { self.queue.pop_front() } else { Some(front.split_to(taken)) }
    }
}

/// Appends a piece. Copies only small ones, and only while the consumer of the queue is behind.
fn append(queue: &mut VecDeque<Bytes>, piece: Bytes) {
    match queue.back_mut() {
        Some(last) if piece.len() <= PIECE_BYTES_SMALL && last.len() + piece.len() <= PIECE_BYTES_JOINED => {
            let mut joined = match std::mem::take(last).try_into_mut() {
                Ok(own) if own.capacity() <= 2 * PIECE_BYTES_JOINED => own,
                // The rest of something large, or shared with another owner.
                Ok(own) => BytesMut::from(&own[..]),
                Err(shared) => BytesMut::from(&shared[..]),
            };
            joined.extend_from_slice(&piece);
            *last = joined.freeze();
        }
        Some(_) | None => queue.push_back(piece),
    }
}
