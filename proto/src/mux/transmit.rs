//! Frames to send, in the order that keeps a keystroke fast: control, then interactive, then bulk.

use std::time::Instant;

use super::channel::{Channel, SendState};
use super::replay::FrameKind;
use super::{Mux, MuxEvent, State};
use crate::frame::{Body, Frame, Grant};
use crate::id::ChannelId;
use crate::limit::{GRANTS_PER_FRAME_MAX, INTERACTIVE_BYTES_MAX};

/// Returns whether a control frame needs no room: an open has its place already, and others are not kept.
fn is_paid(body: &Body) -> bool {
    matches!(body, Body::Open(_)) || !body.is_numbered()
}

impl Mux {
    /// Returns whether [`Mux::poll_transmit`] may have something to say. Cheap; asked after every command, so that the
    /// link is woken only for a reason.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        match self.state {
            State::Ended | State::Detached { .. } => false,
            State::Closing { .. } => true,
            State::Up => {
                ((!self.control.is_empty() || !self.grants_due.is_empty()) && self.could_send_control())
                    || self.replay.is_behind()
                    || (!self.schedule.is_empty() && self.could_send(FrameKind::Data))
                    || self.keepalive.wants_transmit()
                    || self.numbering.is_overdue()
            }
        }
    }

    /// Bounds the payload of the next frames, so that on a slow link none takes long.
    pub fn limit_frames(&mut self, bytes_max: usize) {
        self.frame_max = bytes_max.max(INTERACTIVE_BYTES_MAX);
    }

    /// Returns the next frame to send, `None` when there is nothing to say.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Frame> {
        let body = match &mut self.state {
            State::Ended | State::Detached { .. } => return None,
            // Only frames that are not numbered are left in the queue.
            State::Closing { reason, detail } => match self.control.pop_front() {
                Some(asked) => asked,
                None => {
                    let body = Body::Close { reason: *reason, detail: std::mem::take(detail) };
                    self.state = State::Ended;
                    body
                }
            },
            State::Up => {
                if let Some((sequence, body)) = self.next_again() {
                    return Some(Frame { sequence, acknowledged: self.numbering.acknowledge(), body });
                }
                self.next_body(now)?
            }
        };
        let sequence = if body.is_numbered() { self.numbering.number() } else { 0 };
        if sequence > 0 && self.settings.resume_grace.is_some() {
            self.replay.keep(body.clone());
            if !self.could_send(FrameKind::Data) {
                self.keepalive.probe(now);
            }
        }
        Some(Frame { sequence, acknowledged: self.numbering.acknowledge(), body })
    }

    /// Returns the next frame that has to be sent again on a new link. Pings and pongs go ahead: they are not numbered.
    fn next_again(&mut self) -> Option<(u64, Body)> {
        if self.keepalive.wants_transmit() {
            return None;
        }
        self.replay.next_again(self.numbering.sent().0)
    }

    /// Returns whether a numbered frame may be sent: sent frames are kept, and that has a bound.
    fn could_send(&self, kind: FrameKind) -> bool {
        self.settings.resume_grace.is_none() || self.replay.could_have_room(kind, &self.budget)
    }

    /// Returns whether the first control frame in the queue, or a grant, may be sent.
    fn could_send_control(&self) -> bool {
        self.control.front().is_some_and(is_paid) || self.could_send(FrameKind::Control)
    }

    /// Returns whether a numbered frame may be sent, and reserves what it may cost.
    fn has_room(&mut self, kind: FrameKind) -> bool {
        self.settings.resume_grace.is_none() || self.replay.has_room(kind, &mut self.budget)
    }

    fn next_body(&mut self, now: Instant) -> Option<Body> {
        if let Some(token) = self.keepalive.poll_pong() {
            return Some(Body::Pong { token });
        }
        if let Some(token) = self.keepalive.poll_ping(now) {
            return Some(Body::Ping { token });
        }
        if let Some(body) = self.next_control() {
            return Some(body);
        }
        if let Some(body) = self.next_credit(now) {
            return Some(body);
        }
        if let Some(body) = self.next_data() {
            return Some(body);
        }
        self.numbering.is_overdue().then_some(Body::Acknowledge)
    }

    fn next_control(&mut self) -> Option<Body> {
        if !is_paid(self.control.front()?) && !self.has_room(FrameKind::Control) {
            return None;
        }
        let body = self.control.pop_front()?;
        if matches!(body, Body::Open(_)) {
            self.replay.depart(&body);
            if self.settings.resume_grace.is_none() {
                self.replay.settle(&mut self.budget);
            }
        }
        Some(body)
    }

    fn next_credit(&mut self, now: Instant) -> Option<Body> {
        if self.grants_due.is_empty() || !self.has_room(FrameKind::Control) {
            return None;
        }
        let round_trip = self.keepalive.round_trip();
        let mut grants = Vec::new();
        while grants.len() < GRANTS_PER_FRAME_MAX {
            let Some(channel) = self.grants_due.pop() else { break };
            let Some(Channel::Live(live)) = self.channels.get_mut(&channel) else { continue };
            let bytes = live.recv.credit.grant(now, round_trip, &mut self.budget);
            if bytes > 0 {
                grants.push(Grant { channel, bytes });
            }
        }
        (!grants.is_empty()).then_some(Body::Credit { grants })
    }

    fn next_data(&mut self) -> Option<Body> {
        if self.schedule.is_empty() {
            return None;
        }
        if !self.has_room(FrameKind::Data) {
            return None;
        }
        while let Some(turn) = self.schedule.next() {
            let channel = turn.channel;
            let Some(Channel::Live(live)) = self.channels.get_mut(&channel) else { continue };
            live.send.place = super::schedule::QueueMembership::Idle;
            let Some(payload) = live.send.take(turn.bytes_max.min(self.frame_max)) else { continue };
            self.schedule.sent(turn, payload.len());
            self.queued_bytes -= payload.len();
            if std::mem::take(&mut live.send.blocked) {
                self.events.push_back(MuxEvent::Writable(channel));
            }
            if live.send.queue.is_empty() && live.send.state == SendState::Finishing {
                live.send.state = SendState::Finished;
                self.control.push_back(Body::Finish { channel });
                self.collect(channel);
            } else {
                self.requeue(channel);
            }
            self.note_sent(payload.len());
            return Some(Body::Data { channel, payload });
        }
        None
    }

    /// Puts a channel that can send into the queue it belongs to.
    pub(super) fn requeue(&mut self, channel: ChannelId) {
        if let Some(Channel::Live(live)) = self.channels.get_mut(&channel)
            && live.send.ready() > 0
        {
            self.schedule.enqueue(channel, &mut live.send.place, live.send.bulk);
        }
    }
}
