//! Received frames. Checks come before anything is stored; each fault ends as little as possible.

use std::time::Instant;

use bytes::Bytes;

use super::channel::{Channel, OpenChannel};
use super::{DrainAsked, Mux, MuxEvent, SessionError, Side, State};
use crate::frame::{Body, Frame, Grant, Open};
use crate::hello::RelayTicket;
use crate::id::ChannelId;
use crate::limit::CONTROL_QUEUED_MAX;
use crate::reason::Reason;

impl Mux {
    /// Takes one frame from the peer.
    ///
    /// # Errors
    /// [`SessionError`] when the session is over: the peer closed it or broke a rule that concerns more than one
    /// channel. Faults within one channel reset that channel and are no error here.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<(), SessionError> {
        if !matches!(self.state, State::Up) {
            return Err(SessionError::Ended);
        }
        let result = self.take_frame(now, frame);
        result.map_err(|error| self.fail(error))
    }

    fn take_frame(&mut self, now: Instant, frame: Frame) -> Result<(), SessionError> {
        self.keepalive.heard(now);
        self.numbering.receive(now, frame.sequence, frame.acknowledged)?;
        if frame.acknowledged > 0 {
            self.forget_acknowledged();
        }
        // Answers that the peer does not collect, or does not acknowledge, must not pile up here at its will.
        if self.control.len() >= CONTROL_QUEUED_MAX {
            return Err(SessionError::Exhausted);
        }
        match frame.body {
            Body::Acknowledge => Ok(()),
            Body::Hello(_) => Err(SessionError::Unexpected { frame: "hello" }),
            Body::Welcome(_) => Err(SessionError::Unexpected { frame: "welcome" }),
            Body::Open(open) => self.handle_open(now, open),
            Body::Accept { channel, credit_bytes } => self.handle_accept(channel, credit_bytes),
            Body::Data { channel, payload } => {
                if let Some(live) = self.live(channel)? {
                    if live.recv.finished || live.recv.credit.receive(payload.len()).is_err() {
                        self.break_channel(channel);
                        return Ok(());
                    }
                    let bytes = payload.len() as u64;
                    if bytes > 0 {
                        live.recv.store(payload);
                        self.events.push_back(MuxEvent::Readable(channel));
                    }
                    self.stats.bytes_received = self.stats.bytes_received.saturating_add(bytes);
                    self.numbering.payload_received(bytes);
                    self.keepalive.payload_flowed();
                }
                Ok(())
            }
            Body::Finish { channel } => {
                if let Some(live) = self.live(channel)? {
                    if live.recv.finished {
                        self.break_channel(channel);
                        return Ok(());
                    }
                    live.recv.finished = true;
                    self.events.push_back(MuxEvent::Readable(channel));
                    self.collect(channel);
                }
                Ok(())
            }
            Body::Reset { channel, reason } => {
                if self.live(channel)?.is_some() && self.discard(channel, reason) {
                    self.events.push_back(MuxEvent::Reset(channel, reason));
                }
                Ok(())
            }
            Body::Credit { grants } => grants.into_iter().try_for_each(|grant| self.handle_grant(grant)),
            Body::Ping { token } => {
                self.keepalive.handle_ping(token);
                Ok(())
            }
            Body::Pong { token } => {
                self.keepalive.handle_pong(now, token);
                Ok(())
            }
            Body::Drain { deadline_ms, redial_after_ms, moves } => {
                self.handle_drain(DrainAsked { deadline_ms, redial_after_ms, moves })
            }
            Body::OpenLane(wanted) => self.handle_open_lane(wanted),
            Body::Seal(seal) => self.handle_seal(seal),
            Body::Close { reason, detail } => Err(SessionError::Closed { reason, detail }),
        }
    }

    fn handle_drain(&mut self, asked: DrainAsked) -> Result<(), SessionError> {
        if self.settings.side == Side::Gateway {
            return Err(SessionError::Unexpected { frame: "drain" });
        }
        if self.drain_heard.replace(asked) != Some(asked) {
            self.events.push_back(MuxEvent::Draining(asked));
        }
        Ok(())
    }

    fn handle_open_lane(&mut self, wanted: RelayTicket) -> Result<(), SessionError> {
        if self.settings.side == Side::Gateway {
            return Err(SessionError::Unexpected { frame: "open_lane" });
        }
        self.events.push_back(MuxEvent::LaneWanted(wanted));
        Ok(())
    }

    fn handle_seal(&mut self, seal: Bytes) -> Result<(), SessionError> {
        if self.settings.side == Side::Gateway {
            return Err(SessionError::Unexpected { frame: "seal" });
        }
        self.events.push_back(MuxEvent::Sealed(seal));
        Ok(())
    }

    fn handle_open(&mut self, now: Instant, open: Open) -> Result<(), SessionError> {
        if self.settings.side == Side::Gateway {
            return Err(SessionError::Unexpected { frame: "open" });
        }
        let Open { channel, port, tls, credit_bytes, payload } = open;
        if channel <= self.last_opened {
            return Err(SessionError::ChannelOrder { channel });
        }
        self.last_opened = channel;
        self.stats.channels_opened += 1;
        // The promise of `open_credit` was made in advance, so a channel gets all of it or is refused.
        let window = self.settings.open_credit;
        let full = self.channels.len() >= self.settings.channels_max as usize;
        if full || !self.budget.reserve(u64::from(window)) {
            self.control.push_back(Body::Reset { channel, reason: Reason::Overloaded });
            return Ok(());
        }
        let mut live = OpenChannel::new(credit_bytes, window, self.settings.window_max, now);
        if live.recv.credit.receive(payload.len()).is_err() {
            self.orphaned += live.settle(&mut self.budget);
            self.control.push_back(Body::Reset { channel, reason: Reason::Protocol });
            return Ok(());
        }
        self.stats.bytes_received = self.stats.bytes_received.saturating_add(payload.len() as u64);
        self.keepalive.payload_flowed();
        if !payload.is_empty() {
            live.recv.queue.push_back(payload);
        }
        self.channels.insert(channel, Channel::Live(Box::new(live)));
        self.events.push_back(MuxEvent::Opened(Open { channel, port, tls, credit_bytes, payload: Bytes::new() }));
        Ok(())
    }

    fn handle_accept(&mut self, channel: ChannelId, credit_bytes: u32) -> Result<(), SessionError> {
        if self.settings.side == Side::Agent {
            return Err(SessionError::Unexpected { frame: "accept" });
        }
        let Some(live) = self.live(channel)? else { return Ok(()) };
        if live.accepted {
            self.break_channel(channel);
            return Ok(());
        }
        live.accepted = true;
        self.events.push_back(MuxEvent::Accepted(channel));
        if credit_bytes > 0 { self.handle_grant(Grant { channel, bytes: credit_bytes }) } else { Ok(()) }
    }

    fn handle_grant(&mut self, grant: Grant) -> Result<(), SessionError> {
        let channel = grant.channel;
        let Some(live) = self.live(channel)? else { return Ok(()) };
        if live.send.credit.add(grant.bytes).is_err() {
            self.break_channel(channel);
            return Ok(());
        }
        if std::mem::take(&mut live.send.blocked) {
            self.events.push_back(MuxEvent::Writable(channel));
        }
        self.requeue(channel);
        Ok(())
    }

    /// Returns the channel if it lives. Frames for one that is gone are late, not wrong; for one that never existed,
    /// they are wrong.
    fn live(&mut self, channel: ChannelId) -> Result<Option<&mut OpenChannel>, SessionError> {
        if channel > self.last_opened {
            return Err(SessionError::ChannelUnknown { channel });
        }
        match self.channels.get_mut(&channel) {
            Some(Channel::Live(live)) => Ok(Some(live)),
            Some(Channel::Reset(_)) | None => Ok(None),
        }
    }

    /// Resets a channel on which the peer broke a rule, and tells the application.
    fn break_channel(&mut self, channel: ChannelId) {
        self.control.push_back(Body::Reset { channel, reason: Reason::Protocol });
        if self.discard(channel, Reason::Protocol) {
            self.events.push_back(MuxEvent::Reset(channel, Reason::Protocol));
        }
    }
}
