//! Download and upload whose every byte is compared, at a steady pace, one after the other without end.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::CutPlan;
use super::tally::CutTally;
use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::pattern::{self, Checker};
use crate::payload::Payload;
use crate::stats::{Bytes, Recorder};
use crate::target::{LoadTarget, TOKEN_HEADER};

/// Approximate time of a transfer, so that it lives through several breaks.
const TRANSFER_SECONDS: u64 = 5;

/// Bytes of one write, or between two checks of the clock.
const PIECE_BYTES: usize = 16 * 1024;

/// Time without a refusal after which an upload counts as begun.
const GOES_ON_AFTER: Duration = Duration::from_millis(300);

/// Pause after a transfer was lost or refused.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

impl CutPlan {
    fn transfer_bytes(&self) -> u64 {
        self.transfer_bytes_per_s * TRANSFER_SECONDS
    }

    /// Returns the time at which this many bytes of a transfer are due.
    fn due(&self, begin: Instant, bytes: u64) -> Instant {
        let micros = bytes.saturating_mul(1_000_000) / self.transfer_bytes_per_s.max(1);
        begin + Duration::from_micros(micros)
    }
}

/// Downloads until the run ends.
pub(super) async fn download(target: LoadTarget, plan: CutPlan, tally: Arc<CutTally>, mut recorder: Recorder) {
    let again = async {
        for number in 0.. {
            let mut has_begun = false;
            match one_download(&target, &plan, plan.seed + number, &tally, &mut recorder, &mut has_begun).await {
                Ok(()) => tally.complete(),
                Err(failure) => {
                    if has_begun {
                        tally.drop_for(failure.why);
                    }
                    sleep(AGAIN_AFTER).await;
                }
            }
        }
    };
    tally.ended().run_until_cancelled(again).await.unwrap_or(())
}

async fn one_download(
    target: &LoadTarget,
    plan: &CutPlan,
    seed: u64,
    tally: &CutTally,
    recorder: &mut Recorder,
    has_begun: &mut bool,
) -> Result<(), ExchangeFailure> {
    let stalled = |_| ExchangeFailure::lost("download_stalled");
    let path = format!("/pattern/{}?seed={seed}", plan.transfer_bytes());
    let request =
        target.request(Method::GET, &path).body(Payload::Empty).map_err(|_| ExchangeFailure::lost("bad_target"))?;
    let mut client = LoadClient::connect(target).await?;
    let answer = timeout(plan.patience, client.send(request)).await.map_err(stalled)??;
    if !answer.status().is_success() {
        return Err(ExchangeFailure::of_answer(answer.status(), answer.headers()));
    }
    *has_begun = true;
    let (begin, mut body, mut checker) = (Instant::now(), answer.into_body(), Checker::new(seed, 0));
    let lost = |failure: ExchangeFailure| ExchangeFailure {
        why: if failure.lost { "download_lost" } else { failure.why },
        ..failure
    };
    while let Some(piece) = timeout(plan.patience, client.piece(&mut body)).await.map_err(stalled)?.map_err(lost)? {
        let now = Instant::now();
        tally.downloaded(now);
        recorder.moved(now, Bytes { down: piece.len() as u64, up: 0 });
        if !checker.take(&piece) {
            tally.change(plan.transfer_bytes().saturating_sub(checker.wrong_at().unwrap_or(0)));
            return Err(ExchangeFailure::lost("download_changed"));
        }
        sleep_until(plan.due(begin, checker.position())).await;
    }
    if checker.position() == plan.transfer_bytes() {
        return Ok(());
    }
    tally.lose(plan.transfer_bytes().saturating_sub(checker.position()));
    Err(ExchangeFailure::lost("download_cut_short"))
}

/// Uploads until the run ends.
pub(super) async fn upload(target: LoadTarget, plan: CutPlan, tally: Arc<CutTally>, mut recorder: Recorder) {
    let again = async {
        // A gateway may take the head of a request and then refuse it: the first failure counts as a drop, further
        // attempts do not until one has gone on for a while.
        let mut goes_on = true;
        for number in 0.. {
            let seed = plan.seed + number;
            match one_upload(&target, &plan, seed, &mut recorder, &mut goes_on).await {
                Ok(received) => judge_upload(&received, &plan, &tally),
                Err(failure) => {
                    if goes_on {
                        tally.drop_for(failure.why);
                    }
                    goes_on = false;
                    sleep(AGAIN_AFTER).await;
                }
            }
        }
    };
    tally.ended().run_until_cancelled(again).await.unwrap_or(())
}

