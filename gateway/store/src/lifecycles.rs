//! Statements that change the desired and actual state of a managed workspace. A writer names the revision that it
//! read, so that of two writers with the same revision only one succeeds, and the other reads again.

use super::create::delete_workspace;
use super::database::{About, StatementTarget, sql};
use super::{ClusterId, Store, StoreError, WorkspaceId};
use gateway_types::{Lifecycle, UnixSeconds};

/// Report of a cluster's agent about a workspace, beside its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The highest generation that was applied without error; 0 is none.
    pub applied_generation: u64,
    /// The resource version of the Deployment.
    pub deployment_version: Option<String>,
    /// Objects still to be removed, as JSON, for people.
    pub termination: Option<String>,
    /// How far the start of its pod is, as JSON, for people.
    pub start: Option<String>,
    /// Time of the report.
    pub reported_at: Option<UnixSeconds>,
}

impl Store {
    /// Returns up to `limit` workspaces of a cluster whose desired state the agent has not applied, or whose
    /// termination it has not reported, by id. Terminated ones are left out.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn unsettled(&self, cluster: ClusterId, limit: u32) -> Result<Vec<WorkspaceId>, StoreError> {
        let statement = sql("SELECT lifecycles.workspace_id FROM lifecycles \
             JOIN kubernetes_workspaces ON kubernetes_workspaces.workspace_id = lifecycles.workspace_id \
             WHERE cluster_id = $1 AND NOT (desired = 'Terminated' AND actual = 'Terminated') \
             AND (generation > applied_generation OR desired = 'Terminated') \
             ORDER BY lifecycles.workspace_id LIMIT $2");
        let rows = statement.bind(cluster.0).bind(limit).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.get("workspace_id")?))).collect()
    }

    /// Writes a lifecycle if the stored one still has that revision, and returns whether it had. The stored one has
    /// another revision afterwards, whatever the one in `new`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn swap_lifecycle(
        &self,
        workspace: WorkspaceId,
        revision: i64,
        new: &Lifecycle,
    ) -> Result<bool, StoreError> {
        swap(&self.writer, workspace, revision, new).await
    }

    /// Like [`Store::swap_lifecycle`], together with the report of the cluster's agent.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn swap_report(
        &self,
        workspace: WorkspaceId,
        revision: i64,
        new: &Lifecycle,
        observed: &Observation,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        if !swap(&mut transaction, workspace, revision, new).await? {
            return Ok(false);
        }
        let (version, termination) = (observed.deployment_version.as_deref(), observed.termination.as_deref());
        sql("UPDATE kubernetes_workspaces SET applied_generation = $1, deployment_version = $2, termination = $3, \
             start_progress = $4, reported_at = $5 WHERE workspace_id = $6")
        .bind(number(observed.applied_generation))
        .bind(version.map(storable))
        .bind(termination.map(storable))
        .bind(observed.start.as_deref().map(storable))
        .bind(observed.reported_at.map(UnixSeconds::get))
        .bind(workspace.0)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes a terminated workspace, with its tokens, shares and variables, and returns whether it was terminated.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn forget(&self, workspace: WorkspaceId, now: UnixSeconds) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let statement = sql("SELECT 1 AS one FROM lifecycles \
             WHERE workspace_id = $1 AND desired = 'Terminated' AND actual = 'Terminated'");
        if statement.bind(workspace.0).fetch_optional(&mut transaction).await?.is_none() {
            return Ok(false);
        }
        let is_gone = delete_workspace(&mut transaction, workspace, now, self.name_hold).await?;
        transaction.commit().await?;
        Ok(is_gone)
    }
}

pub(super) async fn swap<'c>(
    on: impl Into<StatementTarget<'c>>,
    workspace: WorkspaceId,
    revision: i64,
    new: &Lifecycle,
) -> Result<bool, StoreError> {
    let done = sql(
        "UPDATE lifecycles SET desired = $1, actual = $2, generation = $3, desired_at = $4, actual_at = $5, reason = $6, \
         revision = revision + 1 WHERE workspace_id = $7 AND revision = $8",
    )
    .bind(new.desired.as_str())
    .bind(new.actual.as_str())
    .bind(number(new.generation))
    .bind(new.desired_at.get())
    .bind(new.actual_at.get())
    .bind(new.reason.as_deref().map(storable))
    .bind(workspace.0)
    .bind(revision)
    .execute(on)
    .await?;
    Ok(done > 0)
}

/// Converts a generation. Generations come from counting; an unreachable number is capped.
pub(super) fn number(generation: u64) -> i64 {
    i64::try_from(generation).unwrap_or(i64::MAX)
}

/// Replaces NUL in a text from a cluster: PostgreSQL keeps none in texts, and a refused report would be repeated for
/// ever.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
