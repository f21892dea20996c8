//! Statements about audit records: they are added in batches, searched from the newest to the oldest, and removed when they are
//! old.

use serde_json::{Value, json};

use super::database::{Row, Statement, sql, sql_of};
use super::{About, Incarnation, Store, StoreError};
use gateway_net::audit::StoredRecord;
use gateway_types::UnixSeconds;
use gateway_types::opaque::Opaque;
use gateway_types::token::NoRandomness;

/// Records that one search looks at, of all that there are: a search for a text that is rare goes on with its cursor.
const SCANNED_MAX: i64 = 100_000;

/// Largest difference between the order in which records were stored and that of their times, in milliseconds.
const DISORDER_MS: i64 = 60 * 60 * 1000;

/// One process start or command that adds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditSource(i64);

impl AuditSource {
    /// Makes a number that no other source has.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let (random, _) = Opaque::random()?.halves();
        let first = random.first_chunk().copied().unwrap_or_default();
        Ok(Self(i64::from_be_bytes(first)))
    }
}

/// Records that are searched for. Empty texts are no condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    /// Part of the line in lower case, escaped as lines are ([`gateway_net::audit::as_in_lines`]).
    pub part: &'a str,
    /// The author.
    pub actor: &'a str,
    /// The workspace.
    pub workspace: &'a str,
    /// Name of the event.
    pub event: &'a str,
    /// Their earliest time.
    pub since: Option<UnixSeconds>,
    /// The end of their time, which is not part of it.
    pub until: Option<UnixSeconds>,
    /// Only records with a smaller id.
    pub before: Option<i64>,
    /// Most records.
    pub limit: u32,
}

/// A record as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its id; records that were stored later have larger ones.
    pub id: i64,
    /// Number of the replica that made it, if there are several.
    pub replica: Option<u64>,
    /// What it says.
    pub record: StoredRecord,
}

/// Part of what was found, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<FoundRecord>,
    /// Id before which the search goes on; `None` if nothing older is there. A page may be short, or empty, and not be the last.
    pub before: Option<i64>,
}

/// Times before which records are removed.
#[derive(Clone, Copy, Debug)]
pub struct AuditCutoffs {
    /// Of records of accesses.
    pub accesses: UnixSeconds,
    /// Of all others.
    pub others: UnixSeconds,
}

/// Query of records; the arguments are the function that finds a text in another, and a condition that an index serves.
macro_rules! found {
    ($find:literal, $indexed:literal) => {
        concat!(
            "SELECT id, number, at, event, actor, workspace, peer, trace, replica, line FROM audit_records WHERE ",
            $indexed,
            "id < $1 AND id > $2 AND ($3 = '' OR actor = $3) AND ($4 = '' OR workspace = $4) AND ($5 = '' OR event = $5) \
             AND at >= $6 AND at < $7 AND ($8 = '' OR ",
            $find,
            "(lower(line), $8) > 0) ORDER BY id DESC LIMIT $9"
        )
    };
}

