//! What the application does with the channels it holds.

use std::time::Duration;

use tunnel_proto::id::ChannelId;
use tunnel_proto::limit::{
    INTERACTIVE_BYTES_MAX, OPENS_QUEUED_MAX, REPLAY_BYTES_FREE, REPLAY_FRAME_BYTES, SEND_QUEUE_BYTES_FULL,
    SEND_QUEUE_BYTES_MAX, SEND_QUEUE_BYTES_MIN, WINDOW_BYTES_MIN,
};
use tunnel_proto::mux::{OpenError, Read, Room};
use tunnel_proto::reason::Reason;

use super::super::pattern;
use super::book::ChannelBook;
use super::{FROM_PEER, FROM_SESSION, World};

impl World {
    pub(super) fn app_step(&mut self, verb: u8, which: u8, number: u16) {
        let Some(channel) = self.held_channel(which) else {
            return;
        };
        match verb {
            13 | 14 => self.app_writes(channel, number),
            15 | 16 => {
                self.app_reads(channel);
            }
            17 => while self.app_reads(channel) {},
            18 => self.app_finishes(channel),
            19 if number.is_multiple_of(4) => self.app_resets(channel, number),
            20 if number.is_multiple_of(3) => self.app_releases(channel),
            _ if self.is_agent() => self.app_accepts(channel),
            _ => self.app_writes(channel, number),
        }
        self.events();
    }

    pub(super) fn app_opens(&mut self, number: u16) {
        let mut first = pattern(FROM_SESSION, 0, usize::from(number % 4096));
        let wanted = first.len();
        let live = self.mux.stats().channels_live;
        let full = live >= self.settings.channels_max as usize || self.backlog >= OPENS_QUEUED_MAX;
        let channel = match self.mux.open(self.now, 80, &mut first) {
            Ok(channel) => channel,
            Err(error) => {
                assert_eq!(first.len(), wanted, "bytes were taken without a channel");
                return match error {
                    OpenError::Ended => assert!(self.over, "ended without an end"),
                    OpenError::ChannelsExhausted => assert!(full, "refused for nothing"),
                    OpenError::BudgetExhausted => {
                        assert!(self.budget_lacks(u64::from(WINDOW_BYTES_MIN)), "refused for nothing");
                    }
                    OpenError::ReplayExhausted => {
                        let charged = self.kept.bytes() + self.waiting;
                        let open = (INTERACTIVE_BYTES_MAX + REPLAY_FRAME_BYTES) as u64;
                        assert!(charged + open > REPLAY_BYTES_FREE as u64, "refused for nothing");
                    }
                };
            }
        };
        assert!(!self.over && !full, "opened beyond a bound");
        assert_eq!(Some(channel), self.last_opened.next(), "ids grow by one");
        self.last_opened = channel;
        self.backlog += 1;
        let taken = wanted - first.len();
        assert!(taken <= INTERACTIVE_BYTES_MAX, "an open frame carried bulk");
        self.waiting += (taken + REPLAY_FRAME_BYTES) as u64;
        let (_, outstanding) = self.mux.credit_books(channel).expect("a new channel");
        self.books.insert(
            channel,
            ChannelBook {
                live: true,
                held: true,
                outstanding: u64::from(outstanding),
                credit: u64::from(self.settings.open_credit) - taken as u64,
                written: taken as u64,
                received: taken as u64,
                first: taken,
                ..ChannelBook::default()
            },
        );
        self.events();
    }

    pub(super) fn app_accepts(&mut self, channel: ChannelId) {
        let before = self.mux.credit_books(channel);
        self.mux.accept(channel);
        let after = self.mux.credit_books(channel);
        let initial = u64::from(self.settings.window_initial);
        let book = self.book(channel);
        if !book.live || book.accepted {
            assert_eq!(before, after, "accepted twice, or after the end");
            return;
        }
        let (Some((_, before)), Some((_, after))) = (before, after) else { panic!("an accepted channel is gone") };
        book.accepted = true;
        book.promised = u64::from(after - before);
        book.outstanding += book.promised;
        assert!(book.promised == 0 || book.outstanding + book.unread() <= initial, "promised too much");
        self.backlog += 1;
    }

