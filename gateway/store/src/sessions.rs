//! Sessions of agents: which replica has which one. A row is written when a session changes hands, and not while it lives; it
//! counts for as long as its owner's lease does, so a replica that dies gives up all of its sessions without a write.
//!
//! The row gives a session its generation, which only grows. A place that is given back keeps its row for that; when rows are
//! removed at last, a floor remembers the highest number that they had.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::database::{Row, Transaction, sql, sql_of};
use super::replicas::{HINT_TIME, Incarnation, clocked, milliseconds};
use super::{About, ClusterId, Store, StoreError, WorkspaceId};
use gateway_types::{ClusterName, WorkspaceName};

/// Most claims of one batch.
pub const CLAIMS_MAX: usize = 500;

/// Subject of an agent's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionKey {
    /// A workspace.
    Workspace(WorkspaceId),
    /// A cluster.
    Cluster(ClusterId),
}

impl SessionKey {
    fn of_columns(kind: i64, subject: i64) -> Self {
        if kind == 1 { Self::Workspace(WorkspaceId(subject)) } else { Self::Cluster(ClusterId(subject)) }
    }

    pub(super) fn columns(self) -> (i64, i64) {
        match self {
            Self::Workspace(id) => (1, id.0),
            Self::Cluster(id) => (2, id.0),
        }
    }
}

/// Claim of a session's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionClaim {
    /// The place.
    pub key: SessionKey,
    /// Number of the agent's process.
    pub instance: u64,
    /// Generation that the agent has proved to have had.
    pub known: Option<u64>,
    /// Whether the session came up before it could be claimed, with the generation `known`. What was claimed since stays.
    pub is_late: bool,
}

/// Result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The place is the claimant's.
    Owned {
        /// The session's generation.
        generation: u64,
        /// The live replica that had the place, with the generation there.
        previous: Option<(Incarnation, u64)>,
    },
    /// A newer process of the agent has the place, or a newer session of the same process.
    Displaced {
        /// Number of the process.
        instance: u64,
    },
}

/// The place of a session, and who took it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    /// The workspace or cluster.
    pub key: SessionKey,
    /// The replica.
    pub incarnation: Incarnation,
    /// URL at which others reach it.
    pub peer_url: String,
    /// The session's generation.
    pub generation: u64,
    /// Number of the agent's process.
    pub instance: u64,
    /// Whether the replica's lease lives. If not, only the replica itself knows whether it is there.
    pub is_live: bool,
}

/// A place that is not what the replica of its session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferingPlace {
    /// The place.
    pub key: SessionKey,
    /// The newer session there. `None` if the store knows nothing of the session: it was given back, or the store is what it was
    /// a while ago, as after a standby that was behind took over.
    pub newer: Option<NewerSession>,
}

/// A session that took the place of an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewerSession {
    /// Its generation.
    pub generation: u64,
    /// Number of the agent's process.
    pub instance: u64,
}

/// A row, as it is decided on.
#[derive(Clone, Copy, Debug)]
struct SessionRow {
    generation: i64,
    /// The owner; once it is decided on, only one that lives.
    owner: Option<i64>,
    /// End of the owner's lease, in milliseconds of the database's clock.
    lease_until: i64,
    instance: i64,
    /// Whether a claim of this batch got it.
    is_claimed: bool,
}

/// Rows by their key, in the order in which they are locked and written.
type SessionRows = BTreeMap<(i64, i64), SessionRow>;

