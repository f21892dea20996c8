//! Events that the shell passes on to the application.

use bytes::Bytes;

use crate::frame::Open;
use crate::hello::RelayTicket;
use crate::id::ChannelId;
use crate::reason::Reason;

/// Change that a waiting application wants to know. Events about a channel are hints to look again: the state itself is
/// asked from the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MuxEvent {
    /// The peer opened a channel. The `payload` of [`Open`] is already readable on the channel and empty here.
    Opened(Open),
    /// The other end of a channel is connected.
    Accepted(ChannelId),
    /// There is something to read, or the end of it.
    Readable(ChannelId),
    /// There is room to write.
    Writable(ChannelId),
    /// The peer reset the channel.
    Reset(ChannelId, Reason),
    /// The peer asks to attach elsewhere.
    Draining(DrainAsked),
    /// The peer asks for one more link, which ends at another replica.
    LaneWanted(RelayTicket),
    /// The peer has sealed the session's generation anew.
    Sealed(Bytes),
}

/// Request of a gateway to attach elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainAsked {
    /// Until the link ends, in milliseconds.
    pub deadline_ms: u32,
    /// Earliest redial, in milliseconds.
    pub redial_after_ms: u32,
    /// A new session first: the one that is asked lives on beside it.
    pub moves: bool,
}
