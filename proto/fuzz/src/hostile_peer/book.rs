//! What the rules say about one channel.

use tunnel_proto::reason::Reason;

/// One channel by the rules.
#[derive(Debug, Default)]
pub(super) struct ChannelBook {
    /// Not reset, and not over without a holder.
    pub(super) live: bool,
    /// The application holds its handle.
    pub(super) held: bool,
    pub(super) accepted: bool,

    /// Bytes that the peer may still send.
    pub(super) outstanding: u64,
    /// Of these, promised in an Accept that has not left yet.
    pub(super) promised: u64,
    /// Bytes of the peer that were within the rules, and of these read by the application.
    pub(super) sent: u64,
    pub(super) read: u64,
    /// The peer finished.
    pub(super) finished: bool,

    /// Bytes that the session may still send.
    pub(super) credit: u64,
    /// Bytes that the application wrote, and of these out on the wire.
    pub(super) written: u64,
    pub(super) received: u64,
    /// Bytes that went along with the open frame.
    pub(super) first: usize,
    /// The application finished.
    pub(super) finishing: bool,
    /// The Finish frame left.
    pub(super) finish_heard: bool,

    /// Resets that the peer has still to hear of.
    pub(super) resets_due: usize,
    /// The Reset frame left.
    pub(super) reset_heard: bool,
    /// The application has to hear this next.
    pub(super) reset_event: Option<Reason>,
    /// Why the channel ended.
    pub(super) ended: Option<Reason>,
    pub(super) accepted_event: bool,
    /// The application was told to wait, and not yet to look again.
    pub(super) waits_to_read: bool,
    pub(super) waits_to_write: bool,
}

impl ChannelBook {
    /// Ends the channel in both directions; its holder is notified.
    pub(super) fn end(&mut self, reason: Reason) {
        self.live = false;
        self.ended = Some(reason);
        if self.held {
            self.reset_event = Some(reason);
        }
    }

    /// Returns the bytes that wait in the session to be sent.
    pub(super) fn queued(&self) -> u64 {
        self.written - self.received
    }

    /// Returns the bytes that wait in the session to be read.
    pub(super) fn unread(&self) -> u64 {
        self.sent - self.read
    }

    /// Returns whether the session's half is finished: everything is out but the Finish frame itself.
    pub(super) fn has_finished(&self) -> bool {
        self.finishing && self.queued() == 0
    }

    /// Forgets a channel that is finished in both directions and has no holder.
    pub(super) fn collect(&mut self) {
        if self.has_finished() && self.finished && !self.held {
            self.live = false;
        }
    }
}
