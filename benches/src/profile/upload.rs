//! Large request bodies.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::download::{bulk_figures, in_time};
use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::generator::{self, KeptConnection, Post, Work, WorkKind};
use crate::outcome::RunOutcome;
use crate::payload::Payload;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::LoadTarget;

/// Interval at which moved bytes are counted.
const COUNT: Duration = Duration::from_millis(50);

/// Longest answer of the app: `{"bytes":N}`.
const ANSWER_BYTES_MAX: usize = 256;

/// `POST /upload`, one after the other on each connection; bytes count as they leave.
struct Uploads {
    target: LoadTarget,
    size: u64,
}

/// Answer of the app: the bytes that it received.
#[derive(Deserialize)]
struct Got {
    bytes: u64,
}

impl Uploads {
    async fn upload(&self, client: &mut LoadClient, taken: &Arc<AtomicU64>) -> Result<Bytes, ExchangeFailure> {
        let body = Payload::Counted { left: self.size, taken: Arc::clone(taken) };
        let request = self.target.request(Method::POST, "/upload").body(body);
        let answer = client.send(request.map_err(|_| ExchangeFailure::lost("bad_target"))?).await?;
        if answer.status() != StatusCode::OK {
            return Err(ExchangeFailure {
                lost: true,
                ..ExchangeFailure::of_answer(answer.status(), answer.headers())
            });
        }
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(piece) = client.piece(&mut body).await? {
            text.extend_from_slice(&piece);
            if text.len() > ANSWER_BYTES_MAX {
                return Err(ExchangeFailure::lost("wrong_answer"));
            }
        }
        match serde_json::from_slice::<Got>(&text) {
            Ok(got) if got.bytes == self.size => Ok(Bytes::default()),
            Ok(_) | Err(_) => Err(ExchangeFailure::kept("wrong_length")),
        }
    }

    /// Counts moved bytes while `work` goes on, and gives up when none move.
    async fn counting<T>(
        post: &Post,
        taken: &AtomicU64,
        work: impl Future<Output = Result<T, ExchangeFailure>>,
    ) -> Result<T, ExchangeFailure> {
        let (seen, changed) = (Cell::new(0), Cell::new(Instant::now()));
        let count = || {
            let now = taken.load(Ordering::Relaxed);
            let up = now - seen.replace(now);
            if up > 0 {
                changed.set(Instant::now());
                post.moved(Bytes { down: 0, up });
            }
        };
        let mut ticks = interval(COUNT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => {
                    count();
                    return result;
                }
                _ = ticks.tick() => {
                    count();
                    if changed.get().elapsed() > post.timeout() {
                        return Err(ExchangeFailure::lost("stalled"));
                    }
                }
            }
        }
    }
}

impl Work for Uploads {
    type Connection = LoadClient;

    const KIND: WorkKind = WorkKind::Bulk;

    async fn connect(&self) -> Result<LoadClient, ExchangeFailure> {
        LoadClient::connect(&self.target).await
    }

    async fn serve(&self, client: LoadClient, post: &Post) {
        let mut kept = KeptConnection::new(client);
        while let Some(intended) = post.next().await {
            let sent = post.sending(intended);
            let taken = Arc::new(AtomicU64::new(0));
            let transfer = async |client: &mut LoadClient| self.upload(client, &taken).await;
            let attempt = kept.exchange(in_time(post, self.connect()), transfer);
            let result = Self::counting(post, &taken, attempt).await;
            post.ended(intended, sent, result).await;
        }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let mut outcome =
        generator::run(context, Uploads { target: context.target.clone(), size: context.load.size }).await?;
    bulk_figures(&mut outcome);
    Ok(outcome)
}
