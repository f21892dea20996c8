//! One call to a cluster's agent about orphans: a channel of its own in the agent's session, and a bound on each wait.

use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_proto::orphans::{Blocker, Decoder, Marked, MarkedRemoved, ORPHANS_PORT, OrphanAnswer, OrphanCall};
use tunnel_proto::reason::Reason;

use gateway_agents::registry::LiveSession;

/// Longest time from the call to the agent's acceptance.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence of an agent that works: it has one request to the cluster's API server under way.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

/// Most bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Reason for a call without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallFailure {
    /// The agent has no session.
    #[error("the cluster's agent is not connected")]
    Absent,
    /// The agent does not know the port.
    #[error("the cluster's agent is of a version that does not know orphans")]
    TooOld,
    /// The agent's session ended, or a newer one took its place.
    #[error("the session of the cluster's agent ended")]
    Lost,
    /// The agent did not accept the call in time, or was silent for too long.
    #[error("the cluster's agent did not answer in time")]
    Late,
    /// The agent has too many calls.
    #[error("the cluster's agent has too much to do")]
    Overloaded,
    /// The agent's answer is malformed, or missing.
    #[error("the cluster's agent gave no answer")]
    NoAnswer,
    /// The agent could not ask its cluster.
    #[error("the cluster's agent cannot tell: {0}")]
    Incomplete(String),
}

/// News of a removal.
pub(super) enum RemovalNews {
    /// Objects that are still there.
    Left(Vec<Blocker>),
    /// It is over.
    Over(MarkedRemoved),
}

/// A call under way. Dropping it calls it off.
pub(super) struct Call<'a> {
    session: &'a LiveSession,
    io: ChannelIo,
    unsent: Option<bytes::Bytes>,
    accepted: Option<oneshot::Receiver<Result<(), Reason>>>,
    decoder: Decoder<OrphanAnswer>,
    buffer: Vec<u8>,
    /// Lets a drain wait for the call, as for requests.
    _in_flight: OwnedSemaphorePermit,
}

impl<'a> Call<'a> {
    /// Opens the channel.
    pub(super) fn begin(session: &'a LiveSession, call: &OrphanCall) -> Result<Self, CallFailure> {
        let permit = session.requests.clone().try_acquire_owned().map_err(|_| CallFailure::Overloaded)?;
        let (io, accepted) = session.tunnel.channel(ORPHANS_PORT);
        Ok(Self {
            session,
            io,
            unsent: Some(call.encode()),
            accepted: Some(accepted),
            decoder: Decoder::default(),
            buffer: vec![0; READ_BYTES],
            _in_flight: permit,
        })
    }

    /// Collects all that the agent has found, up to `most`.
    pub(super) async fn list(mut self, most: usize) -> Result<Vec<Marked>, CallFailure> {
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                OrphanAnswer::Page(page) if all.len() + page.len() <= most => all.extend(page),
                OrphanAnswer::Page(_) => return Err(CallFailure::Incomplete(format!("there are more than {most}"))),
                OrphanAnswer::Listed(None) => return Ok(all),
                OrphanAnswer::Listed(Some(failure)) => return Err(CallFailure::Incomplete(failure)),
                OrphanAnswer::Removing(_) | OrphanAnswer::Removed(_) => return Err(CallFailure::NoAnswer),
            }
        }
    }

    /// Waits for the next news of a removal.
    pub(super) async fn removal(&mut self) -> Result<RemovalNews, CallFailure> {
        match self.next().await? {
            OrphanAnswer::Removing(left) => Ok(RemovalNews::Left(left)),
            OrphanAnswer::Removed(removed) => Ok(RemovalNews::Over(removed)),
            OrphanAnswer::Page(_) | OrphanAnswer::Listed(_) => Err(CallFailure::NoAnswer),
        }
    }

    async fn next(&mut self) -> Result<OrphanAnswer, CallFailure> {
        if let Some(accepted) = self.accepted.take() {
            let call = self.unsent.take().unwrap_or_default();
            let beginning = async {
                // The call goes with the opening of the channel, and so costs no round trip of its own.
                let sent = self.io.write_all(&call).await;
                accepted.await.unwrap_or(Err(Reason::SessionLost)).map_err(reason)?;
                sent.map_err(|error| failure(&error))
            };
            tokio::select! {
                () = self.session.tunnel.ended() => return Err(CallFailure::Lost),
                begun = tokio::time::timeout(ACCEPT_TIMEOUT, beginning) => begun.unwrap_or(Err(CallFailure::Late))?,
            }
        }
        loop {
            if let Some(answer) = self.decoder.next_message().map_err(|_| CallFailure::NoAnswer)? {
                return Ok(answer);
            }
            let read = tokio::select! {
                () = self.session.tunnel.ended() => return Err(CallFailure::Lost),
                read = tokio::time::timeout(SILENCE_TIMEOUT, self.io.read(&mut self.buffer)) => read,
            };
            let read = read.map_err(|_elapsed| CallFailure::Late)?.map_err(|error| failure(&error))?;
            match self.buffer.get(..read) {
                Some([]) | None => return Err(CallFailure::NoAnswer),
                Some(piece) => self.decoder.push(piece),
            }
        }
    }
}

fn failure(error: &std::io::Error) -> CallFailure {
    match ChannelError::find(error) {
        Some(ChannelError::Reset(why)) => reason(why),
        Some(ChannelError::Open(_) | ChannelError::Finished) | None => CallFailure::Lost,
    }
}

fn reason(reason: Reason) -> CallFailure {
    match reason {
        Reason::PortNotAllowed | Reason::PortClosed => CallFailure::TooOld,
        Reason::Overloaded => CallFailure::Overloaded,
        Reason::TimedOut => CallFailure::Late,
        Reason::Displaced | Reason::Shutdown | Reason::SessionLost | Reason::Revoked | Reason::WorkspaceStopped => {
            CallFailure::Lost
        }
        Reason::Unknown | Reason::Cancelled | Reason::AppReset | Reason::AppTls | Reason::Protocol => {
            CallFailure::NoAnswer
        }
    }
}
