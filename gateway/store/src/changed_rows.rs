//! Log of changed rows, which the database writes by itself (triggers) while there are replicas: each replica reads it every
//! second, and finds there what no other one has announced to it.
//!
//! A row gets its number before its transaction commits, so a later number can become visible earlier. The reader
//! remembers the numbers that are missing, and asks for them again for [`GAP_TIME`]: a transaction that was rolled back
//! leaves its number unused for ever.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::Instant;

use super::database::{Row, sql};
use super::environments::EnvironmentId;
use super::{ClusterId, Store, StoreError, WorkspaceId};

/// Time for which a missing number is asked for again: transactions here take milliseconds, and end by the time limit of a
/// statement at the latest.
const GAP_TIME: Duration = Duration::from_secs(10);

/// Rows that are read at a time. More mean that anything may have changed.
const PAGE: u32 = 2_000;

/// Rows before the newest one that the first reading looks through for missing numbers.
const FIRST_PAGE: i64 = 500;

/// Rows that are kept, for a replica that was cut off from the database: many times a page.
const KEPT: i64 = 50_000;

/// An object whose stored state changed. Nothing says how: the truth is read from its own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangedRow {
    /// A workspace.
    Workspace {
        /// The workspace.
        workspace: WorkspaceId,
        /// Its cluster, if it is in one.
        cluster: Option<ClusterId>,
    },
    /// An environment, or a preparation of it.
    Environment(EnvironmentId),
}

/// Result of one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedRows {
    /// These changed since the last reading, each named once.
    Some(Vec<ChangedRow>),
    /// Anything may have changed: there was too much to read.
    Everything,
}

/// Reads the log, from its making on.
#[derive(Debug)]
pub struct ChangedRowsReader {
    store: Store,
    position: Option<LogPosition>,
    cleared: i64,
}

/// Reading position: which numbers were read.
#[derive(Debug, Default)]
struct LogPosition {
    /// Every number up to here was read, or is given up.
    floor: i64,
    /// Numbers above the floor that were read, each with the time of that.
    above: BTreeMap<i64, Instant>,
    /// Time at which everything counts as changed once more: after a reading that was cut, the missing numbers in what was
    /// left out are not known.
    again_at: Option<Instant>,
}

impl LogPosition {
    /// Takes the rows above the floor, in any order, and returns those that are new.
    fn take(&mut self, rows: Vec<(i64, ChangedRow)>, is_whole: bool, now: Instant) -> ChangedRows {
        let mut new: Vec<ChangedRow> = Vec::new();
        for (number, row) in rows {
            if let Entry::Vacant(place) = self.above.entry(number) {
                place.insert(now);
                new.push(row);
            }
        }
        if !is_whole {
            self.floor = self.above.last_key_value().map_or(self.floor, |(newest, _)| *newest);
            self.above.clear();
            self.again_at = Some(now + GAP_TIME);
            return ChangedRows::Everything;
        }
        self.rise(now);
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            return ChangedRows::Everything;
        }
        new.sort_unstable();
        new.dedup();
        ChangedRows::Some(new)
    }

    /// Raises the floor over numbers that were read, and over missing ones that are given up.
    fn rise(&mut self, now: Instant) {
        while let Some(entry) = self.above.first_entry() {
            if *entry.key() != self.floor + 1 && now.duration_since(*entry.get()) < GAP_TIME {
                return;
            }
            self.floor = *entry.key();
            entry.remove();
        }
    }
}

impl Store {
    /// Makes a reader of the changes from now on.
    #[must_use]
    pub fn changed_rows(&self) -> ChangedRowsReader {
        ChangedRowsReader { store: self.clone(), position: None, cleared: 0 }
    }
}

impl ChangedRowsReader {
    /// Returns what changed since the last reading. The first one takes the position, and returns nothing.
    ///
    /// # Errors
    /// [`StoreError`]; the next reading returns what this one would have.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost.
    pub async fn next(&mut self) -> Result<ChangedRows, StoreError> {
        let Some(position) = &mut self.position else {
            let newest = sql("SELECT coalesce(max(id), 0) AS id FROM changed_rows").fetch_one(&self.store.readers);
            let newest: i64 = newest.await?.get("id")?;
            let mut position = LogPosition { floor: (newest - FIRST_PAGE).max(0), ..LogPosition::default() };
            let (rows, is_whole) = read_above(&self.store, position.floor).await?;
            position.take(rows, is_whole, Instant::now());
            self.position = Some(position);
            return Ok(ChangedRows::Some(Vec::new()));
        };
        let (rows, is_whole) = read_above(&self.store, position.floor).await?;
        Ok(position.take(rows, is_whole, Instant::now()))
    }

    /// Deletes rows that no replica reads any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn clear(&mut self) -> Result<(), StoreError> {
        self.clear_but(KEPT).await
    }

    async fn clear_but(&mut self, kept: i64) -> Result<(), StoreError> {
        let up_to = self.position.as_ref().map_or(0, |position| position.floor - kept);
        if up_to > self.cleared {
            let statement = sql("DELETE FROM changed_rows WHERE id <= $1").bind(up_to);
            statement.execute(&self.store.writer).await?;
            self.cleared = up_to;
        }
        Ok(())
    }
}

/// Reads the newest rows above a number; `true` if these are all.
async fn read_above(store: &Store, floor: i64) -> Result<(Vec<(i64, ChangedRow)>, bool), StoreError> {
    let statement = sql("SELECT changed_rows.id AS id, kind, subject, cluster_id FROM changed_rows \
         LEFT JOIN kubernetes_workspaces ON kind = 1 AND workspace_id = subject \
         WHERE changed_rows.id > $1 ORDER BY changed_rows.id DESC LIMIT $2");
    let rows = statement.bind(floor).bind(PAGE).fetch_all(&store.readers).await?;
    let is_whole = rows.len() < PAGE as usize;
    let rows = rows.iter().map(|row| Ok((row.get("id")?, read(row)?))).collect::<Result<_, StoreError>>()?;
    Ok((rows, is_whole))
}

fn read(row: &Row) -> Result<ChangedRow, StoreError> {
    let (kind, subject): (i64, i64) = (row.get("kind")?, row.get("subject")?);
    match kind {
        1 => {
            let cluster: Option<i64> = row.get("cluster_id")?;
            Ok(ChangedRow::Workspace { workspace: WorkspaceId(subject), cluster: cluster.map(ClusterId) })
        }
        2 => Ok(ChangedRow::Environment(EnvironmentId(subject))),
        _ => Err(StoreError::Corrupt { table: "changed_rows", column: "kind" }),
    }
}

#[cfg(test)]
mod tests;
