//! Statements about the use of workspaces: what counted last, what their owners want, and the stop of an idle one.
//!
//! Each write of a row of `idle` counts its revision up, and a stop names the revision that it was decided on: use in between, at
//! whichever replica, leaves the workspace running.

use std::time::Duration;

use super::database::{About, Row, sql};
use super::lifecycles::{number, swap};
use super::{Store, StoreError, WorkspaceId};
use gateway_types::{Activity, IdleLimit, IdleRecord, Lifecycle, UnixSeconds, UserName, WorkspaceName};

/// What counted as use of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceActivity {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// What it was.
    pub activity: Activity,
}

impl Store {
    /// Notes the use of workspaces, all at once. Older use than what is known changes nothing, nor does that of a workspace that the
    /// gateway does not run.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn note_activity(&self, mut seen: Vec<WorkspaceActivity>) -> Result<(), StoreError> {
        // In one order, so that two replicas do not wait for each other's rows.
        seen.sort_by(|one, other| one.workspace.cmp(&other.workspace));
        let mut transaction = self.write(About::Nothing).await?;
        for WorkspaceActivity { workspace, activity } in &seen {
            let statement = sql("INSERT INTO idle (workspace_id, active_at, activity, active_user, idle_revision) \
                 SELECT id, $2, $3, $4, 1 FROM workspaces WHERE name = $1 AND executor <> 'external' \
                 ON CONFLICT (workspace_id) DO UPDATE SET active_at = excluded.active_at, activity = excluded.activity, \
                 active_user = excluded.active_user, idle_revision = idle.idle_revision + 1 \
                 WHERE idle.active_at IS NULL OR idle.active_at < excluded.active_at");
            let user = activity.user.as_ref().map(UserName::as_str);
            let statement = statement.bind(workspace.as_str()).bind(activity.at.get()).bind(activity.kind.as_str());
            statement.bind(user).execute(&mut transaction).await?;
        }
        transaction.commit().await
    }

    /// Keeps a workspace from being stopped for idleness until a time, or longer if that was asked for before.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn keep_awake(&self, workspace: WorkspaceId, until: UnixSeconds) -> Result<(), StoreError> {
        let statement = sql("INSERT INTO idle (workspace_id, kept_until, idle_revision) VALUES ($1, $2, 1) \
             ON CONFLICT (workspace_id) DO UPDATE SET kept_until = excluded.kept_until, \
             idle_revision = idle.idle_revision + 1 WHERE idle.kept_until IS NULL OR idle.kept_until < excluded.kept_until");
        statement.bind(workspace.0).bind(until.get()).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores the time limit that a workspace's owner wants.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn want_idle_limit(&self, workspace: WorkspaceId, wanted: IdleLimit) -> Result<(), StoreError> {
        let statement = sql("INSERT INTO idle (workspace_id, wanted_seconds, idle_revision) VALUES ($1, $2, 1) \
             ON CONFLICT (workspace_id) DO UPDATE SET wanted_seconds = excluded.wanted_seconds, \
             idle_revision = idle.idle_revision + 1");
        let seconds = match wanted {
            IdleLimit::Inherited => None,
            IdleLimit::Off => Some(0),
            IdleLimit::After(limit) => Some(seconds(limit)),
        };
        statement.bind(workspace.0).bind(seconds).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores the time limit of a workspace that is in force, for those who show it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn put_idle_limit(&self, workspace: WorkspaceId, limit: Option<Duration>) -> Result<(), StoreError> {
        let statement = sql("INSERT INTO idle (workspace_id, limit_seconds, idle_revision) VALUES ($1, $2, 1) \
             ON CONFLICT (workspace_id) DO UPDATE SET limit_seconds = excluded.limit_seconds, \
             idle_revision = idle.idle_revision + 1");
        statement.bind(workspace.0).bind(limit.map(seconds)).execute(&self.writer).await?;
        Ok(())
    }

    /// Returns the workspaces that are to run, and are stopped without use.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn limited_by_use(&self) -> Result<Vec<WorkspaceName>, StoreError> {
        let statement = sql("SELECT name FROM idle JOIN workspaces ON workspaces.id = idle.workspace_id \
             JOIN lifecycles ON lifecycles.workspace_id = idle.workspace_id \
             WHERE limit_seconds IS NOT NULL AND desired = 'Running'");
        let corrupt = |_| StoreError::Corrupt { table: "workspaces", column: "name" };
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| row.get::<&str>("name")?.parse().map_err(corrupt)).collect()
    }

    /// Writes the lifecycle of a workspace that is stopped for idleness, if neither the stored one nor its use has changed since
    /// they were read with these revisions. Returns whether that was so.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn stop_idle(
        &self,
        workspace: WorkspaceId,
        idle: &IdleRecord,
        revision: i64,
        new: &Lifecycle,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let statement = sql("UPDATE idle SET stopped_generation = $1, idle_revision = idle_revision + 1 \
             WHERE workspace_id = $2 AND idle_revision = $3");
        let statement = statement.bind(number(new.generation)).bind(workspace.0).bind(idle.revision);
        if statement.execute(&mut transaction).await? == 0 || !swap(&mut transaction, workspace, revision, new).await? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Reads what is known of a workspace's use, from a row that may have none of it.
pub(super) fn read_idle(row: &Row) -> Result<IdleRecord, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "idle", column };
    let time = |column: &str| Ok::<_, StoreError>(row.get::<Option<i64>>(column)?.map(UnixSeconds::new));
    let duration = |seconds: i64, column| u64::try_from(seconds).map(Duration::from_secs).map_err(|_| corrupt(column));
    let wanted = match row.get::<Option<i64>>("wanted_seconds")? {
        None => IdleLimit::Inherited,
        Some(0) => IdleLimit::Off,
        Some(seconds) => IdleLimit::After(duration(seconds, "wanted_seconds")?),
    };
    let limit = row.get::<Option<i64>>("limit_seconds")?;
    let user = row.get::<Option<&str>>("active_user")?;
    let user = user.map(|user| user.parse().map_err(|_| corrupt("active_user"))).transpose()?;
    let last = match (time("active_at")?, row.get::<Option<&str>>("activity")?) {
        (Some(at), Some(kind)) => Some(Activity { at, kind: kind.parse().map_err(|_| corrupt("activity"))?, user }),
        (Some(_) | None, None) | (None, Some(_)) => None,
    };
    let generation = row.get::<Option<i64>>("stopped_generation")?;
    Ok(IdleRecord {
        wanted,
        limit: limit.map(|seconds| duration(seconds, "limit_seconds")).transpose()?,
        last,
        kept_until: time("kept_until")?,
        stopped_generation: generation.and_then(|generation| u64::try_from(generation).ok()),
        revision: row.get::<Option<i64>>("idle_revision")?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
