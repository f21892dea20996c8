//! One WebSocket between two bodies: frames of a session become messages, and messages become its incoming frames.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use http_body::{Body, Frame};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::PollSender;

use super::{LINGER, MESSAGES_MAX, config, trailers};
use crate::grpc::{Chunk, FrameReader, IncomingBody};

/// Reason why a WebSocket ended other than by being closed.
#[derive(Debug, Error)]
pub enum CarryError {
    /// Its connection broke, or the peer broke its rules.
    #[error("the WebSocket broke: {0}")]
    Socket(tungstenite::Error),
    /// The peer sent a text message.
    #[error("a text message came, and a link has binary ones only")]
    Text,
    /// The link was over, but the peer did not close.
    #[error("the WebSocket was not closed in time")]
    NotClosed,
}

impl From<tungstenite::Error> for CarryError {
    fn from(error: tungstenite::Error) -> Self {
        Self::Socket(error)
    }
}

/// Incoming messages of a WebSocket, as a body. Reading it moves nothing by itself: the [carrier](carry) does.
#[derive(Debug)]
pub struct MessageBody {
    pieces: mpsc::Receiver<Result<Frame<Bytes>, CarryError>>,
    /// Dropped with this, which the carrier notices.
    _here: oneshot::Sender<Infallible>,
}

impl MessageBody {
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CarryError>>> {
        self.pieces.poll_recv(context)
    }
}

