//! Agents of workspaces and of clusters, with the replica that has each.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::query::Filters;
use crate::agents::{self, AgentItem};
use crate::list::PageRequest;
use crate::openapi::{failures, parameters, values};
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_agents::registry::LiveSession;
use gateway_auth::policy::OperatorGrant;
use gateway_store::{AgentPlace, ListPage};
use gateway_types::WorkspaceName;

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "aa";

/// Agents that are asked for.
#[derive(Debug)]
pub struct AgentQuery {
    part: String,
    page: PageRequest<WorkspaceName>,
}

impl AgentQuery {
    /// Reads `q`, `limit` and `cursor`.
    ///
    /// # Errors
    /// `invalid` with all mistakes of the query.
    pub fn read(uri: &Uri) -> Result<Self, ProblemRow> {
        let (page, narrowed) = PageRequest::read_filtered(uri, CURSOR, &["q"])?;
        let mut filters = Filters::new(narrowed);
        let read = Self { part: filters.part("q"), page };
        filters.finish()?;
        Ok(read)
    }
}

/// A page of the agents of workspaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminAgents)]
pub struct AdminAgentPage {
    /// By the name of the workspace.
    pub agents: Vec<AdminAgentRow>,
    /// Version of this gateway, to compare with.
    pub gateway_version: &'static str,
    /// For the next page; `null` on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The agent of a workspace that has a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AdminAgent)]
pub struct AdminAgentRow {
    pub(crate) workspace: String,
    #[schema(required)]
    pub(crate) owner: Option<String>,
    /// Version of the agent; null at another replica.
    #[schema(required)]
    pub(crate) version: Option<String>,
    /// Time since its session came up; null at another replica.
    #[schema(schema_with = values::seconds_or_null, required)]
    pub(crate) connected_seconds: Option<u64>,
    /// Its link has broken, and its session waits for it; null at another replica.
    #[schema(required)]
    pub(crate) is_waiting: Option<bool>,
    /// Address that it dialed from; null at another replica.
    #[schema(required)]
    pub(crate) address: Option<String>,
    /// The replica that has its session; null for one gateway alone.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
}

/// The agents of all clusters.
#[derive(Serialize, ToSchema)]
#[schema(as = AdminClusters)]
pub struct AdminClusterList {
    /// By name.
    pub clusters: Vec<AdminClusterRow>,
    /// Version of this gateway, to compare with.
    pub(crate) gateway_version: &'static str,
}

/// A cluster, with its agent.
#[derive(Serialize, ToSchema)]
#[schema(as = AdminCluster)]
pub struct AdminClusterRow {
    #[serde(flatten)]
    pub(crate) agent: AgentItem,
    /// The replica that has its agent's session; null without one, and for one gateway alone.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
}

/// Returns a page of the workspaces' agents that have a session, by workspace.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub async fn list(api: &ApiParts, _grant: &OperatorGrant, query: &AgentQuery) -> Result<AdminAgentPage, ProblemRow> {
    let after = query.page.after.as_ref();
    let part = ListPage { after, limit: query.page.look_up() };
    let places = match api.peers.is_some() {
        true => api.store.agent_places(&query.part, part).await?,
        false => Vec::new(),
    };
    let mut rows: BTreeMap<WorkspaceName, AdminAgentRow> =
        places.into_iter().map(|place| (place.workspace.clone(), elsewhere(&place))).collect();
    let own = api.peers.as_ref().map(|peers| peers.incarnation());
    for session in api.registry.all() {
        let Some(name) = session.subject.workspace() else { continue };
        let has_part = |text: &str| text.to_lowercase().contains(&query.part);
        let is_meant = has_part(name.as_str()) || session.owner.as_ref().is_some_and(|owner| has_part(owner.as_str()));
        if is_meant && after.is_none_or(|after| name > after) {
            rows.insert(name.clone(), here(name, &session, own));
        }
    }
    let most = usize::try_from(query.page.look_up()).unwrap_or(usize::MAX);
    let found = rows.into_values().take(most).collect();
    let (agents, next_cursor) =
        query.page.cut(found, CURSOR, |row: &AdminAgentRow| row.workspace.clone(), Clone::clone);
    Ok(AdminAgentPage { agents, gateway_version: env!("CARGO_PKG_VERSION"), next_cursor })
}

fn elsewhere(place: &AgentPlace) -> AdminAgentRow {
    AdminAgentRow {
        workspace: place.workspace.to_string(),
        owner: Some(place.owner.to_string()),
        version: None,
        connected_seconds: None,
        is_waiting: None,
        address: None,
        replica: Some(place.replica.get()),
    }
}

fn here(name: &WorkspaceName, session: &LiveSession, own: Option<u64>) -> AdminAgentRow {
    AdminAgentRow {
        workspace: name.to_string(),
        owner: session.owner.as_ref().map(ToString::to_string),
        version: Some(session.agent_version.clone()),
        connected_seconds: Some(session.since.elapsed().as_secs()),
        is_waiting: Some(session.tunnel.is_detached()),
        address: Some(session.peer().ip().to_canonical().to_string()),
        replica: own,
    }
}

/// Returns all clusters, with their agents.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub async fn clusters(api: &ApiParts, _grant: &OperatorGrant) -> Result<AdminClusterList, ProblemRow> {
    let own = api.peers.as_ref().map(|peers| peers.incarnation());
    let (elsewhere, places) = match own {
        Some(_) => (api.store.connected_clusters().await?, api.store.cluster_places().await?),
        None => Default::default(),
    };
    let mut clusters = Vec::new();
    for cluster in api.store.clusters().await? {
        let here = api.registry.cluster(&cluster.name).and(own);
        let replica = here.or_else(|| places.get(&cluster.id).map(|replica| replica.get()));
        clusters.push(AdminClusterRow { agent: agents::row(api, cluster, &elsewhere).await?, replica });
    }
    Ok(AdminClusterList { clusters, gateway_version: env!("CARGO_PKG_VERSION") })
}

#[utoipa::path(
    get,
    path = "/admin/agents",
    operation_id = "listWorkspaceAgents",
    summary = "The agents of all workspaces that have a session; for operators",
    params(parameters::PageQuery, parameters::PartFilter),
    responses(
        (status = 200, description = "A page, by workspace.", body = AdminAgentPage),
        failures::SignedIn,
        failures::Operators,
        failures::Mistaken,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let query = AgentQuery::read(&uri)?;
    Ok(answer::json(StatusCode::OK, &list(&api, &grant, &query).await?))
}

#[utoipa::path(
    get,
    path = "/admin/clusters",
    operation_id = "listClusters",
    summary = "All clusters, with their agents and the replicas that have them; for operators",
    responses(
        (status = 200, description = "All of them, by name.", body = AdminClusterList),
        failures::SignedIn,
        failures::Operators,
    ),
)]
pub(crate) async fn show_clusters(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    Ok(answer::json(StatusCode::OK, &clusters(&api, &grant).await?))
}
