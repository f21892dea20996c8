//! Statements about workspaces.

use std::sync::Arc;

use super::database::{Row, Transaction, sql, sql_of};
use super::former::NameHold;
use super::shares::read_share;
use super::{Executor, Store, StoreError, Workspace, WorkspaceId};
use gateway_types::{DisplayName, GroupName, Share, UnixSeconds, UserName, WorkspaceName};

/// Part of a list of workspaces.
#[derive(Clone, Copy, Debug)]
pub struct ListPage<'a> {
    /// The last name of the part before.
    pub after: Option<&'a WorkspaceName>,
    /// Maximum length of the part.
    pub limit: u32,
}

/// Query of the workspaces that a user sees; the argument lists the names of the user's groups.
macro_rules! seen_by {
    ($groups:literal) => {
        concat!(
            "SELECT id, name, owner, executor, created_at, display_name FROM workspaces WHERE name > $1 AND id IN ( \
             SELECT id FROM workspaces WHERE owner = $2 AND name > $1 \
             UNION SELECT workspace_id FROM shares WHERE audience = 'user' AND subject = $2 AND subject <> '' \
               AND (expires_at IS NULL OR expires_at > $3) \
             UNION SELECT workspace_id FROM shares WHERE audience = 'group' AND subject <> '' AND subject IN (",
            $groups,
            ") AND (expires_at IS NULL OR expires_at > $3)) ORDER BY name LIMIT $5"
        )
    };
}

impl Store {
    /// Returns the workspace of that name, with its shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspace(&self, name: &WorkspaceName) -> Result<Option<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at, display_name FROM workspaces WHERE name = $1";
        let row = sql(statement).bind(name.as_str()).fetch_optional(&self.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let workspace = read_workspace(&row)?;
        let shares: Vec<Share> = self.shares_of(workspace.id).await?;
        let ports = self.named_ports(workspace.id).await?.into();
        Ok(Some(Workspace { shares: shares.into(), ports, ..workspace }))
    }

    /// Returns the workspace of that name, with its shares, and takes as long when there is none: for answers that must
    /// not reveal whether it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspace_or_none(&self, name: &WorkspaceName) -> Result<Option<Workspace>, StoreError> {
        let statement = "SELECT id, name, owner, executor, created_at, display_name FROM workspaces WHERE name = $1";
        let row = sql(statement).bind(name.as_str()).fetch_optional(&self.readers).await?;
        let statement = "SELECT port, audience, subject, expires_at FROM shares \
             WHERE workspace_id = (SELECT id FROM workspaces WHERE name = $1) ORDER BY port, audience, subject";
        let rows = sql(statement).bind(name.as_str()).fetch_all(&self.readers).await?;
        let ports = self.named_ports_of(name).await?;
        let Some(row) = row else { return Ok(None) };
        let shares: Vec<Share> = rows.iter().map(read_share).collect::<Result<_, _>>()?;
        let (workspace, ports) = (read_workspace(&row)?, ports.into());
        Ok(Some(Workspace { shares: shares.into(), ports, ..workspace }))
    }

    /// Returns part of the workspaces that a user owns or that are shared with them or a group of theirs now, by name,
    /// without their shares. Shares that are public or open to all signed-in users put a workspace into no list.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces_seen_by(
        &self,
        user: &UserName,
        groups: &[GroupName],
        part: ListPage<'_>,
        now: UnixSeconds,
    ) -> Result<Vec<Workspace>, StoreError> {
        let statement = sql_of(
            seen_by!("SELECT value FROM json_each($4)"),
            seen_by!("SELECT jsonb_array_elements_text($4::jsonb)"),
        );
        let groups: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
        let query = statement
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
        let statement = "SELECT id, name, owner, executor, created_at, display_name FROM workspaces ORDER BY name";
        let rows = sql(statement).fetch_all(&self.readers).await?;
        rows.iter().map(read_workspace).collect()
    }

    /// Returns the names that belong to workspaces, each with the workspace's id.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspace_ids(
        &self,
        names: &[&WorkspaceName],
    ) -> Result<Vec<(WorkspaceName, WorkspaceId)>, StoreError> {
        let statement = sql_of(
            "SELECT id, name FROM workspaces WHERE name IN (SELECT value FROM json_each($1))",
            "SELECT id, name FROM workspaces WHERE name IN (SELECT jsonb_array_elements_text($1::jsonb))",
        );
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let rows = statement.bind(serde_json::Value::from(names).to_string()).fetch_all(&self.readers).await?;
        let read = |row: &Row| {
            let name = row.get::<&str>("name")?.parse();
            let name = name.map_err(|_| StoreError::Corrupt { table: "workspaces", column: "name" })?;
            Ok((name, WorkspaceId(row.get("id")?)))
        };
        rows.iter().map(read).collect()
    }

    /// Returns the workspaces that a user owns, by name, without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces_of(&self, owner: &UserName) -> Result<Vec<Workspace>, StoreError> {
        let statement =
            "SELECT id, name, owner, executor, created_at, display_name FROM workspaces WHERE owner = $1 ORDER BY name";
        let rows = sql(statement).bind(owner.as_str()).fetch_all(&self.readers).await?;
        rows.iter().map(read_workspace).collect()
    }
}

