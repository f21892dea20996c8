//! Records on their way to the database, where operators search them. Best effort beside the file or log: the writer never waits
//! for the database, and what does not fit into the queue is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::{info, warn};

use super::AuditRecord;
use super::line::{ascii, line};
use gateway_config::AuditLog;

/// Records that wait to be stored: some minutes of changes, while the database is away.
const STORED_QUEUE_MAX: usize = 8 * 1024;

/// Records per minute that clients can cause without any credential; the rest is in the log alone. No client may fill
/// the database by mere attempts.
const STRANGERS_PER_MINUTE: u32 = 20;

/// A record as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Number among those of this source, so that a repetition is noticed.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Name of the event.
    pub event: String,
    /// Author: a user's name, or `operator/UID`, `job/PROJECT#NUMBER` or `hook`.
    pub actor: Option<String>,
    /// Workspace that it is about.
    pub workspace: Option<String>,
    /// Address of the client.
    pub peer: Option<String>,
    /// The trace id.
    pub trace: Option<String>,
    /// The line of the log.
    pub line: String,
}

impl StoredRecord {
    /// Makes the row of a record whose line is known. A line is an object of our own making.
    fn of(number: u64, at_ms: u64, line: &str) -> Self {
        let fields: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(ascii);
        let is_workspaces = fields.get("subject_kind").and_then(Value::as_str) == Some("agent");
        Self {
            number,
            at_ms,
            event: text("event").unwrap_or_default(),
            actor: fields.get("by").map_or_else(|| text("user"), actor),
            workspace: text("workspace").or_else(|| if is_workspaces { text("subject") } else { None }),
            peer: text("peer"),
            trace: text("trace"),
            line: line.to_owned(),
        }
    }

    /// Makes the row of a single record, for commands that work on the database.
    #[must_use]
    pub fn single(at_ms: u64, record: &AuditRecord) -> Self {
        Self::of(1, at_ms, &line(at_ms, record))
    }
}

/// Reads an author as [`super::Actor`] is written.
fn actor(by: &Value) -> Option<String> {
    if let Some(word) = by.as_str() {
        return Some(ascii(word));
    }
    let (kind, value) = by.as_object()?.iter().next()?;
    let value = value.as_str().map_or_else(|| value.to_string(), ascii);
    Some(if kind == "user" { value } else { format!("{kind}/{value}") })
}