    fn app_writes(&mut self, channel: ChannelId, number: u16) {
        let queued_before = self.mux.stats().queued_bytes as u64;
        let spent = queued_before >= self.settings.session_budget / 4;
        let queue_max = if spent { SEND_QUEUE_BYTES_MIN } else { SEND_QUEUE_BYTES_MAX } as u64;
        let book = self.books.get_mut(&channel).expect("held");
        let length = if number.is_multiple_of(2) { usize::from(number / 2 % 64) } else { usize::from(number) * 3 };
        let mut bytes = pattern(FROM_SESSION, book.written, length);
        let is_full = book.queued() > SEND_QUEUE_BYTES_FULL as u64;
        let room = if is_full { 0 } else { book.credit.min(queue_max).saturating_sub(book.queued()) };
        let expected = if let Some(reason) = book.ended {
            Room::Reset(reason)
        } else if book.finishing {
            Room::Finished
        } else if room == 0 {
            Room::Pending
        } else if length == 0 {
            Room::Bytes(room as usize)
        } else {
            Room::Bytes(length.min(room as usize))
        };
        let result = self.mux.write(channel, &mut bytes);
        assert_eq!(result, expected, "{channel} with {} credit and {} queued", book.credit, book.queued());
        let written = length - bytes.len();
        book.written += written as u64;
        book.waits_to_write = expected == Room::Pending;
        assert!(written == 0 || matches!(expected, Room::Bytes(_)), "took bytes without room");
        assert_eq!(self.mux.stats().queued_bytes as u64, queued_before + written as u64, "queued another number");
    }

    /// Reads once, and returns whether there was something.
    pub(super) fn app_reads(&mut self, channel: ChannelId) -> bool {
        let result = self.mux.read(channel);
        let book = self.book(channel);
        match result {
            Read::Bytes(bytes) => {
                assert!(book.live && !bytes.is_empty(), "bytes after the end");
                assert!(bytes.len() as u64 <= book.unread(), "more bytes than were sent");
                assert_eq!(bytes, pattern(FROM_PEER, book.read, bytes.len()), "other bytes than were sent");
                book.read += bytes.len() as u64;
                return true;
            }
            Read::Pending => {
                assert!(book.live && book.unread() == 0 && !book.finished, "something is there to read");
                book.waits_to_read = true;
            }
            Read::End => assert!(book.live && book.unread() == 0 && book.finished, "an end that nobody sent"),
            Read::Reset(reason) => assert_eq!(book.ended, Some(reason), "reset for another reason"),
        }
        false
    }

    pub(super) fn app_finishes(&mut self, channel: ChannelId) {
        self.mux.finish(channel);
        let book = self.book(channel);
        if book.live && !book.finishing {
            book.finishing = true;
            book.waits_to_write = false;
            let now = book.has_finished();
            book.collect();
            self.backlog += usize::from(now);
        }
    }

    fn app_resets(&mut self, channel: ChannelId, number: u16) {
        let reason = Reason::ALL[usize::from(number / 4) % Reason::ALL.len()];
        self.mux.reset(channel, reason);
        self.own_reset(channel, reason);
    }

    fn own_reset(&mut self, channel: ChannelId, reason: Reason) {
        let book = self.book(channel);
        if book.live {
            book.end(reason);
            // Who resets knows.
            book.reset_event = None;
            book.resets_due += 1;
            self.backlog += 1;
        }
    }

    pub(super) fn app_releases(&mut self, channel: ChannelId) {
        self.mux.release(channel);
        let book = self.book(channel);
        book.held = false;
        if book.finished && book.finishing {
            book.collect();
        } else {
            self.own_reset(channel, Reason::Cancelled);
        }
    }

    pub(super) fn app_ends_the_session(&mut self, which: u8) {
        match which % 4 {
            0 | 1 if !self.over && !self.is_agent() && self.drains_due.is_empty() => {
                self.mux.drain(Duration::from_millis(u64::from(which)), Duration::from_secs(1));
                self.drain = Some((u32::from(which), 1000));
                self.drains_due.extend(self.drain);
                self.backlog += 1;
            }
            2 => {
                self.mux.close(Reason::Shutdown, "bye");
                if !self.over {
                    // Without a link the peer is not told.
                    let close = (!self.detached).then_some(Reason::Shutdown);
                    self.end(Reason::SessionLost, close);
                }
            }
            3 => {
                let waits = self.mux.link_lost(self.now);
                assert_eq!(waits, self.resumes() && !self.over, "waits for a link or not");
                if !waits {
                    self.end(Reason::SessionLost, None);
                } else if !self.detached {
                    self.loses_link();
                }
            }
            _ => {}
        }
        self.events();
    }
}
