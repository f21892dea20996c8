//! Statements about workspaces.

use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::shares::read_share;
use super::{Executor, Store, StoreError, Workspace, WorkspaceId};
use crate::model::{GroupName, Share, UnixSeconds, UserName, WorkspaceName};

/// Which part of a list of workspaces.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The last name of the part before.
    pub after: Option<&'a WorkspaceName>,
    /// The longest that the part may be.
    pub limit: u32,
}

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

    /// Returns the workspace of that name, with its shares, and takes as long when there is none: for answers that do not
    /// tell.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspace_or_none(&self, name: &WorkspaceName) -> Result<Option<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at FROM workspaces WHERE name = ?";
        let row = sqlx::query(statement).bind(name.as_str()).fetch_optional(&self.readers).await?;
        let statement = "SELECT port, audience, subject, expires_at FROM shares \
             WHERE workspace_id = (SELECT id FROM workspaces WHERE name = ?) ORDER BY port, audience, subject";
        let rows = sqlx::query(statement).bind(name.as_str()).fetch_all(&self.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let shares: Vec<Share> = rows.iter().map(read_share).collect::<Result<_, _>>()?;
        Ok(Some(Workspace { shares: shares.into(), ..read_workspace(&row)? }))
    }

    /// Returns part of the workspaces that a user owns or that are shared with them or a group of theirs now, by name, without
    /// their shares. What is public or open to everybody who is signed in is in nobody's list.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces_seen_by(
        &self,
        user: &UserName,
        groups: &[GroupName],
        part: Listed<'_>,
        now: UnixSeconds,
    ) -> Result<Vec<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at FROM workspaces WHERE name > ?1 AND id IN ( \
             SELECT id FROM workspaces WHERE owner = ?2 AND name > ?1 \
             UNION SELECT workspace_id FROM shares WHERE audience = 'user' AND subject = ?2 AND subject <> '' \
               AND (expires_at IS NULL OR expires_at > ?3) \
             UNION SELECT workspace_id FROM shares WHERE audience = 'group' AND subject <> '' \
               AND subject IN (SELECT value FROM json_each(?4)) AND (expires_at IS NULL OR expires_at > ?3) \
             ) ORDER BY name LIMIT ?5";
        let groups: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
        let query = sqlx::query(statement)
            .bind(part.after.map_or("", WorkspaceName::as_str))
            .bind(user.as_str())
            .bind(now.get())
            .bind(serde_json::Value::from(groups).to_string())
            .bind(part.limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(read_workspace).collect()
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

/// Returns the id of the workspace if there is one of that name and it is `owner`'s.
pub(super) async fn find_own(
    connection: &mut SqliteConnection,
    name: &WorkspaceName,
    owner: &UserName,
) -> Result<Option<WorkspaceId>, StoreError> {
    let statement = "SELECT id FROM workspaces WHERE name = ? AND owner = ?";
    let row = sqlx::query(statement).bind(name.as_str()).bind(owner.as_str()).fetch_optional(connection).await?;
    row.map(|row| Ok(WorkspaceId(row.try_get("id")?))).transpose()
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
