//! Statements that set the desired state of environments, for jobs and operators.

use super::super::database::{About, Transaction, sql};
use super::super::{Store, StoreError};
use super::gone::STOPPED_CODE;
use super::{EnvironmentId, EnvironmentState, NewEnvironment, StoredEnvironment, number_of, read_environment};
use gateway_types::UnixSeconds;

/// Result of setting an environment's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSet {
    /// The environment afterwards.
    pub environment: StoredEnvironment,
    /// The state changed, or the tracked objects have to be removed since then.
    pub is_changed: bool,
}

impl Store {
    /// Returns the environment of a project on a cluster that has this slug. An unknown one is registered: stopped, and
    /// without anything in the cluster, until a preparation.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn ensure_environment(
        &self,
        new: &NewEnvironment<'_>,
        now: UnixSeconds,
    ) -> Result<StoredEnvironment, StoreError> {
        if let Some(known) = self.environment_of(new.cluster, new.project_id, new.slug).await? {
            return Ok(known);
        }
        sql("INSERT INTO environments (cluster_id, project_id, project_path, name, slug, inventory, state, since, deletion, \
             tracked) VALUES ($1, $2, $3, $4, $5, $6, 'stopped', $7, 'on_stop', '[]') \
             ON CONFLICT (cluster_id, project_id, slug) DO NOTHING")
        .bind(new.cluster.0)
        .bind(number_of(new.project_id))
        .bind(new.project_path)
        .bind(new.name)
        .bind(new.slug)
        .bind(new.inventory)
        .bind(now.get())
        .execute(&self.writer)
        .await?;
        let statement = sql("SELECT * FROM environments WHERE cluster_id = $1 AND project_id = $2 AND slug = $3")
            .bind(new.cluster.0)
            .bind(number_of(new.project_id))
            .bind(new.slug);
        read_environment(&statement.fetch_one(&self.writer).await?)
    }

    /// Sets the state of an environment, and returns it afterwards; `None` if there is none.
    ///
    /// `Stopped` is final for earlier requests: preparations that have not ended fail, prepared jobs lose their
    /// preparation, and the tracked objects have to be removed, unless they are kept. `Stopping` removes nothing. Only
    /// a preparation brings a stopped environment back.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn set_environment_state(
        &self,
        id: EnvironmentId,
        state: EnvironmentState,
        reason: Option<&str>,
        now: UnixSeconds,
    ) -> Result<Option<StateSet>, StoreError> {
        let mut transaction = self.write(About::Environment(id.0)).await?;
        let Some(before) = read(&mut transaction, id).await? else { return Ok(None) };
        match state {
            EnvironmentState::Stopped => stop(&mut transaction, id, reason, now).await?,
            EnvironmentState::Available | EnvironmentState::Stopping => {
                sql("UPDATE environments SET state = $1, since = $2, reason = $3, revision = revision + 1 \
                     WHERE id = $4 AND state <> 'stopped' AND state <> $1")
                .bind(state.as_str())
                .bind(now.get())
                .bind(reason)
                .bind(id.0)
                .execute(&mut transaction)
                .await?;
            }
        }
        let Some(environment) = read(&mut transaction, id).await? else { return Ok(None) };
        transaction.commit().await?;
        let is_changed = (before.state, before.is_removal_due) != (environment.state, environment.is_removal_due);
        Ok(Some(StateSet { environment, is_changed }))
    }

    /// Stops an environment as [`Store::set_environment_state`] does, without reading its row: also an unreadable one.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn stop_environment(
        &self,
        id: EnvironmentId,
        reason: Option<&str>,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let mut transaction = self.write(About::Environment(id.0)).await?;
        stop(&mut transaction, id, reason, now).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Stops an environment, and has the tracked objects removed even if a stop would keep them. Returns it; `None` if
    /// there is none.
    ///
    /// # Errors
    /// As for [`Store::set_environment_state`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn remove_environment(
        &self,
        id: EnvironmentId,
        reason: Option<&str>,
        now: UnixSeconds,
    ) -> Result<Option<StoredEnvironment>, StoreError> {
        let mut transaction = self.write(About::Environment(id.0)).await?;
        stop(&mut transaction, id, reason, now).await?;
        sql("UPDATE environments SET is_removal_due = 1, retry_at = NULL WHERE id = $1 AND tracked <> '[]'")
            .bind(id.0)
            .execute(&mut transaction)
            .await?;
        let found = read(&mut transaction, id).await?;
        transaction.commit().await?;
        Ok(found)
    }
}

async fn read(transaction: &mut Transaction, id: EnvironmentId) -> Result<Option<StoredEnvironment>, StoreError> {
    let statement = sql("SELECT * FROM environments WHERE id = $1").bind(id.0);
    statement.fetch_optional(transaction).await?.as_ref().map(read_environment).transpose()
}

async fn stop(
    transaction: &mut Transaction,
    id: EnvironmentId,
    reason: Option<&str>,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    sql("UPDATE environment_jobs SET status = 'failed', code = $1, failure = 'the environment was stopped', \
         objects = '[]', finished_at = $2 WHERE environment_id = $3 \
         AND (status = 'preparing' OR (status = 'completed' AND job_id IS NOT NULL))")
    .bind(STOPPED_CODE)
    .bind(now.get())
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    // A stopped environment keeps the time of its stop; a removal that was due stays due.
    sql("UPDATE environments SET since = CASE WHEN state = 'stopped' THEN since ELSE $1 END, state = 'stopped', \
         reason = coalesce($2, reason), is_removal_due = CASE WHEN is_removal_due = 1 \
         OR (deletion = 'on_stop' AND tracked <> '[]') THEN 1 ELSE 0 END, \
         failures = 0, failure_code = NULL, failure = NULL, retry_at = NULL, revision = revision + 1 WHERE id = $3")
    .bind(now.get())
    .bind(reason)
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    Ok(())
}