impl Store {
    /// Claims places for a replica, all in one transaction; at most [`CLAIMS_MAX`] are meant to be in a batch. `None` if the
    /// replica's lease is over: nothing is claimed then. Of two claims of one place, the later one wins. Results have the
    /// order of the claims.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is claimed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it claims everything or nothing.
    pub async fn claim_sessions(
        &self,
        owner: Incarnation,
        claims: &[SessionClaim],
    ) -> Result<Option<Vec<ClaimResult>>, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let mut rows = locked(&mut transaction, claims).await?;
        // Read once the rows are locked: a row that was removed before that has raised the floor.
        let floor = clocked!(
            "SELECT session_floor.generation, ",
            " AS now FROM session_floor, replicas WHERE session_floor.id = 1 AND replicas.id = $1 AND expires_at > ",
            ""
        );
        let Some(row) = floor.bind(owner.0).fetch_optional(&mut transaction).await? else { return Ok(None) };
        let (floor, now): (i64, i64) = (row.get("generation")?, row.get("now")?);
        for row in rows.values_mut() {
            row.owner = row.owner.filter(|_| row.lease_until > now);
        }
        let mut results: Vec<_> = claims.iter().map(|claim| decide(&mut rows, claim, owner, floor)).collect();
        let claimed = rows.iter().filter(|(_, row)| row.is_claimed);
        let claimed: Vec<Value> =
            claimed.map(|((kind, subject), row)| json!([kind, subject, row.generation, row.instance])).collect();
        // Another replica may have made a row meanwhile, which was not there to be locked: the later claim wins, with a
        // generation of its own.
        let stored = sql_of(
            "INSERT INTO sessions (kind, subject, generation, owner, instance) \
             SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), $1, \
             json_extract(value, '$[3]') FROM json_each($2) WHERE true \
             ON CONFLICT (kind, subject) DO UPDATE SET owner = excluded.owner, instance = excluded.instance, \
             generation = max(sessions.generation + 1, excluded.generation) RETURNING kind, subject, generation",
            "INSERT INTO sessions (kind, subject, generation, owner, instance) \
             SELECT (value->>0)::bigint, (value->>1)::bigint, (value->>2)::bigint, $1, (value->>3)::bigint \
             FROM json_array_elements($2::json) AS claims(value) ORDER BY 1, 2 \
             ON CONFLICT (kind, subject) DO UPDATE SET owner = excluded.owner, instance = excluded.instance, \
             generation = greatest(sessions.generation + 1, excluded.generation) RETURNING kind, subject, generation",
        )
        .bind(owner.0)
        .bind(Value::Array(claimed).to_string())
        .fetch_all(&mut transaction)
        .await?;
        let mut raised = HashMap::new();
        for row in &stored {
            let (key, generation) = ((row.get("kind")?, row.get("subject")?), row.get("generation")?);
            // Of several claims of a place, the last one has the row.
            raised.insert((key, rows.get(&key).map(|row| unsigned(row.generation))), unsigned(generation));
        }
        for (claim, result) in claims.iter().zip(&mut results) {
            if let ClaimResult::Owned { generation, .. } = result
                && let Some(stored) = raised.get(&(claim.key.columns(), Some(*generation)))
            {
                *generation = *stored;
            }
        }
        transaction.commit().await?;
        Ok(Some(results))
    }

    /// Gives places back, those that are still the replica's with this generation. Returns how many.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn release_sessions(
        &self,
        owner: Incarnation,
        released: &[(SessionKey, u64)],
    ) -> Result<u64, StoreError> {
        let mut released: Vec<_> = released.iter().map(|(key, generation)| (key.columns(), *generation)).collect();
        released.sort_unstable();
        let released: Vec<Value> =
            released.into_iter().map(|((kind, subject), generation)| json!([kind, subject, generation])).collect();
        sql_of(
            "UPDATE sessions SET owner = NULL WHERE owner = $1 AND EXISTS (SELECT 1 FROM json_each($2) \
             WHERE json_extract(value, '$[0]') = kind AND json_extract(value, '$[1]') = subject \
             AND json_extract(value, '$[2]') = generation)",
            "UPDATE sessions SET owner = NULL FROM json_array_elements($2::json) AS released(value) WHERE owner = $1 \
             AND kind = (value->>0)::bigint AND subject = (value->>1)::bigint AND generation = (value->>2)::bigint",
        )
        .bind(owner.0)
        .bind(Value::Array(released).to_string())
        .execute(&self.writer)
        .await
    }

    /// Returns those of a replica's places that are not its own with these generations.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn differing_places(
        &self,
        owner: Incarnation,
        known: &[(SessionKey, u64)],
    ) -> Result<Vec<DifferingPlace>, StoreError> {
        let known: Vec<Value> =
            known.iter().map(|(key, generation)| json!([key.columns().0, key.columns().1, generation])).collect();
        let rows = sql_of(
            "SELECT json_extract(value, '$[0]') AS kind, json_extract(value, '$[1]') AS subject, \
             generation > json_extract(value, '$[2]') AS is_newer, generation, instance FROM json_each($2) \
             LEFT JOIN sessions ON kind = json_extract(value, '$[0]') AND subject = json_extract(value, '$[1]') \
             WHERE owner IS NOT $1 OR generation <> json_extract(value, '$[2]')",
            "SELECT (value->>0)::bigint AS kind, (value->>1)::bigint AS subject, \
             generation > (value->>2)::bigint AS is_newer, generation, instance \
             FROM json_array_elements($2::json) AS known(value) \
             LEFT JOIN sessions ON kind = (value->>0)::bigint AND subject = (value->>1)::bigint \
             WHERE owner IS DISTINCT FROM $1 OR generation <> (value->>2)::bigint",
        )
        .bind(owner.0)
        .bind(Value::Array(known).to_string())
        .fetch_all(&self.readers)
        .await?;
        let read = |row: &Row| {
            let newer = match row.get::<Option<bool>>("is_newer")? {
                Some(true) => Some(NewerSession {
                    generation: unsigned(row.get("generation")?),
                    instance: row.get::<i64>("instance")?.cast_unsigned(),
                }),
                Some(false) | None => None,
            };
            Ok(DifferingPlace { key: SessionKey::of_columns(row.get("kind")?, row.get("subject")?), newer })
        };
        rows.iter().map(read).collect()
    }

    /// Returns the replica that has the session of a workspace, or had it when its lease ended. One look-up, by unique keys.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn workspace_session(&self, name: &WorkspaceName) -> Result<Option<SessionOwner>, StoreError> {
        let statement = clocked!(
            "SELECT subject, generation, instance, replicas.id, peer_url, expires_at - ",
            " AS lives_for FROM workspaces \
             JOIN sessions ON kind = 1 AND subject = workspaces.id JOIN replicas ON replicas.id = sessions.owner \
             WHERE workspaces.name = $1 AND expires_at > 0 AND expires_at + $2 > ",
            ""
        );
        let statement = statement.bind(name.as_str()).bind(milliseconds(HINT_TIME));
        let row = statement.fetch_optional(&self.readers).await?;
        row.as_ref().map(|row| owner_in(row, |id| SessionKey::Workspace(WorkspaceId(id)))).transpose()
    }

    /// Returns the replica that has the session of a cluster's agent, or had it when its lease ended. One look-up, by unique
    /// keys.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn cluster_session(&self, name: &ClusterName) -> Result<Option<SessionOwner>, StoreError> {
        let statement = clocked!(
            "SELECT subject, generation, instance, replicas.id, peer_url, expires_at - ",
            " AS lives_for FROM clusters \
             JOIN sessions ON kind = 2 AND subject = clusters.id JOIN replicas ON replicas.id = sessions.owner \
             WHERE clusters.name = $1 AND expires_at > 0 AND expires_at + $2 > ",
            ""
        );
        let statement = statement.bind(name.as_str()).bind(milliseconds(HINT_TIME));
        let row = statement.fetch_optional(&self.readers).await?;
        row.as_ref().map(|row| owner_in(row, |id| SessionKey::Cluster(ClusterId(id)))).transpose()
    }

    /// Removes free rows, and those of replicas that gave their lease up or have had none for an hour, at most so many; raises
    /// the floor to their generations.
    /// Returns how many.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is removed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it removes everything or nothing.
    pub async fn reap_sessions(&self, most: u32) -> Result<u64, StoreError> {
        let mut transaction = self.write(About::Replicas).await?;
        let free = clocked!(
            "SELECT kind, subject, generation FROM sessions WHERE owner IS NULL OR owner NOT IN \
             (SELECT id FROM replicas WHERE expires_at > 0 AND expires_at + $2 > ",
            ") ORDER BY kind, subject LIMIT $1"
        );
        let free = free.bind(most).bind(milliseconds(HINT_TIME));
        let (mut highest, mut free_rows) = (0, Vec::new());
        for row in free.fetch_all(&mut transaction).await? {
            let generation: i64 = row.get("generation")?;
            highest = highest.max(generation);
            free_rows.push(json!([row.get::<i64>("kind")?, row.get::<i64>("subject")?, generation]));
        }
        if free_rows.is_empty() {
            return Ok(0);
        }
        sql("UPDATE session_floor SET generation = $1 WHERE id = 1 AND generation < $1")
            .bind(highest)
            .execute(&mut transaction)
            .await?;
        // A row that was claimed meanwhile has another generation, and stays.
        let removed = sql_of(
            "DELETE FROM sessions WHERE EXISTS (SELECT 1 FROM json_each($1) WHERE json_extract(value, '$[0]') = kind \
             AND json_extract(value, '$[1]') = subject AND json_extract(value, '$[2]') = generation)",
            "DELETE FROM sessions USING json_array_elements($1::json) AS free(value) WHERE kind = (value->>0)::bigint \
             AND subject = (value->>1)::bigint AND generation = (value->>2)::bigint",
        )
        .bind(Value::Array(free_rows).to_string())
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(removed)
    }
}

