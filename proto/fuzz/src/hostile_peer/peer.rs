//! Frames of the peer, within the rules and beyond them.

use bytes::Bytes;
use tunnel_proto::frame::{Body, Frame, Grant, Open};
use tunnel_proto::id::ChannelId;
use tunnel_proto::limit::{CONTROL_QUEUED_MAX, GRANTS_PER_FRAME_MAX, PAYLOAD_BYTES_MAX, WINDOW_BYTES_MIN};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;
use tunnel_proto::target::AppTls;

use super::super::pattern;
use super::book::ChannelBook;
use super::{FROM_PEER, World};

impl World {
    pub(super) fn peer_step(&mut self, verb: u8, which: u8, number: u16) {
        match verb {
            10 => return self.peer_grants_many(which, number),
            11 => return self.peer_pings(which, number),
            _ => {}
        }
        let Some(channel) = self.any_channel(which) else {
            return;
        };
        match verb {
            3..=5 => self.peer_sends(channel, number),
            6 => self.peer_finishes(channel),
            7 => self.peer_resets(channel, number),
            8 | 9 => self.peer_grants(&[(channel, scale(number))]),
            _ => self.peer_accepts(channel, number),
        }
    }

    pub(super) fn peer_opens(&mut self, number: u16) {
        let Some(channel) = self.last_opened.get().checked_add(1 + u64::from(number / 60_000)) else {
            return;
        };
        let channel = ChannelId::new(channel);
        let payload = pattern(FROM_PEER, 0, usize::from(number % 4096));
        let length = payload.len() as u64;
        // Now and then much more than an agent promised.
        let payload = if number % 97 == 1 { pattern(FROM_PEER, 0, PAYLOAD_BYTES_MAX) } else { payload };
        let honest = payload.len() as u64 <= u64::from(self.settings.open_credit);
        let length = length.max(payload.len() as u64);
        let before = self.mux.stats();
        let credit_bytes = scale(number);
        self.last_opened = channel;
        if !self.deliver(Body::Open(Open { channel, port: 80, tls: AppTls::None, credit_bytes, payload }), None) {
            return;
        }
        if self.mux.credit_books(channel).is_none() {
            let full = before.channels_live >= self.settings.channels_max as usize;
            assert!(full || !honest || self.budget_lacks(u64::from(self.settings.open_credit)), "refused for nothing");
            self.refusals_due += 1;
            self.backlog += 1;
            return;
        }
        assert!(honest, "more than the promised credit was taken");
        let outstanding = u64::from(self.settings.open_credit) - length;
        let credit = u64::from(credit_bytes);
        let book = ChannelBook { live: true, held: true, outstanding, sent: length, credit, ..ChannelBook::default() };
        self.books.insert(channel, book);
        self.events();
    }

    /// Returns whether the budgets may lack so many bytes.
    pub(super) fn budget_lacks(&self, bytes: u64) -> bool {
        let replica = self.settings.replica_budget.as_ref().expect("set above");
        replica.reserved() + bytes > self.settings.session_budget.min(replica.limit())
    }

    fn peer_sends(&mut self, channel: ChannelId, number: u16) {
        let book = self.book(channel);
        let length = match number % 8 {
            0..=3 => u64::from(number / 8 % 64),
            4 | 5 => u64::from(number),
            6 => book.outstanding,
            _ => book.outstanding + 1,
        };
        let length = length.min(PAYLOAD_BYTES_MAX as u64);
        let payload = pattern(FROM_PEER, book.sent, length as usize);
        if !self.deliver(Body::Data { channel, payload }, None) {
            return;
        }
        let book = self.book(channel);
        if book.live && (book.finished || length > book.outstanding) {
            self.break_channel(channel);
        } else if book.live {
            book.outstanding -= length;
            book.sent += length;
        }
        self.events();
    }

    fn peer_finishes(&mut self, channel: ChannelId) {
        if !self.deliver(Body::Finish { channel }, None) {
            return;
        }
        let book = self.book(channel);
        if book.live && book.finished {
            self.break_channel(channel);
        } else if book.live {
            book.finished = true;
            book.collect();
        }
        self.events();
    }

    fn peer_resets(&mut self, channel: ChannelId, number: u16) {
        let reason = Reason::ALL[usize::from(number) % Reason::ALL.len()];
        if !self.deliver(Body::Reset { channel, reason }, None) {
            return;
        }
        let book = self.book(channel);
        if book.live {
            book.end(reason);
        }
        self.events();
    }

    fn peer_grants_many(&mut self, which: u8, number: u16) {
        let count = usize::from(number % GRANTS_PER_FRAME_MAX as u16) + 1;
        let step = which / 16;
        let grants: Vec<_> = (0..count)
            .filter_map(|at| self.any_channel(which.wrapping_add(step.wrapping_mul(at as u8))))
            .map(|channel| (channel, scale(number)))
            .collect();
        if !grants.is_empty() {
            self.peer_grants(&grants);
        }
    }

    fn peer_grants(&mut self, grants: &[(ChannelId, u32)]) {
        let wire = grants.iter().map(|(channel, bytes)| Grant { channel: *channel, bytes: (*bytes).max(1) }).collect();
        if !self.deliver(Body::Credit { grants: wire }, None) {
            return;
        }
        for (channel, bytes) in grants {
            self.take_grant(*channel, u64::from(*bytes).max(1));
        }
        self.events();
    }

