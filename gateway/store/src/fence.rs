//! Fences: writes of work that has one owner among the replicas. Each transaction of such work begins by locking the row that
//! says who the owner is, and taking the work over changes that row. So the next owner begins after the last write of the
//! one before, and a process that was paused in between writes nothing.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::database::{Transaction, sql_of};
use super::sessions::signed;
use super::{Duty, Incarnation, SessionKey, Store, StoreError};

/// Condition of all writes of a store: the work is still this replica's.
#[derive(Clone, Debug)]
pub struct Fence {
    work: FencedWork,
    /// Cancelled by the first write that finds another owner.
    lost: CancellationToken,
}

/// Work that has one owner.
#[derive(Clone, Copy, Debug)]
enum FencedWork {
    Duty { duty: Duty, owner: Incarnation },
    Session { key: SessionKey, owner: Incarnation, generation: u64 },
}

impl Fence {
    /// Makes the fence of a duty. `lost` is cancelled by the first write that finds another owner.
    #[must_use]
    pub fn of_duty(duty: Duty, owner: Incarnation, lost: CancellationToken) -> Self {
        Self { work: FencedWork::Duty { duty, owner }, lost }
    }

    /// Makes the fence of work for the session of an agent. `lost` is cancelled by the first write that finds a newer session.
    #[must_use]
    pub fn of_session(key: SessionKey, owner: Incarnation, generation: u64, lost: CancellationToken) -> Self {
        Self { work: FencedWork::Session { key, owner, generation }, lost }
    }

    /// Locks the owner's row until the transaction ends.
    ///
    /// A replica that is paused in a transaction keeps the row locked, and others wait for it: the server ends such a
    /// transaction after two seconds. That is set by the same statement, so it costs no further one.
    pub(super) async fn pass(&self, transaction: &mut Transaction) -> Result<(), StoreError> {
        let statement = match self.work {
            FencedWork::Duty { duty, owner } => sql_of(
                "SELECT 1 FROM duties WHERE name = $1 AND owner = $2",
                "SELECT set_config('idle_in_transaction_session_timeout', '2s', true) FROM duties \
                 WHERE name = $1 AND owner = $2 FOR SHARE",
            )
            .bind(duty.as_str())
            .bind(owner.0),
            FencedWork::Session { key, owner, generation } => {
                let (kind, subject) = key.columns();
                sql_of(
                    "SELECT 1 FROM sessions WHERE kind = $1 AND subject = $2 AND owner = $3 AND generation = $4",
                    "SELECT set_config('idle_in_transaction_session_timeout', '2s', true) FROM sessions \
                     WHERE kind = $1 AND subject = $2 AND owner = $3 AND generation = $4 FOR SHARE",
                )
                .bind(kind)
                .bind(subject)
                .bind(owner.0)
                .bind(signed(generation))
            }
        };
        if statement.fetch_optional(transaction).await?.is_some() {
            return Ok(());
        }
        self.lost.cancel();
        Err(StoreError::Fenced)
    }
}

impl Store {
    /// Returns a store whose writes fail with [`StoreError::Fenced`], and write nothing, once the work has another owner. Reads
    /// are as before.
    #[must_use]
    pub fn fenced(&self, fence: Fence) -> Self {
        Self { writer: self.writer.fenced(Arc::new(fence)), ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
