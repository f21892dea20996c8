//! Queries of managed workspaces, which the gateway itself starts and stops: one row of each table about them. Long
//! values (devfile, frozen objects) and secrets are read separately.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clusters::ConfigVersion;
use super::database::{Row, Statement, sql, sql_of};
use super::idle::read_idle;
use super::workspaces::read_workspace;
use super::{CiState, ClusterId, Executor, ListPage, Store, StoreError, Workspace, WorkspaceId, ci, json};
use gateway_types::start_progress::{self, StartProgress};
use gateway_types::{ClusterName, IdleRecord, Lifecycle, Share, UnixSeconds, UserName, WorkspaceName};

/// A workspace with a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedWorkspace {
    /// The part that every workspace has.
    pub workspace: Workspace,
    /// Its desired and actual state.
    pub lifecycle: Lifecycle,
    /// What is known of its use.
    pub idle: IdleRecord,
    /// Its state in its cluster or CI system.
    pub runs: Runs,
}

/// Place where a workspace runs, and its state there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    /// In a Kubernetes cluster.
    Kubernetes(KubernetesState),
    /// In jobs of a CI system.
    Ci(Box<CiState>),
}

impl ManagedWorkspace {
    /// Returns its state in its cluster, if it is in one.
    #[must_use]
    pub fn kubernetes(&self) -> Option<&KubernetesState> {
        match &self.runs {
            Runs::Kubernetes(state) => Some(state),
            Runs::Ci(_) => None,
        }
    }

    /// Returns its state in its CI system, if it is in one.
    #[must_use]
    pub fn ci(&self) -> Option<&CiState> {
        match &self.runs {
            Runs::Kubernetes(_) => None,
            Runs::Ci(state) => Some(state),
        }
    }

    /// Returns the web page of its job in its CI system, if that is an address that a browser can open.
    #[must_use]
    pub fn run_url(&self) -> Option<&str> {
        let url = self.ci()?.run.as_ref()?.web_url.as_deref()?;
        ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)).then_some(url)
    }

    /// Returns the cluster that it is in.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.kubernetes().map(|state| state.cluster)
    }

    /// Returns how far the start of its pod is, if that is known.
    #[must_use]
    pub fn start_progress(&self) -> Option<StartProgress> {
        self.kubernetes()?.start.as_deref().map(start_progress::from_json)
    }

    /// Returns the objects still to be removed, as JSON, for people.
    #[must_use]
    pub fn termination(&self) -> Option<&str> {
        self.kubernetes().and_then(|state| state.termination.as_deref())
    }
}

/// The template that a workspace was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedTemplate {
    /// Its name.
    pub name: String,
    /// The values of its parameters, by their names.
    pub parameters: BTreeMap<String, String>,
}

/// State that only a workspace in a Kubernetes cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesState {
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster's name.
    pub cluster_name: ClusterName,
    /// The version of the cluster's configuration that it was made with.
    pub config_version: ConfigVersion,
    /// The namespace of its objects.
    pub namespace: String,
    /// The template that it was made from, if there was one.
    pub template: Option<UsedTemplate>,
    /// The highest generation that the cluster's agent applied without error; 0 is none.
    pub applied_generation: u64,
    /// The resource version of its Deployment, as last reported.
    pub deployment_version: Option<String>,
    /// Objects still to be removed, as JSON, for people.
    pub termination: Option<String>,
    /// How far the start of its pod is, as JSON, for people; `None` if no pod of it is about to start.
    pub start: Option<String>,
    /// Time of the last report of the cluster's agent about it.
    pub reported_at: Option<UnixSeconds>,
}

/// Query of all columns but long and secret ones, to be completed with a condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT workspaces.id, workspaces.name, owner, executor, workspaces.created_at, display_name, desired, actual, generation, \
             desired_at, actual_at, reason, revision, cluster_id, clusters.name AS cluster, config_version, namespace, \
             template, template_parameters, \
             applied_generation, deployment_version, termination, start_progress, reported_at, provider, cache_key, project_url, \
             project_ref, tags, failures, retry_at, number, run_key, intent, pipeline, child_pipeline, web_url, token_id, \
             intended_at, asked_at, started_at, up_at, stop_at, cancel_at, ended_at, failure, wanted_seconds, \
             limit_seconds, active_at, activity, active_user, kept_until, stopped_generation, idle_revision FROM workspaces \
             JOIN lifecycles ON lifecycles.workspace_id = workspaces.id \
             LEFT JOIN kubernetes_workspaces ON kubernetes_workspaces.workspace_id = workspaces.id \
             LEFT JOIN idle ON idle.workspace_id = workspaces.id \
             LEFT JOIN clusters ON clusters.id = cluster_id \
             LEFT JOIN ci_workspaces ON ci_workspaces.workspace_id = workspaces.id \
             LEFT JOIN ci_runs ON ci_runs.workspace_id = workspaces.id AND number = \
             (SELECT max(last.number) FROM ci_runs AS last WHERE last.workspace_id = workspaces.id) ",
            $rest
        )
    };
}

