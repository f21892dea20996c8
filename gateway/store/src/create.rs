//! Creates a managed workspace with all its rows in one transaction, and makes room for its name.

use thiserror::Error;

use super::clusters::{self, ConfigVersion};
use super::database::{About, Transaction, sql};
use super::former::NameHold;
use super::lifecycles::number;
use super::quotas::{OverQuota, check, stored};
use super::tokens::{Holder, insert};
use super::variables::{Variable, VariableKind};
use super::{
    ClusterId, Executor, KubernetesState, ManagedWorkspace, Runs, Store, StoreError, Terms, UsedTemplate, Workspace,
    WorkspaceId, json, named_ports,
};
use gateway_types::quota::{Needs, Quotas, Usage};
use gateway_types::token::Token;
use gateway_types::{ClusterName, IdleRecord, Lifecycle, NamedPort, UnixSeconds, UserName, WorkspaceName};

/// The name of the file variable that holds the token of the workspace's own agent.
pub const AGENT_TOKEN_FILE: &str = "agent-token";

/// A workspace that is to be made in a cluster.
#[derive(Clone, Copy, Debug)]
pub struct NewManaged<'a> {
    /// Its name.
    pub name: &'a WorkspaceName,
    /// Its owner.
    pub owner: &'a UserName,
    /// The cluster that it runs in.
    pub cluster: ClusterId,
    /// The version of the cluster's configuration that it keeps: the newest.
    pub config_version: ConfigVersion,
    /// The namespace of its objects.
    pub namespace: &'a str,
    /// The template that its devfile was made from, if there was one.
    pub template: Option<&'a UsedTemplate>,
    /// The devfile, as it was given.
    pub devfile: &'a str,
    /// Its Kubernetes objects: canonical JSON.
    pub frozen: &'a str,
    /// Its owner's variables.
    pub variables: &'a [Variable],
    /// The ports that the devfile or the request for it names, each once.
    pub ports: &'a [NamedPort],
    /// The token of its agent: its hash is kept as every token's, and its text sealed, as the file variable
    /// [`AGENT_TOKEN_FILE`].
    pub agent_token: &'a Token,
    /// What its objects ask of the cluster.
    pub needs: Needs,
    /// Limits of what workspaces take together, this one included.
    pub quotas: Quotas,
}

/// Reason why a workspace was not created.
#[derive(Debug, Error)]
pub enum CreateError {
    /// Another workspace has the name.
    #[error("there is a workspace of that name")]
    NameTaken,
    /// The cluster has a newer configuration, which may put workspaces elsewhere.
    #[error("the cluster has a newer configuration than the workspace was made from")]
    ConfigChanged,
    /// Quotas of the cluster or CI system, or of the owner there, do not allow it.
    #[error("a quota does not allow one more workspace")]
    OverQuota(Box<OverQuota>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for CreateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Makes a workspace in a cluster. A terminated one of the same name and owner is deleted to make room.
    ///
    /// # Errors
    /// [`CreateError`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn create_managed(
        &self,
        new: &NewManaged<'_>,
        now: UnixSeconds,
    ) -> Result<ManagedWorkspace, CreateError> {
        let frozen = json::given(new.frozen, "kubernetes_frozen", "frozen")?;
        let mut transaction = self.write(About::Cluster(new.cluster.0)).await?;
        let newest = clusters::newest(&mut transaction, new.cluster).await?;
        if newest.is_none_or(|(version, _)| version != new.config_version) {
            return Err(CreateError::ConfigChanged);
        }
        make_room(&mut transaction, new.name, new.owner, now, self.name_hold).await?;
        check(&mut transaction, new.cluster, new.owner, &new.quotas, &new.needs.to_create()).await?;
        let mut workspace =
            insert_workspace(&mut transaction, new.name, self.name_hold, new.owner, Executor::Kubernetes, now).await?;
        let (id, lifecycle) = (workspace.id, Lifecycle::new(now));
        insert_lifecycle(&mut transaction, id, &lifecycle, new.devfile).await?;
        insert_states(&mut transaction, id, new).await?;
        insert_frozen(&mut transaction, id, &frozen).await?;
        named_ports::insert(&mut transaction, id, new.ports).await?;
        workspace.ports = new.ports.into();
        insert(&mut transaction, new.agent_token, Holder::Agent(id), &Terms::default(), now).await?;
        for variable in new.variables {
            self.insert_variable(&mut transaction, id, variable.kind, &variable.name, variable.value.reveal()).await?;
        }
        let token = new.agent_token.reveal();
        self.insert_variable(&mut transaction, id, VariableKind::File, AGENT_TOKEN_FILE, token).await?;
        let cluster_name = cluster_name(&mut transaction, new.cluster).await?;
        transaction.commit().await?;
        Ok(made(workspace, new, lifecycle, cluster_name))
    }
}

