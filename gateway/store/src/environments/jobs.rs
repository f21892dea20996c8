//! Statements about preparations requested for environments.

use super::super::database::{About, Transaction, sql};
use super::super::{Store, StoreError};
use super::gone::{bring_back, is_project_gone};
use super::{NewPreparation, Preparation, PreparationStatus, number_of, read_preparation};
use gateway_types::UnixSeconds;

/// A job's row, and whether it begins now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStart {
    /// The row.
    pub preparation: Preparation,
    /// It is new, or begins anew.
    pub is_new: bool,
}

impl Store {
    /// Records a preparation for an environment, which becomes available by it. A job has one row, however many
    /// requests come, also concurrently. `None` if the environment's project is gone.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn begin_preparation(
        &self,
        new: &NewPreparation<'_>,
        now: UnixSeconds,
    ) -> Result<Option<JobStart>, StoreError> {
        let mut transaction = self.write(About::Environment(new.environment.0)).await?;
        // A sweep first records that the project is gone and then stops this environment, so either the sweep sees this
        // preparation, or this check sees the record.
        if new.is_operators {
            bring_back(&mut transaction, new.environment).await?;
        } else if is_project_gone(&mut transaction, new.environment).await? {
            return Ok(None);
        }
        if let Some(known) = known(&mut transaction, new).await? {
            let is_of_the_moment =
                known.failure.as_ref().is_some_and(|(code, _)| new.again_after.contains(&code.as_str()));
            if known.status != PreparationStatus::Failed || !is_of_the_moment {
                return Ok(Some(JobStart { preparation: known, is_new: false }));
            }
            // Its turn is behind those requested meanwhile.
            let forget = sql("DELETE FROM environment_jobs WHERE id = $1").bind(known.id.0);
            forget.execute(&mut transaction).await?;
        }
        let preparation = insert(&mut transaction, new, now).await?;
        sql("UPDATE environments SET since = CASE WHEN state = 'available' THEN since ELSE $1 END, state = 'available', \
             reason = NULL, project_path = $2, tier = $3, url = $4, failures = 0, failure_code = NULL, failure = NULL, \
             retry_at = NULL, revision = revision + 1 WHERE id = $5")
        .bind(now.get())
        .bind(new.project_path)
        .bind(new.tier)
        .bind(new.url)
        .bind(new.environment.0)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(Some(JobStart { preparation, is_new: true }))
    }

    /// Deletes records that ended before a time: preparations, environments of which nothing is left, and gone
    /// projects. Returns the number of the first two.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_environments(&self, before: UnixSeconds) -> Result<u64, StoreError> {
        let jobs = sql("DELETE FROM environment_jobs WHERE finished_at < $1").bind(before.get());
        let jobs = jobs.execute(&self.writer).await?;
        let environments = sql("DELETE FROM environments WHERE state = 'stopped' AND tracked = '[]' \
             AND is_removal_due = 0 AND since < $1 \
             AND NOT EXISTS (SELECT 1 FROM environment_jobs WHERE environment_id = environments.id)")
        .bind(before.get());
        let projects = sql("DELETE FROM environment_projects_gone WHERE since < $1").bind(before.get());
        projects.execute(&self.writer).await?;
        Ok(jobs + environments.execute(&self.writer).await?)
    }
}

async fn known(transaction: &mut Transaction, new: &NewPreparation<'_>) -> Result<Option<Preparation>, StoreError> {
    let Some(job) = new.job else { return Ok(None) };
    let statement = sql("SELECT * FROM environment_jobs WHERE environment_id = $1 AND job_id = $2")
        .bind(new.environment.0)
        .bind(number_of(job));
    statement.fetch_optional(transaction).await?.as_ref().map(read_preparation).transpose()
}

async fn insert(
    transaction: &mut Transaction,
    new: &NewPreparation<'_>,
    now: UnixSeconds,
) -> Result<Preparation, StoreError> {
    let row =
        sql("INSERT INTO environment_jobs (environment_id, job_id, status, template, deletion, identity, objects, \
         tracked, made_at, give_up_at) VALUES ($1, $2, 'preparing', $3, $4, $5, $6, $7, $8, $9) RETURNING *")
        .bind(new.environment.0)
        .bind(new.job.map(number_of))
        .bind(new.template)
        .bind(new.kept.as_str())
        .bind(new.identity)
        .bind(new.objects)
        .bind(new.tracked)
        .bind(now.get())
        .bind(new.give_up_at.get())
        .fetch_one(transaction)
        .await?;
    read_preparation(&row)
}
