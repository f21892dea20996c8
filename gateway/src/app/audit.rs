//! Opens the audit log, and keeps its records in the database too, where operators search those of all replicas.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use tunnel_link::drain::Drain;

use super::StartError;
use super::duties::Work;
use gateway_config::{AuditLog, Config, LogFormat};
use gateway_net::audit::{Audit, AuditCounters, RecordsToStore, StoredRecord, TokenIds, Writer};
use gateway_net::telemetry::Metrics;
use gateway_replicas::duties::HeldDuty;
use gateway_store::{AuditCutoffs, AuditSource, Duty, Incarnation, Store, wall_clock, wall_clock_ms};
use gateway_types::UnixSeconds;

/// Records of one batch.
const BATCH_MAX: usize = 256;

/// Time in which a batch gathers.
const GATHER_TIME: Duration = Duration::from_millis(200);

/// Time limit of one batch.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause after a batch that the store did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which old records are removed.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// Pause between two removals while there is more.
const MORE_PAUSE: Duration = Duration::from_secs(1);

/// Most records that are removed at a time: others write meanwhile.
const REMOVED_MAX: u32 = 1_000;

/// Tasks of the audit log that are not begun yet.
#[derive(Debug)]
pub(super) struct AuditTasks {
    writer: Writer,
    records: Option<RecordsToStore>,
}

/// Opens the audit log. Its writer asks the store for the ids of tokens, so that no other task has to.
pub(super) fn open(config: &Config, store: &Store, metrics: &Metrics) -> Result<(Audit, AuditTasks), StartError> {
    let store = store.clone();
    let token_ids: TokenIds = Box::new(move |hash| {
        let store = store.clone();
        Box::pin(async move { Some(store.token_by_hash(&hash).await.ok()??.id.to_string()) })
    });
    let counters = AuditCounters { lost: metrics.audit_lost(), unstored: metrics.audit_unstored() };
    let (audit, writer, records) = Audit::open_storing(&config.audit, wall_clock_ms, token_ids, counters)
        .map_err(|source| StartError::Audit { path: config.audit.path.clone().unwrap_or_default(), source })?;
    let writer = if config.log.format == LogFormat::Text { writer.in_words() } else { writer };
    Ok((audit, AuditTasks { writer, records }))
}

impl AuditTasks {
    /// Begins to write, and to store; both end soon after `written`.
    pub(super) fn execute(
        self,
        writing: &Drain,
        store: &Store,
        replica: Option<Incarnation>,
        written: &CancellationToken,
    ) {
        writing.spawn(self.writer.run(written.clone()));
        if let Some(records) = self.records {
            writing.spawn(keep(records, store.clone(), replica, written.clone()));
        }
    }
}

/// Stores records until the writer has ended. While the store is away they wait, as many as the queue holds; at the end what
/// cannot be stored is counted.
async fn keep(mut waiting: RecordsToStore, store: Store, replica: Option<Incarnation>, written: CancellationToken) {
    let Ok(source) = AuditSource::random() else {
        return warn!("audit records are not stored in the database: the system gave no random bytes");
    };
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while waiting.records.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            written.run_until_cancelled(tokio::time::sleep(GATHER_TIME)).await;
            while let Some(record) = next(&mut waiting, batch.len()) {
                batch.push(record);
            }
        }
        loop {
            let adding = timeout(WRITE_TIME_MAX, store.add_audit_records(source, replica, &batch)).await;
            let why = match adding {
                Ok(Ok(())) => {
                    waiting.unstored.is_over();
                    break;
                }
                Ok(Err(error)) if !error.is_unanswered() => {
                    waiting.unstored.add(count(&batch), &error.to_string());
                    break;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if written.is_cancelled() {
                waiting.unstored.add(count(&batch), &why);
                break;
            }
            debug!(why, "audit records wait for the store");
            written.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
        }
        batch.clear();
    }
}

/// Takes a record that waits, if there is room for it.
fn next(waiting: &mut RecordsToStore, held: usize) -> Option<StoredRecord> {
    if held < BATCH_MAX { waiting.records.try_recv().ok() } else { None }
}

fn count(batch: &[StoredRecord]) -> u64 {
    u64::try_from(batch.len()).unwrap_or(u64::MAX)
}

/// Returns the removal of old records, which one process does for all that share the database.
pub(super) fn sweep_work(config: &AuditLog, closed: &CancellationToken) -> Work {
    let (days, access_days) = (config.keep_days, config.keep_access_days);
    let begin = Box::new(move |held: HeldDuty| -> BoxFuture<'static, ()> { Box::pin(sweep(held, days, access_days)) });
    Work { duty: Duty::Audit, begin, ending: closed.clone(), stop: closed.clone() }
}

/// Removes records that are older than that many days, for as long as the duty is held.
async fn sweep(held: HeldDuty, days: u32, access_days: u32) {
    loop {
        let now = wall_clock();
        let cutoffs = AuditCutoffs { accesses: before(now, access_days), others: before(now, days) };
        let pause = match held.store.remove_audit_records(cutoffs, REMOVED_MAX).await {
            Ok(removed) if removed >= u64::from(REMOVED_MAX) => MORE_PAUSE,
            Ok(_) => SWEEP_INTERVAL,
            Err(error) => {
                debug!(%error, "old audit records cannot be removed");
                SWEEP_INTERVAL
            }
        };
        tokio::select! {
            () = held.ending.cancelled() => return,
            () = held.lost.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn before(now: UnixSeconds, days: u32) -> UnixSeconds {
    UnixSeconds::new(now.get().saturating_sub(i64::from(days) * 24 * 60 * 60))
}
