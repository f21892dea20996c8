//! Clients that ask for a large body and read little of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::target::{BoxedStream, LoadTarget, TOKEN_HEADER};

/// Bytes of the first read of an answer: its status line is in them.
const HEAD_BYTES: usize = 256;

/// Most connections that are opened at a time.
const OPENING_MAX: usize = 50;

/// First bytes of HTTP/2: the preface, a window of a GiB for each stream and for all of them (RFC 9113, sections 3.4,
/// 6.5 and 6.9). One request follows. A reader whose windows are never the limit leaves most behind.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const H2_SETTINGS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x40, 0, 0, 0];
const H2_WINDOW: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0];

/// Bytes of a frame's head (RFC 9113, section 4.1).
const H2_HEAD_BYTES: usize = 9;

/// Request of each reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) version: HttpVersion,
    /// Bytes of the body.
    pub(super) body: u64,
    /// Bytes a second that are read of it.
    pub(super) pace: u64,
}

/// Protocol of the readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// Running readers.
pub(super) struct Readers {
    shared: Arc<ReaderShared>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

#[derive(Default)]
struct ReaderShared {
    held: AtomicUsize,
    gone: AtomicU64,
    bytes: AtomicU64,
}

impl Readers {
    /// Starts readers and waits until each has the head of its answer or has failed.
    pub(super) async fn start(target: &LoadTarget, count: usize, want: Want, patience: Duration) -> Self {
        let (shared, mut tasks, stop) = (Arc::new(ReaderShared::default()), JoinSet::new(), CancellationToken::new());
        let opening = Arc::new(tokio::sync::Semaphore::new(OPENING_MAX));
        let open = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..count {
            let (target, shared, stop) = (target.clone(), Arc::clone(&shared), stop.clone());
            let (opening, open) = (Arc::clone(&opening), Arc::clone(&open));
            tasks.spawn(async move {
                let permit = opening.acquire_owned().await;
                let opened = timeout(patience, ask(&target, want)).await;
                drop(permit);
                open.add_permits(1);
                let Ok(Ok(stream)) = opened else {
                    shared.gone.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                shared.held.fetch_add(1, Ordering::Relaxed);
                if stop.run_until_cancelled(stand(stream, want.pace, &shared)).await.is_some() {
                    shared.gone.fetch_add(1, Ordering::Relaxed);
                }
                shared.held.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // All have asked once there is a permit for each; the semaphore is never closed.
        drop(open.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await);
        Self { shared, tasks, stop }
    }

    /// Returns how many hold their connection.
    pub(super) fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// Returns how many were refused or lost.
    pub(super) fn gone(&self) -> u64 {
        self.shared.gone.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were read by all.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Ends all readers.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Asks for a large body and reads only enough to see that the answer is a success.
async fn ask(target: &LoadTarget, want: Want) -> std::io::Result<BoxedStream> {
    let mut stream = target.connect().await?;
    let path = format!("/bytes/{}", want.body);
    let is_good = match want.version {
        HttpVersion::Http1 => {
            let token = target.token.as_deref().map(|token| format!("{TOKEN_HEADER}: Bearer {token}\r\n"));
            let (host, token) = (&target.host, token.unwrap_or_default());
            stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{token}\r\n").as_bytes()).await?;
            stream.flush().await?;
            let mut head = [0; HEAD_BYTES];
            stream.read_exact(&mut head).await?;
            head.starts_with(b"HTTP/1.1 200")
        }
        HttpVersion::Http2 => {
            let said = [H2_PREFACE, H2_SETTINGS, H2_WINDOW, &h2_request(target, &path)?].concat();
            stream.write_all(&said).await?;
            stream.flush().await?;
            h2_answer(&mut stream).await?
        }
    };
    if is_good { Ok(stream) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) }
}

/// Makes the head of stream 1: GET and the scheme from the static table, the rest as literals (RFC 7541, section
/// 6.2.2).
fn h2_request(target: &LoadTarget, path: &str) -> std::io::Result<Vec<u8>> {
    let too_long = |_| std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let mut block = vec![0x82, if target.tls.is_some() { 0x87 } else { 0x86 }];
    let token = target.token.as_deref().map(|token| format!("Bearer {token}"));
    let fields = [(":path", Some(path)), (":authority", Some(&*target.host)), (TOKEN_HEADER, token.as_deref())];
    for (name, value) in fields {
        let Some(value) = value else { continue };
        block.push(0);
        for text in [name, value] {
            // Lengths of seven bits are one byte; hosts and tokens are shorter.
            let length = u8::try_from(text.len()).map_err(too_long)?;
            if length >= 0x7f {
                return Err(std::io::ErrorKind::InvalidInput.into());
            }
            block.push(length);
            block.extend_from_slice(text.as_bytes());
        }
    }
    let length = u16::try_from(block.len()).map_err(too_long)?.to_be_bytes();
    let head = [&[0], &length[..], &[1, 5, 0, 0, 0, 1]].concat();
    Ok([head, block].concat())
}

/// Reads frames up to the answer's head. Returns whether its first field is `:status: 200` from the static table.
async fn h2_answer(stream: &mut BoxedStream) -> std::io::Result<bool> {
    loop {
        let mut head = [0; H2_HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let [high, middle, low, kind, ..] = head;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        stream.read_exact(&mut payload).await?;
        match kind {
            1 => return Ok(payload.first() == Some(&0x88)),
            // Nothing but settings, windows and pings comes before it.
            4 | 6 | 8 => {}
            _ => return Ok(false),
        }
    }
}

/// Reads `pace` bytes a second, or nothing; returns when the connection is lost.
async fn stand(mut stream: BoxedStream, pace: u64, shared: &ReaderShared) {
    if pace == 0 {
        // Nothing is read, so an end is not noticed either.
        return std::future::pending().await;
    }
    let mut buffer = vec![0; usize::try_from(pace).unwrap_or(1 << 20).min(1 << 20)];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => shared.bytes.fetch_add(read as u64, Ordering::Relaxed),
        };
        sleep(Duration::from_secs(1)).await;
    }
}
