//! Statements about workspaces.

use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::{Executor, Store, StoreError, Workspace, WorkspaceId};
use crate::model::{Share, UnixSeconds, UserName, WorkspaceName};

impl Store {
    /// Returns the workspace of that name, with its shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspace(&self, name: &WorkspaceName) -> Result<Option<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at FROM workspaces WHERE name = ?";
        let row = sqlx::query(statement).bind(name.as_str()).fetch_optional(&self.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let workspace = read_workspace(&row)?;
        let shares: Vec<Share> = self.shares_of(workspace.id).await?;
        Ok(Some(Workspace { shares: shares.into(), ..workspace }))
    }

    /// Returns all workspaces, by name, without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at FROM workspaces ORDER BY name";
        let rows = sqlx::query(statement).fetch_all(&self.readers).await?;
        rows.iter().map(read_workspace).collect()
    }

    /// Returns the workspaces that a user owns, by name, without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces_of(&self, owner: &UserName) -> Result<Vec<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at FROM workspaces WHERE owner = ? ORDER BY name";
        let rows = sqlx::query(statement).bind(owner.as_str()).fetch_all(&self.readers).await?;
        rows.iter().map(read_workspace).collect()
    }
}

/// Returns the id of the workspace, which becomes an `external` one of `owner` if there is none.
///
/// # Errors
/// [`StoreError::OtherOwner`] when it exists and is somebody else's.
pub(super) async fn find_or_create(
    connection: &mut SqliteConnection,
    name: &WorkspaceName,
    owner: &UserName,
    now: UnixSeconds,
) -> Result<WorkspaceId, StoreError> {
    sqlx::query(
        "INSERT INTO workspaces (name, owner, executor, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(name.as_str())
    .bind(owner.as_str())
    .bind(Executor::External.as_str())
    .bind(now.get())
    .execute(&mut *connection)
    .await?;
    let row = sqlx::query("SELECT id, owner FROM workspaces WHERE name = ?")
        .bind(name.as_str())
        .fetch_one(&mut *connection)
        .await?;
    if row.try_get::<&str, _>("owner")? != owner.as_str() {
        return Err(StoreError::OtherOwner(name.clone()));
    }
    Ok(WorkspaceId(row.try_get("id")?))
}

fn read_workspace(row: &SqliteRow) -> Result<Workspace, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "workspaces", column };
    Ok(Workspace {
        id: WorkspaceId(row.try_get("id")?),
        name: row.try_get::<&str, _>("name")?.parse().map_err(|_| corrupt("name"))?,
        owner: row.try_get::<&str, _>("owner")?.parse().map_err(|_| corrupt("owner"))?,
        executor: Executor::from_stored(row.try_get("executor")?).ok_or_else(|| corrupt("executor"))?,
        created_at: UnixSeconds::new(row.try_get("created_at")?),
        shares: Arc::default(),
    })
}
