//! Statements about shares.

use super::database::{About, Row, Transaction, sql, sql_of};
use super::workspaces::find_own;
use super::{Store, StoreError, WorkspaceId};
use gateway_types::{Audience, GroupName, Port, Share, UnixSeconds, UserName, WorkspaceName};

/// Outcome of replacing the shares of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareReplacement {
    /// They are replaced.
    Done {
        /// The shares before, without expired ones.
        before: Vec<Share>,
        /// The shares afterwards.
        after: Vec<Share>,
    },
    /// There is no such workspace, or it belongs to another user.
    NoSuchWorkspace,
    /// The live shares are not those that the caller expected.
    Changed,
}

/// A port of a workspace of another user, open to a user by name or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPort {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// The user who owns it.
    pub owner: UserName,
    /// The port.
    pub port: Port,
}

/// Most ports that one user is shown as shared with them.
const SHARED_PORTS_MAX: u32 = 500;

/// Query of the ports that are open to a user by name or group; the argument lists the names of the user's groups.
macro_rules! shared_with {
    ($groups:literal) => {
        concat!(
            "SELECT DISTINCT workspaces.name, workspaces.owner, shares.port FROM shares \
             JOIN workspaces ON workspaces.id = shares.workspace_id \
             WHERE workspaces.owner <> $1 AND (shares.expires_at IS NULL OR shares.expires_at > $2) AND shares.subject <> '' \
               AND (shares.audience = 'user' AND shares.subject = $1 OR shares.audience = 'group' AND shares.subject IN (",
            $groups,
            ")) ORDER BY workspaces.name, shares.port LIMIT $4"
        )
    };
}

impl Store {
    /// Returns the ports that others share with a user by name or with a group of theirs, by workspace and port; the first
    /// 500. Shares that are public or open to every signed-in user are not listed.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn shared_with(
        &self,
        user: &UserName,
        groups: &[GroupName],
        now: UnixSeconds,
    ) -> Result<Vec<SharedPort>, StoreError> {
        let statement = sql_of(
            shared_with!("SELECT value FROM json_each($3)"),
            shared_with!("SELECT jsonb_array_elements_text($3::jsonb)"),
        );
        let groups: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
        let query = statement
            .bind(user.as_str())
            .bind(now.get())
            .bind(serde_json::Value::from(groups).to_string())
            .bind(SHARED_PORTS_MAX);
        let rows = query.fetch_all(&self.readers).await?;
        let corrupt = |column| StoreError::Corrupt { table: "workspaces", column };
        let read = |row: &Row| {
            Ok(SharedPort {
                workspace: row.get::<&str>("name")?.parse().map_err(|_| corrupt("name"))?,
                owner: row.get::<&str>("owner")?.parse().map_err(|_| corrupt("owner"))?,
                port: read_port(row)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Opens a port to an audience, or changes the expiry of an existing share. Also deletes expired shares of the
    /// workspace. Returns whether there is such a workspace.
    ///
    /// # Errors
    /// [`StoreError::Share`] or [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn share(
        &self,
        workspace: &WorkspaceName,
        share: &Share,
        by: &UserName,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        share.check()?;
        let mut transaction = self.write(About::Workspace(workspace.as_str())).await?;
        let Some(id) = workspace_id(&mut transaction, workspace).await? else { return Ok(false) };
        sql("DELETE FROM shares WHERE workspace_id = $1 AND expires_at <= $2")
            .bind(id.0)
            .bind(now.get())
            .execute(&mut transaction)
            .await?;
        upsert(&mut transaction, id, share, by, now).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Replaces all shares of a workspace of `owner`, if `expected` agrees with those that are live now. An unchanged
    /// share keeps its creator and time of creation.
    ///
    /// # Errors
    /// [`StoreError::Share`], [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn replace_shares(
        &self,
        workspace: &WorkspaceName,
        owner: &UserName,
        shares: &[Share],
        expected: impl FnOnce(&[Share]) -> bool + Send,
        now: UnixSeconds,
    ) -> Result<ShareReplacement, StoreError> {
        shares.iter().try_for_each(Share::check)?;
        let mut transaction = self.write(About::Workspace(workspace.as_str())).await?;
        let Some(id) = find_own(&mut transaction, workspace, owner).await? else {
            return Ok(ShareReplacement::NoSuchWorkspace);
        };
        let rows = sql(SHARES_OF).bind(id.0).fetch_all(&mut transaction).await?;
        let stored: Vec<Share> = rows.iter().map(read_share).collect::<Result<_, _>>()?;
        let before: Vec<Share> = stored.iter().filter(|share| share.is_live(now)).cloned().collect();
        if !expected(&before) {
            return Ok(ShareReplacement::Changed);
        }
        for gone in stored.iter().filter(|share| !shares.contains(share)) {
            delete(&mut transaction, id, gone).await?;
        }
        for new in shares.iter().filter(|share| !stored.contains(share)) {
            upsert(&mut transaction, id, new, owner, now).await?;
        }
        let rows = sql(SHARES_OF).bind(id.0).fetch_all(&mut transaction).await?;
        let after = rows.iter().map(read_share).collect::<Result<_, _>>()?;
        transaction.commit().await?;
        Ok(ShareReplacement::Done { before, after })
    }

    /// Deletes a share. Returns whether there was one, expired ones included.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn unshare(
        &self,
        workspace: &WorkspaceName,
        port: Port,
        audience: &Audience,
    ) -> Result<bool, StoreError> {
        let statement = "DELETE FROM shares WHERE port = $1 AND audience = $2 AND subject = $3 \
             AND workspace_id = (SELECT id FROM workspaces WHERE name = $4)";
        let done = sql(statement)
            .bind(port.get())
            .bind(audience.kind())
            .bind(audience.subject().unwrap_or_default())
            .bind(workspace.as_str())
            .execute(&self.writer)
            .await?;
        Ok(done > 0)
    }

    /// Returns all ports that are public now.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn public_ports(&self, now: UnixSeconds) -> Result<Vec<(WorkspaceName, Port)>, StoreError> {
        let statement = "SELECT name, port FROM shares JOIN workspaces ON workspaces.id = workspace_id \
             WHERE audience = 'public' AND (expires_at IS NULL OR expires_at > $1)";
        let rows = sql(statement).bind(now.get()).fetch_all(&self.readers).await?;
        let read = |row: &Row| {
            let name = row.get::<&str>("name")?.parse();
            let name = name.map_err(|_| StoreError::Corrupt { table: "workspaces", column: "name" })?;
            Ok((name, read_port(row)?))
        };
        rows.iter().map(read).collect()
    }

    /// Returns the shares of a workspace, by port, expired ones included.
    pub(super) async fn shares_of(&self, workspace: WorkspaceId) -> Result<Vec<Share>, StoreError> {
        let rows = sql(SHARES_OF).bind(workspace.0).fetch_all(&self.readers).await?;
        rows.iter().map(read_share).collect()
    }
}

