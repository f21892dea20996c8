//! Endless bulk transfers that fill a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::payload::Payload;
use crate::target::LoadTarget;

/// Bytes of one transfer: so many that the cost of its start does not show.
const TRANSFER_BYTES: u64 = 1 << 30;

/// Pause after a failed transfer.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Transfers under way.
pub(super) struct Bulk {
    moved: Arc<AtomicU64>,
    transfers: JoinSet<()>,
}

impl Bulk {
    /// Starts transfers that go on until `stop`.
    pub(super) fn start(target: &LoadTarget, downloads: usize, uploads: usize, stop: &CancellationToken) -> Self {
        let (moved, mut transfers) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for number in 0..downloads + uploads {
            let (target, moved, stop) = (target.clone(), Arc::clone(&moved), stop.clone());
            transfers.spawn(async move {
                let again = async {
                    loop {
                        let ended = if number < downloads {
                            download(&target, &moved).await
                        } else {
                            upload(&target, Arc::clone(&moved)).await
                        };
                        if let Err(failure) = ended {
                            tracing::debug!(why = failure.why, "a bulk transfer failed");
                            sleep(AGAIN_AFTER).await;
                        }
                    }
                };
                stop.run_until_cancelled(again).await.unwrap_or(())
            });
        }
        Self { moved, transfers }
    }

    /// Returns the bytes moved so far.
    pub(super) fn bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Waits until all have ended; stop them first.
    pub(super) async fn end(mut self) {
        while self.transfers.join_next().await.is_some() {}
    }
}

async fn download(target: &LoadTarget, moved: &AtomicU64) -> Result<(), ExchangeFailure> {
    let request = target.request(Method::GET, &format!("/bytes/{TRANSFER_BYTES}")).body(Payload::Empty);
    let mut client = LoadClient::connect(target).await?;
    let answer = client.send(request.map_err(|_| ExchangeFailure::lost("bad_target"))?).await?;
    if !answer.status().is_success() {
        return Err(ExchangeFailure::of_answer(answer.status(), answer.headers()));
    }
    let mut body = answer.into_body();
    while let Some(piece) = client.piece(&mut body).await? {
        moved.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn upload(target: &LoadTarget, moved: Arc<AtomicU64>) -> Result<(), ExchangeFailure> {
    let body = Payload::Counted { left: TRANSFER_BYTES, taken: moved };
    let request =
        target.request(Method::POST, "/upload").body(body).map_err(|_| ExchangeFailure::lost("bad_target"))?;
    LoadClient::connect(target).await?.exchange(request).await.map(drop)
}
