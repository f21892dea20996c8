//! A peer that breaks rules, and an application in the middle of it, against one session on either side.
//!
//! Beside the session stands a model of the rules, which knows nothing of how the session keeps them: what each side
//! may send, what arrived, what ended and who has to hear of it. Both have to agree after every step.

mod app;
mod book;
mod check;
mod link;
mod output;
mod peer;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tunnel_proto::id::ChannelId;
use tunnel_proto::mux::{Mux, ReplicaBudget, SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use self::book::ChannelBook;
use self::link::Unacknowledged;
use super::{OPERATION_BYTES, OPERATIONS_MAX, origin};

/// Salt of the bytes that the peer sends.
const FROM_PEER: u64 = 0;
/// Salt of the bytes that the session sends.
const FROM_SESSION: u64 = 997;

/// Frames that one input may repeat: enough to fill the control queue once.
const FLOOD_FRAMES_MAX: usize = 70_000;

/// Above this, a flood takes all that is left of [`FLOOD_FRAMES_MAX`].
const FLOOD_RARELY: u16 = 65_500;

/// How long a session that can be resumed waits for a link.
const GRACE: Duration = Duration::from_secs(30);

/// Bytes of the head that chooses the limits.
const HEAD_BYTES: usize = 4;

/// Carries out the operations that `bytes` spell; the first four choose the side and its limits.
///
/// # Panics
/// When a law is broken.
pub fn run(bytes: &[u8]) {
    let Some((head, script)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    let mut world = World::new(*head);
    for operation in script.chunks_exact(OPERATION_BYTES).take(OPERATIONS_MAX) {
        world.step(operation[0], operation[1], u16::from_le_bytes([operation[2], operation[3]]));
        world.check();
    }
    world.come_to_rest();
}

/// One session, its peer's books, and the model.
struct World {
    now: Instant,
    mux: Mux,
    settings: Settings,
    /// Accept channels as soon as they are opened.
    accepts_at_once: bool,
    books: BTreeMap<ChannelId, ChannelBook>,
    last_opened: ChannelId,
    /// Numbered frames from the peer, and of these acknowledged by the session.
    sent: u64,
    sent_acknowledged: u64,
    /// Numbered frames from the session.
    heard: u64,
    /// The peer acknowledges in each frame; otherwise it never does.
    acknowledges: bool,
    last_delivery: Instant,
    /// Token of the session's latest ping, and of the peer's latest that is not answered.
    pinged: Option<u64>,
    pong_due: Option<u64>,
    /// Control frames that wait in the session.
    backlog: usize,
    /// Opens that the session refused without having said so yet.
    refusals_due: usize,
    drains_due: VecDeque<(u32, u32)>,
    /// What the application asked for last; every new link is told.
    drain: Option<(u32, u32)>,
    /// No link carries the session.
    detached: bool,
    /// What the session has to keep for the next link.
    kept: Unacknowledged,
    /// What the opens cost that wait in the session.
    waiting: u64,
    /// The session is over; `Some` while it still has to tell the peer why.
    over: bool,
    close_due: Option<Reason>,
    flood_left: usize,
}

impl World {
    fn new(head: [u8; HEAD_BYTES]) -> Self {
        let pick = |choice: u8, from: [u32; 4]| from[usize::from(choice) % 4];
        let side = if head[0].is_multiple_of(2) { Side::Agent } else { Side::Gateway };
        let session_budget = u64::from(pick(head[0] >> 1, [256 << 10, 600_000, 2 << 20, 64 << 20]));
        // Sometimes the replica is the narrower of the two.
        let replica_budget = session_budget * u64::from(pick(head[0] >> 3, [4, 3, 2, 8])) / 4;
        let settings = Settings {
            channels_max: pick(head[1], [1, 3, 12, 40]),
            window_initial: pick(head[1] >> 2, [256 << 10, 64 << 10, 100_001, 1 << 20]),
            window_max: pick(head[1] >> 4, [8 << 20, 256 << 10, 1 << 20, 300_000]),
            session_budget,
            replica_budget: Some(ReplicaBudget::new(replica_budget)),
            open_credit: pick(head[2], [64 << 10, 16 << 10, 50_001, 256 << 10]),
            keepalive_interval: Duration::from_secs(u64::from(pick(head[2] >> 2, [20, 1, 5, 60]))),
            resume_grace: (head[3] & 4 != 0).then_some(GRACE),
            replay_max: session_budget / 2,
            ..Settings::new(side)
        };
        let now = origin();
        Self {
            now,
            mux: Mux::new(settings.clone(), now),
            settings,
            accepts_at_once: head[3].is_multiple_of(2),
            books: BTreeMap::new(),
            last_opened: ChannelId::new(0),
            sent: 0,
            sent_acknowledged: 0,
            heard: 0,
            acknowledges: head[3] & 2 == 0,
            last_delivery: now,
            pinged: None,
            pong_due: None,
            backlog: 0,
            refusals_due: 0,
            drains_due: VecDeque::new(),
            drain: None,
            detached: false,
            kept: Unacknowledged::default(),
            waiting: 0,
            over: false,
            close_due: None,
            flood_left: FLOOD_FRAMES_MAX,
        }
    }

    fn resumes(&self) -> bool {
        self.settings.resume_grace.is_some()
    }

    fn is_agent(&self) -> bool {
        self.settings.side == Side::Agent
    }

    fn step(&mut self, verb: u8, which: u8, number: u16) {
        match verb % 32 {
            31 if self.resumes() => self.link_step(which, number),
            0..=2 if !self.is_agent() => self.app_opens(number),
            30 if number.is_multiple_of(8) => self.app_ends_the_session(which),
            0..=12 | 28..=30 if self.detached => self.peer_is_not_heard(),
            0..=2 => self.peer_opens(number),
            3..=12 => self.peer_step(verb % 32, which, number),
            13..=21 => self.app_step(verb % 32, which, number),
            22 => self.pass(Duration::from_millis(u64::from(number % 700))),
            23 => self.pass(Duration::from_millis(u64::from(number))),
            24..=26 => self.transmit(usize::from(number % 8) + 1),
            27 => self.transmit(usize::MAX),
            28 => self.flood(which, number),
            // What ends the session would otherwise end nearly every script early.
            29 if number.is_multiple_of(4) => self.peer_breaks_the_session(which),
            _ => self.peer_step(5, which, number),
        }
    }

    /// Repeats one kind of frame without looking at the session in between.
    fn flood(&mut self, which: u8, number: u16) {
        // Mostly short: a flood that fills the control queue costs as much as a thousand other inputs.
        let times =
            if number > FLOOD_RARELY { self.flood_left } else { usize::from(number % 128).min(self.flood_left) };
        self.flood_left -= times;
        for _ in 0..times {
            match which % 8 {
                0..=2 if self.is_agent() => self.peer_opens(0),
                3 => self.peer_step(11, which, 0),
                // Small frames: many of them are the point.
                _ => self.peer_step(which % 8, which / 8, number % 64),
            }
            if self.over {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.mux.poll_timeout().is_none_or(|due| due > self.now) {
            return;
        }
        match self.mux.handle_timeout(self.now) {
            Ok(()) => {
                let due = self.mux.poll_timeout();
                assert!(due.is_none_or(|due| due > self.now), "a timer that fires again at once");
            }
            Err(error) if self.detached => {
                assert_eq!(error, SessionError::LinkLost);
                self.end(Reason::SessionLost, None);
            }
            Err(error) => {
                let silence = self.now - self.last_delivery;
                assert!(silence >= self.settings.keepalive_timeout, "{error} after {silence:?}");
                if self.resumes() {
                    self.loses_link();
                } else {
                    self.end(Reason::SessionLost, Some(Reason::TimedOut));
                }
            }
        }
        self.events();
    }

    /// Picks one of the channels that were ever opened, the latest more often.
    fn any_channel(&self, which: u8) -> Option<ChannelId> {
        let back = usize::from(which) % self.books.len().max(1);
        self.books.keys().rev().nth(back).copied()
    }

    /// Picks one of the channels that the application holds.
    fn held_channel(&self, which: u8) -> Option<ChannelId> {
        let held: Vec<_> = self.books.iter().filter(|(_, book)| book.held).map(|(id, _)| *id).collect();
        (!held.is_empty()).then(|| held[usize::from(which) % held.len()])
    }

    fn book(&mut self, channel: ChannelId) -> &mut ChannelBook {
        self.books.get_mut(&channel).expect("a channel that was opened")
    }

    /// The session ends: all channels do, and each holder hears of it. If the peer hears of it too, a drain that waits is
    /// said before.
    fn end(&mut self, heard: Reason, close: Option<Reason>) {
        for book in self.books.values_mut() {
            if book.live {
                book.end(heard);
            }
            book.resets_due = 0;
        }
        if close.is_none() {
            self.drains_due.clear();
        }
        self.backlog = self.drains_due.len();
        self.refusals_due = 0;
        self.kept = Unacknowledged::default();
        self.waiting = 0;
        self.detached = false;
        self.over = true;
        self.close_due = close;
    }

    /// A rule was broken on one channel: it ends, and both its holder and the peer hear of it.
    fn break_channel(&mut self, channel: ChannelId) {
        let book = self.book(channel);
        book.end(Reason::Protocol);
        book.resets_due += 1;
        self.backlog += 1;
    }
}
