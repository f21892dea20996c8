//! The audit log: actor, action, time, address and reason of the permission. One JSON object per line.
//!
//! Callers hand records to [`Audit`], which never waits and never blocks: a bounded queue leads to the one task that
//! writes. Records of mere events (an access, a failed sign-in) are dropped when the queue is full, but not silently:
//! they are counted, as the metric `gateway_audit_lost` and as a record of its own. A change by a user or operator
//! (shares, tokens, sessions) takes a [`RecordPermit`] in the queue first, and is refused without one.
//!
//! Beside the file or log, records go to the database if `audit.keep_days` says so: see [`RecordsToStore`].
//!
//! Records hold no secret: credentials appear by kind and id, and every text is cut and escaped.

mod event;
mod file;
mod line;
mod stored;
mod tally;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::sync::mpsc::{self, OwnedPermit, Sender};

use self::tally::Tally;
use gateway_config::AuditLog;

pub use event::{Actor, AuditEvent, Credential, Items, Text, WhyEnded};
pub use file::{append, appendable};
pub use stored::{RecordsToStore, StoredRecord, Unstored, as_in_lines};
pub use writer::Writer;

/// Records that wait to be written. Full: see the module.
const QUEUE_MAX: usize = 8 * 1024;

/// Longest wait of a change for a place in the queue.
const SLOT_PATIENCE: Duration = Duration::from_secs(5);

/// Records per second that clients can cause without any credential. Excess ones are counted and not written: no client
/// may rotate the log away by mere attempts.
const STRANGERS_PER_SECOND: u32 = 50;

/// One event, before it becomes a line.
#[derive(Debug)]
pub struct AuditRecord {
    /// The event.
    pub event: AuditEvent,
    /// Address of the client.
    pub peer: Option<IpAddr>,
    /// Credential of the client.
    pub credential: Option<Credential>,
    /// The trace id of the request, if there is one.
    pub trace: Option<Text>,
}

impl AuditRecord {
    /// Makes a record of an event without a request.
    #[must_use]
    pub fn new(event: AuditEvent) -> Self {
        Self { event, peer: None, credential: None, trace: None }
    }

    /// Adds the client's address.
    #[must_use]
    pub fn at_peer(self, peer: IpAddr) -> Self {
        Self { peer: Some(peer), ..self }
    }

    /// Adds the client's credential.
    #[must_use]
    pub fn with(self, credential: Credential) -> Self {
        Self { credential: Some(credential), ..self }
    }

    /// Adds the trace id of the request.
    #[must_use]
    pub fn traced(self, trace: &str) -> Self {
        Self { trace: Some(Text::new(trace)), ..self }
    }
}

/// A record and its time.
#[derive(Debug)]
struct Timed {
    /// Milliseconds since 1970.
    at_ms: u64,
    record: AuditRecord,
    /// Further records of the same change.
    more: Vec<AuditRecord>,
}

impl Timed {
    fn new(at_ms: u64, record: AuditRecord) -> Self {
        Self { at_ms, record, more: Vec::new() }
    }
}

/// The queue is full and stays so, or the writer has ended: an action that needs a record cannot be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the audit log cannot take another record now")]
pub struct Unrecordable;

/// Handle for recording. Clones share the queue; the default one discards records, for tests and tools.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<AuditShared>>);

#[derive(Debug)]
struct AuditShared {
    queue: Sender<Timed>,
    clock_ms: fn() -> u64,
    /// Accesses are many; without a file of their own and a place in the database they go to the log, and only if its
    /// level asks for them.
    takes_accesses: bool,
    losses: Arc<Losses>,
    tally: Tally,
    strangers: Mutex<Window>,
    accesses: AtomicU64,
}

/// Records that were not written, by reason.
#[derive(Debug, Default)]
struct Losses {
    queue_full: AtomicU64,
    strangers: AtomicU64,
    unwritten: AtomicU64,
    counted: Counter,
}

impl Losses {
    fn add(&self, to: &AtomicU64, count: u64) {
        to.fetch_add(count, Ordering::Relaxed);
        self.counted.inc_by(count);
    }

    /// Takes the counts for a record.
    fn take(&self) -> Lost {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Lost { queue_full: take(&self.queue_full), strangers: take(&self.strangers), unwritten: take(&self.unwritten) }
    }

    /// Restores the counts of a record that was not written. They are in the metric already.
    fn put_back(&self, lost: Lost) {
        self.queue_full.fetch_add(lost.queue_full, Ordering::Relaxed);
        self.strangers.fetch_add(lost.strangers, Ordering::Relaxed);
        self.unwritten.fetch_add(lost.unwritten, Ordering::Relaxed);
    }
}

/// Losses that no record reports yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    queue_full: u64,
    strangers: u64,
    unwritten: u64,
}

impl Lost {
    fn is_some(self) -> bool {
        self != Self::default()
    }

    fn event(self) -> AuditEvent {
        let Self { queue_full, strangers, unwritten } = self;
        AuditEvent::RecordsLost { queue_full, strangers, unwritten }
    }
}

/// A second and how much of it is used.
#[derive(Debug, Default)]
struct Window {
    second: u64,
    count: u32,
}

