//! A change together with its slot in the audit log, which is reserved first.

use super::request::By;
use gateway_net::audit::{AuditRecord, RecordPermit};

/// Author of a change, and the slot in the audit log that was reserved for it. A change without an effect gives the
/// slot back.
#[derive(Debug)]
pub struct OnRecord {
    by: By,
    slot: RecordPermit,
}

impl OnRecord {
    /// Joins author and slot.
    #[must_use]
    pub fn new(by: By, slot: RecordPermit) -> Self {
        Self { by, slot }
    }

    /// Returns the author of the change.
    pub(super) fn by(&self) -> &By {
        &self.by
    }

    /// Records the change.
    pub(super) fn record(self, record: AuditRecord) {
        self.slot.record(record);
    }

    /// Records a change that is too large for one record.
    pub(super) fn record_all(self, records: Vec<AuditRecord>) {
        self.slot.record_all(records);
    }
}

/// For tests that do not look at the audit log.
#[cfg(test)]
impl From<By> for OnRecord {
    fn from(by: By) -> Self {
        Self::new(by, RecordPermit::nowhere())
    }
}
