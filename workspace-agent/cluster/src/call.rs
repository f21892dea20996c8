//! What calls of a gateway have in common, whatever they ask for: their number is bounded, each begins with one message, and the
//! end of the gateway's half calls it off.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tunnel_proto::reconcile::{Decoder, Message, MessageError};

/// Longest time for a gateway to send its call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait of an ended call for the request that it has sent: it must not be carried out after those of the next
/// call.
pub(crate) const LAST_REQUEST: Duration = Duration::from_secs(12);

/// Room for one call.
#[derive(Debug)]
pub struct CallPermit {
    _permit: OwnedSemaphorePermit,
}

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It was answered.
    Answered,
    /// The gateway, or this process, called it off.
    CalledOff,
    /// The gateway sent something else than a call.
    Protocol(MessageError),
    /// No call came.
    Silent,
}

impl CallPermit {
    /// Takes one of these; `None` if there is none.
    pub(crate) fn of(permits: &Arc<Semaphore>) -> Option<Self> {
        permits.clone().try_acquire_owned().ok().map(|permit| Self { _permit: permit })
    }
}

/// Reads a call, at most `most` bytes at once.
///
/// # Errors
/// How the call ends without one.
pub(crate) async fn read_call<M: Message, C: AsyncRead>(
    read: &mut ReadHalf<C>,
    most: usize,
    stop: &CancellationToken,
) -> Result<M, CallEnd> {
    let call = tokio::select! {
        () = stop.cancelled() => return Err(CallEnd::CalledOff),
        call = tokio::time::timeout(CALL_TIMEOUT, listen(read, most)) => call,
    };
    match call {
        Ok(Ok(Some(call))) => Ok(call),
        Ok(Ok(None)) => Err(CallEnd::CalledOff),
        Ok(Err(error)) => Err(CallEnd::Protocol(error)),
        Err(_elapsed) => Err(CallEnd::Silent),
    }
}

/// Reads the call; `None` if the channel ends before all of it came.
async fn listen<M: Message, C: AsyncRead>(read: &mut ReadHalf<C>, most: usize) -> Result<Option<M>, MessageError> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; most];
    loop {
        if let Some(call) = decoder.next_message()? {
            return Ok(Some(call));
        }
        match read.read(&mut buffer).await.ok().and_then(|read| buffer.get(..read)) {
            Some([]) | None => return Ok(None),
            Some(piece) => decoder.push(piece),
        }
    }
}

/// Waits until the gateway's half of the channel ends. It has nothing to say behind its call.
pub(crate) async fn until_the_end<C: AsyncRead>(read: &mut ReadHalf<C>) {
    let mut buffer = [0; 64];
    while matches!(read.read(&mut buffer).await, Ok(1..)) {}
}
