//! Exchange of the key that seals secrets, while gateways run.
//!
//! The file of keys gets a second key, which all replicas read; the second becomes the first; what is stored is sealed anew
//! ([`Store::reseal`]); the old one goes. At each step, all replicas open what any of them seals.

use super::database::{Pool, Row, Value, sql};
use super::seal::{Keys, fit, key_of_check, present_keys, reseal_check};
use super::shared_sign_ins::step_row;
use super::sign_ins::read_digest;
use super::{KeyId, Store, StoreError};
use gateway_types::sign_in_rows::StepKind;

/// Rows that are read at once.
const BATCH: u32 = 200;

/// Column with sealed values.
#[derive(Debug)]
struct SealedColumn {
    table: &'static str,
    /// Reads the rows behind a place, in order, at most so many.
    page: &'static str,
    /// Writes a value over the one that was read.
    update: &'static str,
    /// Kinds of the columns `k1`, `k2`, `k3` that name a row.
    place: &'static [PartKind],
    /// Names the row that a value belongs to.
    belongs_to: fn(&[Part]) -> Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum PartKind {
    Integer,
    Text,
    Bytes,
}

/// A part of a row's place in its table.
#[derive(Clone, Debug)]
enum Part {
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Part {
    /// Returns the part that is before all others.
    fn lowest(kind: PartKind) -> Self {
        match kind {
            PartKind::Integer => Self::Integer(i64::MIN),
            PartKind::Text => Self::Text(String::new()),
            PartKind::Bytes => Self::Bytes(Vec::new()),
        }
    }

    fn read(kind: PartKind, row: &Row, column: &str) -> Result<Self, sqlx::Error> {
        Ok(match kind {
            PartKind::Integer => Self::Integer(row.get(column)?),
            PartKind::Text => Self::Text(row.get(column)?),
            PartKind::Bytes => Self::Bytes(row.get::<&[u8]>(column)?.to_owned()),
        })
    }
}

impl<'a> From<&'a Part> for Value<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Integer(number) => Self::Integer(Some(*number)),
            Part::Text(text) => Self::Text(Some(text)),
            Part::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

/// Names of the columns of a row's place.
const COLUMNS: [&str; 3] = ["k1", "k2", "k3"];

/// All columns with sealed values but that of the known text.
static SEALED: [SealedColumn; 6] = [
    SealedColumn {
        table: "variables",
        page: "SELECT workspace_id AS k1, kind AS k2, name AS k3, sealed FROM variables \
               WHERE (workspace_id, kind, name) > ($1, $2, $3) ORDER BY workspace_id, kind, name LIMIT $4",
        update: "UPDATE variables SET sealed = $1 WHERE sealed = $2 AND workspace_id = $3 AND kind = $4 AND name = $5",
        place: &[PartKind::Integer, PartKind::Text, PartKind::Text],
        belongs_to: |place| match place {
            [Part::Integer(workspace), Part::Text(kind), Part::Text(name)] => {
                Some(format!("variables {workspace} {kind} {name}"))
            }
            _ => None,
        },
    },
    SealedColumn {
        table: "ci_runs",
        page: "SELECT workspace_id AS k1, number AS k2, token_sealed AS sealed FROM ci_runs \
               WHERE token_sealed IS NOT NULL AND (workspace_id, number) > ($1, $2) ORDER BY workspace_id, number LIMIT $3",
        update: "UPDATE ci_runs SET token_sealed = $1 WHERE token_sealed = $2 AND workspace_id = $3 AND number = $4",
        place: &[PartKind::Integer, PartKind::Integer],
        belongs_to: |place| match place {
            [Part::Integer(workspace), Part::Integer(run)] => Some(format!("ci_runs {workspace} {run}")),
            _ => None,
        },
    },
    SealedColumn {
        table: "git_credentials",
        page: "SELECT owner AS k1, host AS k2, secret_sealed AS sealed FROM git_credentials \
               WHERE (owner, host) > ($1, $2) ORDER BY owner, host LIMIT $3",
        update: "UPDATE git_credentials SET secret_sealed = $1 WHERE secret_sealed = $2 AND owner = $3 AND host = $4",
        place: &[PartKind::Text, PartKind::Text],
        belongs_to: |place| git_credential("secret", place),
    },
    SealedColumn {
        table: "git_credentials",
        page: "SELECT owner AS k1, host AS k2, access_sealed AS sealed FROM git_credentials \
               WHERE access_sealed IS NOT NULL AND (owner, host) > ($1, $2) ORDER BY owner, host LIMIT $3",
        update: "UPDATE git_credentials SET access_sealed = $1 WHERE access_sealed = $2 AND owner = $3 AND host = $4",
        place: &[PartKind::Text, PartKind::Text],
        belongs_to: |place| git_credential("access", place),
    },
    SealedColumn {
        table: "shared_certificate",
        page: "SELECT CAST(id AS bigint) AS k1, sealed FROM shared_certificate \
               WHERE sealed IS NOT NULL AND id > $1 ORDER BY id LIMIT $2",
        update: "UPDATE shared_certificate SET sealed = $1 WHERE sealed = $2 AND id = $3",
        place: &[PartKind::Integer],
        belongs_to: |_| Some(super::certificates::ROW.to_owned()),
    },
    SealedColumn {
        table: "sign_in_steps",
        page: "SELECT id AS k1, kind AS k2, sealed FROM sign_in_steps WHERE (id, kind) > ($1, $2) ORDER BY id, kind LIMIT $3",
        update: "UPDATE sign_in_steps SET sealed = $1 WHERE sealed = $2 AND id = $3 AND kind = $4",
        place: &[PartKind::Bytes, PartKind::Text],
        belongs_to: |place| match place {
            [Part::Bytes(id), Part::Text(kind)] => {
                let kind = StepKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
                Some(step_row(kind, &read_digest(id)?))
            }
            _ => None,
        },
    },
];

fn git_credential(what: &str, place: &[Part]) -> Option<String> {
    match place {
        [Part::Text(owner), Part::Text(host)] => Some(format!("git_credentials {what} {host} {owner}")),
        _ => None,
    }
}

/// A sealed value, where it is.
struct SealedRow {
    place: Vec<Part>,
    sealed: Vec<u8>,
}

impl SealedColumn {
    /// Returns the rows behind a place, or the first ones.
    async fn page(&self, pool: &Pool, after: Option<&[Part]>) -> Result<Vec<SealedRow>, StoreError> {
        let lowest: Vec<Part> = self.place.iter().map(|kind| Part::lowest(*kind)).collect();
        let statement = after.unwrap_or(&lowest).iter().fold(sql(self.page), |statement, part| statement.bind(part));
        let rows = statement.bind(BATCH).fetch_all(pool).await?;
        let read = |row: &Row| {
            let place = self.place.iter().zip(COLUMNS).map(|(kind, column)| Part::read(*kind, row, column));
            let place = place.collect::<Result<_, _>>()?;
            Ok(SealedRow { place, sealed: row.get::<&[u8]>("sealed")?.to_owned() })
        };
        rows.iter().map(read).collect()
    }

