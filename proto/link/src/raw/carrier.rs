//! Joins one WebSocket with one end of the bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, Stream};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tunnel_proto::limit::SLICE_BYTES_MIN;

use super::local::Local;
use super::pulse::{Beat, Pulse};
use super::{FINISH, PIECE_BYTES_SMALL, code, config};

/// Messages moved before others get their turn.
const TURN: usize = 64;

/// End of a raw stream, other than a good one.
#[derive(Debug, Error)]
pub enum CarrierBroken {
    /// The local end broke.
    #[error("this end broke")]
    Here(#[source] io::Error),
    /// The other end closed the stream with a code and a reason.
    #[error("the other end closed it ({code} {reason})")]
    There {
        /// One of [`code`](super::code), or any other that it sent.
        code: u16,
        /// A name such as `session_lost`; may be empty.
        reason: String,
    },
    /// The connection in between broke.
    #[error("the connection broke")]
    Lost(#[source] tungstenite::Error),
    /// The connection in between ended without a word.
    #[error("the connection ended")]
    Gone,
    /// Nothing was heard from the other end for too long.
    #[error("the other end does not answer")]
    Silent,
    /// The other end broke a rule.
    #[error("the other end broke a rule: {0}")]
    Rule(&'static str),
}

/// Bytes copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarriedBytes {
    /// Out of the WebSocket into the local end.
    pub inward: u64,
    /// From the local end into the WebSocket.
    pub outward: u64,
}

/// A raw stream at one of its ends.
pub struct Carrier<S, L> {
    socket: WebSocketStream<S>,
    local: L,
    inward: Inward,
    outward: Outward,
    pulse: Pulse,
    copied: CarriedBytes,
    heed: Option<Box<dyn FnMut(Piece) + Send>>,
}

/// A piece of a stream on its way, with its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// From the WebSocket to this end.
    Inward(usize),
    /// From this end to the WebSocket.
    Outward(usize),
}

/// Direction from the WebSocket to this end.
enum Inward {
    Open,
    /// Bytes that this end has not taken yet.
    Giving(Bytes),
    Flushing,
    Finishing,
    Over,
}

/// Direction from this end to the WebSocket.
struct Outward {
    is_over: bool,
    /// Whether a message may not be written yet.
    unflushed: bool,
    is_ping_due: bool,
    /// Bytes of that message: they count as used until it is written, so that a slow user is felt at their source.
    lent: Bytes,
}

impl<S, L> std::fmt::Debug for Carrier<S, L> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Carrier").field("copied", &self.copied).finish_non_exhaustive()
    }
}

