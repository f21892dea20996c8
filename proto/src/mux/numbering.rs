//! Frame numbers and acknowledgements: they make a session more than the link that carries it.

use std::time::Instant;

use super::error::SessionError;
use crate::limit::{ACKNOWLEDGE_BYTES_MAX, ACKNOWLEDGE_DELAY, ACKNOWLEDGE_FRAMES_MAX};

/// Counts numbered frames in both directions.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    sent: u64,
    acknowledged_by_peer: u64,
    received: u64,
    acknowledged: u64,
    /// Payload received since the last acknowledgement.
    unsaid_bytes: u64,
    /// Time at which an acknowledgement has to go out on its own.
    due: Option<Instant>,
    /// Whether that time has come; the link only has to take the frame.
    overdue: bool,
}

impl Numbering {
    /// Gives the next frame to send its number.
    pub(super) fn number(&mut self) -> u64 {
        // 2^64 frames take centuries at any rate a machine can reach.
        self.sent = self.sent.saturating_add(1);
        self.sent
    }

    /// Returns the acknowledgement for a frame that is about to be sent; 0 if there is nothing new to say.
    pub(super) fn acknowledge(&mut self) -> u64 {
        self.due = None;
        self.overdue = false;
        self.unsaid_bytes = 0;
        if self.acknowledged == self.received {
            return 0;
        }
        self.acknowledged = self.received;
        self.received
    }

    /// Takes a received frame's numbers.
    pub(super) fn receive(&mut self, now: Instant, sequence: u64, acknowledged: u64) -> Result<(), SessionError> {
        if acknowledged > self.sent {
            return Err(SessionError::Acknowledged { acknowledged, sent: self.sent });
        }
        // An acknowledgement may be older than one that overtook it in a batch; it never takes anything back.
        self.acknowledged_by_peer = self.acknowledged_by_peer.max(acknowledged);
        if sequence == 0 {
            return Ok(());
        }
        let expected = self.received.saturating_add(1);
        if sequence != expected {
            return Err(SessionError::Sequence { expected, got: sequence });
        }
        self.received = sequence;
        let unsaid = self.received - self.acknowledged;
        if unsaid >= ACKNOWLEDGE_FRAMES_MAX {
            self.overdue = true;
        } else if !self.overdue && self.due.is_none() {
            self.due = Some(now + ACKNOWLEDGE_DELAY);
        }
        Ok(())
    }

    /// Counts received payload: much of it is worth an acknowledgement of its own, because the sender keeps it.
    pub(super) fn payload_received(&mut self, bytes: u64) {
        self.unsaid_bytes = self.unsaid_bytes.saturating_add(bytes);
        if self.unsaid_bytes >= ACKNOWLEDGE_BYTES_MAX {
            self.overdue = true;
        }
    }

    /// Returns the highest number given out, and the highest that the peer acknowledged.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.sent, self.acknowledged_by_peer)
    }

    /// Returns the highest number received in order.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Goes on over a new link. The handshake told each side the number that the other received.
    ///
    /// # Errors
    /// [`SessionError::Acknowledged`] when the peer says more than was sent, or less than it acknowledged before.
    pub(super) fn resume(&mut self, peer_received: u64) -> Result<(), SessionError> {
        if peer_received > self.sent || peer_received < self.acknowledged_by_peer {
            return Err(SessionError::Acknowledged { acknowledged: peer_received, sent: self.sent });
        }
        self.acknowledged_by_peer = peer_received;
        // The handshake has acknowledged it.
        self.acknowledge();
        Ok(())
    }

    /// Moves a due acknowledgement to the ones to send, so that its timer does not fire again and again while the
    /// link takes nothing.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.overdue = true;
        }
    }

    /// Returns whether an acknowledgement is to be sent even if there is nothing else to say.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns the time at which an acknowledgement has to go out on its own.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the numbers of frames sent, of those acknowledged, and of frames received.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.sent, self.acknowledged_by_peer, self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
        Instant::now()
    }

    #[test]
    fn gap_repeat_and_false_acknowledgement_are_named() {
        let now = instant();
        let mut numbering = Numbering::default();
        assert_eq!(numbering.receive(now, 1, 0), Ok(()));
        assert_eq!(numbering.receive(now, 1, 0), Err(SessionError::Sequence { expected: 2, got: 1 }));
        assert_eq!(numbering.receive(now, 3, 0), Err(SessionError::Sequence { expected: 2, got: 3 }));
        assert_eq!(numbering.receive(now, 0, 1), Err(SessionError::Acknowledged { acknowledged: 1, sent: 0 }));
    }

    #[test]
    fn acknowledgement_rides_along_or_goes_alone_after_a_while() {
        let now = instant();
        let mut numbering = Numbering::default();
        assert_eq!(numbering.due(), None);
        assert_eq!(numbering.receive(now, 1, 0), Ok(()));
        assert_eq!(numbering.due(), Some(now + ACKNOWLEDGE_DELAY));
        assert_eq!(numbering.acknowledge(), 1);
        assert_eq!(numbering.due(), None);
        assert_eq!(numbering.acknowledge(), 0, "nothing new to say");
        for sequence in 2..2 + ACKNOWLEDGE_FRAMES_MAX {
            assert_eq!(numbering.receive(now, sequence, 0), Ok(()));
        }
        assert!(numbering.is_overdue(), "many frames do not wait");
    }
}
