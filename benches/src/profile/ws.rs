//! WebSocket messages, echoed.

use bytes::Bytes as Buffer;
use futures_util::{SinkExt, StreamExt};
use http::Method;
use http::header::{CONNECTION, HeaderValue, ORIGIN, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::failure::ExchangeFailure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::RunOutcome;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::{BoxedStream, LoadTarget};

/// Path of the app's echo.
const PATH: &str = "/ws";

/// One message there and back, one at a time on each connection.
struct WebSocketMessages {
    target: LoadTarget,
    message: Buffer,
}

impl Exchange for WebSocketMessages {
    type Connection = WebSocketStream<BoxedStream>;

    async fn connect(&self) -> Result<Self::Connection, ExchangeFailure> {
        connect(&self.target).await
    }

    async fn exchange(&self, socket: &mut Self::Connection) -> Result<Bytes, ExchangeFailure> {
        socket.send(Message::Binary(self.message.clone())).await.map_err(|error| name(&error))?;
        loop {
            let message = socket.next().await.ok_or(ExchangeFailure::lost("closed"))?;
            match message.map_err(|error| name(&error))? {
                Message::Binary(echo) if echo == self.message => {
                    let bytes = echo.len() as u64;
                    return Ok(Bytes { down: bytes, up: bytes });
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return Err(ExchangeFailure::lost("closed")),
                Message::Binary(_) | Message::Text(_) | Message::Frame(_) => {
                    return Err(ExchangeFailure::lost("wrong_bytes"));
                }
            }
        }
    }
}

/// Opens a WebSocket to the app's echo.
///
/// # Errors
/// The connection cannot be made, or the handshake is refused.
pub async fn connect(target: &LoadTarget) -> Result<WebSocketStream<BoxedStream>, ExchangeFailure> {
    // The library wants a scheme in the address; it sends the path.
    let request = target
        .request(Method::GET, &format!("ws://{}{PATH}", target.host))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, generate_key())
        .header(ORIGIN, HeaderValue::try_from(target.origin()).map_err(|_| ExchangeFailure::lost("bad_target"))?)
        .body(())
        .map_err(|_| ExchangeFailure::lost("bad_target"))?;
    let stream = target.connect().await.map_err(|error| ExchangeFailure::connecting(&error))?;
    let (socket, _) = client_async(request, stream).await.map_err(|error| name(&error))?;
    Ok(socket)
}

/// Names an error of the library.
fn name(error: &Error) -> ExchangeFailure {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not told apart in reports")]
    match error {
        Error::Io(error) => ExchangeFailure::of_io(error),
        Error::Http(answer) => {
            ExchangeFailure { lost: true, ..ExchangeFailure::of_answer(answer.status(), answer.headers()) }
        }
        Error::ConnectionClosed | Error::AlreadyClosed => ExchangeFailure::lost("closed"),
        Error::Protocol(_) => ExchangeFailure::lost("websocket_protocol"),
        _ => ExchangeFailure::lost("websocket"),
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let size = usize::try_from(context.load.size)?;
    let message = Buffer::from(vec![b'm'; size]);
    generator::run(context, Exchanges(WebSocketMessages { target: context.target.clone(), message })).await
}
