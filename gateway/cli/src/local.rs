//! The audit log of changes that commands make straight on the database.

use std::path::PathBuf;

use rustix::process::getuid;

use super::{Console, Exit};
use gateway_config::Config;
use gateway_net::audit::{Actor, AuditEvent, AuditRecord, StoredRecord, append, appendable};
use gateway_store::{AuditSource, Store, StoreError};
use gateway_types::UnixSeconds;

/// Audit log of changes, if the configuration names a file, and in the database. Without either they are in no log: the
/// gateway, whose log has the others, does not see who made them.
#[derive(Debug)]
pub(super) struct Journal {
    path: Option<PathBuf>,
    is_stored: bool,
    now: UnixSeconds,
}

impl Journal {
    /// Opens the log, so that nothing is changed that could not be written down.
    pub(super) fn open(config: &Config, now: UnixSeconds, console: &mut Console) -> Result<Self, Exit> {
        let path = config.audit.path.clone();
        if let Some(path) = &path
            && let Err(error) = appendable(path)
        {
            console.complain(format_args!("audit.path: {} cannot be written: {error}", path.display()));
            return Err(Exit::Failed);
        }
        Ok(Self { path, is_stored: config.audit.keep_days > 0, now })
    }

    /// Writes a change down; reports a failure, because the change cannot be undone.
    pub(super) async fn write(&self, store: &Store, event: AuditEvent, console: &mut Console) {
        let record = AuditRecord::new(event);
        if self.is_stored
            && let Err(error) = keep(store, &StoredRecord::single(self.at_ms(), &record)).await
        {
            console.complain(format_args!("done, but not stored with the audit records of the database: {error}"));
        }
        self.append(record, console);
    }

    /// Writes a change down beside a database that is not to be opened: in the log alone.
    pub(super) fn append(&self, record: AuditRecord, console: &mut Console) {
        let Some(path) = &self.path else { return };
        if let Err(error) = append(path, self.at_ms(), record) {
            console.complain(format_args!("done, but not written to the audit log {}: {error}", path.display()));
        }
    }

    fn at_ms(&self) -> u64 {
        u64::try_from(self.now.get()).unwrap_or_default().saturating_mul(1000)
    }
}

/// Stores a record.
async fn keep(store: &Store, record: &StoredRecord) -> Result<(), StoreError> {
    store.add_audit_records(AuditSource::random()?, None, std::slice::from_ref(record)).await
}

/// Names the user who runs this command.
pub(super) fn operator() -> Actor {
    Actor::Operator(getuid().as_raw())
}
