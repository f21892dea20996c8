//! Lists over all users, for operators: workspaces, users, and the places of agents. All texts of a caller are values of
//! parameters, and compared as they are: none is a pattern.

use std::collections::HashMap;
use std::sync::Arc;

use super::database::{Row, sql, sql_of};
use super::replicas::{clock, clocked};
use super::users::read_groups;
use super::workspaces::read_workspace;
use super::{ClusterId, Incarnation, ListPage, Store, StoreError, Workspace, WorkspaceId};
use gateway_types::{ActualState, GroupName, UnixSeconds, UserName, WorkspaceName};

/// Workspaces that an operator looks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkspaceFilter<'a> {
    /// Part of the name, or of the owner's name, in lower case; empty for any. Without a NUL.
    pub part: &'a str,
    /// Their actual state.
    pub state: Option<ActualState>,
    /// Their owner.
    pub owner: Option<&'a UserName>,
}

/// Users that an operator looks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserFilter<'a> {
    /// Part of the name, in lower case; empty for any. Without a NUL.
    pub part: &'a str,
    /// Whether they are disabled; `None` for both.
    pub is_disabled: Option<bool>,
    /// The last name of the part of the list before.
    pub after: Option<&'a UserName>,
    /// Maximum length of the list.
    pub limit: u32,
}

/// A user as operators see them: one who signed in, owns a workspace, has a token, or was disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUser {
    /// The user name.
    pub name: UserName,
    /// Groups at the last sign-in.
    pub groups: Arc<[GroupName]>,
    /// Time of the last sign-in with a provider.
    pub last_seen: Option<UnixSeconds>,
    /// Time since which the user is disabled.
    pub disabled_at: Option<UnixSeconds>,
    /// Number of their workspaces.
    pub workspaces: u64,
}

/// Number of workspaces in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCount {
    /// The state; `None` for workspaces that no executor runs.
    pub state: Option<ActualState>,
    /// Their number.
    pub workspaces: u64,
}

/// Replica that has the session of a workspace's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlace {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// Its owner.
    pub owner: UserName,
    /// The replica.
    pub replica: Incarnation,
}

/// Query of workspaces; the argument is the function that finds a text in another.
macro_rules! listed_workspaces {
    ($find:literal) => {
        concat!(
            "SELECT id, name, owner, executor, created_at, display_name FROM workspaces \
             LEFT JOIN lifecycles ON lifecycles.workspace_id = workspaces.id WHERE name > $1 AND (",
            $find,
            "(name, $2) > 0 OR ",
            $find,
            "(lower(owner), $2) > 0) AND ($3 = '' OR actual = $3) AND ($4 = '' OR owner = $4) ORDER BY name LIMIT $5"
        )
    };
}

/// Query of users; the argument is the function that finds a text in another.
macro_rules! listed_users {
    ($find:literal) => {
        concat!(
            "SELECT known.name AS name, groups, last_seen, disabled_at, \
             (SELECT count(*) FROM workspaces WHERE owner = known.name) AS workspaces FROM ( \
             SELECT name FROM users UNION SELECT owner FROM workspaces \
             UNION SELECT user_name FROM tokens WHERE user_name IS NOT NULL) AS known \
             LEFT JOIN users ON users.name = known.name WHERE known.name > $1 AND ",
            $find,
            "(lower(known.name), $2) > 0 AND ($3 = '' OR ($3 = 'disabled') = (disabled_at IS NOT NULL)) \
             ORDER BY known.name LIMIT $4"
        )
    };
}

/// Query of places; the arguments are the database and its function that finds a text in another.
macro_rules! places {
    ($kind:ident, $find:literal) => {
        concat!(
            "SELECT name, workspaces.owner AS owner, sessions.owner AS replica FROM sessions \
             JOIN replicas ON replicas.id = sessions.owner JOIN workspaces ON workspaces.id = subject \
             WHERE kind = 1 AND name > $1 AND (",
            $find,
            "(name, $2) > 0 OR ",
            $find,
            "(lower(workspaces.owner), $2) > 0) AND expires_at > ",
            clock!($kind),
            " ORDER BY name LIMIT $3"
        )
    };
}

impl Store {
    /// Asks the database whether it is there.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Away`].
    pub async fn ping(&self) -> Result<(), StoreError> {
        sql("SELECT 1 AS one").fetch_one(&self.readers).await?;
        Ok(())
    }