/// Answer of the app about a body.
#[derive(Debug, Deserialize)]
struct ReceivedBody {
    bytes: u64,
    wrong_at: Option<u64>,
}

fn judge_upload(received: &ReceivedBody, plan: &CutPlan, tally: &CutTally) {
    let bytes = plan.transfer_bytes();
    match received.wrong_at {
        Some(at) => tally.change(bytes.saturating_sub(at)),
        None if received.bytes < bytes => tally.lose(bytes - received.bytes),
        None if received.bytes > bytes => tally.repeat(received.bytes - bytes),
        None => tally.complete(),
    }
}

/// Uploads with HTTP written by hand, because the body has to keep its pace.
async fn one_upload(
    target: &LoadTarget,
    plan: &CutPlan,
    seed: u64,
    recorder: &mut Recorder,
    goes_on: &mut bool,
) -> Result<ReceivedBody, ExchangeFailure> {
    let io = |error: std::io::Error| ExchangeFailure { why: "upload_lost", ..ExchangeFailure::of_io(&error) };
    let stalled = |_| ExchangeFailure::lost("upload_stalled");
    let stream = target.connect().await.map_err(|error| ExchangeFailure::connecting(&error))?;
    let (mut read, mut write) = tokio::io::split(stream);
    let bytes = plan.transfer_bytes();
    write.write_all(head(target, seed, bytes).as_bytes()).await.map_err(io)?;
    let send = async {
        let (begin, mut position, mut piece) = (Instant::now(), 0, vec![0; PIECE_BYTES]);
        while position < bytes {
            pattern::fill(seed, position, &mut piece);
            let left = usize::try_from(bytes - position).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let part = piece.get(..left).unwrap_or_default();
            timeout(plan.patience, write.write_all(part)).await.map_err(stalled)?.map_err(io)?;
            position += part.len() as u64;
            recorder.moved(Instant::now(), Bytes { down: 0, up: part.len() as u64 });
            sleep_until(plan.due(begin, position)).await;
            *goes_on |= begin.elapsed() >= GOES_ON_AFTER;
        }
        timeout(plan.patience, write.flush()).await.map_err(stalled)?.map_err(io)
    };
    let mut answer = Vec::new();
    let receive = async { read.read_to_end(&mut answer).await.map_err(io) };
    let mut receive = std::pin::pin!(receive);
    tokio::select! {
        // An answer before the body's end is a refusal; a failed write may have one too, and it says more.
        early = &mut receive => { early?; }
        sent = send => {
            let answered = timeout(plan.patience, &mut receive).await.map_err(stalled)?;
            sent.and(answered)?;
        }
    }
    read_answer(&answer)
}

fn head(target: &LoadTarget, seed: u64, bytes: u64) -> String {
    let token = target.token.as_deref().map(|token| format!("{TOKEN_HEADER}: Bearer {token}\r\n"));
    format!(
        "POST /digest?seed={seed} HTTP/1.1\r\nhost: {}\r\n{}connection: close\r\ncontent-length: {bytes}\r\n\r\n",
        target.host,
        token.unwrap_or_default()
    )
}

fn read_answer(answer: &[u8]) -> Result<ReceivedBody, ExchangeFailure> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(ExchangeFailure::lost("upload_lost"))?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(ExchangeFailure::lost("upload_refused"));
    }
    // The body may come in chunks, whose sizes stand around it.
    let json = body.find('{').zip(body.rfind('}')).and_then(|(from, to)| body.get(from..=to));
    json.and_then(|json| serde_json::from_str(json).ok()).ok_or(ExchangeFailure::lost("upload_lost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_the_app_is_read_plain_and_in_chunks() {
        let json = "{\"bytes\":5,\"fnv1a64\":\"00\",\"wrong_at\":null}";
        let plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len());
        assert_eq!(read_answer(plain.as_bytes()).unwrap().bytes, 5);
        let chunked =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{json}\r\n0\r\n\r\n", json.len());
        assert_eq!(read_answer(chunked.as_bytes()).unwrap().wrong_at, None);
        assert_eq!(read_answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\n{}").unwrap_err().why, "upload_refused");
        assert_eq!(read_answer(b"").unwrap_err().why, "upload_lost");
    }
}
