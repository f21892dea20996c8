//! A change and its place in the audit log, which comes first.

use super::request::By;
use crate::audit::{Record, Slot};

/// By whose word something changes, and the place in the audit log that was taken for it before. What turns out to change
/// nothing gives the place back.
#[derive(Debug)]
pub struct OnRecord {
    by: By,
    slot: Slot,
}

impl OnRecord {
    /// Joins the two.
    #[must_use]
    pub fn new(by: By, slot: Slot) -> Self {
        Self { by, slot }
    }

    /// Returns by whose word.
    pub(super) fn by(&self) -> &By {
        &self.by
    }

    /// Writes down what has changed.
    pub(super) fn record(self, record: Record) {
        self.slot.record(record);
    }

    /// Writes down what has changed where that is too much for one record.
    pub(super) fn record_all(self, records: Vec<Record>) {
        self.slot.record_all(records);
    }
}

/// Tests of what is done, and not of what is written down.
#[cfg(test)]
impl From<By> for OnRecord {
    fn from(by: By) -> Self {
        Self::new(by, Slot::nowhere())
    }
}