impl<S, L> Carrier<S, L>
where
    S: AsyncRead + AsyncWrite + Unpin,
    L: Local,
{
    /// Starts on a stream that has switched to a WebSocket. `ping_interval` is [`PING_INTERVAL`](super::PING_INTERVAL)
    /// but in tests.
    pub async fn new(stream: S, role: Role, local: L, ping_interval: Duration) -> Self {
        Self {
            socket: WebSocketStream::from_raw_socket(stream, role, Some(config())).await,
            local,
            inward: Inward::Open,
            outward: Outward { is_over: false, unflushed: false, is_ping_due: false, lent: Bytes::new() },
            pulse: Pulse::new(ping_interval),
            copied: CarriedBytes::default(),
            heed: None,
        }
    }

    /// Calls `heed` for each piece that comes, before it is handed on. It must not wait.
    pub fn on_piece(&mut self, heed: impl FnMut(Piece) + Send + 'static) {
        self.heed = Some(Box::new(heed));
    }

    /// Moves bytes until both directions have finished. The WebSocket is then still to be closed, with
    /// [`Goodbye::say`].
    ///
    /// # Errors
    /// [`CarrierBroken`] says at which end.
    ///
    /// Cancel safety: safe; it can be called again and goes on.
    pub async fn run(&mut self) -> Result<CarriedBytes, CarrierBroken> {
        poll_fn(|context| self.poll(context)).await?;
        Ok(self.copied)
    }

    /// Returns the bytes copied so far.
    #[must_use]
    pub fn copied(&self) -> CarriedBytes {
        self.copied
    }

    /// Takes the carrier apart: no byte moves any more, and each end can be told.
    pub fn part(self) -> (Goodbye<S>, L) {
        (Goodbye { socket: self.socket }, self.local)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CarrierBroken>> {
        let mut moved = 0;
        loop {
            // By turns, so that neither direction starves the other.
            let sent = self.poll_outward(context)?;
            let received = self.poll_inward(context)?;
            if self.outward.is_over && !self.outward.unflushed && matches!(self.inward, Inward::Over) {
                return Poll::Ready(Ok(()));
            }
            moved += 1;
            if moved == TURN {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if sent.is_ready() || received.is_ready() {
                continue;
            }
            match self.pulse.poll(context, !self.inward.waits_for_local(), self.outward.unflushed) {
                Poll::Pending => break,
                Poll::Ready(Beat::Ping) => self.outward.is_ping_due = true,
                Poll::Ready(Beat::Dead) => return Poll::Ready(Err(CarrierBroken::Silent)),
            }
        }
        // While it waits for the other end alone, it still has to hear that the local end is gone.
        if (self.outward.is_over || self.outward.unflushed)
            && let Poll::Ready(error) = self.local.poll_broken(context)
        {
            return Poll::Ready(Err(CarrierBroken::Here(error)));
        }
        Poll::Pending
    }

    /// Hands one message over. It is asked for once the last one is written.
    fn poll_outward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CarrierBroken>> {
        if self.outward.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(context)).map_err(CarrierBroken::Lost)?;
            self.outward.unflushed = false;
            self.outward.lent = Bytes::new();
        }
        let message = if std::mem::take(&mut self.outward.is_ping_due) {
            Message::Ping(Bytes::new())
        } else if self.outward.is_over {
            return Poll::Pending;
        } else if let Some(bytes) = ready!(self.local.poll_take(context)).map_err(CarrierBroken::Here)? {
            self.copied.outward += bytes.len() as u64;
            if let Some(heed) = &mut self.heed {
                heed(Piece::Outward(bytes.len()));
            }
            if bytes.len() > PIECE_BYTES_SMALL {
                self.outward.lent = bytes.clone();
            }
            Message::Binary(bytes)
        } else {
            self.outward.is_over = true;
            Message::Text(Utf8Bytes::from_static(FINISH))
        };
        self.outward.unflushed = true;
        Poll::Ready(Pin::new(&mut self.socket).start_send(message).map_err(CarrierBroken::Lost))
    }

    /// Moves one message inward.
    fn poll_inward(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CarrierBroken>> {
        match &mut self.inward {
            Inward::Open | Inward::Over => {
                let next = ready!(Pin::new(&mut self.socket).poll_next(context));
                self.pulse.heard();
                return Poll::Ready(self.receive(next));
            }
            Inward::Giving(bytes) => {
                let before = bytes.len();
                ready!(self.local.poll_give(context, bytes)).map_err(CarrierBroken::Here)?;
                self.copied.inward += (before - bytes.len()) as u64;
                if bytes.is_empty() {
                    self.inward = Inward::Flushing;
                }
            }
            Inward::Flushing => {
                ready!(self.local.poll_flush(context)).map_err(CarrierBroken::Here)?;
                self.inward = Inward::Open;
            }
            Inward::Finishing => {
                ready!(self.local.poll_finish(context)).map_err(CarrierBroken::Here)?;
                self.inward = Inward::Over;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn receive(&mut self, next: Option<Result<Message, tungstenite::Error>>) -> Result<(), CarrierBroken> {
        let is_over = matches!(self.inward, Inward::Over);
        match next {
            Some(Ok(Message::Binary(_) | Message::Text(_))) if is_over => {
                Err(CarrierBroken::Rule("bytes after the finish"))
            }
            Some(Ok(Message::Binary(bytes))) => {
                if !bytes.is_empty() {
                    if let Some(heed) = &mut self.heed {
                        heed(Piece::Inward(bytes.len()));
                    }
                    let is_small = bytes.len() < SLICE_BYTES_MIN;
                    self.inward = Inward::Giving(if is_small { Bytes::copy_from_slice(&bytes) } else { bytes });
                }
                Ok(())
            }
            Some(Ok(Message::Text(text))) if text.as_str() == FINISH => {
                self.inward = Inward::Finishing;
                Ok(())
            }
            Some(Ok(Message::Text(_))) => Err(CarrierBroken::Rule("a text that is not `finish`")),
            // The library answers it.
            Some(Ok(Message::Ping(_))) => {
                self.pulse.pinged();
                Ok(())
            }
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Close(frame))) => {
                let (code, reason) = frame.map_or_else(
                    || (u16::from(tungstenite::protocol::frame::coding::CloseCode::Status), String::new()),
                    |frame| (frame.code.into(), frame.reason.to_string()),
                );
                if is_over && self.outward.is_over && code == code::FINISHED {
                    // The other end took all messages, or it could not know that both directions have finished.
                    self.outward.unflushed = false;
                    return Ok(());
                }
                Err(CarrierBroken::There { code, reason })
            }
            Some(Err(error)) => Err(CarrierBroken::Lost(error)),
            None => Err(CarrierBroken::Gone),
        }
    }
}

impl Inward {
    fn waits_for_local(&self) -> bool {
        match self {
            Self::Open | Self::Over => false,
            Self::Giving(_) | Self::Flushing | Self::Finishing => true,
        }
    }
}

/// A WebSocket that has only its end left.
pub struct Goodbye<S> {
    socket: WebSocketStream<S>,
}

impl<S> std::fmt::Debug for Goodbye<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Goodbye").finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Goodbye<S> {
    /// Says why the stream ends, waits until the other end has heard it, for `timeout` at most, and closes the
    /// connection.
    ///
    /// Cancel safety: dropping it closes the connection at once.
    pub async fn say(mut self, code: u16, reason: &'static str, timeout: Duration) {
        let said = async {
            let frame = CloseFrame { code: code.into(), reason: reason.into() };
            // An end that closed first has nothing more to hear.
            if Pin::new(&mut self.socket).start_send(Message::Close(Some(frame))).is_ok() {
                poll_fn(|context| Pin::new(&mut self.socket).poll_flush(context)).await.ok();
            }
            while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut self.socket).poll_next(context)).await {}
            self.socket.get_mut().shutdown().await.ok();
        };
        tokio::time::timeout(timeout, said).await.ok();
    }
}

#[cfg(test)]
mod tests;
