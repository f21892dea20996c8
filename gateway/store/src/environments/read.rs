//! Queries of environments and their preparations.

use super::super::database::sql;
use super::super::{ClusterId, Store, StoreError};
use super::{
    EnvironmentFilter, EnvironmentId, EnvironmentState, Preparation, PreparationId, StoredEnvironment, number_of,
    read_environment, read_preparation,
};

impl Store {
    /// Returns an environment.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn environment(&self, id: EnvironmentId) -> Result<Option<StoredEnvironment>, StoreError> {
        let statement = sql("SELECT * FROM environments WHERE id = $1").bind(id.0);
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_environment).transpose()
    }

    /// Returns the environment of a project on a cluster that has this slug.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn environment_of(
        &self,
        cluster: ClusterId,
        project_id: u64,
        slug: &str,
    ) -> Result<Option<StoredEnvironment>, StoreError> {
        let statement = sql("SELECT * FROM environments WHERE cluster_id = $1 AND project_id = $2 AND slug = $3")
            .bind(cluster.0)
            .bind(number_of(project_id))
            .bind(slug);
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_environment).transpose()
    }

    /// Returns up to `limit` environments after `after`, by id.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn environments(
        &self,
        filter: EnvironmentFilter,
        after: Option<EnvironmentId>,
        limit: u32,
    ) -> Result<Vec<StoredEnvironment>, StoreError> {
        let statement = sql("SELECT * FROM environments WHERE id > $1 AND ($2 = -1 OR cluster_id = $2) \
             AND ($3 = -1 OR project_id = $3) AND ($4 = '' OR state = $4) ORDER BY id LIMIT $5")
        .bind(after.map_or(0, |id| id.0))
        .bind(filter.cluster.map_or(-1, |id| id.0))
        .bind(filter.project_id.map_or(-1, number_of))
        .bind(filter.state.map_or("", EnvironmentState::as_str))
        .bind(limit);
        statement.fetch_all(&self.readers).await?.iter().map(read_environment).collect()
    }

    /// Returns the environments with objects to apply or remove, by id alone, so that an unreadable one hides no other.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn environments_due(&self) -> Result<Vec<EnvironmentId>, StoreError> {
        let statement = sql("SELECT id FROM environments WHERE is_removal_due = 1 \
             UNION SELECT environment_id AS id FROM environment_jobs WHERE status = 'preparing' ORDER BY id");
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(EnvironmentId(row.get("id")?))).collect()
    }

    /// Returns a preparation.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn preparation(&self, id: PreparationId) -> Result<Option<Preparation>, StoreError> {
        let statement = sql("SELECT * FROM environment_jobs WHERE id = $1").bind(id.0);
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_preparation).transpose()
    }

    /// Returns the preparation of a job in an environment.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn preparation_of(
        &self,
        environment: EnvironmentId,
        job: u64,
    ) -> Result<Option<Preparation>, StoreError> {
        let statement = sql("SELECT * FROM environment_jobs WHERE environment_id = $1 AND job_id = $2")
            .bind(environment.0)
            .bind(number_of(job));
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_preparation).transpose()
    }

    /// Returns the preparation of an environment whose turn it is: the oldest that has not ended.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn next_preparation(&self, environment: EnvironmentId) -> Result<Option<Preparation>, StoreError> {
        let statement = sql("SELECT * FROM environment_jobs WHERE environment_id = $1 AND status = 'preparing' \
             ORDER BY id LIMIT 1")
        .bind(environment.0);
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_preparation).transpose()
    }

    /// Returns the last preparation of an environment, whatever its outcome.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn last_preparation(&self, environment: EnvironmentId) -> Result<Option<Preparation>, StoreError> {
        let statement = sql("SELECT * FROM environment_jobs WHERE environment_id = $1 ORDER BY id DESC LIMIT 1")
            .bind(environment.0);
        statement.fetch_optional(&self.readers).await?.as_ref().map(read_preparation).transpose()
    }

    /// Returns the newest jobs that were prepared, newest first, each with its cluster.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn prepared_jobs(&self, limit: u32) -> Result<Vec<(ClusterId, u64)>, StoreError> {
        let statement = sql("SELECT cluster_id, job_id FROM environment_jobs \
             JOIN environments ON environments.id = environment_jobs.environment_id \
             WHERE status = 'completed' AND job_id IS NOT NULL ORDER BY environment_jobs.id DESC LIMIT $1")
        .bind(limit);
        statement.fetch_all(&self.readers).await?.iter().map(cluster_and_job).collect()
    }
}

pub(super) fn cluster_and_job(row: &super::Row) -> Result<(ClusterId, u64), StoreError> {
    let job = u64::try_from(row.get::<i64>("job_id")?).map_err(|_| super::corrupt_job("job_id"))?;
    Ok((ClusterId(row.get("cluster_id")?), job))
}