/// Shares in the order of their listing.
const SHARES_OF: &str =
    "SELECT port, audience, subject, expires_at FROM shares WHERE workspace_id = $1 ORDER BY port, audience, subject";

async fn upsert(
    connection: &mut Transaction,
    workspace: WorkspaceId,
    share: &Share,
    by: &UserName,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    sql("INSERT INTO shares (workspace_id, port, audience, subject, created_by, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (workspace_id, port, audience, subject) DO UPDATE SET \
         created_by = excluded.created_by, created_at = excluded.created_at, expires_at = excluded.expires_at")
    .bind(workspace.0)
    .bind(share.port.get())
    .bind(share.audience.kind())
    .bind(share.audience.subject().unwrap_or_default())
    .bind(by.as_str())
    .bind(now.get())
    .bind(share.expires_at.map(UnixSeconds::get))
    .execute(connection)
    .await?;
    Ok(())
}

async fn delete(connection: &mut Transaction, workspace: WorkspaceId, share: &Share) -> Result<(), StoreError> {
    sql("DELETE FROM shares WHERE workspace_id = $1 AND port = $2 AND audience = $3 AND subject = $4")
        .bind(workspace.0)
        .bind(share.port.get())
        .bind(share.audience.kind())
        .bind(share.audience.subject().unwrap_or_default())
        .execute(connection)
        .await?;
    Ok(())
}

async fn workspace_id(connection: &mut Transaction, name: &WorkspaceName) -> Result<Option<WorkspaceId>, StoreError> {
    let statement = "SELECT id FROM workspaces WHERE name = $1";
    let row = sql(statement).bind(name.as_str()).fetch_optional(connection).await?;
    row.map(|row| Ok(WorkspaceId(row.get("id")?))).transpose()
}

pub(super) fn read_share(row: &Row) -> Result<Share, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "shares", column };
    let subject: &str = row.get("subject")?;
    let audience = match row.get("audience")? {
        "user" => Audience::User(subject.parse().map_err(|_| corrupt("subject"))?),
        "group" => Audience::Group(subject.parse().map_err(|_| corrupt("subject"))?),
        "signed-in" => Audience::SignedIn,
        "public" => Audience::Public,
        _ => return Err(corrupt("audience")),
    };
    let expires_at = row.get::<Option<i64>>("expires_at")?.map(UnixSeconds::new);
    Ok(Share { port: read_port(row)?, audience, expires_at })
}

fn read_port(row: &Row) -> Result<Port, StoreError> {
    let number: i64 = row.get("port")?;
    let port = u16::try_from(number).ok().and_then(Port::new);
    port.ok_or(StoreError::Corrupt { table: "shares", column: "port" })
}