impl Store {
    /// Adds records, at once. Those that are there already stay as they are.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Away`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, they are added or not; a repetition adds none twice.
    pub async fn add_audit_records(
        &self,
        source: AuditSource,
        replica: Option<Incarnation>,
        records: &[StoredRecord],
    ) -> Result<(), StoreError> {
        // SQLite takes the ON for that of a join, unless there is a WHERE.
        let statement = sql_of(
            "INSERT INTO audit_records (source, number, at, event, actor, workspace, peer, trace, replica, line) \
             SELECT $1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, $2, value ->> 7 \
             FROM json_each($3) WHERE true ORDER BY key ON CONFLICT (source, number) DO NOTHING",
            "INSERT INTO audit_records (source, number, at, event, actor, workspace, peer, trace, replica, line) \
             SELECT $1, (value ->> 0)::bigint, (value ->> 1)::bigint, value ->> 2, value ->> 3, value ->> 4, value ->> 5, \
             value ->> 6, $2, value ->> 7 FROM json_array_elements($3::json) WITH ORDINALITY AS rows (value, place) \
             ORDER BY place ON CONFLICT (source, number) DO NOTHING",
        );
        let rows: Value = records.iter().map(columns).collect();
        statement
            .bind(source.0)
            .bind(replica.map(|replica| replica.0))
            .bind(rows.to_string())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns part of the records that fit, the newest first. Looks at a bounded number of records.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn audit_records(&self, filter: &AuditFilter<'_>) -> Result<AuditPage, StoreError> {
        let top = match filter.before {
            Some(before) => before,
            None => {
                let newest = sql("SELECT max(id) AS newest FROM audit_records").fetch_one(&self.readers).await?;
                newest.get::<Option<i64>>("newest")?.unwrap_or_default().saturating_add(1)
            }
        };
        let floor = top.saturating_sub(SCANNED_MAX);
        let statement = matching(filter)
            .bind(top)
            .bind(floor)
            .bind(filter.actor)
            .bind(filter.workspace)
            .bind(filter.event)
            .bind(filter.since.map_or(i64::MIN, milliseconds))
            .bind(filter.until.map_or(i64::MAX, milliseconds))
            .bind(filter.part)
            .bind(filter.limit);
        let rows = statement.fetch_all(&self.readers).await?;
        let records: Vec<FoundRecord> = rows.iter().map(read).collect::<Result<_, _>>()?;
        let is_full = u32::try_from(records.len()).is_ok_and(|count| count >= filter.limit);
        let before = match records.last().filter(|_| is_full) {
            Some(last) => Some(last.id),
            None => self.older(floor, filter.since).await?,
        };
        Ok(AuditPage { records, before })
    }

    /// Returns the id before which a search goes on that has looked at all above `floor`.
    async fn older(&self, floor: i64, since: Option<UnixSeconds>) -> Result<Option<i64>, StoreError> {
        let statement = sql("SELECT id, at FROM audit_records WHERE id <= $1 ORDER BY id DESC LIMIT 1");
        let Some(row) = statement.bind(floor).fetch_optional(&self.readers).await? else { return Ok(None) };
        let (id, at): (i64, i64) = (row.get("id")?, row.get("at")?);
        let is_past = since.is_some_and(|since| at < milliseconds(since).saturating_sub(DISORDER_MS));
        Ok((!is_past).then(|| id.saturating_add(1)))
    }

    /// Removes old records, at most so many. Returns how many.
    ///
    /// # Errors
    /// [`StoreError::Database`], or [`StoreError::Fenced`]; then nothing is removed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it removes everything or nothing.
    pub async fn remove_audit_records(&self, cutoffs: AuditCutoffs, most: u32) -> Result<u64, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let others = sql("DELETE FROM audit_records WHERE id IN (SELECT id FROM audit_records WHERE at < $1 \
             AND event NOT IN ('access_opened', 'access_ended') ORDER BY at LIMIT $2)");
        let mut removed = others.bind(milliseconds(cutoffs.others)).bind(most).execute(&mut transaction).await?;
        let accesses = sql("DELETE FROM audit_records WHERE id IN (SELECT id FROM audit_records WHERE at < $1 \
             AND event IN ('access_opened', 'access_ended') ORDER BY at LIMIT $2)");
        removed += accesses.bind(milliseconds(cutoffs.accesses)).bind(most).execute(&mut transaction).await?;
        transaction.commit().await?;
        Ok(removed)
    }
}

/// Chooses the statement by the condition that leaves least.
fn matching(filter: &AuditFilter<'_>) -> Statement<'static> {
    match (filter.workspace, filter.actor, filter.event) {
        ("", "", "") => sql_of(found!("instr", ""), found!("strpos", "")),
        ("", "", _) => sql_of(found!("instr", "event = $5 AND "), found!("strpos", "event = $5 AND ")),
        ("", _, _) => sql_of(found!("instr", "actor = $3 AND "), found!("strpos", "actor = $3 AND ")),
        (_, _, _) => sql_of(found!("instr", "workspace = $4 AND "), found!("strpos", "workspace = $4 AND ")),
    }
}

fn milliseconds(time: UnixSeconds) -> i64 {
    time.get().saturating_mul(1000)
}

fn columns(record: &StoredRecord) -> Value {
    let StoredRecord { number, at_ms, event, actor, workspace, peer, trace, line } = record;
    let number = i64::try_from(*number).unwrap_or(i64::MAX);
    let at = i64::try_from(*at_ms).unwrap_or(i64::MAX);
    json!([number, at, event, actor, workspace, peer, trace, line])
}

fn read(row: &Row) -> Result<FoundRecord, StoreError> {
    let unsigned = |column| row.get::<i64>(column).map(|number| u64::try_from(number).unwrap_or_default());
    Ok(FoundRecord {
        id: row.get("id")?,
        replica: row.get::<Option<i64>>("replica")?.and_then(|replica| u64::try_from(replica).ok()),
        record: StoredRecord {
            number: unsigned("number")?,
            at_ms: unsigned("at")?,
            event: row.get("event")?,
            actor: row.get("actor")?,
            workspace: row.get("workspace")?,
            peer: row.get("peer")?,
            trace: row.get("trace")?,
            line: row.get("line")?,
        },
    })
}

#[cfg(test)]
mod tests;
