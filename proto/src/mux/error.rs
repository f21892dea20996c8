//! Errors, by their extent: one channel or the whole session.

use thiserror::Error;

use crate::frame::FrameError;
use crate::id::ChannelId;
use crate::reason::Reason;

/// Reason why the session ended. Except for [`SessionError::LinkLost`] and [`SessionError::Ended`] the peer broke a
/// rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    /// Bytes that are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A numbered frame is missing or came twice.
    #[error("frame {got} came where {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// The peer acknowledged a frame that was never sent.
    #[error("the peer acknowledged frame {acknowledged}, the last one sent is {sent}")]
    Acknowledged {
        /// Number that the peer acknowledged.
        acknowledged: u64,
        /// The last number sent.
        sent: u64,
    },
    /// A frame that this side of the protocol never sends.
    #[error("a {frame} frame cannot come from this peer now")]
    Unexpected {
        /// Kind of the frame.
        frame: &'static str,
    },
    /// A channel was opened with an id that is not higher than the one before.
    #[error("channel {channel} was opened out of order")]
    ChannelOrder {
        /// The offending id.
        channel: ChannelId,
    },
    /// A frame for a channel that was never opened.
    #[error("a frame for {channel}, which was never opened")]
    ChannelUnknown {
        /// The offending id.
        channel: ChannelId,
    },
    /// Frame or channel numbers are used up.
    #[error("all numbers of this session are used up")]
    Exhausted,
    /// No answer to a ping in time.
    #[error("no answer to a ping in time")]
    KeepaliveTimedOut,
    /// The link was lost and did not come back in time.
    #[error("the link was lost and did not come back in time")]
    LinkLost,
    /// The peer closed the session.
    #[error("the peer closed the session: {reason}")]
    Closed {
        /// Its reason.
        reason: Reason,
        /// Its text for people.
        detail: String,
    },
    /// The link is gone, and the session with it.
    #[error("the link is gone")]
    Ended,
}

impl SessionError {
    /// Returns the reason to tell the peer.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Frame(_)
            | Self::Sequence { .. }
            | Self::Acknowledged { .. }
            | Self::Unexpected { .. }
            | Self::ChannelOrder { .. }
            | Self::ChannelUnknown { .. } => Reason::Protocol,
            Self::Exhausted => Reason::Overloaded,
            Self::KeepaliveTimedOut => Reason::TimedOut,
            Self::Closed { reason, .. } => *reason,
            Self::LinkLost | Self::Ended => Reason::SessionLost,
        }
    }
}

/// A channel could not be opened; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// As many channels live as the session may have.
    #[error("the session has as many channels as it may have")]
    ChannelsExhausted,
    /// The memory budget of the session or the replica is spent.
    #[error("the memory budget is spent")]
    BudgetExhausted,
    /// The peer has not acknowledged as much as may be kept for a resume.
    #[error("the peer acknowledges too little of what was sent")]
    ReplayExhausted,
    /// The session has ended or is draining.
    #[error("the session has ended")]
    Ended,
}
