//! Clients that ask for much and take little.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::target::{BoxedStream, TOKEN_HEADER, Target};

/// The first look at an answer: its status line is in it.
const HEAD_BYTES: usize = 256;

/// Connections that are opened at a time.
const OPENING_MAX: usize = 50;

/// The readers.
pub(super) struct Readers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Shared {
    held: AtomicUsize,
    gone: AtomicU64,
    bytes: AtomicU64,
}

impl Readers {
    /// Starts readers and waits until each has the head of its answer or has failed.
    pub(super) async fn start(target: &Target, count: usize, body: u64, pace: u64, patience: Duration) -> Self {
        let (shared, mut tasks, stop) = (Arc::new(Shared::default()), JoinSet::new(), CancellationToken::new());
        let opening = Arc::new(tokio::sync::Semaphore::new(OPENING_MAX));
        let open = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..count {
            let (target, shared, stop) = (target.clone(), Arc::clone(&shared), stop.clone());
            let (opening, open) = (Arc::clone(&opening), Arc::clone(&open));
            tasks.spawn(async move {
                let permit = opening.acquire_owned().await;
                let opened = timeout(patience, ask(&target, body)).await;
                drop(permit);
                open.add_permits(1);
                let Ok(Ok(stream)) = opened else {
                    shared.gone.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                shared.held.fetch_add(1, Ordering::Relaxed);
                if stop.run_until_cancelled(stand(stream, pace, &shared)).await.is_some() {
                    shared.gone.fetch_add(1, Ordering::Relaxed);
                }
                shared.held.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // All have been asked when there is a permit for each; the semaphore is never closed.
        drop(open.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await);
        Self { shared, tasks, stop }
    }

    /// Returns how many stand.
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

    /// Lets them go.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Asks for a large body and reads no more than the status line.
async fn ask(target: &Target, body: u64) -> std::io::Result<BoxedStream> {
    let mut stream = target.connect().await?;
    let token = target.token.as_deref().map(|token| format!("{TOKEN_HEADER}: Bearer {token}\r\n"));
    let (host, token) = (&target.host, token.unwrap_or_default());
    stream.write_all(format!("GET /bytes/{body} HTTP/1.1\r\nhost: {host}\r\n{token}\r\n").as_bytes()).await?;
    stream.flush().await?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    if head.starts_with(b"HTTP/1.1 200") { Ok(stream) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) }
}

/// Reads `pace` bytes a second, or nothing; returns when the connection is lost.
async fn stand(mut stream: BoxedStream, pace: u64, shared: &Shared) {
    if pace == 0 {
        // Nothing is read, so nothing is heard of an end either.
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
