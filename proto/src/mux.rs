//! One session's machine: channels, credit, scheduling, numbering and keepalive.
//!
//! Drive it in this order: [`Mux::handle_timeout`] once [`Mux::poll_timeout`] is reached, [`Mux::handle_frame`] for
//! received frames, commands from the application, then [`Mux::poll_transmit`] while the link has room, and
//! [`Mux::poll_event`] until it is empty after each of these. Nothing here blocks, reads a clock or rolls dice.

mod budget;
mod channel;
mod credit;
mod error;
mod event;
mod invariant;
mod keepalive;
mod numbering;
mod receive;
mod replay;
mod resume;
mod schedule;
mod transmit;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use self::budget::{Budget, ReplicaBudget};
pub use self::error::{OpenError, SessionError};
pub use self::event::{DrainAsked, MuxEvent};

use self::channel::{Channel, OpenChannel, SendState};
use self::keepalive::Keepalive;
use self::numbering::Numbering;
use self::replay::Replay;
use self::schedule::Schedule;
use crate::frame::{Body, Open};
use crate::hello::RelayTicket;
use crate::id::ChannelId;
use crate::limit::{
    CHANNELS_MAX, INTERACTIVE_BYTES_MAX, OPEN_CREDIT_BYTES, OPENS_QUEUED_MAX, PAYLOAD_BYTES_ALONE, REPLAY_BYTES_MAX,
    SEND_QUEUE_BYTES_FULL, SEND_QUEUE_BYTES_MAX, SEND_QUEUE_BYTES_MIN, SESSION_BUDGET_BYTES, SLICE_BYTES_MIN,
    WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX,
};
use crate::reason::Reason;
use crate::target::Target;

/// End of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens channels.
    Gateway,
    /// Accepts them.
    Agent,
}

/// Limits of a session. All sizes in payload bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// End of the session that this is.
    pub side: Side,
    /// Channels that may live at once.
    pub channels_max: u32,
    /// Window of a new channel while the budget has room.
    pub window_initial: u32,
    /// Ceiling of a window.
    pub window_max: u32,
    /// Bound on the sum of the session's windows.
    pub session_budget: u64,
    /// Bound on the sum of the process's windows.
    pub replica_budget: Option<Arc<ReplicaBudget>>,
    /// Credit of the gateway on a new channel before any grant: the agent's Hello says it.
    pub open_credit: u32,
    /// Silence after which a ping is sent.
    pub keepalive_interval: Duration,
    /// Wait for an answer before the link counts as dead.
    pub keepalive_timeout: Duration,
    /// Time that the session lives on without a link; `None` if it ends with its link.
    pub resume_grace: Option<Duration>,
    /// Bound on the payload that is kept to be sent again, in bytes of memory.
    pub replay_max: u64,
    /// The same bound for all lanes of the session together; see [`replay_budget`].
    pub replay_budget: Option<Arc<ReplicaBudget>>,
}

/// Makes the bound on the bytes that all lanes of a session keep to be sent again, with the bound `replay_max` on
/// payload.
#[must_use]
pub fn replay_budget(replay_max: u64) -> Arc<ReplicaBudget> {
    ReplicaBudget::new(replay::bound_of(replay_max))
}

impl Settings {
    /// Returns the defaults for one side.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            channels_max: CHANNELS_MAX,
            window_initial: WINDOW_BYTES_INITIAL,
            window_max: WINDOW_BYTES_MAX,
            session_budget: SESSION_BUDGET_BYTES,
            replica_budget: None,
            open_credit: OPEN_CREDIT_BYTES,
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(10),
            resume_grace: None,
            replay_max: REPLAY_BYTES_MAX,
            replay_budget: None,
        }
    }
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, never empty.
    Bytes(Bytes),
    /// Nothing yet; an [`MuxEvent::Readable`] follows.
    Pending,
    /// The peer finished; there is no more.
    End,
    /// The channel was reset.
    Reset(Reason),
}

