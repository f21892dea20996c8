//! Compares a peer's answers with those of the app, byte by byte.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};

use super::HOST;
use crate::target::LoadTarget;

/// Time limit of a subject's first right answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// Time limit of one checked transfer. Links of the lab go down to megabits.
const TRANSFER_DEADLINE: Duration = Duration::from_secs(60);

/// The small body.
const SMALL_PATH: &str = "/bytes/10240";

/// The large body: longer than any buffer on the way, and different at each position.
const LARGE_BYTES: usize = 32 << 20;

/// The large body on a link, where the full size could take minutes.
const LARGE_BYTES_ON_LINK: usize = 1 << 20;

/// Sends one request on a connection of its own and returns the whole answer.
///
/// # Errors
/// Fails if the connection, the request or the body fails, or on any status but 200.
pub async fn fetch(target: &LoadTarget, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
    let stream = target.connect().await.context("connecting")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP handshake")?;
    let request = target.request(method, path).body(Full::new(body))?;
    let exchange = async {
        let response = sender.send_request(request).await.context("sending the request")?;
        let status = response.status();
        let body = response.into_body().collect().await.context("reading the body")?.to_bytes();
        if status != StatusCode::OK {
            let words: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            anyhow::bail!("answered {status}: {words}");
        }
        Ok(body)
    };
    // The connection is driven in this task: nothing outlives the answer.
    tokio::pin!(exchange);
    tokio::pin!(connection);
    let mut open = true;
    loop {
        tokio::select! {
            answer = &mut exchange => return answer,
            ended = &mut connection, if open => {
                open = false;
                if let Err(error) = ended {
                    tracing::debug!(%error, "a checking connection ended");
                }
            }
        }
    }
}

/// Waits until a target answers a small request with 200.
///
/// # Errors
/// Returns the last failure after [`ANSWER_DEADLINE`].
pub async fn wait_until_answering(target: &LoadTarget) -> anyhow::Result<()> {
    let until = Instant::now() + ANSWER_DEADLINE;
    loop {
        let answer = timeout(Duration::from_secs(3), fetch(target, Method::GET, "/bytes/1", Bytes::new())).await;
        let failure = match answer {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("no answer within 3 s"),
        };
        if Instant::now() > until {
            return Err(failure.context("no right answer in time"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Answers of the app itself, to compare with those through a peer.
#[derive(Debug)]
pub struct Checker {
    large_path: String,
    small: Bytes,
    large: Bytes,
    digest: Bytes,
}

impl Checker {
    /// Asks the app directly.
    ///
    /// # Errors
    /// Fails if the app does not answer.
    pub async fn new(backend: SocketAddr, on_link: bool) -> anyhow::Result<Self> {
        let direct = LoadTarget::plain(backend, HOST);
        let bytes = if on_link { LARGE_BYTES_ON_LINK } else { LARGE_BYTES };
        let large_path = format!("/pattern/{bytes}?seed=7");
        let small = fetch(&direct, Method::GET, SMALL_PATH, Bytes::new()).await.context("asking the app")?;
        let large = fetch(&direct, Method::GET, &large_path, Bytes::new()).await.context("asking the app")?;
        anyhow::ensure!(small.len() == 10_240 && large.len() == bytes, "the app answers with the wrong lengths");
        let digest = fetch(&direct, Method::POST, "/digest", large.clone()).await.context("asking the app")?;
        Ok(Self { large_path, small, large, digest })
    }

    /// Fetches a small and a large body through a target, sends the large one back, and compares each byte.
    ///
    /// # Errors
    /// Says which body differs, and from where on.
    pub async fn verify(&self, target: &LoadTarget) -> anyhow::Result<()> {
        let get = |path| timeout(TRANSFER_DEADLINE, fetch(target, Method::GET, path, Bytes::new()));
        let small = get(SMALL_PATH).await.context("10 KiB body: too slow")?.context("10 KiB body")?;
        same("10 KiB body", &self.small, &small)?;
        let large = get(&self.large_path).await.context("large body: too slow")?.context("large body")?;
        same("large body", &self.large, &large)?;
        let upload = timeout(TRANSFER_DEADLINE, fetch(target, Method::POST, "/digest", self.large.clone()));
        let digest = upload.await.context("upload: too slow")?.context("upload")?;
        same("digest of the upload", &self.digest, &digest)
    }
}

fn same(what: &str, expected: &[u8], found: &[u8]) -> anyhow::Result<()> {
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(found).take_while(|(left, right)| left == right).count();
    anyhow::bail!("{what}: {} bytes instead of {}, different from byte {at} on", found.len(), expected.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_difference_is_named() {
        let check = |found: &[u8], expected: &str| {
            assert_eq!(same("body", b"abcdef", found).unwrap_err().to_string(), expected);
        };
        check(b"abcxef", "body: 6 bytes instead of 6, different from byte 3 on");
        check(b"abc", "body: 3 bytes instead of 6, different from byte 3 on");
        same("body", b"abc", b"abc").unwrap();
    }
}
