//! Last valid texts of templates, used while their files cannot be read.

use super::super::database::sql;
use super::super::{ClusterId, Store, StoreError};

impl Store {
    /// Keeps the text of a cluster's template.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn put_environment_template(&self, cluster: ClusterId, name: &str, text: &str) -> Result<(), StoreError> {
        sql("INSERT INTO environment_templates (cluster_id, name, text) VALUES ($1, $2, $3) \
             ON CONFLICT (cluster_id, name) DO UPDATE SET text = excluded.text")
        .bind(cluster.0)
        .bind(name)
        .bind(text)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Deletes a cluster's template, and returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_environment_template(&self, cluster: ClusterId, name: &str) -> Result<bool, StoreError> {
        let statement = sql("DELETE FROM environment_templates WHERE cluster_id = $1 AND name = $2");
        Ok(statement.bind(cluster.0).bind(name).execute(&self.writer).await? > 0)
    }

    /// Returns the names and texts of a cluster's templates, by name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn environment_templates(&self, cluster: ClusterId) -> Result<Vec<(String, String)>, StoreError> {
        let statement = sql("SELECT name, text FROM environment_templates WHERE cluster_id = $1 ORDER BY name");
        let rows = statement.bind(cluster.0).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.get("name")?, row.get("text")?))).collect()
    }
}