fn made(
    workspace: Workspace,
    new: &NewManaged<'_>,
    lifecycle: Lifecycle,
    cluster_name: ClusterName,
) -> ManagedWorkspace {
    ManagedWorkspace {
        workspace,
        lifecycle,
        idle: IdleRecord::default(),
        runs: Runs::Kubernetes(KubernetesState {
            cluster: new.cluster,
            cluster_name,
            config_version: new.config_version,
            namespace: new.namespace.to_owned(),
            template: new.template.cloned(),
            applied_generation: 0,
            deployment_version: None,
            termination: None,
            start: None,
            reported_at: None,
        }),
    }
}

/// Inserts the row that every workspace has. A name held back for another owner is reported as taken.
pub(super) async fn insert_workspace(
    transaction: &mut Transaction,
    name: &WorkspaceName,
    hold: NameHold,
    owner: &UserName,
    executor: Executor,
    now: UnixSeconds,
) -> Result<Workspace, CreateError> {
    let row = sql("INSERT INTO workspaces (name, owner, executor, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (name) DO NOTHING RETURNING id")
    .bind(name.as_str())
    .bind(owner.as_str())
    .bind(executor.as_str())
    .bind(now.get())
    .fetch_optional(&mut *transaction)
    .await?;
    let id = WorkspaceId(row.ok_or(CreateError::NameTaken)?.get("id")?);
    if hold.held_until(transaction, name, owner, now).await?.is_some() {
        return Err(CreateError::NameTaken);
    }
    let (name, owner) = (name.clone(), owner.clone());
    let (shares, ports) = ([].into(), [].into());
    Ok(Workspace { id, name, owner, executor, created_at: now, display_name: None, shares, ports })
}

/// Deletes the workspace of that name if it is the owner's and terminated.
pub(super) async fn make_room(
    transaction: &mut Transaction,
    name: &WorkspaceName,
    owner: &UserName,
    now: UnixSeconds,
    hold: NameHold,
) -> Result<(), CreateError> {
    let statement = sql("SELECT id FROM workspaces JOIN lifecycles ON workspace_id = id \
         WHERE name = $1 AND owner = $2 AND desired = 'Terminated' AND actual = 'Terminated'");
    let statement = statement.bind(name.as_str()).bind(owner.as_str());
    if let Some(row) = statement.fetch_optional(&mut *transaction).await? {
        delete_workspace(transaction, WorkspaceId(row.get("id")?), now, hold).await?;
    }
    Ok(())
}

/// Admits one more workspace beside `all` existing ones, `theirs` of them the owner's, where nothing but the number counts.
pub(super) fn admit(quotas: &Quotas, all: i64, theirs: i64) -> Result<(), CreateError> {
    let count = |count: i64| Usage { workspaces: u64::try_from(count).unwrap_or(0), ..Usage::default() };
    let broken = quotas.broken_by(&count(1), &count(all), &count(theirs));
    match broken.is_empty() {
        true => Ok(()),
        false => Err(CreateError::OverQuota(Box::new(OverQuota { broken, owned: Vec::new() }))),
    }
}

