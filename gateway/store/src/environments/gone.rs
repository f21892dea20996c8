//! Statements about projects that are gone, deleted environments, and jobs whose environment was stopped under them.

use super::super::database::{About, Transaction, sql};
use super::super::{ClusterId, Store, StoreError};
use super::{EnvironmentId, StoredEnvironment, number_of, read_environment};
use gateway_types::UnixSeconds;

/// Failure code of preparations ended by their environment's stop.
pub(super) const STOPPED_CODE: &str = "environment_stopped";

/// Record of a deleted environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenEnvironment {
    /// The environment.
    pub environment: StoredEnvironment,
    /// The jobs that were prepared in it, each with its cluster.
    pub prepared: Vec<(ClusterId, u64)>,
}

impl Store {
    /// Records that a project is gone. From then on nothing begins for a job of it; its environments are listed by
    /// [`Store::environments_to_sweep`].
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn put_project_gone(&self, project_id: u64, now: UnixSeconds) -> Result<(), StoreError> {
        sql("INSERT INTO environment_projects_gone (project_id, since) VALUES ($1, $2) \
             ON CONFLICT (project_id) DO UPDATE SET since = excluded.since")
        .bind(number_of(project_id))
        .bind(now.get())
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Returns up to `limit` environments of projects that are gone which are not stopped yet.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn environments_to_sweep(&self, limit: u32) -> Result<Vec<EnvironmentId>, StoreError> {
        let statement = sql("SELECT id FROM environments WHERE state <> 'stopped' \
             AND project_id IN (SELECT project_id FROM environment_projects_gone) ORDER BY id LIMIT $1")
        .bind(limit);
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(EnvironmentId(row.get("id")?))).collect()
    }

    /// Returns the environments of a project, by id alone, so that an unreadable one hides no other.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn environments_of_project(&self, project_id: u64) -> Result<Vec<EnvironmentId>, StoreError> {
        let statement =
            sql("SELECT id FROM environments WHERE project_id = $1 ORDER BY id").bind(number_of(project_id));
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(EnvironmentId(row.get("id")?))).collect()
    }

    /// Deletes the record of an environment with all its preparations, whatever is in the cluster, and without a
    /// removal first. Returns the record; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn forget_environment(&self, id: EnvironmentId) -> Result<Option<ForgottenEnvironment>, StoreError> {
        let mut transaction = self.write(About::Environment(id.0)).await?;
        let statement = sql("SELECT * FROM environments WHERE id = $1").bind(id.0);
        let Some(row) = statement.fetch_optional(&mut transaction).await? else { return Ok(None) };
        let environment = read_environment(&row)?;
        let statement = sql("SELECT cluster_id, job_id FROM environment_jobs \
             JOIN environments ON environments.id = environment_jobs.environment_id \
             WHERE environments.id = $1 AND status = 'completed' AND job_id IS NOT NULL")
        .bind(id.0);
        let rows = statement.fetch_all(&mut transaction).await?;
        let prepared = rows.iter().map(super::read::cluster_and_job).collect::<Result<_, _>>()?;
        delete(&mut transaction, id).await?;
        transaction.commit().await?;
        Ok(Some(ForgottenEnvironment { environment, prepared }))
    }

    /// Deletes the record of an environment if it is stopped, nothing of it may be in the cluster, and no preparation
    /// waits: then its slug is free for another name.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn forget_free_environment(&self, id: EnvironmentId) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Environment(id.0)).await?;
        let statement = sql("SELECT id FROM environments WHERE id = $1 AND state = 'stopped' AND tracked = '[]' \
             AND is_removal_due = 0 AND NOT EXISTS (SELECT 1 FROM environment_jobs \
             WHERE environment_id = environments.id AND status = 'preparing')")
        .bind(id.0);
        if statement.fetch_optional(&mut transaction).await?.is_none() {
            return Ok(false);
        }
        delete(&mut transaction, id).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Returns the jobs whose environment was stopped since a time, each with its cluster.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn stopped_jobs(&self, since: UnixSeconds) -> Result<Vec<(ClusterId, u64)>, StoreError> {
        let statement = sql("SELECT cluster_id, job_id FROM environment_jobs \
             JOIN environments ON environments.id = environment_jobs.environment_id \
             WHERE finished_at >= $1 AND code = $2 AND job_id IS NOT NULL")
        .bind(since.get())
        .bind(STOPPED_CODE);
        statement.fetch_all(&self.readers).await?.iter().map(super::read::cluster_and_job).collect()
    }
}

/// Returns whether an environment's project is recorded as gone.
pub(super) async fn is_project_gone(transaction: &mut Transaction, id: EnvironmentId) -> Result<bool, StoreError> {
    let statement = sql("SELECT 1 AS gone FROM environment_projects_gone \
         WHERE project_id = (SELECT project_id FROM environments WHERE id = $1)")
    .bind(id.0);
    Ok(statement.fetch_optional(transaction).await?.is_some())
}

/// Removes the record that an environment's project is gone.
pub(super) async fn bring_back(transaction: &mut Transaction, id: EnvironmentId) -> Result<(), StoreError> {
    let statement = sql("DELETE FROM environment_projects_gone \
         WHERE project_id = (SELECT project_id FROM environments WHERE id = $1)");
    statement.bind(id.0).execute(transaction).await?;
    Ok(())
}

async fn delete(transaction: &mut Transaction, id: EnvironmentId) -> Result<(), StoreError> {
    for statement in
        ["DELETE FROM environment_jobs WHERE environment_id = $1", "DELETE FROM environments WHERE id = $1"]
    {
        sql(statement).bind(id.0).execute(&mut *transaction).await?;
    }
    Ok(())
}