    fn take_grant(&mut self, channel: ChannelId, bytes: u64) {
        let book = self.book(channel);
        if book.live && book.credit + bytes > u64::from(u32::MAX) {
            self.break_channel(channel);
        } else if book.live {
            book.credit += bytes;
        }
    }

    fn peer_accepts(&mut self, channel: ChannelId, number: u16) {
        let credit_bytes = if number.is_multiple_of(3) { 0 } else { scale(number) };
        let accept = Body::Accept { channel, credit_bytes };
        if self.is_agent() {
            // Only agents accept; from a gateway it ends the session, so it is rare.
            if number.is_multiple_of(16) {
                self.deliver(accept, Some(Reason::Protocol));
            }
            return;
        }
        if !self.deliver(accept, None) {
            return;
        }
        let book = self.book(channel);
        if book.live && book.accepted {
            self.break_channel(channel);
        } else if book.live {
            book.accepted = true;
            book.accepted_event = true;
            self.take_grant(channel, u64::from(credit_bytes));
        }
        self.events();
    }

    fn peer_pings(&mut self, which: u8, number: u16) {
        match which % 4 {
            0 => {
                if self.deliver(Body::Ping { token: u64::from(number) }, None) {
                    self.pong_due = Some(u64::from(number));
                }
            }
            1 => {
                let token = self.pinged.unwrap_or(0);
                self.deliver(Body::Pong { token }, None);
            }
            2 => {
                self.deliver(Body::Pong { token: u64::from(number) }, None);
            }
            _ => {
                self.deliver(Body::Acknowledge, None);
            }
        }
    }

    /// Acknowledges everything. Returns whether the session goes on.
    pub(super) fn peer_acknowledges(&mut self) -> bool {
        self.hand_over(Frame { sequence: 0, acknowledged: self.heard, body: Body::Acknowledge }, None)
    }

    /// Breaks a rule that concerns more than one channel.
    pub(super) fn peer_breaks_the_session(&mut self, which: u8) {
        let next = self.last_opened.next().expect("far from the end");
        let numbered = |sequence, body| Frame { sequence, acknowledged: 0, body };
        let open =
            |channel| Body::Open(Open { channel, port: 1, tls: AppTls::None, credit_bytes: 0, payload: Bytes::new() });
        let frame = match which % 8 {
            0 => numbered(self.sent + 1, Body::Finish { channel: next }),
            1 => numbered(self.sent + 1, open(if self.is_agent() { self.last_opened } else { next })),
            2 => numbered(self.sent + 2, Body::Finish { channel: ChannelId::new(1) }),
            3 => numbered(self.sent.max(1), open(next)),
            4 => Frame { sequence: 0, acknowledged: self.heard + 1, body: Body::Acknowledge },
            5 => {
                let grants = vec![Grant { channel: next, bytes: WINDOW_BYTES_MIN }];
                numbered(self.sent + 1, Body::Credit { grants })
            }
            6 => numbered(0, Body::Close { reason: Reason::Displaced, detail: String::from("x") }),
            _ => numbered(0, Body::Drain { deadline_ms: 1, redial_after_ms: 2, moves: false }),
        };
        // A repeated number of the very first frame is its right one.
        let first = which % 8 == 3 && self.sent == 0;
        let drain = matches!(frame.body, Body::Drain { .. }) && self.is_agent();
        if (first && self.is_agent()) || drain {
            return;
        }
        let close = (!matches!(frame.body, Body::Close { .. })).then_some(Reason::Protocol);
        self.hand_over(frame, Some(close));
    }

    /// Hands a frame over with its right number; `fatal` is what the session has to close with. Returns whether the
    /// session goes on.
    fn deliver(&mut self, body: Body, fatal: Option<Reason>) -> bool {
        let sequence = if body.is_numbered() { self.sent + 1 } else { 0 };
        let acknowledged = if self.acknowledges { self.heard } else { 0 };
        self.hand_over(Frame { sequence, acknowledged, body }, fatal.map(Some))
    }

    fn hand_over(&mut self, frame: Frame, fatal: Option<Option<Reason>>) -> bool {
        let numbered = frame.sequence > 0;
        let wrong_numbers = numbered && frame.sequence != self.sent + 1 || frame.acknowledged > self.heard;
        let acknowledged = frame.acknowledged;
        let result = self.mux.handle_frame(self.now, frame);
        if self.over {
            assert_eq!(result, Err(SessionError::Ended), "a frame was taken after the end");
            return false;
        }
        self.last_delivery = self.now;
        // A frame with the right number was received, even if it was the last.
        self.sent += u64::from(numbered && !wrong_numbers);
        if self.backlog >= CONTROL_QUEUED_MAX && !wrong_numbers {
            assert_eq!(result, Err(SessionError::Exhausted), "a peer may let the control queue grow");
            self.end(Reason::SessionLost, Some(Reason::Overloaded));
        } else if let Some(close) = fatal {
            assert!(result.is_err(), "a broken rule of the session went unnoticed");
            self.end(Reason::SessionLost, close);
        } else {
            assert_eq!(result, Ok(()), "a frame within the session's rules ended it");
            self.kept.acknowledge(acknowledged);
            return true;
        }
        self.events();
        false
    }
}

/// Makes small and huge credits out of two bytes.
fn scale(number: u16) -> u32 {
    match number % 16 {
        0 => 0,
        1 => u32::MAX,
        2 => u32::MAX / 2,
        3..=6 => u32::from(number / 16),
        _ => u32::from(number) * 8,
    }
}
