//! What workspaces in a cluster take together, and starts that have to stay within its quotas.

use super::clusters::{self, ConfigVersion};
use super::create::CreateError;
use super::database::{About, Row, StatementTarget, Transaction, sql};
use super::lifecycles::swap;
use super::{ClusterId, Store, StoreError, WorkspaceId, json};
use gateway_types::quota::{Excess, Needs, Quotas, Usage};
use gateway_types::{Lifecycle, UserName, WorkspaceName};

/// Most workspaces of an owner that a refusal names.
const NAMED_MAX: u32 = 16;

/// A refusal by a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverQuota {
    /// Every limit that the request would break; never empty.
    pub broken: Vec<Excess>,
    /// Workspaces of the same owner in the cluster, those that run first and of these the longest running; at most 16. To stop
    /// or terminate one of them may make room.
    pub owned: Vec<CountedWorkspace>,
}

/// A workspace as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedWorkspace {
    /// Its name.
    pub name: WorkspaceName,
    /// It is to run: its processors and memory count.
    pub is_running: bool,
    /// What it asks of its cluster.
    pub needs: Needs,
}

/// Usage of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterUsage {
    /// Of all workspaces.
    pub cluster: Usage,
    /// Of those of one user.
    pub user: Usage,
}

/// Quotas that a start has to stay within.
#[derive(Clone, Copy, Debug)]
pub struct StartWithin<'a> {
    /// The cluster.
    pub cluster: ClusterId,
    /// Version of its configuration that has the quotas: the newest.
    pub config_version: ConfigVersion,
    /// The workspace's owner.
    pub owner: &'a UserName,
    /// The quotas.
    pub quotas: Quotas,
}

impl Store {
    /// Returns what workspaces in a cluster take together, and those of a user.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn cluster_usage(&self, cluster: ClusterId, user: &UserName) -> Result<ClusterUsage, StoreError> {
        usage(&self.readers, cluster, user).await
    }

    /// Writes the lifecycle of a workspace that begins to run, if the stored one still has that revision and the quotas allow it.
    /// Returns whether the revision was the same. Of two that come at once, the second counts the first.
    ///
    /// # Errors
    /// [`CreateError::OverQuota`], or [`CreateError::ConfigChanged`] if the quotas are not the newest; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn start_within(
        &self,
        workspace: WorkspaceId,
        revision: i64,
        new: &Lifecycle,
        within: &StartWithin<'_>,
    ) -> Result<bool, CreateError> {
        let mut transaction = self.write(About::Cluster(within.cluster.0)).await?;
        let newest = clusters::newest(&mut transaction, within.cluster).await?;
        if newest.is_none_or(|(version, _)| version != within.config_version) {
            return Err(CreateError::ConfigChanged);
        }
        let row =
            sql("SELECT cpu_millis, memory_bytes, storage_bytes FROM kubernetes_workspaces WHERE workspace_id = $1")
                .bind(workspace.0)
                .fetch_optional(&mut transaction)
                .await?;
        let Some(row) = row else { return Ok(false) };
        let needs = Needs {
            cpu_millis: amount(row.get("cpu_millis")?),
            memory_bytes: amount(row.get("memory_bytes")?),
            storage_bytes: amount(row.get("storage_bytes")?),
        };
        check(&mut transaction, within.cluster, within.owner, &within.quotas, &needs.to_start()).await?;
        if !swap(&mut transaction, workspace, revision, new).await? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Returns up to `limit` workspaces of a cluster whose needs were not written yet, with their frozen objects as JSON.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn unmeasured(&self, cluster: ClusterId, limit: u32) -> Result<Vec<(WorkspaceId, String)>, StoreError> {
        let statement = sql("SELECT kubernetes_workspaces.workspace_id, frozen FROM kubernetes_workspaces \
             JOIN kubernetes_frozen ON kubernetes_frozen.workspace_id = kubernetes_workspaces.workspace_id \
             WHERE cluster_id = $1 AND cpu_millis IS NULL ORDER BY kubernetes_workspaces.workspace_id LIMIT $2");
        let rows = statement.bind(cluster.0).bind(limit).fetch_all(&self.readers).await?;
        let read = |row: &Row| {
            let frozen = json::read(row.json("frozen")?, "kubernetes_frozen", "frozen")?;
            Ok((WorkspaceId(row.get("workspace_id")?), frozen))
        };
        rows.iter().map(read).collect()
    }

    /// Returns name and namespace of every workspace of a cluster of which something may be there: all that are not terminated.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn recorded_in(&self, cluster: ClusterId) -> Result<Vec<(String, String)>, StoreError> {
        let statement = sql("SELECT name, namespace FROM kubernetes_workspaces \
             JOIN lifecycles ON lifecycles.workspace_id = kubernetes_workspaces.workspace_id \
             JOIN workspaces ON workspaces.id = kubernetes_workspaces.workspace_id \
             WHERE cluster_id = $1 AND NOT (desired = 'Terminated' AND actual = 'Terminated')");
        let rows = statement.bind(cluster.0).fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| Ok((row.get::<&str>("name")?.to_owned(), row.get::<&str>("namespace")?.to_owned())))
            .collect()
    }

    /// Writes the needs of a workspace that was made without.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn measure(&self, workspace: WorkspaceId, needs: &Needs) -> Result<(), StoreError> {
        sql("UPDATE kubernetes_workspaces SET cpu_millis = $1, memory_bytes = $2, storage_bytes = $3 \
             WHERE workspace_id = $4")
        .bind(stored(needs.cpu_millis))
        .bind(stored(needs.memory_bytes))
        .bind(stored(needs.storage_bytes))
        .bind(workspace.0)
        .execute(&self.writer)
        .await?;
        Ok(())
    }
}