    /// Opens a value; returns it with the key that it is sealed by.
    fn open(&self, keys: &Keys, row: &SealedRow) -> Option<(String, Vec<u8>, KeyId)> {
        let belongs_to = (self.belongs_to)(&row.place)?;
        let (secret, key) = keys.open(&belongs_to, &row.sealed)?;
        Some((belongs_to, secret, key))
    }

    async fn put(&self, writer: &Pool, row: &SealedRow, sealed: &[u8]) -> Result<bool, StoreError> {
        let statement = sql(self.update).bind(sealed).bind(row.sealed.as_slice());
        let statement = row.place.iter().fold(statement, |statement, part| statement.bind(part));
        Ok(statement.execute(writer).await? > 0)
    }
}

/// Numbers of sealed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedCounts {
    /// By the key that they are sealed with.
    pub by_key: Vec<(KeyId, u64)>,
    /// Sealed with none of the keys, by table.
    pub by_none: Vec<(&'static str, u64)>,
}

impl SealedCounts {
    fn add<K: Copy + PartialEq>(counts: &mut Vec<(K, u64)>, key: K) {
        match counts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, count)) => *count += 1,
            None => counts.push((key, 1)),
        }
    }

    /// Returns how many are sealed with a key.
    #[must_use]
    pub fn of(&self, key: KeyId) -> u64 {
        self.by_key.iter().find(|(known, _)| *known == key).map_or(0, |(_, count)| *count)
    }
}

/// How far a [`Store::reseal`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealProgress {
    /// Values that were read.
    pub seen: u64,
    /// Values that were sealed anew.
    pub resealed: u64,
    /// Values that no key opens; they stay as they are.
    pub lost: u64,
}

/// Change of the keys of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Names of the present keys, that of the one that seals in front.
    pub keys: Vec<KeyId>,
    /// Number of keys that are new here.
    pub added: usize,
    /// Number of keys that are gone.
    pub removed: usize,
}

impl Store {
    /// Returns the names of the keys, that of the one that seals in front.
    #[must_use]
    pub fn key_ids(&self) -> Vec<KeyId> {
        self.sealer.keys().ids()
    }

