//! The watcher's view of a connection.

use http1_guard::{Ambiguity, HeadFault, Watcher};

use super::HEAD_BYTES_MAX;

/// The result of all bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Heads that came whole.
    pub(super) heads: u64,
    /// The next byte would belong to a message.
    pub(super) is_within_message: bool,
    pub(super) fault: Option<HeadFault>,
    /// Number of bytes that go through to the library.
    pub(super) passed: usize,
}

/// One message whose head came whole.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head_end: usize,
    /// End of its body; none if that did not come, or the body is broken.
    pub(super) end: Option<usize>,
}

/// The messages, as they show when the bytes come one by one.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) messages: Vec<Message>,
    /// Positions behind a request for another protocol. It is answered, without a switch, before the next byte comes.
    pub(super) switches: Vec<usize>,
    pub(super) verdict: Verdict,
}

impl Verdict {
    /// Feeds the bytes in pieces that end at `ends`, in ascending order.
    pub(super) fn of(bytes: &[u8], ends: &[usize]) -> Self {
        let mut watcher = Watcher::new(HEAD_BYTES_MAX);
        let mut from = 0;
        for to in ends.iter().copied().chain([bytes.len()]) {
            if let Err(verdict) = feed(&mut watcher, &bytes[from..to], from) {
                return verdict;
            }
            from = to;
        }
        let is_within_message = watcher.is_within_message();
        Self { heads: watcher.heads(), is_within_message, fault: None, passed: bytes.len() }
    }
}

/// Feeds a piece that begins at `from`, and settles a request for another protocol that was waiting.
fn feed(watcher: &mut Watcher, piece: &[u8], from: usize) -> Result<(), Verdict> {
    if watcher.is_switching() && !piece.is_empty() {
        watcher.settle(true);
    }
    watcher.look(piece).map_err(|ambiguity| {
        let (is_within_message, fault, keep) = match ambiguity {
            Ambiguity::Head { request, keep } => (false, request.fault, keep),
            Ambiguity::Body { keep } => (true, HeadFault::BareLineFeed, keep),
        };
        Verdict { heads: watcher.heads(), is_within_message, fault: Some(fault), passed: from + keep }
    })
}

impl Trail {
    pub(super) fn follow(bytes: &[u8]) -> Self {
        let mut watcher = Watcher::new(HEAD_BYTES_MAX);
        let (mut messages, mut switches) = (Vec::new(), Vec::new());
        for (at, byte) in bytes.iter().enumerate() {
            if watcher.is_switching() {
                switches.push(at);
            }
            let heads = watcher.heads();
            if let Err(verdict) = feed(&mut watcher, &[*byte], at) {
                return Self { messages, switches, verdict };
            }
            if watcher.heads() > heads {
                messages.push(Message { head_end: at + 1, end: None });
            }
            // A watcher that has lost track is in no message either.
            let is_watching = watcher.is_switching() || watcher.has_untaken(0);
            if let Some(last) = messages.last_mut()
                && last.end.is_none()
                && is_watching
                && !watcher.is_within_message()
            {
                last.end = Some(at + 1);
            }
        }
        let (heads, is_within_message) = (watcher.heads(), watcher.is_within_message());
        Self { messages, switches, verdict: Verdict { heads, is_within_message, fault: None, passed: bytes.len() } }
    }
}
