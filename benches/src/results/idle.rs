//! Memory for WebSockets that do nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::clock::float;
use crate::peer::meter::Trees;
use crate::peer::subject::Started;
use crate::target::{BoxedStream, Target};

/// How long memory is given to settle before it is read.
const SETTLE: Duration = Duration::from_secs(2);

/// How long one handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The longest answer to a handshake that is read.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// Opens WebSockets, keeps them, and returns what each adds to the memory of both halves, in KiB.
///
/// Some are opened and closed first, so that what a program allocates once is not counted.
///
/// # Errors
/// Fails if a handshake fails.
pub async fn websockets(started: &Started, count: usize) -> anyhow::Result<BTreeMap<String, f64>> {
    let target = started.target();
    let trees = started.trees();
    drop(open(&target, 20.min(count)).await?);
    tokio::time::sleep(SETTLE).await;
    let before = resident(&trees);
    let held = open(&target, count).await?;
    tokio::time::sleep(SETTLE).await;
    let after = resident(&trees);
    drop(held);
    let each = |index: fn(&[f64; 2]) -> f64| (index(&after) - index(&before)) / 1024.0 / float(count.max(1) as u64);
    Ok(BTreeMap::from([
        ("gateway_kib_each".to_owned(), each(|[server, _]| *server)),
        ("agent_kib_each".to_owned(), each(|[_, agent]| *agent)),
    ]))
}

fn resident(trees: &Trees) -> [f64; 2] {
    let usage = trees.since(trees.begin());
    [float(usage.gateway_rss_bytes), float(usage.agent_rss_bytes)]
}

async fn open(target: &Target, count: usize) -> anyhow::Result<Vec<BoxedStream>> {
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        let opened = timeout(HANDSHAKE_DEADLINE, handshake(target)).await;
        held.push(opened.context("no answer in time").flatten().with_context(|| format!("WebSocket {}", number + 1))?);
    }
    Ok(held)
}

/// Opens one WebSocket (RFC 6455, section 4.1) and returns the stream that is then idle.
async fn handshake(target: &Target) -> anyhow::Result<BoxedStream> {
    let request = target
        .request(Method::GET, "/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "bG9hZGxhYi1rZXktMTIzNA==")
        .header("origin", target.origin())
        .body(())?;
    let mut text = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    let mut stream = target.connect().await?;
    stream.write_all(&text).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(answer.len() < ANSWER_BYTES_MAX, "the answer to the handshake is too long");
        let byte = stream.read_u8().await.context("the handshake was not answered")?;
        answer.push(byte);
    }
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 101 "), "refused: {}", String::from_utf8_lossy(&answer));
    Ok(stream)
}
