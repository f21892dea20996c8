//! Feed of changes of access rights: the database records each change by itself (triggers), and gateways that cache
//! answers read the feed every second.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::Store;
use super::database::{Row, sql};
use gateway_types::opaque::Digest;
use gateway_types::{UserName, WorkspaceName};

/// Changes that are read again each time. A change gets its number before it becomes visible to others, so a later one
/// can become visible earlier; within this many in a row, none is missed.
const OVERLAP: i64 = 1000;

/// Changes that are read at a time.
const PAGE: u32 = 5000;

/// Changes that are kept, for a gateway cut off from the database while others make changes.
const KEPT: i64 = 100_000;

/// An object whose cached value may be out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// The token with that hash.
    Token([u8; 32]),
    /// The record of a user.
    User(UserName),
    /// A workspace: its owner, its shares, its desired state.
    Workspace(WorkspaceName),
    /// A browser's session, which has ended.
    Session(Digest),
    /// Anything: too much has changed, or it cannot be read.
    Everything,
}

/// Reading position in the feed.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// All changes up to here are known; `None` before the first reading.
    floor: Option<i64>,
    /// Known changes above the floor.
    seen: BTreeSet<i64>,
    /// All changes up to here are deleted.
    cleared: i64,
}

impl Feed {
    /// Takes the rows read above the floor; returns the new ones.
    fn take(&mut self, rows: Vec<(i64, AccessChange)>, is_whole: bool) -> Vec<AccessChange> {
        let mut new: Vec<AccessChange> =
            rows.into_iter().filter(|(id, _)| self.seen.insert(*id)).map(|(_, change)| change).collect();
        if !is_whole {
            new = vec![AccessChange::Everything];
        }
        if let Some(newest) = self.seen.last().copied() {
            // The rest of a truncated reading is read next time.
            let floor = if is_whole { newest - OVERLAP } else { newest };
            self.rise(floor);
        }
        new
    }

    fn rise(&mut self, floor: i64) {
        let floor = self.floor.unwrap_or_default().max(floor);
        self.floor = Some(floor);
        self.seen = self.seen.split_off(&(floor + 1));
    }
}

impl Store {
    /// Returns the changes since the last call, whether the store counts as away or not.
    pub(super) async fn news(&self, feed: &mut Feed) -> Result<Vec<AccessChange>, sqlx::Error> {
        let floor = match feed.floor {
            Some(floor) => floor,
            None => {
                let rows = self.readers.probe(sql("SELECT coalesce(max(id), 0) AS id FROM access_changes")).await?;
                let newest: i64 = rows.first().map(|row| row.get("id")).transpose()?.unwrap_or_default();
                feed.rise((newest - OVERLAP).max(0));
                feed.cleared = 0;
                feed.floor.unwrap_or_default()
            }
        };
        let statement = sql("SELECT id, kind, name FROM access_changes WHERE id > $1 ORDER BY id LIMIT $2");
        let rows = self.readers.probe(statement.bind(floor).bind(PAGE)).await?;
        let is_whole = rows.len() < PAGE as usize;
        let read = rows.iter().map(|row| Ok((row.get("id")?, read(row)?))).collect::<Result<Vec<_>, sqlx::Error>>()?;
        Ok(feed.take(read, is_whole))
    }

    /// Deletes changes that no gateway reads any more.
    pub(super) async fn clear_news(&self, feed: &mut Feed) -> Result<(), super::StoreError> {
        let up_to = feed.floor.unwrap_or_default() - KEPT;
        if up_to > feed.cleared {
            let statement = sql("DELETE FROM access_changes WHERE id <= $1").bind(up_to);
            statement.execute(&self.writer).await?;
            feed.cleared = up_to;
        }
        Ok(())
    }

    /// Finds out whether the store can be written again.
    pub(super) async fn try_to_write(&self) -> Result<(), super::StoreError> {
        let mut transaction = self.write(super::About::Nothing).await?;
        sql("INSERT INTO access_changes (kind, name) VALUES ('none', '')").execute(&mut transaction).await?;
        sql("DELETE FROM access_changes WHERE kind = 'none'").execute(&mut transaction).await?;
        transaction.commit().await?;
        self.availability.writable(true, Instant::now());
        Ok(())
    }
}

fn read(row: &Row) -> Result<AccessChange, sqlx::Error> {
    let name: &str = row.get("name")?;
    let change = match row.get("kind")? {
        "token" => hash_of(name).map(AccessChange::Token),
        "user" => name.parse().ok().map(AccessChange::User),
        "session" => hash_of(name).map(|id| AccessChange::Session(Digest::from_bytes(id))),
        "workspace" => name.parse().ok().map(AccessChange::Workspace),
        _ => None,
    };
    Ok(change.unwrap_or(AccessChange::Everything))
}

fn hash_of(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests;