/// Room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// So many bytes, never 0.
    Bytes(usize),
    /// None yet; an [`MuxEvent::Writable`] follows.
    Pending,
    /// This half was finished by us.
    Finished,
    /// The channel was reset.
    Reset(Reason),
}

/// Counters for people and metrics; plain numbers, published by the shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Channels opened since the start.
    pub channels_opened: u64,
    /// Channels that live now.
    pub channels_live: usize,
    /// Payload bytes sent since the start.
    pub bytes_sent: u64,
    /// Payload bytes received since the start.
    pub bytes_received: u64,
    /// Numbered frames sent, of these acknowledged, and received.
    pub frames: (u64, u64, u64),
    /// Bytes promised to the peer: the sum of all windows.
    pub window_bytes: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: usize,
    /// Bytes kept to be sent again should the link break, and those of opens that wait for a link.
    pub replay_bytes: u64,
    /// Bytes that the application has and did not give back; part of the windows.
    pub lent_bytes: u64,
    /// Links that carried the session so far.
    pub links: u64,
    /// Latest round trip.
    pub round_trip: Option<Duration>,
}

impl Stats {
    /// Adds the counters of another lane of the same session. The round trip stays this one's.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (sent, acknowledged, received) = self.frames;
        Self {
            channels_opened: self.channels_opened + other.channels_opened,
            channels_live: self.channels_live + other.channels_live,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            frames: (sent + other.frames.0, acknowledged + other.frames.1, received + other.frames.2),
            window_bytes: self.window_bytes + other.window_bytes,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            replay_bytes: self.replay_bytes + other.replay_bytes,
            lent_bytes: self.lent_bytes + other.lent_bytes,
            links: self.links + other.links,
            round_trip: self.round_trip,
        }
    }
}

/// One session's machine. See the module for the order of calls.
#[derive(Debug)]
pub struct Mux {
    settings: Settings,
    state: State,
    channels: BTreeMap<ChannelId, Channel>,
    /// Highest id ever opened, by either side's view.
    last_opened: ChannelId,
    budget: Budget,
    numbering: Numbering,
    keepalive: Keepalive,
    schedule: Schedule,
    /// Largest payload of a frame on this link.
    frame_max: usize,
    replay: Replay,
    /// Opens, accepts, finishes, resets and drains, in order.
    control: VecDeque<Body>,
    /// Channels whose destination took enough for a grant.
    grants_due: Vec<ChannelId>,
    events: VecDeque<MuxEvent>,
    queued_bytes: usize,
    /// Bytes that were lent by channels that are gone. They count in the budget until they are given back.
    orphaned: u64,
    /// Drain that the peer was asked for; a new link is told again.
    drain: Option<Body>,
    /// Drain that the peer asked for, in milliseconds: it tells every link.
    drain_heard: Option<DrainAsked>,
    stats: Stats,
}

#[derive(Debug)]
enum State {
    Up,
    /// No link carries the session; one may come.
    Detached {
        since: Instant,
    },
    /// One Close frame is still to be sent.
    Closing {
        reason: Reason,
        detail: String,
    },
    Ended,
}

