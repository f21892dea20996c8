//! Links that come and go, and what the session keeps for the next one.

use std::collections::VecDeque;

use tunnel_proto::frame::{Body, Frame, Grant, Open};
use tunnel_proto::limit::{REPLAY_BYTES_FREE, REPLAY_FRAME_BYTES, REPLAY_STEP_BYTES};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;

use super::World;

/// Frames that the session sent and the peer did not acknowledge, by the rules.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    frames: VecDeque<Frame>,
    /// How many of the last ones have to come again.
    again: usize,
    /// The highest number that the peer acknowledged.
    acknowledged: u64,
    bytes: u64,
}

impl Unacknowledged {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_behind(&self) -> bool {
        self.again > 0
    }

    pub(super) fn keep(&mut self, frame: &Frame) {
        assert!(!self.is_behind(), "something new went ahead of what has to come again");
        self.bytes += cost(&frame.body);
        self.frames.push_back(frame.clone());
    }

    pub(super) fn acknowledge(&mut self, acknowledged: u64) {
        self.acknowledged = self.acknowledged.max(acknowledged);
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.sequence <= acknowledged) {
            self.bytes -= cost(&frame.body);
        }
        self.again = self.again.min(self.frames.len());
    }

    /// Takes a frame that comes again.
    pub(super) fn take_again(&mut self, frame: &Frame) {
        let expected = &self.frames[self.frames.len() - self.again];
        assert_eq!((frame.sequence, &frame.body), (expected.sequence, &expected.body), "another frame than before");
        self.again -= 1;
    }
}

fn cost(body: &Body) -> u64 {
    let more = match body {
        Body::Data { payload, .. } | Body::Open(Open { payload, .. }) => payload.len(),
        Body::Credit { grants } => grants.len() * size_of::<Grant>(),
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

impl World {
    pub(super) fn link_step(&mut self, which: u8, number: u16) {
        match which % 8 {
            _ if self.over => {}
            0 if self.detached => self.peer_lies(number),
            _ if self.detached => self.peer_resumes(number),
            0 | 1 => {
                assert!(self.mux.link_lost(self.now), "the session waits for a link");
                self.loses_link();
            }
            // The link is taken over while the session believes in the old one.
            2 => {
                self.mux.link_lost(self.now);
                self.loses_link();
                self.peer_resumes(number);
            }
            _ => self.peer_step(5, which, number),
        }
        self.events();
    }

    pub(super) fn loses_link(&mut self) {
        self.detached = true;
        self.kept.again = self.kept.frames.len();
    }

    /// Goes on over a new link, with a peer that received something between what it acknowledged and everything.
    pub(super) fn peer_resumes(&mut self, number: u16) {
        let known = self.kept.acknowledged;
        let received = known + u64::from(number) % (self.heard - known + 1);
        assert_eq!(self.mux.received(), self.sent, "another number of frames received");
        assert_eq!(self.mux.resume(self.now, received), Ok(()), "books that fit were refused");
        self.kept.acknowledge(received);
        self.detached = false;
        self.last_delivery = self.now;
        // The handshake said it, and what was not numbered is lost.
        self.sent_acknowledged = self.sent;
        self.pong_due = None;
        if let Some(drain) = self.drain.filter(|_| self.drains_due.is_empty()) {
            self.drains_due.push_back(drain);
            self.backlog += 1;
        }
    }

    /// A peer that received more than was sent, or less than it acknowledged.
    fn peer_lies(&mut self, number: u16) {
        let received = match self.kept.acknowledged {
            known if known > 0 && number.is_multiple_of(2) => u64::from(number) % known,
            _ => self.heard + 1 + u64::from(number),
        };
        let result = self.mux.resume(self.now, received);
        assert!(matches!(result, Err(SessionError::Acknowledged { .. })), "a lie went unnoticed: {result:?}");
        self.end(Reason::SessionLost, None);
    }

    /// Without a link, nothing that comes is taken.
    pub(super) fn peer_is_not_heard(&mut self) {
        let frame =
            Frame { sequence: self.sent + 1, acknowledged: 0, body: Body::Finish { channel: self.last_opened } };
        assert_eq!(self.mux.handle_frame(self.now, frame), Err(SessionError::Ended), "a frame of a link that is gone");
    }

    /// Payload goes only while there is room to keep it.
    pub(super) fn check_room(&self) {
        let most = (REPLAY_BYTES_FREE as u64).max(self.settings.replay_max + REPLAY_STEP_BYTES);
        assert!(self.kept.bytes < most, "payload was sent while {} bytes were kept", self.kept.bytes);
    }
}
