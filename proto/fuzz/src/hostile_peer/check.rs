//! What must hold after every step, and what must hold at rest.

use std::time::Duration;

use tunnel_proto::limit::{
    ACKNOWLEDGE_DELAY, PAYLOAD_BYTES_MAX, REPLAY_BYTES_FREE, REPLAY_FRAME_BYTES, SEND_QUEUE_BYTES_MAX,
    SEND_QUEUE_BYTES_MIN, WINDOW_BYTES_MIN,
};
use tunnel_proto::mux::Room;

use super::World;

impl World {
    pub(super) fn check(&self) {
        assert_eq!(self.mux.broken_invariant(), None);
        let stats = self.mux.stats();
        let (mut queued, mut promised, mut known) = (0, 0, 0);
        for (channel, book) in &self.books {
            known += usize::from(book.live || book.held);
            let books = self.mux.credit_books(*channel).map(|(send, receive)| (u64::from(send), u64::from(receive)));
            let expected = book.live.then_some((book.credit, book.outstanding));
            assert_eq!(books, expected, "{channel}: credit by the session and by the rules");
            if book.live {
                assert!(book.queued() <= book.credit, "{channel}: queued more than may be sent");
                queued += book.queued();
                promised += book.outstanding + book.unread();
            }
        }
        assert_eq!(stats.channels_live, known, "channels in the table");
        assert!(known <= self.settings.channels_max as usize, "more channels than may live");
        assert_eq!(stats.queued_bytes as u64, queued, "bytes queued");
        assert_eq!((stats.frames.0, stats.frames.2), (self.heard, self.sent), "frames counted");
        assert!(promised <= stats.window_bytes, "promised more than was reserved");
        assert!(stats.window_bytes <= self.settings.session_budget, "reserved more than the session's budget");
        let replica = self.settings.replica_budget.as_ref().expect("set above");
        assert_eq!(
            stats.replay_bytes,
            self.kept.bytes() + self.waiting,
            "bytes kept for the next link, or that wait for one"
        );
        // Room to keep frames is taken in steps; how much of it is the session's own affair, but it is never too little.
        let is_exact = stats.replay_bytes == 0;
        let free = (REPLAY_BYTES_FREE + PAYLOAD_BYTES_MAX + REPLAY_FRAME_BYTES) as u64;
        assert!(stats.replay_bytes <= replica.reserved() - stats.window_bytes + free, "more is kept than is charged");
        let held = replica.reserved().checked_sub(stats.window_bytes).expect("the replica's budget has other books");
        assert!(held == 0 || !is_exact, "the replica's budget has other books");
        assert!(replica.reserved() <= self.settings.session_budget, "reserved more than the session's budget");
        assert!(replica.reserved() <= replica.limit(), "reserved more than the replica's budget");
        let channels = u64::from(self.settings.channels_max);
        let bound =
            self.settings.session_budget / 4 + SEND_QUEUE_BYTES_MAX as u64 + channels * SEND_QUEUE_BYTES_MIN as u64;
        assert!(queued <= bound, "{queued} bytes queued");
        assert_eq!(self.mux.is_ended(), self.over && self.close_due.is_none(), "ended or not");
        assert_eq!(self.mux.is_detached(), self.detached, "with a link or without");
        assert_eq!(self.mux.is_up(), !self.detached && !self.over, "up or not");
        assert!(!self.detached || !self.mux.wants_transmit(), "wants to send without a link");
    }

    /// Lets everything that can move do so, and looks at what is left.
    pub(super) fn come_to_rest(&mut self) {
        if self.detached {
            // Everything that it may say again.
            self.peer_resumes(0);
        }
        self.transmit_all();
        self.read_all();
        self.transmit_all();
        self.check();
        if !self.over {
            self.check_at_rest();
        }
        if self.detached {
            // The peer had been silent for too long already.
            self.peer_resumes(0);
        }
        for channel in self.books.keys().copied().collect::<Vec<_>>() {
            if self.books[&channel].held {
                self.app_releases(channel);
                self.check();
            }
        }
        self.transmit_all();
        self.check();
        let stats = self.mux.stats();
        assert_eq!((stats.channels_live, stats.window_bytes, stats.queued_bytes), (0, 0, 0), "something is left over");
        assert_eq!(stats.replay_bytes, 0, "something is kept that was acknowledged");
        assert_eq!((self.backlog, self.refusals_due, self.close_due), (0, 0, None), "a frame was never sent");
    }

    /// Lets the session send everything. What it has to keep may be in the way of that until it is acknowledged.
    fn transmit_all(&mut self) {
        self.transmit(usize::MAX);
        while self.kept.bytes() > 0 && self.peer_acknowledges() {
            self.transmit(usize::MAX);
        }
    }

    fn read_all(&mut self) {
        for channel in self.books.keys().copied().collect::<Vec<_>>() {
            if self.books[&channel].held {
                while self.app_reads(channel) {}
            }
        }
        self.events();
    }

    fn check_at_rest(&mut self) {
        assert_eq!((self.backlog, self.refusals_due), (0, 0), "a control frame was never sent");
        assert_eq!((self.pong_due, self.drains_due.len()), (None, 0), "an answer was never sent");
        for channel in self.books.keys().copied().collect::<Vec<_>>() {
            let book = self.book(channel);
            assert_eq!(book.resets_due, 0, "{channel}: a reset was never sent");
            if !book.live {
                continue;
            }
            assert_eq!(book.queued(), 0, "{channel}: bytes with credit were never sent");
            assert_eq!(book.finish_heard, book.finishing, "{channel}: a finish was never sent");
            if book.held && !book.finished {
                let low = u64::from(WINDOW_BYTES_MIN) / 2;
                assert!(book.outstanding >= low, "{channel}: everything was read and no credit came back");
            }
            if book.waits_to_write {
                assert_eq!(self.mux.room(channel), Room::Pending, "{channel}: a lost wake-up of a writer");
            }
        }
        // Long enough for an acknowledgement, too short for a keepalive to give up.
        self.pass(ACKNOWLEDGE_DELAY + Duration::from_millis(1));
        self.transmit_all();
        if !self.over && !self.detached {
            assert_eq!(self.sent_acknowledged, self.sent, "frames were never acknowledged");
        }
    }
}