impl Window {
    /// Returns whether there is room for one more.
    fn take(&mut self, at_ms: u64) -> bool {
        let second = at_ms / 1000;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= STRANGERS_PER_SECOND
    }
}

/// Counters of records that are missing somewhere.
#[derive(Debug)]
pub struct AuditCounters {
    /// Those that are missing from the file or log.
    pub lost: Counter,
    /// Those that are missing from the database.
    pub unstored: Counter,
}

/// Finds the id of the token with a hash, for the records of its uses.
pub type TokenIds = Box<dyn Fn([u8; 32]) -> BoxFuture<'static, Option<String>> + Send + Sync>;

impl Audit {
    /// Opens the log, and makes the writer, which the caller has to run. `lost` counts records that were not written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(
        config: &AuditLog,
        clock_ms: fn() -> u64,
        token_ids: TokenIds,
        lost: Counter,
    ) -> std::io::Result<(Self, Writer)> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let losses = Arc::new(Losses { counted: lost, ..Losses::default() });
        let writer = Writer::open(config, waiting, losses.clone(), token_ids, clock_ms)?;
        let shared = AuditShared {
            queue,
            clock_ms,
            takes_accesses: config.path.is_some() || config.keep_access_days > 0,
            losses,
            tally: Tally::default(),
            strangers: Mutex::default(),
            accesses: AtomicU64::new(1),
        };
        Ok((Self(Some(Arc::new(shared))), writer))
    }

    /// Opens the log as [`Audit::open`] does, with a queue of records for the database, if some are kept there.
    /// `unstored` counts those that do not get there.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_storing(
        config: &AuditLog,
        clock_ms: fn() -> u64,
        token_ids: TokenIds,
        counters: AuditCounters,
    ) -> std::io::Result<(Self, Writer, Option<RecordsToStore>)> {
        let (audit, writer) = Self::open(config, clock_ms, token_ids, counters.lost)?;
        Ok(match stored::queue(config, counters.unstored) {
            Some((queue, records)) => (audit, writer.storing(queue), Some(records)),
            None => (audit, writer, None),
        })
    }

    /// Hands in a record of an event. When the queue is full it is counted and dropped.
    pub fn record(&self, record: AuditRecord) {
        let Some(shared) = &self.0 else { return };
        shared.tally.count(&record.event);
        let at_ms = (shared.clock_ms)();
        if record.event.is_by_stranger() && !shared.strangers.lock().take(at_ms) {
            return shared.losses.add(&shared.losses.strangers, 1);
        }
        if shared.queue.try_send(Timed::new(at_ms, record)).is_err() {
            shared.losses.add(&shared.losses.queue_full, 1);
        }
    }

    /// Registers the counters of events.
    pub fn register(&self, registry: &mut Registry) {
        if let Some(shared) = &self.0 {
            shared.tally.register(registry);
        }
    }

    /// Returns whether records of accesses are wanted; checked before such a record is made.
    #[must_use]
    pub fn wants_accesses(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|shared| shared.takes_accesses || tracing::enabled!(target: "audit", tracing::Level::DEBUG))
    }

    /// Returns a number that names one access among those of this process.
    #[must_use]
    pub fn access_number(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.accesses.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes a place in the queue for an upcoming change, so that no change goes unrecorded.
    ///
    /// # Errors
    /// [`Unrecordable`] after five seconds without a place.
    ///
    /// # Cancel safety
    /// Safe: a slot that is dropped gives its place back.
    pub async fn slot(&self) -> Result<RecordPermit, Unrecordable> {
        let Some(shared) = &self.0 else { return Ok(RecordPermit(None)) };
        let reserved = tokio::time::timeout(SLOT_PATIENCE, shared.queue.clone().reserve_owned()).await;
        let permit = reserved.map_err(|_elapsed| Unrecordable)?.map_err(|_closed| Unrecordable)?;
        Ok(RecordPermit(Some(QueueState { permit, clock_ms: shared.clock_ms })))
    }
}

/// A place in the queue. Dropped unused, it makes no record.
#[derive(Debug)]
#[must_use = "a slot that is dropped makes no record"]
pub struct RecordPermit(Option<QueueState>);

#[derive(Debug)]
struct QueueState {
    permit: OwnedPermit<Timed>,
    clock_ms: fn() -> u64,
}

impl RecordPermit {
    /// Hands in the record of the change.
    pub fn record(self, record: AuditRecord) {
        if let Some(QueueState { permit, clock_ms }) = self.0 {
            drop(permit.send(Timed::new(clock_ms(), record)));
        }
    }

    /// Hands in all records of one change.
    pub fn record_all(self, records: Vec<AuditRecord>) {
        let mut records = records.into_iter();
        if let (Some(QueueState { permit, clock_ms }), Some(record)) = (self.0, records.next()) {
            drop(permit.send(Timed { at_ms: clock_ms(), record, more: records.collect() }));
        }
    }

    /// Makes a slot without a queue, for tests that do not look at the log: its record is discarded.
    pub fn nowhere() -> Self {
        Self(None)
    }
}

#[cfg(test)]
mod tests;
