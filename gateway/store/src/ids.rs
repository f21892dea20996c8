//! Lists of workspaces by id alone, so that an unreadable row hides no other.

use super::database::sql;
use super::{ClusterId, Store, StoreError, WorkspaceId};

impl Store {
    /// Returns up to `limit` managed workspaces that are not terminated, of one cluster or of all, after `after`, by
    /// id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn managed_ids(
        &self,
        cluster: Option<ClusterId>,
        after: Option<WorkspaceId>,
        limit: u32,
    ) -> Result<Vec<WorkspaceId>, StoreError> {
        let after = after.map_or(0, |id| id.0);
        let statement = match cluster {
            Some(cluster) => sql("SELECT lifecycles.workspace_id FROM lifecycles \
                 JOIN kubernetes_workspaces ON kubernetes_workspaces.workspace_id = lifecycles.workspace_id \
                 WHERE cluster_id = $3 AND kubernetes_workspaces.workspace_id > $1 \
                 AND NOT (desired = 'Terminated' AND actual = 'Terminated') \
                 ORDER BY kubernetes_workspaces.workspace_id LIMIT $2")
            .bind(after)
            .bind(limit)
            .bind(cluster.0),
            None => sql("SELECT workspace_id FROM lifecycles WHERE workspace_id > $1 \
                 AND NOT (desired = 'Terminated' AND actual = 'Terminated') ORDER BY workspace_id LIMIT $2")
            .bind(after)
            .bind(limit),
        };
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.get("workspace_id")?))).collect()
    }
}