impl Mux {
    /// Starts after the handshake.
    #[must_use]
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            state: State::Up,
            channels: BTreeMap::new(),
            last_opened: ChannelId::new(0),
            budget: Budget::new(settings.session_budget, settings.replica_budget.clone()),
            numbering: Numbering::default(),
            keepalive: Keepalive::new(settings.keepalive_interval, settings.keepalive_timeout, now),
            schedule: Schedule::default(),
            frame_max: PAYLOAD_BYTES_ALONE,
            replay: Replay::new(settings.replay_max, settings.replay_budget.clone()),
            control: VecDeque::new(),
            grants_due: Vec::new(),
            events: VecDeque::new(),
            queued_bytes: 0,
            orphaned: 0,
            drain: None,
            drain_heard: None,
            stats: Stats { links: 1, ..Stats::default() },
            settings,
        }
    }

    /// Returns counters for people and metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            channels_live: self.channels.len(),
            frames: self.numbering.counts(),
            window_bytes: self.budget.reserved() - self.replay.held(),
            queued_bytes: self.queued_bytes,
            replay_bytes: self.replay.bytes(),
            round_trip: self.keepalive.round_trip(),
            ..self.stats
        }
    }

    /// Returns the round trip: the smaller of the latest two.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.keepalive.round_trip()
    }

    /// Returns whether the session is over; nothing more will be sent or received.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Opens a channel to `target`. `first` goes along with the open frame, so that opening costs no round trip; what
    /// did not fit stays in `first` and is written like any other bytes.
    ///
    /// # Errors
    /// [`OpenError`] when a bound is reached; nothing was sent and `first` is untouched.
    pub fn open(&mut self, now: Instant, target: impl Into<Target>, first: &mut Bytes) -> Result<ChannelId, OpenError> {
        if !matches!(self.state, State::Up | State::Detached { .. }) {
            return Err(OpenError::Ended);
        }
        if self.channels.len() >= self.settings.channels_max as usize || self.control.len() >= OPENS_QUEUED_MAX {
            return Err(OpenError::ChannelsExhausted);
        }
        let channel = self.last_opened.next().ok_or(OpenError::ChannelsExhausted)?;
        let window = self.budget.reserve_window(self.settings.window_initial).ok_or(OpenError::BudgetExhausted)?;
        let mut live = OpenChannel::new(self.settings.open_credit, window, self.settings.window_max, now);
        let taken = live.send.credit.take(first.len().min(INTERACTIVE_BYTES_MAX));
        if !self.replay.admit(taken, &mut self.budget) {
            self.budget.release(u64::from(window));
            return Err(OpenError::ReplayExhausted);
        }
        // A slice would keep all of a large head in memory for as long as the frame is kept.
        let payload = cut(first, taken);
        self.note_sent(taken);
        let Target { port, tls } = target.into();
        self.control.push_back(Body::Open(Open { channel, port, tls, credit_bytes: window, payload }));
        self.channels.insert(channel, Channel::Live(Box::new(live)));
        self.last_opened = channel;
        self.stats.channels_opened += 1;
        Ok(channel)
    }

    /// Tells the gateway that the port answered, and grants the rest of the channel's window.
    pub fn accept(&mut self, channel: ChannelId) {
        let Some(Channel::Live(live)) = self.channels.get_mut(&channel) else { return };
        if live.accepted {
            return;
        }
        live.accepted = true;
        let credit_bytes = self.budget.widen(live.recv.credit.window(), self.settings.window_initial);
        live.recv.credit.extend(credit_bytes);
        self.control.push_back(Body::Accept { channel, credit_bytes });
    }

    /// Returns how much can be written now. Asked before bytes are read from their source, so that none have to be held
    /// while there is no room.
    pub fn room(&mut self, channel: ChannelId) -> Room {
        let queue_max = self.send_queue_max();
        match self.channels.get_mut(&channel) {
            None => Room::Reset(Reason::SessionLost),
            Some(Channel::Reset(reason)) => Room::Reset(*reason),
            Some(Channel::Live(live)) if live.send.state != SendState::Open => Room::Finished,
            Some(Channel::Live(live)) => {
                let credit = live.send.credit.available() as usize;
                let is_full = live.send.queued > SEND_QUEUE_BYTES_FULL;
                let room = if is_full { 0 } else { credit.min(queue_max).saturating_sub(live.send.queued) };
                live.send.blocked = room == 0;
                if room == 0 { Room::Pending } else { Room::Bytes(room) }
            }
        }
    }

    /// Queues as much of `bytes` as there is [room](Mux::room) for; the rest stays in `bytes`.
    pub fn write(&mut self, channel: ChannelId, bytes: &mut Bytes) -> Room {
        if bytes.is_empty() {
            return self.room(channel);
        }
        let room = self.room(channel);
        let (Room::Bytes(room), Some(Channel::Live(live))) = (room, self.channels.get_mut(&channel)) else {
            return room;
        };
        let piece = cut(bytes, room.min(bytes.len()));
        let written = piece.len();
        self.queued_bytes += written;
        live.send.store(piece);
        self.requeue(channel);
        Room::Bytes(written)
    }

    /// Ends the sending half. Queued bytes are sent first.
    pub fn finish(&mut self, channel: ChannelId) {
        let Some(Channel::Live(live)) = self.channels.get_mut(&channel) else { return };
        if live.send.state != SendState::Open {
            return;
        }
        if live.send.queue.is_empty() {
            live.send.state = SendState::Finished;
            self.control.push_back(Body::Finish { channel });
            self.collect(channel);
        } else {
            live.send.state = SendState::Finishing;
        }
    }

    /// Takes the next bytes. Taking gives credit back, so it is called when the destination has room.
    pub fn read(&mut self, channel: ChannelId) -> Read {
        let read = self.lend(channel);
        if let Read::Bytes(bytes) = &read {
            self.give_back(channel, bytes.len());
        }
        read
    }

    /// Like [`Mux::read`], but the bytes go on counting in the channel's window, and so in the budget, until they are
    /// [given back](Mux::give_back): for a caller that hands them on to a consumer which may not take them for a long
    /// time.
    pub fn lend(&mut self, channel: ChannelId) -> Read {
        match self.channels.get_mut(&channel) {
            None => Read::Reset(Reason::SessionLost),
            Some(Channel::Reset(reason)) => Read::Reset(*reason),
            Some(Channel::Live(live)) => match live.recv.queue.pop_front() {
                Some(bytes) => {
                    // Buffered bytes are within a window of 32 bits.
                    live.recv.lent += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.stats.lent_bytes += bytes.len() as u64;
                    Read::Bytes(bytes)
                }
                None if live.recv.finished => Read::End,
                None => Read::Pending,
            },
        }
    }

    /// Notes that lent bytes were taken. The channel may be gone by then.
    pub fn give_back(&mut self, channel: ChannelId, bytes: usize) {
        if let Some(Channel::Live(live)) = self.channels.get_mut(&channel) {
            let wanted_before = live.recv.credit.wants_grant();
            let count = u32::try_from(bytes).unwrap_or(u32::MAX).min(live.recv.lent);
            live.recv.lent -= count;
            self.stats.lent_bytes -= u64::from(count);
            live.recv.credit.consume(count as usize);
            // After the peer's Finish, credit is of no use any more.
            if !wanted_before && live.recv.credit.wants_grant() && !live.recv.finished {
                self.grants_due.push(channel);
            }
        } else {
            let bytes = (bytes as u64).min(self.orphaned);
            self.orphaned -= bytes;
            self.stats.lent_bytes -= bytes;
            self.budget.release(bytes);
        }
    }

    /// Ends a channel at once in both directions.
    pub fn reset(&mut self, channel: ChannelId, reason: Reason) {
        if matches!(self.channels.get(&channel), Some(Channel::Live(_))) {
            self.control.push_back(Body::Reset { channel, reason });
            self.discard(channel, reason);
        }
    }

    /// Releases the application's handle. A channel that is not over by then is reset; bytes that were written and
    /// finished are still sent.
    pub fn release(&mut self, channel: ChannelId) {
        match self.channels.get_mut(&channel) {
            None => {}
            Some(Channel::Reset(_)) => {
                self.channels.remove(&channel);
            }
            Some(Channel::Live(live)) => {
                live.held = false;
                if live.recv.finished && live.send.state != SendState::Open {
                    self.collect(channel);
                } else {
                    self.reset(channel, Reason::Cancelled);
                }
            }
        }
    }

    /// Asks the peer to attach elsewhere.
    pub fn drain(&mut self, deadline: Duration, redial_after: Duration) {
        self.ask_for_drain(deadline, redial_after, false);
    }

    /// Asks the peer to attach elsewhere with a new session first, within `redial_after`; this one lives on beside it.
    pub fn ask_to_move(&mut self, deadline: Duration, redial_after: Duration) {
        self.ask_for_drain(deadline, redial_after, true);
    }

    fn ask_for_drain(&mut self, deadline: Duration, redial_after: Duration, moves: bool) {
        let milliseconds = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let (deadline_ms, redial_after_ms) = (milliseconds(deadline), milliseconds(redial_after));
        let asked = Body::Drain { deadline_ms, redial_after_ms, moves };
        self.drain = Some(asked.clone());
        self.control.push_back(asked);
    }

    /// Asks the agent for one more link, which ends at another replica. Not repeated on a later link: the ticket is good
    /// for a short time only. Returns whether the agent may receive it: a session without a link has nothing to say.
    pub fn want_lane(&mut self, wanted: RelayTicket) -> bool {
        let is_sent = matches!(self.state, State::Up) && self.control.len() < OPENS_QUEUED_MAX;
        if is_sent {
            self.control.push_back(Body::OpenLane(wanted));
        }
        is_sent
    }

    /// Gives the agent a newer seal of its generation, if it has a link. Not repeated on a later one, whose Welcome has a seal.
    pub fn renew_seal(&mut self, seal: Bytes) {
        if matches!(self.state, State::Up) && self.control.len() < OPENS_QUEUED_MAX {
            self.control.push_back(Body::Seal(seal));
        }
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<MuxEvent> {
        self.events.pop_front()
    }

    /// Bound of one channel's send queue: lower for all channels once the session has a budget's quarter queued.
    fn send_queue_max(&self) -> usize {
        let spent = self.queued_bytes as u64 >= self.settings.session_budget / 4;
        if spent { SEND_QUEUE_BYTES_MIN } else { SEND_QUEUE_BYTES_MAX }
    }

    fn note_sent(&mut self, bytes: usize) {
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(bytes as u64);
        self.keepalive.payload_flowed();
    }

    /// Turns a live channel into a reset one and frees all it held. Returns whether an application still holds its
    /// handle.
    fn discard(&mut self, channel: ChannelId, reason: Reason) -> bool {
        let Some(Channel::Live(live)) = self.channels.get(&channel) else { return false };
        let held = live.held;
        self.orphaned += live.settle(&mut self.budget);
        self.queued_bytes -= live.send.queued;
        self.schedule.remove(channel, live.send.place);
        if held {
            self.channels.insert(channel, Channel::Reset(reason));
        } else {
            self.channels.remove(&channel);
        }
        held
    }

    /// Removes a channel that is over and whose handle is released.
    fn collect(&mut self, channel: ChannelId) {
        if let Some(Channel::Live(live)) = self.channels.get(&channel)
            && live.is_over()
            && !live.held
        {
            self.orphaned += live.settle(&mut self.budget);
            self.channels.remove(&channel);
        }
    }
}

/// Takes the first `taken` of `bytes`. If that leaves a rest, the two may be kept for different times, so a small part
/// gets memory of its own instead of keeping the buffer of both.
fn cut(bytes: &mut Bytes, taken: usize) -> Bytes {
    if taken == bytes.len() {
        return std::mem::take(bytes);
    }
    let own = |part: Bytes| if part.len() < SLICE_BYTES_MIN { Bytes::copy_from_slice(&part) } else { part };
    let first = own(bytes.split_to(taken));
    *bytes = own(std::mem::take(bytes));
    first
}

#[cfg(any(test, feature = "model"))]
pub mod model;
#[cfg(test)]
mod tests;
