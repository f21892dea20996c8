//! WebSockets that are opened, used once, and then held without traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::Method;
use http::header::{CONNECTION, ORIGIN, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::payload::Payload;
use crate::target::LoadTarget;

/// Handshakes under way at once: enough to be quick, few enough not to be a storm of their own.
const AT_ONCE: usize = 64;

/// Time limit of one handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(20);

/// Any 16 bytes in base64 (RFC 6455, section 4.1); the answer is checked by the gateway, not here.
const KEY: &str = "bG9hZGxhYiBpZGxlIHdzcw==";

/// A binary message of two bytes with a mask of zeros (RFC 6455, section 5.2).
const MESSAGE: [u8; 8] = [0x82, 0x82, 0, 0, 0, 0, b'i', b'd'];

/// Answer of the app's echo: the same, not masked.
const ECHO: [u8; 4] = [0x82, 2, b'i', b'd'];

/// Held WebSockets; dropping them closes their connections.
pub struct Sockets {
    held: Vec<TokioIo<Upgraded>>,
    /// Handshakes that failed, by reason.
    pub failed: BTreeMap<String, u64>,
}

impl Sockets {
    /// Opens `count` WebSockets to the app's echo. Each carries one message there and back, so that everything that a
    /// WebSocket needs along the way exists.
    ///
    /// Cancel safety: dropping it closes those that are open.
    pub async fn open(target: &LoadTarget, count: usize) -> Self {
        let mut opening =
            stream::iter((0..count).map(|_| timeout(HANDSHAKE_DEADLINE, open(target)))).buffer_unordered(AT_ONCE);
        let mut sockets = Self { held: Vec::with_capacity(count), failed: BTreeMap::new() };
        while let Some(opened) = opening.next().await {
            match opened.unwrap_or(Err(ExchangeFailure::lost("timeout"))) {
                Ok(socket) => sockets.held.push(socket),
                Err(failure) => *sockets.failed.entry(failure.why.to_owned()).or_default() += 1,
            }
        }
        sockets
    }

    /// Returns how many are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Drops those that the other side has ended, and returns how many they were.
    pub fn drop_ended(&mut self) -> usize {
        let before = self.held.len();
        // The app sends nothing on an idle one: anything that can be read is its end.
        self.held.retain_mut(|socket| socket.read_u8().now_or_never().is_none());
        before - self.held.len()
    }
}

async fn open(target: &LoadTarget) -> Result<TokioIo<Upgraded>, ExchangeFailure> {
    let request = target
        .request(Method::GET, "/ws")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, KEY)
        .header(ORIGIN, target.origin())
        .body(Payload::Empty)
        .map_err(|_| ExchangeFailure::lost("bad_target"))?;
    let mut socket = LoadClient::connect(target).await?.upgrade(request).await?;
    let mut echo = [0; ECHO.len()];
    socket.write_all(&MESSAGE).await.map_err(|error| ExchangeFailure::of_io(&error))?;
    socket.read_exact(&mut echo).await.map_err(|error| ExchangeFailure::of_io(&error))?;
    if echo == ECHO { Ok(socket) } else { Err(ExchangeFailure::lost("wrong_bytes")) }
}
