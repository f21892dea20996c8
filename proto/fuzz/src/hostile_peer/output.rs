//! What the session says, to the peer and to the application.

use tunnel_proto::frame::{Body, Frame, Grant};
use tunnel_proto::id::ChannelId;
use tunnel_proto::limit::{FRAME_BYTES_MAX, PAYLOAD_BYTES_ALONE, REPLAY_FRAME_BYTES};
use tunnel_proto::mux::MuxEvent;
use tunnel_proto::reason::Reason;

use super::super::{encode, pattern};
use super::{FROM_SESSION, World};

/// A payload up to this length goes through the wire format too; for longer ones it would be most of the work.
const WIRE_BYTES_MAX: usize = 2048;

impl World {
    /// Lets the session send up to so many frames.
    pub(super) fn transmit(&mut self, frames: usize) {
        for _ in 0..frames {
            let wanted = self.mux.wants_transmit();
            let Some(frame) = self.mux.poll_transmit(self.now) else {
                assert!(!self.mux.wants_transmit(), "wants to send and has nothing");
                break;
            };
            assert!(wanted, "has something to send, and nobody would have woken the link");
            check_wire(&frame);
            if self.take_numbers(&frame) {
                self.take(frame.body);
            }
        }
        self.events();
    }

    /// Returns whether the frame is new.
    fn take_numbers(&mut self, frame: &Frame) -> bool {
        assert!(!self.detached, "something is sent without a link");
        let comes_again = frame.body.is_numbered() && self.kept.is_behind();
        if comes_again {
            self.kept.take_again(frame);
        } else if frame.body.is_numbered() {
            self.heard += 1;
            assert_eq!(frame.sequence, self.heard, "numbers grow by one");
            if self.resumes() {
                if matches!(frame.body, Body::Data { .. }) {
                    self.check_room();
                }
                self.kept.keep(frame);
            }
        } else {
            let heartbeat = matches!(frame.body, Body::Ping { .. } | Body::Pong { .. });
            assert!(heartbeat || !self.kept.is_behind(), "something new went ahead of what has to come again");
            assert_eq!(frame.sequence, 0, "this frame has no number");
        }
        if frame.acknowledged > 0 {
            assert!(frame.acknowledged > self.sent_acknowledged, "acknowledged twice");
            assert!(frame.acknowledged <= self.sent, "acknowledged what was never sent");
            self.sent_acknowledged = frame.acknowledged;
        }
        if matches!(frame.body, Body::Close { .. }) {
            assert!(self.over && self.drains_due.is_empty(), "a close frame too early");
        } else if self.over {
            assert!(matches!(frame.body, Body::Drain { .. }), "more than a drain and a close frame after the end");
        }
        if matches!(frame.body, Body::Acknowledge) {
            assert!(frame.acknowledged > 0, "a frame that says nothing");
        }
        !comes_again
    }

    fn take(&mut self, body: Body) {
        match body {
            Body::Open(open) => {
                assert!(!self.is_agent(), "agents do not open");
                let first = self.control(open.channel).first;
                assert_eq!(open.payload, pattern(FROM_SESSION, 0, first), "other first bytes");
                self.waiting -= (open.payload.len() + REPLAY_FRAME_BYTES) as u64;
                let book = self.book(open.channel);
                let outstanding = u64::from(open.credit_bytes);
                assert!(!book.live || book.outstanding + book.sent <= outstanding, "announced less than it takes");
            }
            Body::Accept { channel, credit_bytes } => {
                assert!(self.is_agent(), "gateways do not accept");
                let book = self.control(channel);
                assert_eq!(u64::from(credit_bytes), std::mem::take(&mut book.promised), "another promise");
            }
            Body::Data { channel, payload } => self.take_data(channel, &payload),
            Body::Finish { channel } => {
                let book = self.control(channel);
                assert!(book.finishing && !book.finish_heard, "a finish that nobody wrote");
                assert_eq!(book.queued(), 0, "a finish before the last byte");
                book.finish_heard = true;
            }
            Body::Reset { channel, .. } => self.take_reset(channel),
            Body::Credit { grants } => grants.iter().for_each(|grant| self.take_credit(*grant)),
            Body::Ping { token } => self.pinged = Some(token),
            Body::Pong { token } => assert_eq!(Some(token), self.pong_due.take(), "another pong than asked for"),
            Body::Drain { deadline_ms, redial_after_ms, .. } => {
                assert_eq!(self.drains_due.pop_front(), Some((deadline_ms, redial_after_ms)), "another drain");
                self.backlog -= 1;
            }
            Body::Close { reason, .. } => assert_eq!(self.close_due.take(), Some(reason), "closed for another reason"),
            Body::OpenLane(_) => panic!("a lane that the application did not want"),
            Body::Seal(_) => panic!("a seal that the application did not make"),
            Body::Acknowledge => {}
            Body::Hello(_) | Body::Welcome(_) => panic!("a handshake inside a session"),
        }
    }

