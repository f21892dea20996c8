//! The reconcile channel: encodes and decodes the messages of a conversation.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use thiserror::Error;
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_proto::reason::Reason;
use tunnel_proto::reconcile::{Decoder, FromCluster, MessageError, RECONCILE_PORT, ToCluster};

use gateway_agents::registry::LiveSession;

/// Both directions of the channel. One message at a time waits to be written, so nothing piles up here while the agent
/// does not take it: the next message is decided once there is room for it.
#[derive(Debug)]
pub(super) struct ReconcileWire {
    io: ChannelIo,
    /// Unwritten rest of the last message.
    unwritten: Bytes,
    decoder: Decoder<FromCluster>,
}

/// Progress of the channel.
#[derive(Debug)]
pub(super) enum WireTurn {
    /// The message is written: there is room for another.
    Written,
    /// A message came.
    Message(FromCluster),
}

/// Error that ends the conversation.
#[derive(Debug, Error)]
pub(super) enum WireError {
    /// The agent, or the end of its session, ended the channel.
    #[error("the reconcile channel ended: {0}")]
    Ended(Reason),
    /// The received bytes are no message.
    #[error("the cluster agent sent {0}")]
    Message(#[from] MessageError),
}

impl ReconcileWire {
    /// Opens the channel. The open travels with the first message, so that it costs no round trip.
    pub(super) fn open(session: &LiveSession) -> Self {
        // Acceptance shows as the first message, and refusal as the channel's reset.
        let (io, _accepted) = session.tunnel.channel(RECONCILE_PORT);
        Self { io, unwritten: Bytes::new(), decoder: Decoder::default() }
    }

    /// Returns whether there is room for a message.
    pub(super) fn is_free(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Queues a message. Only while [`ReconcileWire::is_free`].
    pub(super) fn say(&mut self, message: &ToCluster) {
        debug_assert!(self.is_free(), "a message would be cut");
        self.unwritten = message.encode();
    }

    /// Waits until the queued message is written or another one came.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Cancel safety
    /// Safe: what was written or received so far is kept.
    pub(super) async fn turn(&mut self) -> Result<WireTurn, WireError> {
        poll_fn(|context| self.poll_turn(context)).await
    }

    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<Result<WireTurn, WireError>> {
        // Written first, so that an agent that never stops sending cannot delay it.
        if !self.unwritten.is_empty() {
            while let Poll::Ready(written) = self.io.poll_write_bytes(context, &mut self.unwritten) {
                written.map_err(|error| WireError::Ended(reason_of(&error)))?;
                if self.unwritten.is_empty() {
                    return Poll::Ready(Ok(WireTurn::Written));
                }
            }
        }
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Poll::Ready(Ok(WireTurn::Message(message)));
            }
            match self.io.poll_bytes(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(bytes))) => self.decoder.push(&bytes),
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(WireError::Ended(Reason::Cancelled))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(WireError::Ended(reason_of(&error)))),
            }
        }
    }
}

fn reason_of(error: &io::Error) -> Reason {
    match ChannelError::find(error) {
        Some(ChannelError::Reset(reason)) => reason,
        Some(ChannelError::Open(_) | ChannelError::Finished) | None => Reason::SessionLost,
    }
}
