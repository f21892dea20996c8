//! Statements of an environment's driver about the state in the cluster. Each environment has one driver at a time.

use super::super::database::{About, Transaction, sql};
use super::super::{Store, StoreError};
use super::{EnvironmentId, Preparation, PreparationEnd, PreparationId, Tries, told};
use gateway_types::UnixSeconds;

impl Store {
    /// Records the objects that a preparation may put into the cluster, before it begins. Returns whether it may begin:
    /// not while a removal is due, nor after its end.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn begin_apply(&self, preparation: &Preparation, tracked: &str) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Environment(preparation.environment.0)).await?;
        // The objects of an environment that was never prepared are removed by the rules of its first job.
        let done = sql(
            "UPDATE environments SET tracked = $1, deletion = CASE WHEN template IS NULL THEN $2 ELSE deletion END, \
             identity = CASE WHEN template IS NULL THEN $3 ELSE identity END, revision = revision + 1 \
             WHERE id = $4 AND is_removal_due = 0 AND EXISTS (SELECT 1 FROM environment_jobs \
             WHERE environment_jobs.id = $5 AND status = 'preparing')",
        )
        .bind(tracked)
        .bind(preparation.kept.as_str())
        .bind(preparation.identity.as_deref())
        .bind(preparation.environment.0)
        .bind(preparation.id.0)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(done > 0)
    }

    /// Records the objects in the cluster after a preparation, and its outcome. Returns whether this call ended it: the
    /// environment may have been stopped meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn end_apply(
        &self,
        preparation: &Preparation,
        tracked: &str,
        end: PreparationEnd<'_>,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Environment(preparation.environment.0)).await?;
        let is_ended = end_one(&mut transaction, preparation.id, tracked, end, now).await?;
        sql(
            "UPDATE environments SET tracked = $1, failures = 0, failure_code = NULL, failure = NULL, retry_at = NULL, \
             blockers = NULL, revision = revision + 1 WHERE id = $2",
        )
        .bind(tracked)
        .bind(preparation.environment.0)
        .execute(&mut transaction)
        .await?;
        if is_ended && matches!(end, PreparationEnd::Completed) {
            sql("UPDATE environments SET template = $1, deletion = $2, identity = $3 WHERE id = $4")
                .bind(preparation.template.as_str())
                .bind(preparation.kept.as_str())
                .bind(preparation.identity.as_deref())
                .bind(preparation.environment.0)
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(is_ended)
    }

    /// Ends a preparation without having asked the cluster. Returns whether this call ended it.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn give_up(
        &self,
        preparation: &Preparation,
        end: PreparationEnd<'_>,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Environment(preparation.environment.0)).await?;
        let is_ended = end_one(&mut transaction, preparation.id, &preparation.tracked, end, now).await?;
        transaction.commit().await?;
        Ok(is_ended)
    }

    /// Records the errors of the objects of a preparation that is tried again: JSON.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn note_errors(&self, preparation: &Preparation, errors: &str) -> Result<(), StoreError> {
        sql("UPDATE environment_jobs SET errors = $1 WHERE id = $2 AND status = 'preparing'")
            .bind(errors)
            .bind(preparation.id.0)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Records a failed try and the time of the next one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn note_tries(&self, id: EnvironmentId, tries: &Tries) -> Result<(), StoreError> {
        let failure = tries.failure.as_ref();
        sql("UPDATE environments SET failures = $1, failure_code = $2, failure = $3, retry_at = $4, \
             revision = revision + 1 WHERE id = $5")
        .bind(tries.failures)
        .bind(failure.map(|(code, _)| code.as_str()))
        .bind(failure.map(|(_, message)| told(message)))
        .bind(tries.retry_at.map(UnixSeconds::get))
        .bind(id.0)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Records the objects left after a try to remove all, and the blockers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn note_left(&self, id: EnvironmentId, tracked: &str, blockers: Option<&str>) -> Result<(), StoreError> {
        sql("UPDATE environments SET tracked = $1, blockers = $2, revision = revision + 1 WHERE id = $3")
            .bind(tracked)
            .bind(blockers.map(super::super::lifecycles::storable))
            .bind(id.0)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Records that everything is removed except the released objects in `kept`: JSON. From then on the environment is
    /// like one without any preparation: the settings of the last job's template applied to the removed objects.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn end_removal(&self, id: EnvironmentId, kept: Option<&str>) -> Result<(), StoreError> {
        sql("UPDATE environments SET tracked = '[]', template = NULL, deletion = 'on_stop', identity = NULL, \
             is_removal_due = 0, blockers = $1, failures = 0, failure_code = NULL, failure = NULL, retry_at = NULL, \
             revision = revision + 1 WHERE id = $2")
        .bind(kept.map(super::super::lifecycles::storable))
        .bind(id.0)
        .execute(&self.writer)
        .await?;
        Ok(())
    }
}

async fn end_one(
    transaction: &mut Transaction,
    id: PreparationId,
    tracked: &str,
    end: PreparationEnd<'_>,
    now: UnixSeconds,
) -> Result<bool, StoreError> {
    let (status, failure) = match end {
        PreparationEnd::Completed => ("completed", None),
        PreparationEnd::Failed { code, message, errors } => ("failed", Some((code, told(message), errors))),
    };
    let (code, rest) = failure.map(|(code, message, errors)| (code, (message, errors))).unzip();
    let (message, errors) = rest.unzip();
    let done = sql("UPDATE environment_jobs SET status = $1, tracked = $2, code = $3, failure = $4, errors = $5, \
         objects = '[]', finished_at = $6 WHERE id = $7 AND status = 'preparing'")
    .bind(status)
    .bind(tracked)
    .bind(code)
    .bind(message)
    .bind(errors)
    .bind(now.get())
    .bind(id.0)
    .execute(transaction)
    .await?;
    Ok(done > 0)
}