/// Reads and locks the rows of claims, in their order, so that two batches cannot wait for each other.
async fn locked(transaction: &mut Transaction, claims: &[SessionClaim]) -> Result<SessionRows, StoreError> {
    let keys: Vec<Value> =
        claims.iter().map(|claim| claim.key.columns()).map(|(kind, key)| json!([kind, key])).collect();
    let statement = sql_of(
        "SELECT *, (SELECT expires_at FROM replicas WHERE id = owner) AS lease_until FROM sessions WHERE EXISTS \
         (SELECT 1 FROM json_each($1) WHERE json_extract(value, '$[0]') = kind AND json_extract(value, '$[1]') = subject) \
         ORDER BY kind, subject",
        "SELECT *, (SELECT expires_at FROM replicas WHERE id = owner) AS lease_until FROM sessions \
         WHERE (kind, subject) IN (SELECT (value->>0)::bigint, (value->>1)::bigint FROM json_array_elements($1::json) \
         AS claims(value)) ORDER BY kind, subject FOR UPDATE",
    );
    let rows = statement.bind(Value::Array(keys).to_string()).fetch_all(transaction).await?;
    let read = |row: &Row| {
        let locked = SessionRow {
            generation: row.get("generation")?,
            owner: row.get("owner")?,
            lease_until: row.get::<Option<i64>>("lease_until")?.unwrap_or_default(),
            instance: row.get("instance")?,
            is_claimed: false,
        };
        Ok(((row.get("kind")?, row.get("subject")?), locked))
    };
    rows.iter().map(read).collect()
}

