//! Additions of people to their workspaces: display names, and pins that put some of them first.

use std::collections::HashSet;

use super::database::{About, sql};
use super::workspaces::find_own;
use super::{Store, StoreError, WorkspaceId};
use gateway_types::{DisplayName, UserName, WorkspaceName};

/// Most pins of one user.
const PINS_MAX: i64 = 100;

impl Store {
    /// Returns the workspaces that a user pinned.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pins(&self, user: &UserName) -> Result<HashSet<WorkspaceId>, StoreError> {
        let statement = sql("SELECT workspace_id FROM pins WHERE user_name = $1").bind(user.as_str());
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.get("workspace_id")?))).collect()
    }

    /// Pins a workspace for its owner, or takes the pin away. Beyond 100 pins nothing is pinned.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pin(&self, workspace: WorkspaceId, user: &UserName, is_pinned: bool) -> Result<(), StoreError> {
        let statement = match is_pinned {
            true => sql(
                "INSERT INTO pins (user_name, workspace_id) SELECT $1, id FROM workspaces WHERE id = $2 AND owner = $1 \
                 AND (SELECT count(*) FROM pins WHERE user_name = $1) < $3 ON CONFLICT DO NOTHING",
            )
            .bind(user.as_str())
            .bind(workspace.0)
            .bind(PINS_MAX),
            false => {
                sql("DELETE FROM pins WHERE user_name = $1 AND workspace_id = $2").bind(user.as_str()).bind(workspace.0)
            }
        };
        statement.execute(&self.writer).await?;
        Ok(())
    }

    /// Gives a workspace of `owner` a display name, or takes it away. Returns whether there is such a workspace.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn rename(
        &self,
        workspace: &WorkspaceName,
        owner: &UserName,
        display_name: Option<&DisplayName>,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Workspace(workspace.as_str())).await?;
        let Some(id) = find_own(&mut transaction, workspace, owner).await? else { return Ok(false) };
        sql("UPDATE workspaces SET display_name = $1 WHERE id = $2")
            .bind(display_name.map(DisplayName::as_str))
            .bind(id.0)
            .execute(&mut transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::each::each;
    use gateway_types::{UnixSeconds, UserName, WorkspaceName};

    const NOW: UnixSeconds = UnixSeconds::new(1_000);

    #[tokio::test]
    async fn owner_pins_and_names_and_both_go_with_the_workspace() {
        each(async |store| {
            let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
            let name: WorkspaceName = "app".parse().unwrap();
            let id = store.create_external(&name, &ann, None, &[], NOW).await.unwrap().id;
            store.pin(id, &bob, true).await.unwrap();
            assert!(store.pins(&bob).await.unwrap().is_empty(), "not theirs");
            store.pin(id, &ann, true).await.unwrap();
            store.pin(id, &ann, true).await.unwrap();
            assert_eq!(store.pins(&ann).await.unwrap().into_iter().collect::<Vec<_>>(), [id]);
            let display = "Shop, new checkout".parse().unwrap();
            assert!(!store.rename(&name, &bob, Some(&display)).await.unwrap(), "not theirs");
            assert!(store.rename(&name, &ann, Some(&display)).await.unwrap());
            assert_eq!(store.workspace(&name).await.unwrap().unwrap().display_name, Some(display));
            assert!(store.rename(&name, &ann, None).await.unwrap());
            assert_eq!(store.workspace(&name).await.unwrap().unwrap().display_name, None);
            store.pin(id, &ann, false).await.unwrap();
            assert!(store.pins(&ann).await.unwrap().is_empty());
            store.pin(id, &ann, true).await.unwrap();
            assert!(store.delete_external(&name, None, NOW).await.unwrap());
            assert!(store.pins(&ann).await.unwrap().is_empty());
        })
        .await;
    }
}
