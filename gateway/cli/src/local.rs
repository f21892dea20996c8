//! The audit log of changes that commands make straight on the database.

use std::path::PathBuf;

use rustix::process::getuid;

use super::{Console, Exit};
use gateway_config::Config;
use gateway_net::audit::{Actor, AuditEvent, AuditRecord, append, appendable};
use gateway_types::UnixSeconds;

/// Audit log of changes, if the configuration names a file. Without one they are in no log: the gateway, whose log has
/// the others, does not see who made them.
#[derive(Debug)]
pub(super) struct Journal {
    path: Option<PathBuf>,
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
        Ok(Self { path, now })
    }

    /// Writes a change down; reports a failure, because the change cannot be undone.
    pub(super) fn write(&self, event: AuditEvent, console: &mut Console) {
        let Some(path) = &self.path else { return };
        let at_ms = u64::try_from(self.now.get()).unwrap_or_default().saturating_mul(1000);
        if let Err(error) = append(path, at_ms, AuditRecord::new(event)) {
            console.complain(format_args!("done, but not written to the audit log {}: {error}", path.display()));
        }
    }
}

/// Names the user who runs this command.
pub(super) fn operator() -> Actor {
    Actor::Operator(getuid().as_raw())
}