/// Decides on one claim, and enters it into the rows.
fn decide(rows: &mut SessionRows, claim: &SessionClaim, owner: Incarnation, floor: i64) -> ClaimResult {
    let (key, instance) = (claim.key.columns(), claim.instance.cast_signed());
    let known = claim.known.map(signed);
    let before = rows.get(&key).copied();
    if let (Some(before), Some(known)) = (before, known)
        && before.owner.is_some()
    {
        let is_same = before.instance == instance;
        // A process that comes with what it knows is newer than its own earlier claims; a session that was there before is not.
        if before.generation > known && (claim.is_late || !is_same) {
            return ClaimResult::Displaced { instance: before.instance.cast_unsigned() };
        }
        if claim.is_late && before.generation == known && is_same && before.owner == Some(owner.0) {
            return ClaimResult::Owned { generation: unsigned(known), previous: None };
        }
    }
    let highest = before.map_or(0, |row| row.generation).max(known.unwrap_or(0)).max(floor);
    let (generation, owner) = (highest.saturating_add(1), Some(owner.0));
    rows.insert(key, SessionRow { generation, owner, lease_until: i64::MAX, instance, is_claimed: true });
    let previous = before.and_then(|row| Some((Incarnation(row.owner?), unsigned(row.generation))));
    ClaimResult::Owned { generation: unsigned(generation), previous }
}

fn owner_in(row: &Row, key: impl FnOnce(i64) -> SessionKey) -> Result<SessionOwner, StoreError> {
    Ok(SessionOwner {
        key: key(row.get("subject")?),
        incarnation: Incarnation(row.get("id")?),
        peer_url: row.get("peer_url")?,
        generation: unsigned(row.get("generation")?),
        instance: row.get::<i64>("instance")?.cast_unsigned(),
        is_live: row.get::<i64>("lives_for")? > 0,
    })
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