impl Store {
    /// Returns the managed workspace of that name, with its shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn managed(&self, name: &WorkspaceName) -> Result<Option<ManagedWorkspace>, StoreError> {
        self.one_managed(sql(select!("WHERE workspaces.name = $1")).bind(name.as_str())).await
    }

    /// Returns the managed workspace of that id, with its shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn managed_by_id(&self, id: WorkspaceId) -> Result<Option<ManagedWorkspace>, StoreError> {
        self.one_managed(sql(select!("WHERE workspaces.id = $1")).bind(id.0)).await
    }

    /// Returns part of the managed workspaces of a user, including terminated ones, by name and without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn managed_of_owner(
        &self,
        owner: &UserName,
        part: ListPage<'_>,
    ) -> Result<Vec<ManagedWorkspace>, StoreError> {
        let statement = sql(select!("WHERE owner = $1 AND workspaces.name > $2 ORDER BY workspaces.name LIMIT $3"))
            .bind(owner.as_str())
            .bind(part.after.map_or("", WorkspaceName::as_str))
            .bind(part.limit);
        read_all(&statement.fetch_all(&self.readers).await?)
    }

    /// Returns those of some workspaces that are managed, in no order and without their shares.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn managed_of(&self, ids: &[WorkspaceId]) -> Result<Vec<ManagedWorkspace>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let statement = sql_of(
            select!("WHERE workspaces.id IN (SELECT value FROM json_each($1))"),
            select!("WHERE workspaces.id IN (SELECT jsonb_array_elements_text($1::jsonb)::bigint)"),
        );
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        read_all(&statement.bind(serde_json::Value::from(ids).to_string()).fetch_all(&self.readers).await?)
    }

    /// Returns the Kubernetes objects of a workspace, frozen at its creation: canonical JSON.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn frozen(&self, workspace: WorkspaceId) -> Result<Option<String>, StoreError> {
        let statement = sql("SELECT frozen FROM kubernetes_frozen WHERE workspace_id = $1").bind(workspace.0);
        let row = statement.fetch_optional(&self.readers).await?;
        row.map(|row| json::read(row.json("frozen")?, "kubernetes_frozen", "frozen")).transpose()
    }

    /// Returns the devfile of a workspace as its owner gave it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn devfile_of(&self, workspace: WorkspaceId) -> Result<Option<String>, StoreError> {
        let statement = sql("SELECT devfile FROM devfiles WHERE workspace_id = $1").bind(workspace.0);
        let row = statement.fetch_optional(&self.readers).await?;
        row.map(|row| Ok(row.get("devfile")?)).transpose()
    }

    async fn one_managed(&self, statement: Statement<'_>) -> Result<Option<ManagedWorkspace>, StoreError> {
        let Some(row) = statement.fetch_optional(&self.readers).await? else { return Ok(None) };
        let mut managed = read_managed(&row)?;
        let shares: Vec<Share> = self.shares_of(managed.workspace.id).await?;
        managed.workspace.shares = shares.into();
        managed.workspace.ports = self.named_ports(managed.workspace.id).await?.into();
        Ok(Some(managed))
    }
}

fn read_all(rows: &[Row]) -> Result<Vec<ManagedWorkspace>, StoreError> {
    rows.iter().map(read_managed).collect()
}

fn read_managed(row: &Row) -> Result<ManagedWorkspace, StoreError> {
    let workspace = read_workspace(row)?;
    let runs = match workspace.executor {
        Executor::Kubernetes => Runs::Kubernetes(read_kubernetes(row)?),
        Executor::Ci => Runs::Ci(Box::new(ci::read_state(row)?)),
        // External workspaces never have a lifecycle.
        Executor::External => return Err(StoreError::Corrupt { table: "workspaces", column: "executor" }),
    };
    Ok(ManagedWorkspace { workspace, lifecycle: read_lifecycle(row)?, idle: read_idle(row)?, runs })
}

fn read_kubernetes(row: &Row) -> Result<KubernetesState, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "kubernetes_workspaces", column };
    let cluster: Option<i64> = row.get("cluster_id")?;
    Ok(KubernetesState {
        cluster: cluster.map(ClusterId).ok_or_else(|| corrupt("workspace_id"))?,
        cluster_name: row.get::<&str>("cluster")?.parse().map_err(|_| corrupt("cluster_id"))?,
        config_version: ConfigVersion(row.get("config_version")?),
        namespace: row.get("namespace")?,
        template: read_template(row)?,
        applied_generation: u64::try_from(row.get::<i64>("applied_generation")?)
            .map_err(|_| corrupt("applied_generation"))?,
        deployment_version: row.get("deployment_version")?,
        termination: row.get("termination")?,
        start: row.get("start_progress")?,
        reported_at: row.get::<Option<i64>>("reported_at")?.map(UnixSeconds::new),
    })
}

fn read_template(row: &Row) -> Result<Option<UsedTemplate>, StoreError> {
    let Some(name) = row.get::<Option<String>>("template")? else { return Ok(None) };
    let parameters = row.get::<Option<&str>>("template_parameters")?.map(serde_json::from_str).transpose();
    let corrupt = |_| StoreError::Corrupt { table: "kubernetes_workspaces", column: "template_parameters" };
    Ok(Some(UsedTemplate { name, parameters: parameters.map_err(corrupt)?.unwrap_or_default() }))
}

fn read_lifecycle(row: &Row) -> Result<Lifecycle, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "lifecycles", column };
    Ok(Lifecycle {
        desired: row.get::<&str>("desired")?.parse().map_err(|_| corrupt("desired"))?,
        actual: row.get::<&str>("actual")?.parse().map_err(|_| corrupt("actual"))?,
        generation: u64::try_from(row.get::<i64>("generation")?).map_err(|_| corrupt("generation"))?,
        desired_at: UnixSeconds::new(row.get("desired_at")?),
        actual_at: UnixSeconds::new(row.get("actual_at")?),
        reason: row.get::<Option<&str>>("reason")?.map(Arc::from),
        revision: row.get("revision")?,
    })
}

#[cfg(test)]
mod tests;