/// Inserts the rows that all managed workspaces have.
pub(super) async fn insert_lifecycle(
    transaction: &mut Transaction,
    id: WorkspaceId,
    lifecycle: &Lifecycle,
    devfile: &str,
) -> Result<(), StoreError> {
    sql("INSERT INTO lifecycles (workspace_id, desired, actual, generation, desired_at, actual_at, revision) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)")
    .bind(id.0)
    .bind(lifecycle.desired.as_str())
    .bind(lifecycle.actual.as_str())
    .bind(number(lifecycle.generation))
    .bind(lifecycle.desired_at.get())
    .bind(lifecycle.actual_at.get())
    .bind(lifecycle.revision)
    .execute(&mut *transaction)
    .await?;
    let statement = sql("INSERT INTO devfiles (workspace_id, devfile) VALUES ($1, $2)").bind(id.0).bind(devfile);
    statement.execute(transaction).await?;
    Ok(())
}

async fn insert_states(transaction: &mut Transaction, id: WorkspaceId, new: &NewManaged<'_>) -> Result<(), StoreError> {
    let parameters = new.template.map(|template| serde_json::json!(template.parameters).to_string());
    sql("INSERT INTO kubernetes_workspaces \
         (workspace_id, cluster_id, config_version, namespace, cpu_millis, memory_bytes, storage_bytes, template, \
         template_parameters) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(id.0)
    .bind(new.cluster.0)
    .bind(new.config_version.0)
    .bind(new.namespace)
    .bind(stored(new.needs.cpu_millis))
    .bind(stored(new.needs.memory_bytes))
    .bind(stored(new.needs.storage_bytes))
    .bind(new.template.map(|template| template.name.as_str()))
    .bind(parameters.as_deref())
    .execute(transaction)
    .await?;
    Ok(())
}

async fn insert_frozen(transaction: &mut Transaction, id: WorkspaceId, frozen: &str) -> Result<(), StoreError> {
    let row = sql("INSERT INTO kubernetes_frozen (workspace_id, frozen) VALUES ($1, $2) RETURNING frozen")
        .bind(id.0)
        .bind(json::value(frozen))
        .fetch_one(transaction)
        .await?;
    // The objects sent for years have to be exactly the frozen ones: PostgreSQL keeps the value and not the text.
    if json::read(row.json("frozen")?, "kubernetes_frozen", "frozen")? != frozen {
        return Err(StoreError::Altered { table: "kubernetes_frozen", column: "frozen" });
    }
    Ok(())
}

async fn cluster_name(transaction: &mut Transaction, cluster: ClusterId) -> Result<ClusterName, StoreError> {
    let row = sql("SELECT name FROM clusters WHERE id = $1").bind(cluster.0).fetch_one(transaction).await?;
    row.get::<&str>("name")?.parse().map_err(|_| StoreError::Corrupt { table: "clusters", column: "name" })
}

/// Deletes a workspace with all its rows, and holds its name back for its owner. Returns whether there was one.
pub(super) async fn delete_workspace(
    transaction: &mut Transaction,
    id: WorkspaceId,
    now: UnixSeconds,
    hold: NameHold,
) -> Result<bool, StoreError> {
    hold.leave(transaction, id, now).await?;
    for statement in [
        "DELETE FROM variables WHERE workspace_id = $1",
        "DELETE FROM kubernetes_frozen WHERE workspace_id = $1",
        "DELETE FROM kubernetes_workspaces WHERE workspace_id = $1",
        "DELETE FROM ci_runs WHERE workspace_id = $1",
        "DELETE FROM ci_workspaces WHERE workspace_id = $1",
        "DELETE FROM idle WHERE workspace_id = $1",
        "DELETE FROM devfiles WHERE workspace_id = $1",
        "DELETE FROM lifecycles WHERE workspace_id = $1",
        "DELETE FROM agent_token_uses WHERE workspace_id = $1",
        "DELETE FROM shares WHERE workspace_id = $1",
        "DELETE FROM named_ports WHERE workspace_id = $1",
        "DELETE FROM tokens WHERE workspace_id = $1",
        "DELETE FROM pins WHERE workspace_id = $1",
    ] {
        sql(statement).bind(id.0).execute(&mut *transaction).await?;
    }
    let done = sql("DELETE FROM workspaces WHERE id = $1").bind(id.0).execute(transaction).await?;
    Ok(done > 0)
}