    /// Counts the sealed values by their keys.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn sealed_counts(&self) -> Result<SealedCounts, StoreError> {
        counts(&self.writer, &self.sealer.keys()).await
    }

    /// Seals all values with the first key that are sealed with another one, some at a time, and calls `report` after each batch.
    /// What others change meanwhile is not touched.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Randomness`]. What was sealed anew until then stays so, and a later call goes on.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it has sealed some of the values anew.
    pub async fn reseal(&self, mut report: impl FnMut(ResealProgress)) -> Result<ResealProgress, StoreError> {
        let keys = self.sealer.keys();
        let first = keys.ids().first().copied();
        let mut progress = ResealProgress::default();
        for column in &SEALED {
            let mut rows = column.page(&self.writer, None).await?;
            while let Some(last) = rows.last() {
                for row in &rows {
                    progress.seen += 1;
                    match column.open(&keys, row) {
                        Some((_, _, key)) if Some(key) == first => {}
                        Some((belongs_to, secret, _)) => {
                            let sealed = keys.seal(&belongs_to, &secret)?;
                            progress.resealed += u64::from(column.put(&self.writer, row, &sealed).await?);
                        }
                        None => progress.lost += 1,
                    }
                }
                report(progress);
                rows = column.page(&self.writer, Some(&last.place)).await?;
            }
        }
        // Last: a process without the first key starts for as long as something is sealed with the others.
        reseal_check(&self.writer, &keys).await?;
        Ok(progress)
    }

    /// Reads the keys' file of this store, and checks that nothing is lost with its keys; changes nothing yet.
    ///
    /// # Errors
    /// One about the file, [`StoreError::KeyWrong`], [`StoreError::KeyNeeded`] if values are sealed with a key that is gone,
    /// [`StoreError::KeySeals`] if that is the one that seals here, or
    /// [`StoreError::Database`].
    pub async fn read_keys(&self) -> Result<NewKeys, StoreError> {
        let Some(path) = &self.sealer.file else { return Ok(NewKeys { keys: None, change: self.unchanged() }) };
        let (keys, present) = (present_keys(path)?, self.sealer.keys().ids());
        let ids = keys.ids();
        let added = ids.iter().filter(|id| !present.contains(id)).count();
        let removed = present.iter().filter(|id| !ids.contains(id)).count();
        if ids == present {
            return Ok(NewKeys { keys: None, change: self.unchanged() });
        }
        if removed > 0 {
            if !fit(&self.writer, &keys).await? {
                return Err(StoreError::KeyWrong { path: path.clone() });
            }
            let mut kept = counts(&self.writer, &self.sealer.keys()).await?.by_key;
            kept.retain(|(id, _)| !ids.contains(id));
            let count: u64 = kept.iter().map(|(_, count)| *count).sum();
            if count > 0 {
                return Err(StoreError::KeyNeeded { path: path.clone(), count });
            }
            // What is being sealed with it now would open with none.
            if present.first().is_some_and(|seals| !ids.contains(seals)) {
                return Err(StoreError::KeySeals { path: path.clone() });
            }
        }
        Ok(NewKeys { keys: Some(keys), change: KeyChange { keys: ids, added, removed } })
    }

    /// Takes over the keys that were read.
    pub fn exchange_keys(&self, new: NewKeys) -> KeyChange {
        if let Some(keys) = new.keys {
            self.sealer.exchange(keys);
        }
        new.change
    }

    fn unchanged(&self) -> KeyChange {
        KeyChange { keys: self.key_ids(), added: 0, removed: 0 }
    }
}

/// Keys that were read and are good for their database.
pub struct NewKeys {
    keys: Option<Keys>,
    change: KeyChange,
}

impl std::fmt::Debug for NewKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.change.fmt(formatter)
    }
}

impl NewKeys {
    /// Returns whether they are other keys than those in use, or in another order.
    #[must_use]
    pub fn are_other(&self) -> bool {
        self.keys.is_some()
    }
}

/// Counts all sealed values, the known text among them: without its key no process starts.
async fn counts(pool: &Pool, keys: &Keys) -> Result<SealedCounts, StoreError> {
    let mut counts = SealedCounts::default();
    match key_of_check(pool, keys).await? {
        Some(key) => SealedCounts::add(&mut counts.by_key, key),
        None => SealedCounts::add(&mut counts.by_none, "seals"),
    }
    for column in &SEALED {
        let mut rows = column.page(pool, None).await?;
        while let Some(last) = rows.last() {
            for row in &rows {
                match column.open(keys, row) {
                    Some((_, _, key)) => SealedCounts::add(&mut counts.by_key, key),
                    None => SealedCounts::add(&mut counts.by_none, column.table),
                }
            }
            rows = column.page(pool, Some(&last.place)).await?;
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests;