/// Returns the id of the workspace if there is one of that name and it is `owner`'s.
pub(super) async fn find_own(
    connection: &mut Transaction,
    name: &WorkspaceName,
    owner: &UserName,
) -> Result<Option<WorkspaceId>, StoreError> {
    let statement = "SELECT id FROM workspaces WHERE name = $1 AND owner = $2";
    let row = sql(statement).bind(name.as_str()).bind(owner.as_str()).fetch_optional(connection).await?;
    row.map(|row| Ok(WorkspaceId(row.get("id")?))).transpose()
}

/// Returns the id of the workspace, which becomes an `external` one of `owner` if there is none.
///
/// # Errors
/// [`StoreError::OtherOwner`] when it belongs to another user, [`StoreError::NameHeld`] when it did until recently:
/// then the transaction must not be committed.
pub(super) async fn find_or_create(
    connection: &mut Transaction,
    name: &WorkspaceName,
    hold: NameHold,
    owner: &UserName,
    now: UnixSeconds,
) -> Result<WorkspaceId, StoreError> {
    let made = sql(
        "INSERT INTO workspaces (name, owner, executor, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    )
    .bind(name.as_str())
    .bind(owner.as_str())
    .bind(Executor::External.as_str())
    .bind(now.get())
    .execute(&mut *connection)
    .await?;
    if made > 0
        && let Some(until) = hold.held_until(connection, name, owner, now).await?
    {
        return Err(StoreError::NameHeld { name: name.clone(), until });
    }
    let row =
        sql("SELECT id, owner FROM workspaces WHERE name = $1").bind(name.as_str()).fetch_one(&mut *connection).await?;
    if row.get::<&str>("owner")? != owner.as_str() {
        return Err(StoreError::OtherOwner(name.clone()));
    }
    Ok(WorkspaceId(row.get("id")?))
}

fn read_display_name(row: &Row) -> Result<Option<DisplayName>, StoreError> {
    let corrupt = |_| StoreError::Corrupt { table: "workspaces", column: "display_name" };
    row.get::<Option<&str>>("display_name")?.map(|text| text.parse().map_err(corrupt)).transpose()
}

pub(super) fn read_workspace(row: &Row) -> Result<Workspace, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "workspaces", column };
    Ok(Workspace {
        id: WorkspaceId(row.get("id")?),
        name: row.get::<&str>("name")?.parse().map_err(|_| corrupt("name"))?,
        owner: row.get::<&str>("owner")?.parse().map_err(|_| corrupt("owner"))?,
        executor: Executor::from_stored(row.get("executor")?).ok_or_else(|| corrupt("executor"))?,
        created_at: UnixSeconds::new(row.get("created_at")?),
        display_name: read_display_name(row)?,
        shares: Arc::default(),
        ports: Arc::default(),
    })
}