    /// Counts workspaces by their actual state; those that no executor runs have none.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn workspaces_by_state(&self) -> Result<Vec<StateCount>, StoreError> {
        let statement = sql("SELECT actual, count(*) AS found FROM workspaces \
             LEFT JOIN lifecycles ON lifecycles.workspace_id = workspaces.id GROUP BY actual");
        let rows = statement.fetch_all(&self.readers).await?;
        let read = |row: &Row| {
            let corrupt = |_| StoreError::Corrupt { table: "lifecycles", column: "actual" };
            let state = row.get::<Option<&str>>("actual")?.map(str::parse).transpose().map_err(corrupt)?;
            Ok(StateCount { state, workspaces: u64::try_from(row.get::<i64>("found")?).unwrap_or_default() })
        };
        rows.iter().map(read).collect()
    }

    /// Returns part of all workspaces that fit, by name, without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn listed_workspaces(
        &self,
        filter: WorkspaceFilter<'_>,
        part: ListPage<'_>,
    ) -> Result<Vec<Workspace>, StoreError> {
        let query = sql_of(listed_workspaces!("instr"), listed_workspaces!("strpos"))
            .bind(part.after.map_or("", WorkspaceName::as_str))
            .bind(filter.part)
            .bind(filter.state.map_or("", ActualState::as_str))
            .bind(filter.owner.map_or("", UserName::as_str))
            .bind(part.limit);
        query.fetch_all(&self.readers).await?.iter().map(read_workspace).collect()
    }

    /// Returns part of all users that fit, by name.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn listed_users(&self, filter: UserFilter<'_>) -> Result<Vec<ListedUser>, StoreError> {
        let state = match filter.is_disabled {
            None => "",
            Some(true) => "disabled",
            Some(false) => "enabled",
        };
        let query = sql_of(listed_users!("instr"), listed_users!("strpos"))
            .bind(filter.after.map_or("", UserName::as_str))
            .bind(filter.part)
            .bind(state)
            .bind(filter.limit);
        query.fetch_all(&self.readers).await?.iter().map(read_listed).collect()
    }

    /// Returns part of the places of workspaces' agents, by the workspace's name. A gateway alone has none.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn agent_places(&self, name_part: &str, part: ListPage<'_>) -> Result<Vec<AgentPlace>, StoreError> {
        let query = sql_of(places!(sqlite, "instr"), places!(postgres, "strpos"))
            .bind(part.after.map_or("", WorkspaceName::as_str))
            .bind(name_part)
            .bind(part.limit);
        query.fetch_all(&self.readers).await?.iter().map(read_place).collect()
    }

    /// Returns the replica of each cluster whose agent has a session.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn cluster_places(&self) -> Result<HashMap<ClusterId, Incarnation>, StoreError> {
        let statement = clocked!(
            "SELECT subject, owner FROM sessions JOIN replicas ON replicas.id = sessions.owner \
             WHERE kind = 2 AND expires_at > ",
            ""
        );
        let rows = statement.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((ClusterId(row.get("subject")?), Incarnation(row.get("owner")?)))).collect()
    }

    /// Returns the ids of a user's workspaces that an executor runs, and that are desired to run.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn running_of(&self, owner: &UserName) -> Result<Vec<WorkspaceId>, StoreError> {
        let statement = sql("SELECT id FROM workspaces JOIN lifecycles ON lifecycles.workspace_id = workspaces.id \
             WHERE owner = $1 AND desired IN ('Running', 'RestartRequested') ORDER BY name");
        let rows = statement.bind(owner.as_str()).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.get("id")?))).collect()
    }
}

fn read_listed(row: &Row) -> Result<ListedUser, StoreError> {
    let time = |column| row.get::<Option<i64>>(column).map(|time| time.map(UnixSeconds::new));
    let has_row = row.get::<Option<&str>>("groups")?.is_some();
    Ok(ListedUser {
        name: row.get::<&str>("name")?.parse().map_err(|_| StoreError::Corrupt { table: "users", column: "name" })?,
        groups: if has_row { read_groups(row)? } else { Arc::default() },
        last_seen: time("last_seen")?,
        disabled_at: time("disabled_at")?,
        workspaces: u64::try_from(row.get::<i64>("workspaces")?).unwrap_or_default(),
    })
}

fn read_place(row: &Row) -> Result<AgentPlace, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "workspaces", column };
    Ok(AgentPlace {
        workspace: row.get::<&str>("name")?.parse().map_err(|_| corrupt("name"))?,
        owner: row.get::<&str>("owner")?.parse().map_err(|_| corrupt("owner"))?,
        replica: Incarnation(row.get("replica")?),
    })
}

#[cfg(test)]
mod tests;
