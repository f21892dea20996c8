//! Quiet channel: a small message at fixed times, each echoed; no message waits for the one before.

use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::profile::ws;
use crate::stats::{Bytes, Collector};
use crate::target::{BoxedStream, LoadTarget};

/// A message holds its number.
const NUMBER_BYTES: usize = 8;

/// Opens the channel.
///
/// # Errors
/// It cannot be opened in time.
pub(super) async fn open(target: &LoadTarget, patience: Duration) -> anyhow::Result<WebSocketStream<BoxedStream>> {
    let opened = timeout(patience, ws::connect(target)).await;
    let opened = opened.map_err(|_elapsed| anyhow::anyhow!("the quiet channel did not open in {patience:?}"))?;
    opened.map_err(|failure| anyhow::anyhow!("the quiet channel did not open: {}", failure.why))
}

/// Sends a message at each interval `every` in the collector's window and records its round trip from the intended
/// time. A message without an echo `patience` after the window has failed.
pub(super) async fn talk(
    socket: WebSocketStream<BoxedStream>,
    collector: &Collector,
    every: Duration,
    size: u64,
    patience: Duration,
    stop: &CancellationToken,
) {
    let window = collector.window();
    let size = usize::try_from(size).unwrap_or(NUMBER_BYTES).max(NUMBER_BYTES);
    let (mut write, mut read) = socket.split();
    let at = |number: u64| window.begin + every.mul_f64(crate::clock::float(number));
    let send = async {
        let mut sent = 0;
        while at(sent) < window.end {
            if stop.run_until_cancelled(sleep_until(at(sent))).await.is_none() {
                break;
            }
            let mut message = BytesMut::with_capacity(size);
            message.put_u64(sent);
            message.resize(size, b'q');
            if write.send(Message::Binary(message.freeze())).await.is_err() {
                break;
            }
            sent += 1;
        }
        sent
    };
    let mut recorder = collector.recorder();
    let receive = async {
        let (mut received, mut recorder) = (0_u64, collector.recorder());
        let deadline = window.end + patience;
        // The number of sent messages is not known here: the last one is known by its time.
        while at(received) < window.end && !stop.is_cancelled() {
            let Ok(Some(Ok(message))) = timeout_at(deadline, read.next()).await else { break };
            let now = Instant::now();
            let Message::Binary(echo) = message else { continue };
            let number = echo.first_chunk().map_or(u64::MAX, |head| u64::from_be_bytes(*head));
            if number != received {
                break;
            }
            let bytes = Bytes { down: echo.len() as u64, up: echo.len() as u64 };
            recorder.ok(at(number), at(number), now, bytes);
            received += 1;
        }
        received
    };
    let (sent, received) = tokio::join!(send, receive);
    let now = Instant::now();
    for number in 0..sent.max(received) {
        recorder.offered(at(number));
    }
    for number in received..sent {
        recorder.failed(at(number), now, "no_echo");
    }
}
