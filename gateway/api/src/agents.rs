//! Lists the clusters that can run workspaces, for users who want to make one, or who wonder why nothing happens. All
//! users who are signed in may see their names, whether they take workspaces, whether their agent is connected, and
//! that their newest configuration or a template of environments was refused; the contents are told by
//! `gateway config check` and the log.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{failures, parameters, values};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiParts, ApiShared, Caller, answer};
use gateway_store::{Cluster, ClusterId};
use gateway_workspaces::cluster_configs::StoredConfig;

#[derive(Serialize, ToSchema)]
#[schema(as = Agents)]
pub(super) struct AgentList {
    agents: Vec<AgentItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ClusterAgent)]
pub(crate) struct AgentItem {
    pub(crate) name: String,
    /// Kind of its subject.
    #[schema(schema_with = values::agent_kind)]
    pub(crate) kind: &'static str,
    /// New workspaces can be made there.
    pub(crate) enabled: bool,
    /// Its agent has a session.
    pub(crate) connected: bool,
    /// Of the agent.
    #[schema(required)]
    pub(crate) version: Option<String>,
    #[schema(schema_with = values::seconds_or_null, required)]
    pub(crate) connected_seconds: Option<u64>,
    /// The file that configures it is wrong, and an older one is in force. The gateway's log and `gateway config check`
    /// say why.
    pub(crate) configuration_refused: bool,
    /// Kind of the reason.
    #[schema(schema_with = values::configuration_refusal, required)]
    pub(crate) configuration_refusal: Option<&'static str>,
    /// A file of its environment templates is wrong, and what was good before is in force, or nothing.
    /// `/agents/{name}/environment-templates` says which and why.
    pub(crate) environment_templates_refused: bool,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
}

#[utoipa::path(
    get,
    path = "/agents",
    operation_id = "listAgents",
    summary = "The clusters that can run workspaces",
    description = "Every signed-in user may see their names, whether they take new workspaces, and whether \
        their agent is connected.",
    responses(
        (status = 200, description = "All of them, by name.", body = AgentList),
        failures::SignedIn,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    caller.user()?;
    let (elsewhere, mut agents) = (elsewhere(&api).await?, Vec::new());
    for cluster in api.store.clusters().await? {
        agents.push(row(&api, cluster, &elsewhere).await?);
    }
    Ok(answer::json(StatusCode::OK, &AgentList { agents }))
}

#[utoipa::path(
    get,
    path = "/agents/{name}",
    operation_id = "getAgent",
    summary = "One cluster's agent",
    params(parameters::AgentPath),
    responses(
        (status = 200, description = "The agent.", body = AgentItem),
        (status = 401, description = "No user is signed in (`sign_in_required`)"),
        (status = 404, description = "No such agent (`not_found`)"),
        (status = 503, description = "`overloaded` with the limit, `store_unavailable`, or of the agent: \
            `agent_absent`, `agent_too_old`, `agent_displaced`"),
    ),
)]
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    caller.user()?;
    let name = name.ok().map(|Path(name)| name);
    let known = api.store.clusters().await?;
    let found = known.into_iter().find(|cluster| Some(cluster.name.as_str()) == name.as_deref());
    let cluster = found.ok_or(ApiProblem::NotFound)?;
    let elsewhere = elsewhere(&api).await?;
    Ok(answer::json(StatusCode::OK, &row(&api, cluster, &elsewhere).await?))
}

/// Returns the clusters whose agents other replicas have.
async fn elsewhere(api: &ApiParts) -> Result<HashSet<ClusterId>, ProblemRow> {
    Ok(if api.peers.is_some() { api.store.connected_clusters().await? } else { HashSet::new() })
}

pub(super) async fn row(
    api: &ApiParts,
    cluster: Cluster,
    elsewhere: &HashSet<ClusterId>,
) -> Result<AgentItem, ProblemRow> {
    let stored = StoredConfig::read(&api.store, cluster.id, None).await?;
    let enabled = stored.is_some_and(|stored| stored.config.is_ok_and(|config| config.enabled));
    let session = api.registry.cluster(&cluster.name);
    let refusal = api.cluster_configs.refusal(&cluster.name);
    Ok(AgentItem {
        name: cluster.name.to_string(),
        kind: "cluster",
        enabled,
        connected: session.is_some() || elsewhere.contains(&cluster.id),
        version: session.as_ref().map(|session| session.agent_version.clone()),
        connected_seconds: session.as_ref().map(|session| session.since.elapsed().as_secs()),
        configuration_refused: refusal.is_some(),
        configuration_refusal: refusal.map(|refusal| refusal.code.as_str()),
        environment_templates_refused: api.environments.service.has_refused_templates(&cluster.name),
        created_at: cluster.created_at.to_string(),
    })
}