/// Checks in a transaction that a request stays within quotas.
pub(super) async fn check(
    transaction: &mut Transaction,
    cluster: ClusterId,
    owner: &UserName,
    quotas: &Quotas,
    asked: &Usage,
) -> Result<(), CreateError> {
    if *quotas == Quotas::default() {
        return Ok(());
    }
    let used = usage(&mut *transaction, cluster, owner).await?;
    let broken = quotas.broken_by(asked, &used.cluster, &used.user);
    if broken.is_empty() {
        return Ok(());
    }
    let owned = owned(transaction, cluster, owner).await?;
    Err(CreateError::OverQuota(Box::new(OverQuota { broken, owned })))
}

/// Returns an amount as the databases keep it.
pub(super) fn stored(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn amount(stored: Option<i64>) -> u64 {
    stored.and_then(|stored| u64::try_from(stored).ok()).unwrap_or(0)
}

async fn usage<'c>(
    on: impl Into<StatementTarget<'c>>,
    cluster: ClusterId,
    owner: &UserName,
) -> Result<ClusterUsage, StoreError> {
    // Added up once for the owner and once for the others. In PostgreSQL, sums and constants have other types than the columns.
    let rows = sql("SELECT CAST(CASE WHEN owner = $2 THEN 1 ELSE 0 END AS BIGINT) AS is_theirs, count(*) AS workspaces, \
         count(CASE WHEN desired IN ('Running', 'RestartRequested') THEN 1 END) AS running, \
         CAST(sum(CASE WHEN desired IN ('Running', 'RestartRequested') THEN cpu_millis END) AS BIGINT) AS cpu_millis, \
         CAST(sum(CASE WHEN desired IN ('Running', 'RestartRequested') THEN memory_bytes END) AS BIGINT) AS memory_bytes, \
         CAST(sum(storage_bytes) AS BIGINT) AS storage_bytes FROM kubernetes_workspaces \
         JOIN lifecycles ON lifecycles.workspace_id = kubernetes_workspaces.workspace_id \
         JOIN workspaces ON workspaces.id = kubernetes_workspaces.workspace_id \
         WHERE cluster_id = $1 AND desired <> 'Terminated' GROUP BY 1")
    .bind(cluster.0)
    .bind(owner.as_str())
    .fetch_all(on)
    .await?;
    let mut usage = ClusterUsage::default();
    for row in &rows {
        let read = Usage {
            workspaces: amount(row.get("workspaces")?),
            running: amount(row.get("running")?),
            cpu_millis: amount(row.get("cpu_millis")?),
            memory_bytes: amount(row.get("memory_bytes")?),
            storage_bytes: amount(row.get("storage_bytes")?),
        };
        let Usage { workspaces, running, cpu_millis, memory_bytes, storage_bytes } = usage.cluster;
        usage.cluster = Usage {
            workspaces: workspaces.saturating_add(read.workspaces),
            running: running.saturating_add(read.running),
            cpu_millis: cpu_millis.saturating_add(read.cpu_millis),
            memory_bytes: memory_bytes.saturating_add(read.memory_bytes),
            storage_bytes: storage_bytes.saturating_add(read.storage_bytes),
        };
        if row.get::<i64>("is_theirs")? == 1 {
            usage.user = read;
        }
    }
    Ok(usage)
}

async fn owned(
    transaction: &mut Transaction,
    cluster: ClusterId,
    owner: &UserName,
) -> Result<Vec<CountedWorkspace>, StoreError> {
    let rows =
        sql("SELECT name, CAST(CASE WHEN desired = 'Stopped' THEN 0 ELSE 1 END AS BIGINT) AS is_running, cpu_millis, memory_bytes, \
         storage_bytes FROM kubernetes_workspaces \
         JOIN lifecycles ON lifecycles.workspace_id = kubernetes_workspaces.workspace_id \
         JOIN workspaces ON workspaces.id = kubernetes_workspaces.workspace_id \
         WHERE cluster_id = $1 AND owner = $2 AND desired <> 'Terminated' \
         ORDER BY CASE WHEN desired = 'Stopped' THEN 1 ELSE 0 END, desired_at, name LIMIT $3")
        .bind(cluster.0)
        .bind(owner.as_str())
        .bind(NAMED_MAX)
        .fetch_all(transaction)
        .await?;
    let read = |row: &Row| {
        let name = row.get::<&str>("name")?.parse();
        Ok(CountedWorkspace {
            name: name.map_err(|_| StoreError::Corrupt { table: "workspaces", column: "name" })?,
            is_running: row.get::<i64>("is_running")? == 1,
            needs: Needs {
                cpu_millis: amount(row.get("cpu_millis")?),
                memory_bytes: amount(row.get("memory_bytes")?),
                storage_bytes: amount(row.get("storage_bytes")?),
            },
        })
    };
    rows.iter().map(read).collect()
}
