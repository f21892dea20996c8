//! Background work that one process does for all that share a database: alone, this process does all of it.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use gateway_replicas::duties::{DutyWork, HeldDuty};
use gateway_store::{Duty, Store};

/// One piece of work, and until when a process that has no others does it.
pub(super) struct Work {
    pub(super) duty: Duty,
    pub(super) begin: DutyWork,
    /// When a process that is alone begins nothing new.
    pub(super) ending: CancellationToken,
    /// When a process that is alone stops what is under way.
    pub(super) stop: CancellationToken,
}

/// Does all work in this process.
pub(super) fn execute_alone(works: Vec<Work>, store: &Store, tasks: &Drain) {
    for Work { begin, ending, stop, .. } in works {
        tasks.spawn(begin(HeldDuty { store: store.clone(), ending, lost: stop }));
    }
}

/// Returns the work, for a process that has others.
pub(super) fn by_duty(works: Vec<Work>) -> BTreeMap<Duty, DutyWork> {
    works.into_iter().map(|work| (work.duty, work.begin)).collect()
}