/// Writes a text as it is inside a line, for a search there.
#[must_use]
pub fn as_in_lines(text: &str) -> String {
    let quoted = ascii(&Value::from(text).to_string());
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// Counter of records that are not in the database, which is said once when it begins.
#[derive(Clone, Debug)]
pub struct Unstored {
    counter: Counter,
    shared: Arc<UnstoredShared>,
}

#[derive(Debug, Default)]
struct UnstoredShared {
    is_failing: AtomicBool,
    missing: AtomicU64,
}

impl Unstored {
    fn new(counter: Counter) -> Self {
        Self { counter, shared: Arc::default() }
    }

    /// Counts records that will not be stored.
    pub fn add(&self, records: u64, why: &str) {
        self.counter.inc_by(records);
        self.shared.missing.fetch_add(records, Ordering::Relaxed);
        if !self.shared.is_failing.swap(true, Ordering::Relaxed) {
            warn!(
                why,
                "audit records cannot be stored in the database; they are in the log, and counted until they can"
            );
        }
    }

    /// Notes that records are stored again.
    pub fn is_over(&self) {
        if self.shared.is_failing.swap(false, Ordering::Relaxed) {
            let missing = self.shared.missing.swap(0, Ordering::Relaxed);
            info!(missing, "audit records are stored in the database again");
        }
    }
}

/// The writer's end of the queue.
#[derive(Debug)]
pub(super) struct RecordQueue {
    queue: Sender<StoredRecord>,
    unstored: Unstored,
    has_accesses: bool,
    strangers: Minute,
    number: u64,
}

/// A minute and how much of it is used.
#[derive(Debug, Default)]
struct Minute {
    minute: u64,
    count: u32,
}

impl Minute {
    /// Returns whether there is room for one more.
    fn take(&mut self, at_ms: u64) -> bool {
        let minute = at_ms / 60_000;
        if self.minute != minute {
            *self = Self { minute, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= STRANGERS_PER_MINUTE
    }
}

/// The other end: records to store.
#[derive(Debug)]
pub struct RecordsToStore {
    /// The records, in the order of the log. Ends with the writer.
    pub records: Receiver<StoredRecord>,
    /// Counter of those that cannot be stored.
    pub unstored: Unstored,
}

/// Makes the queue; `None` if no record is to be stored.
pub(super) fn queue(config: &AuditLog, counter: Counter) -> Option<(RecordQueue, RecordsToStore)> {
    if config.keep_days == 0 && config.keep_access_days == 0 {
        return None;
    }
    let (queue, records) = mpsc::channel(STORED_QUEUE_MAX);
    let unstored = Unstored::new(counter);
    let has_accesses = config.keep_access_days > 0;
    let strangers = Minute::default();
    let writer = RecordQueue { queue, unstored: unstored.clone(), has_accesses, strangers, number: 0 };
    Some((writer, RecordsToStore { records, unstored }))
}

impl RecordQueue {
    /// Hands a record over, if there is room and it is of a kind that is stored. Does not wait.
    pub(super) fn put(&mut self, at_ms: u64, record: &AuditRecord, known: Option<&String>) {
        if record.event.is_access() && !self.has_accesses {
            return;
        }
        if record.event.is_by_stranger() && !self.strangers.take(at_ms) {
            return;
        }
        self.number = self.number.wrapping_add(1);
        let stored = match known {
            Some(line) => StoredRecord::of(self.number, at_ms, line),
            None => StoredRecord::of(self.number, at_ms, &line(at_ms, record)),
        };
        if self.queue.try_send(stored).is_err() {
            self.unstored.add(1, "too many wait");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Actor, AuditEvent, Items, Text};
    use super::*;

    fn row(event: AuditEvent) -> StoredRecord {
        StoredRecord::single(1_000, &AuditRecord::new(event).traced("abc").at_peer([192, 0, 2, 1].into()))
    }

    fn disabled(by: Actor) -> AuditEvent {
        AuditEvent::UserChanged { by, user: Text::new("eve"), how: "disabled" }
    }

    #[test]
    fn row_says_who_did_what_where() {
        let shared = AuditEvent::SharesChanged {
            by: Actor::User(Text::new("ann")),
            workspace: Text::new("app"),
            added: Items::default(),
            removed: Items::default(),
        };
        let made = row(shared);
        assert_eq!((made.event.as_str(), made.actor.as_deref()), ("shares_changed", Some("ann")));
        assert_eq!((made.workspace.as_deref(), made.trace.as_deref()), (Some("app"), Some("abc")));
        assert_eq!((made.peer.as_deref(), made.at_ms), (Some("192.0.2.1"), 1_000));
        assert!(made.line.starts_with(r#"{"v":1,"#), "{}", made.line);
        assert_eq!(row(disabled(Actor::Operator(0))).actor.as_deref(), Some("operator/0"));
        assert_eq!(row(disabled(Actor::Job(Text::new("team/app#7")))).actor.as_deref(), Some("job/team/app#7"));
        assert_eq!(row(disabled(Actor::Hook)).actor.as_deref(), Some("hook"));
        let signed_in = AuditEvent::SignedIn { user: Text::new("ann"), how: "oidc", session: Text::new("s-1") };
        assert_eq!(row(signed_in).actor.as_deref(), Some("ann"));
        assert_eq!(row(AuditEvent::GatewayStopped).actor, None);
    }

    #[test]
    fn text_of_a_stranger_is_escaped_in_rows_too() {
        let failed =
            AuditEvent::SignInFailed { how: "oidc", reason: "r", user: Some(Text::new("a\0\u{1b}[31m\u{e9}")) };
        let made = row(failed);
        assert_eq!(made.actor.as_deref(), Some(r"a\u0000\u001b[31m\u00e9"));
        assert!(made.line.is_ascii() && !made.line.contains('\0'));
        assert!(made.line.contains(&as_in_lines("\u{1b}[31m\u{e9}")), "what is searched for is found: {}", made.line);
        assert_eq!(as_in_lines("say \"hi\" \\ %_'"), r#"say \"hi\" \\ %_'"#);
    }

    #[test]
    fn queue_that_is_full_is_counted_and_nothing_waits() {
        let config = AuditLog { path: None, rotate_bytes: 1 << 20, keep: 1, keep_days: 1, keep_access_days: 0 };
        let counter = Counter::default();
        let (mut queue, mut waiting) = queue(&config, counter.clone()).unwrap();
        let record = AuditRecord::new(disabled(Actor::Hook));
        for _ in 0..STORED_QUEUE_MAX + 3 {
            queue.put(1, &record, None);
        }
        assert_eq!(counter.get(), 3);
        assert_eq!(waiting.records.try_recv().unwrap().number, 1);
        let access = AuditEvent::AccessEnded {
            access: 1,
            workspace: Text::new("app"),
            port: 80,
            why: super::super::WhyEnded::Closed,
            seconds: 1,
        };
        queue.put(1, &AuditRecord::new(access), None);
        assert_eq!(waiting.records.len(), STORED_QUEUE_MAX - 1, "accesses are not stored unless it is said");
        assert!(super::queue(&AuditLog { keep_days: 0, ..config }, counter).is_none());
    }

    #[test]
    fn attempts_of_strangers_do_not_fill_the_database() {
        let config = AuditLog { path: None, rotate_bytes: 1 << 20, keep: 1, keep_days: 1, keep_access_days: 0 };
        let (mut queue, waiting) = queue(&config, Counter::default()).unwrap();
        let failed = || AuditRecord::new(AuditEvent::SignInFailed { how: "oidc", reason: "r", user: None });
        for at_ms in 0..59_000 {
            queue.put(at_ms, &failed(), None);
        }
        queue.put(60_000, &failed(), None);
        queue.put(60_000, &AuditRecord::new(disabled(Actor::Hook)), None);
        let most = usize::try_from(STRANGERS_PER_MINUTE).unwrap();
        assert_eq!(waiting.records.len(), most + 2);
    }
}
