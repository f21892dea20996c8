//! The workspaces of all users.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::query::Filters;
use crate::list::PageRequest;
use crate::openapi::{failures, parameters, values};
use crate::presence::ListPresence;
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::policy::OperatorGrant;
use gateway_store::{ListPage, ManagedWorkspace, Workspace, WorkspaceFilter, WorkspaceId};
use gateway_types::{ActualState, UserName, WorkspaceName};

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "aw";

/// Workspaces that are asked for.
#[derive(Debug)]
pub struct WorkspaceQuery {
    part: String,
    state: Option<ActualState>,
    owner: Option<UserName>,
    page: PageRequest<WorkspaceName>,
}

impl WorkspaceQuery {
    /// Reads `q`, `state`, `owner`, `limit` and `cursor`.
    ///
    /// # Errors
    /// `invalid` with all mistakes of the query.
    pub fn read(uri: &Uri) -> Result<Self, ProblemRow> {
        let (page, narrowed) = PageRequest::read_filtered(uri, CURSOR, &["q", "state", "owner"])?;
        let mut filters = Filters::new(narrowed);
        let read = Self { part: filters.part("q"), state: filters.value("state"), owner: filters.value("owner"), page };
        filters.finish()?;
        Ok(read)
    }
}

/// A page of all workspaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminWorkspaces)]
pub struct AdminWorkspacePage {
    /// By name.
    pub workspaces: Vec<AdminWorkspaceRow>,
    /// For the next page; `null` on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A workspace as operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminWorkspace)]
pub struct AdminWorkspaceRow {
    pub(crate) name: String,
    pub(crate) owner: String,
    #[schema(schema_with = values::executor)]
    pub(crate) executor: &'static str,
    /// The cluster that runs it.
    #[schema(required)]
    pub(crate) cluster: Option<String>,
    /// The CI system that runs it.
    #[schema(required)]
    pub(crate) provider: Option<String>,
    /// What it is; null for an external workspace.
    #[schema(required)]
    pub(crate) state: Option<&'static str>,
    /// What it is to be; null for an external workspace.
    #[schema(required)]
    pub(crate) desired_state: Option<&'static str>,
    /// Time since which it is what it is.
    #[schema(required, format = DateTime)]
    pub(crate) since: Option<String>,
    /// Reason of the state, for people.
    #[schema(required)]
    pub(crate) reason: Option<String>,
    /// Its agent has a link now.
    pub(crate) connected: bool,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
}

/// Returns a page of all workspaces that fit, by name.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub async fn list(
    api: &ApiParts,
    _grant: &OperatorGrant,
    query: &WorkspaceQuery,
) -> Result<AdminWorkspacePage, ProblemRow> {
    let filter = WorkspaceFilter { part: &query.part, state: query.state, owner: query.owner.as_ref() };
    let part = ListPage { after: query.page.after.as_ref(), limit: query.page.look_up() };
    let found = api.store.listed_workspaces(filter, part).await?;
    let ids: Vec<_> = found.iter().filter(|one| one.executor.is_managed()).map(|one| one.id).collect();
    let managed: HashMap<WorkspaceId, ManagedWorkspace> =
        api.store.managed_of(&ids).await?.into_iter().map(|managed| (managed.workspace.id, managed)).collect();
    let presence = ListPresence::read(api, found.iter().map(|workspace| &workspace.name)).await?;
    let row = |workspace: &Workspace| row(workspace, managed.get(&workspace.id), presence.has(&workspace.name));
    let (workspaces, next_cursor) = query.page.cut(found, CURSOR, |workspace| workspace.name.to_string(), row);
    Ok(AdminWorkspacePage { workspaces, next_cursor })
}

fn row(workspace: &Workspace, managed: Option<&ManagedWorkspace>, connected: bool) -> AdminWorkspaceRow {
    let Workspace { name, owner, executor, created_at, .. } = workspace;
    let life = managed.map(|managed| &managed.lifecycle);
    let reason = managed.and_then(|managed| {
        let life = &managed.lifecycle;
        life.reason.as_deref().map(str::to_owned).or_else(|| managed.idle.stop_reason(life))
    });
    AdminWorkspaceRow {
        name: name.to_string(),
        owner: owner.to_string(),
        executor: executor.as_str(),
        cluster: managed.and_then(|managed| Some(managed.kubernetes()?.cluster_name.to_string())),
        provider: managed.and_then(|managed| Some(managed.ci()?.provider.to_string())),
        state: life.map(|life| life.actual.as_str()),
        desired_state: life.map(|life| life.desired.as_str()),
        since: life.map(|life| life.actual_at.to_string()),
        reason,
        connected,
        created_at: created_at.to_string(),
    }
}

#[utoipa::path(
    get,
    path = "/admin/workspaces",
    operation_id = "listAllWorkspaces",
    summary = "The workspaces of all users; for operators",
    params(parameters::PageQuery, parameters::WorkspaceFilters),
    responses(
        (status = 200, description = "A page, by name.", body = AdminWorkspacePage),
        failures::SignedIn,
        failures::Operators,
        failures::Mistaken,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let query = WorkspaceQuery::read(&uri)?;
    Ok(answer::json(StatusCode::OK, &list(&api, &grant, &query).await?))
}
