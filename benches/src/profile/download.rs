//! Large response bodies.

use std::sync::Arc;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::http::get;
use crate::client::LoadClient;
use crate::clock::float;
use crate::failure::ExchangeFailure;
use crate::generator::{self, KeptConnection, Post, Work, WorkKind};
use crate::outcome::{Latency, RunOutcome};
use crate::profile::Context;
use crate::stats::{Bytes, histogram, record};
use crate::target::LoadTarget;

/// `GET /bytes/SIZE`, one after the other on each connection; bytes count as they arrive.
struct Downloads {
    target: LoadTarget,
    path: String,
    size: u64,
    first_byte: Arc<Mutex<Histogram<u64>>>,
}

impl Downloads {
    async fn download(
        &self,
        client: &mut LoadClient,
        post: &Post,
        intended: Instant,
    ) -> Result<Bytes, ExchangeFailure> {
        let patience = post.timeout();
        let stalled = |_| ExchangeFailure::lost("stalled");
        let request = get(&self.target, &self.path)?;
        let answer = timeout(patience, client.send(request)).await.map_err(stalled)??;
        if !answer.status().is_success() {
            return Err(ExchangeFailure {
                lost: true,
                ..ExchangeFailure::of_answer(answer.status(), answer.headers())
            });
        }
        let mut body = answer.into_body();
        let mut down = 0;
        while let Some(piece) = timeout(patience, client.piece(&mut body)).await.map_err(stalled)?? {
            if down == 0 {
                record(&mut self.first_byte.lock(), intended.elapsed());
            }
            down += piece.len() as u64;
            post.moved(Bytes { down: piece.len() as u64, up: 0 });
        }
        if down == self.size { Ok(Bytes::default()) } else { Err(ExchangeFailure::kept("wrong_length")) }
    }
}

impl Work for Downloads {
    type Connection = LoadClient;

    const KIND: WorkKind = WorkKind::Bulk;

    async fn connect(&self) -> Result<LoadClient, ExchangeFailure> {
        LoadClient::connect(&self.target).await
    }

    async fn serve(&self, client: LoadClient, post: &Post) {
        let mut kept = KeptConnection::new(client);
        while let Some(intended) = post.next().await {
            let sent = post.sending(intended);
            let transfer = async |client: &mut LoadClient| self.download(client, post, intended).await;
            let result = kept.exchange(in_time(post, self.connect()), transfer).await;
            post.ended(intended, sent, result).await;
        }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let (target, size) = (context.target.clone(), context.load.size);
    let first_byte = Arc::new(Mutex::new(histogram()));
    let path = format!("/bytes/{size}");
    let work = Downloads { target, path, size, first_byte: Arc::clone(&first_byte) };
    let mut outcome = generator::run(context, work).await?;
    let first = Latency::of(&first_byte.lock());
    if first.count > 0 {
        outcome.figures.insert("first_byte_p50_ms".to_owned(), float(first.p50) / 1e3);
        outcome.figures.insert("first_byte_p99_ms".to_owned(), float(first.p99) / 1e3);
    }
    bulk_figures(&mut outcome);
    Ok(outcome)
}

/// Opens a connection within the time limit of an exchange.
pub(super) async fn in_time(
    post: &Post,
    connecting: impl Future<Output = Result<LoadClient, ExchangeFailure>>,
) -> Result<LoadClient, ExchangeFailure> {
    timeout(post.timeout(), connecting).await.map_err(|_elapsed| ExchangeFailure::lost("connect_timeout"))?
}

/// Adds the figures by which a transfer is judged.
pub(super) fn bulk_figures(outcome: &mut RunOutcome) {
    outcome.figures.insert("mbit_per_s".to_owned(), outcome.bytes_per_second() * 8.0 / 1e6);
    outcome.figures.insert("mb_per_s".to_owned(), outcome.bytes_per_second() / 1e6);
    outcome
        .notes
        .push("Bytes count as they move; latency is that of whole transfers which ended in the run.".to_owned());
}