/// Starts a WebSocket on a stream that has switched to it. The future carries both directions and has to be polled for
/// as long as the link is used; it ends when the WebSocket is closed or broken, and dropping it cuts the connection.
pub(super) async fn carry<S, B>(
    stream: S,
    role: Role,
    body: B,
) -> (impl Future<Output = Result<(), CarryError>> + use<S, B>, FrameReader<IncomingBody>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Chunk, Error = Infallible> + Unpin,
{
    let socket = WebSocketStream::from_raw_socket(stream, role, Some(config())).await;
    let (sender, pieces) = mpsc::channel(MESSAGES_MAX);
    let (here, unread) = oneshot::channel();
    let mut carrier = Carrier {
        socket,
        body: Some(body),
        unflushed: false,
        inbox: Some(PollSender::new(sender)),
        unread: Some(unread),
        broken: None,
        deadline: None,
    };
    let carrying = async move {
        let result = poll_fn(|context| carrier.poll(context)).await;
        if result.is_ok() {
            // Both ends have said goodbye: nothing waits any more, so this does not either.
            drop(carrier.socket.get_mut().shutdown().await);
        }
        result
    };
    (carrying, FrameReader::copying(IncomingBody::WebSocket(MessageBody { pieces, _here: here })))
}

struct Carrier<S, B> {
    socket: WebSocketStream<S>,
    /// Outgoing half; `None` once all of it was handed over, or it is not heard any more.
    body: Option<B>,
    /// Whether a message was handed over and may not be written yet.
    unflushed: bool,
    /// Queue of received messages; `None` once no more are expected.
    inbox: Option<PollSender<Result<Frame<Bytes>, CarryError>>>,
    /// Ends when the messages are not read any more.
    unread: Option<oneshot::Receiver<Infallible>>,
    /// Reason why nothing more can be sent.
    broken: Option<CarryError>,
    /// Set once the link is over.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S, B> Carrier<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Chunk, Error = Infallible> + Unpin,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CarryError>> {
        // By turns, so that neither direction starves the other.
        loop {
            let sent = self.poll_send(context);
            let received = match self.poll_receive(context) {
                Poll::Ready(ControlFlow::Break(result)) => return Poll::Ready(self.broken.take().map_or(result, Err)),
                Poll::Ready(ControlFlow::Continue(())) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            };
            if sent.is_pending() && received.is_pending() {
                break;
            }
        }
        if self.unread.as_mut().is_some_and(|unread| Pin::new(unread).poll(context).is_ready()) {
            self.unread = None;
            // Messages that still come are not kept; that the peer closes is still to be heard.
            self.inbox = None;
            context.waker().wake_by_ref();
        }
        if self.body.is_some() && self.unread.is_some() {
            return Poll::Pending;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(self.broken.take().unwrap_or(CarryError::NotClosed)))
    }

    /// Hands one message over. It is asked for once the last one is written, so that the session decides what is next.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let result = ready!(self.poll_send_or_break(context));
        if let Err(error) = result {
            // Messages received before this, among them perhaps the reason of the end, are still there to be read.
            (self.body, self.unflushed) = (None, false);
            self.broken.get_or_insert(CarryError::Socket(error));
        }
        Poll::Ready(())
    }

    fn poll_send_or_break(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tungstenite::Error>> {
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(context))?;
            self.unflushed = false;
        }
        let Some(body) = &mut self.body else { return Poll::Pending };
        let message = match ready!(Pin::new(body).poll_frame(context)) {
            Some(Ok(frame)) => Message::Binary(bytes_of(frame)),
            Some(Err(never)) => match never {},
            None => {
                self.body = None;
                close(CloseCode::Normal, "")
            }
        };
        Poll::Ready(self.send(message))
    }

    fn send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        self.unflushed = true;
        Pin::new(&mut self.socket).start_send(message)
    }

    /// Hands over one message that arrived, if there is room for it; breaks when the WebSocket ends.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<ControlFlow<Result<(), CarryError>>> {
        if let Some(inbox) = &mut self.inbox
            && ready!(inbox.poll_reserve(context)).is_err()
        {
            self.inbox = None;
        }
        let piece = match ready!(Pin::new(&mut self.socket).poll_next(context)) {
            None => return Poll::Ready(ControlFlow::Break(Ok(()))),
            Some(Ok(Message::Binary(bytes))) => match trailers::decode(&bytes) {
                Some(trailers) => Frame::trailers(trailers),
                None => Frame::data(bytes),
            },
            Some(Ok(Message::Close(_))) => {
                // The library answers it by itself; until then the connection is still needed.
                (self.body, self.inbox) = (None, None);
                return Poll::Ready(ControlFlow::Continue(()));
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                return Poll::Ready(ControlFlow::Continue(()));
            }
            Some(Ok(Message::Text(_))) => {
                return Poll::Ready(ControlFlow::Break(Err(self.fail(context, CarryError::Text))));
            }
            Some(Err(error)) => {
                return Poll::Ready(ControlFlow::Break(Err(self.fail(context, CarryError::Socket(error)))));
            }
        };
        if let Some(inbox) = &mut self.inbox {
            // A reader that has gone needs it no more.
            drop(inbox.send_item(Ok(piece)));
        }
        Poll::Ready(ControlFlow::Continue(()))
    }

    /// Tells both sides why this ends. The peer hears it if there is room to write it down at once.
    fn fail(&mut self, context: &mut Context<'_>, error: CarryError) -> CarryError {
        let (code, again) = match &error {
            CarryError::Text => (Some(CloseCode::Unsupported), CarryError::Text),
            CarryError::NotClosed => (None, CarryError::NotClosed),
            CarryError::Socket(cause) => (code_for(cause), CarryError::Socket(copy_of(cause))),
        };
        if let Some(code) = code
            && self.send(close(code, "")).is_ok()
        {
            drop(Pin::new(&mut self.socket).poll_flush(context));
        }
        if let Some(inbox) = &mut self.inbox {
            drop(inbox.send_item(Err(again)));
        }
        error
    }
}

/// Joins the parts of a message.
fn bytes_of(frame: Frame<Chunk>) -> Bytes {
    match frame.into_data() {
        Ok(mut chunk) => chunk.copy_to_bytes(chunk.remaining()),
        Err(frame) => trailers::encode(&frame.into_trailers().unwrap_or_default()),
    }
}

fn close(code: CloseCode, reason: &'static str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Returns the close code for the peer's fault (RFC 6455, section 7.4.1); `None` if it was not the peer.
fn code_for(error: &tungstenite::Error) -> Option<CloseCode> {
    if matches!(error, tungstenite::Error::Capacity(_)) {
        return Some(CloseCode::Size);
    }
    matches!(error, tungstenite::Error::Protocol(_)).then_some(CloseCode::Protocol)
}

/// Copies an error for its two readers: the driver of the connection, and the reader of the messages.
fn copy_of(error: &tungstenite::Error) -> tungstenite::Error {
    tungstenite::Error::Io(std::io::Error::other(error.to_string()))
}