    /// Takes a frame out of the control queue that is about a channel that is not reset.
    fn control(&mut self, channel: ChannelId) -> &mut super::ChannelBook {
        self.backlog -= 1;
        let book = self.book(channel);
        assert!(!book.reset_heard, "a frame after the reset");
        book
    }

    fn take_data(&mut self, channel: ChannelId, payload: &[u8]) {
        let book = self.book(channel);
        let length = payload.len() as u64;
        assert!(book.live && !book.finish_heard, "data after the end");
        assert!(!payload.is_empty() && payload.len() <= PAYLOAD_BYTES_ALONE, "a payload of {length} bytes");
        assert!(length <= book.credit, "{length} bytes sent with credit for {}", book.credit);
        assert!(length <= book.queued(), "more bytes than were written");
        assert_eq!(payload, pattern(FROM_SESSION, book.received, payload.len()), "other bytes than were written");
        book.credit -= length;
        book.received += length;
        let finished = book.has_finished();
        book.collect();
        self.backlog += usize::from(finished);
    }

    fn take_reset(&mut self, channel: ChannelId) {
        self.backlog -= 1;
        let Some(book) = self.books.get_mut(&channel) else {
            assert!(self.refusals_due > 0 && channel <= self.last_opened, "a reset that nobody made");
            self.refusals_due -= 1;
            return;
        };
        assert!(book.resets_due > 0 && !book.live, "a reset that nobody made");
        book.resets_due -= 1;
        book.reset_heard = true;
    }

    fn take_credit(&mut self, grant: Grant) {
        let book = self.book(grant.channel);
        assert!(book.live && grant.bytes > 0, "credit for a channel that is gone");
        book.outstanding += u64::from(grant.bytes);
    }

    /// Lets the application hear everything.
    pub(super) fn events(&mut self) {
        while let Some(event) = self.mux.poll_event() {
            match event {
                MuxEvent::Opened(open) => {
                    assert!(self.is_agent() && open.payload.is_empty(), "only agents hear of an open");
                    assert_eq!(open.channel, self.last_opened, "another channel was opened");
                    if self.accepts_at_once {
                        self.app_accepts(open.channel);
                    }
                }
                MuxEvent::Accepted(channel) => {
                    assert!(std::mem::take(&mut self.book(channel).accepted_event), "accepted by nobody");
                }
                MuxEvent::Readable(channel) => self.book(channel).waits_to_read = false,
                MuxEvent::Writable(channel) => self.book(channel).waits_to_write = false,
                MuxEvent::Reset(channel, reason) => self.hear_reset(channel, reason),
                MuxEvent::LaneWanted(_) => panic!("a lane that is not wanted"),
                MuxEvent::Sealed(_) => panic!("a seal that was not made"),
                MuxEvent::Draining { .. } => panic!("nobody drains"),
            }
        }
        for book in self.books.values() {
            assert_eq!(book.reset_event, None, "a reset that its holder does not hear of");
            assert!(!book.accepted_event, "an accept that its holder does not hear of");
            let waits = book.waits_to_read && book.live && book.held;
            assert!(!waits || (book.unread() == 0 && !book.finished), "a lost wake-up of a reader");
        }
    }

    fn hear_reset(&mut self, channel: ChannelId, reason: Reason) {
        let book = self.book(channel);
        assert_eq!(book.reset_event.take(), Some(reason), "a reset that nobody made");
        assert!(book.held, "a reset that nobody waits for");
        book.waits_to_read = false;
        book.waits_to_write = false;
    }
}

fn check_wire(frame: &Frame) {
    assert!(frame.encoded_len() <= FRAME_BYTES_MAX, "a frame that the peer refuses");
    if frame.encoded_len() <= WIRE_BYTES_MAX {
        assert_eq!(Frame::decode(encode(frame.clone())).as_ref(), Ok(frame), "a frame that the peer does not read");
    }
}
