//! Workspaces: the user's own, and those that others share with the user.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::ETAG;
use http::{HeaderValue, StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::idle::IdleRow;
use super::list::PageRequest;
use super::openapi::{failures, parameters, values};
use super::ports::{NamedPortRow, PortFacts, PortRow};
use super::presence::{self, ListPresence};
use super::problem::{ApiProblem, ProblemRow};
use super::shares::ShareRow;
use super::state::{self, StateRow};
use super::{ApiShared, Caller, answer};
use gateway_agents::registry::LiveSession;
use gateway_auth::policy::{Exposure, Visibility, sees, shared_with};
use gateway_store::{ListPage, ManagedWorkspace, Workspace, WorkspaceId, wall_clock};
use gateway_types::principal::Principal;
use gateway_types::{Port, UnixSeconds, WorkspaceName};
use tunnel_proto::listening::StartCommand;

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "w";

#[derive(Serialize, ToSchema)]
#[schema(as = Workspaces)]
pub(super) struct WorkspacePageList {
    workspaces: Vec<WorkspaceRow>,
    /// For the next page; `null` on the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Workspace)]
struct WorkspaceRow {
    id: String,
    name: String,
    /// The name that people read; for the owner only.
    #[schema(required)]
    display_name: Option<String>,
    owner: String,
    /// `owner` or `shared`.
    #[schema(schema_with = values::access)]
    access: &'static str,
    #[schema(schema_with = values::executor)]
    executor: &'static str,
    /// The cluster that runs it; for the owner only.
    #[schema(required)]
    cluster: Option<String>,
    /// The template that it was made from; for the owner only.
    #[schema(required)]
    template: Option<String>,
    /// The value of each parameter of that, as it was when it was made; for the owner only.
    #[schema(required)]
    template_parameters: Option<BTreeMap<String, String>>,
    /// The CI system that runs it; for the owner only.
    #[schema(required)]
    provider: Option<String>,
    /// Where its job is seen in its CI system.
    #[schema(required)]
    run_url: Option<String>,
    /// For the owner only; null for an external workspace.
    #[schema(required)]
    state: Option<StateRow>,
    /// For the owner only; null for an external workspace.
    #[schema(required)]
    idle: Option<IdleRow>,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// Its agent has a link now.
    connected: bool,
    /// Address of its default port.
    url: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = WorkspaceDetail)]
pub(super) struct WorkspaceBody {
    #[serde(flatten)]
    row: WorkspaceRow,
    /// Address of a port; `{port}` is to be replaced.
    port_url: String,
    /// The same by path, with `{port}`: where there is no wildcard DNS. Null for those with a share, and while the gateway has no
    /// `paths_url`.
    #[schema(required)]
    path_url: Option<String>,
    #[schema(required)]
    agent: Option<AgentRow>,
    /// The ports that its devfile or the request for it named; for the owner only.
    #[schema(max_items = 128)]
    ports: Vec<NamedPortRow>,
    /// When and why its agent was disconnected last; for the owner only, while audit records are kept.
    #[schema(required)]
    last_disconnect: Option<DisconnectRow>,
    // Those that admit the caller. The owner may reach every port, and finds all shares at `/shares`.
    shared_with_you: Vec<ShareRow>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LastDisconnect)]
struct DisconnectRow {
    #[schema(format = DateTime)]
    at: String,
    /// In words, as the audit log has it.
    reason: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Agent)]
struct AgentRow {
    /// Seconds since its session came up.
    #[schema(schema_with = values::seconds)]
    connected_seconds: u64,
    #[schema(required)]
    default_port: Option<u16>,
    /// The ports that it names and you may reach; with none named, every port.
    ports: Vec<PortRow>,
    /// The ports on which something listens and that you may reach, as the agent says when it is asked; null where it
    /// does not say it.
    #[schema(required, max_items = 256)]
    listening: Option<Vec<PortRow>>,
    /// The commands that began with the workspace, those that failed first; for the owner only.
    #[schema(max_items = 32)]
    commands: Vec<CommandRow>,
    /// For the owner only.
    #[schema(required)]
    version: Option<String>,
    /// Transport of its latest link: `http2` or `websocket`; for the owner only.
    #[schema(required)]
    via: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = StartCommand)]
struct CommandRow {
    /// The container that it ran in.
    container: String,
    id: String,
    /// Its exit status once it has ended, 128 and the signal's number for one that a signal ended; null while it runs.
    #[schema(required)]
    status: Option<u32>,
    /// What it wrote last, if it failed.
    last_line: String,
}

impl CommandRow {
    fn new(command: &StartCommand) -> Self {
        let StartCommand { container, id, status, last_line } = command.clone();
        Self { container, id, status, last_line }
    }
}

#[utoipa::path(
    get,
    path = "/workspaces",
    operation_id = "listWorkspaces",
    summary = "Your workspaces, and those that other users share with you by name or group",
    params(parameters::PageQuery),
    responses(
        (status = 200, description = "A page, by name.", body = WorkspacePageList),
        failures::SignedIn,
        failures::Mistaken,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let page: PageRequest<WorkspaceName> = PageRequest::read(&uri, CURSOR)?;
    let part = ListPage { after: page.after.as_ref(), limit: page.look_up() };
    let found = api.store.workspaces_seen_by(&principal.user, &principal.groups, part, wall_clock()).await?;
    // All of one's own on this page are among the first of them behind the same name.
    let own: HashMap<WorkspaceId, ManagedWorkspace> =
        match found.iter().any(|workspace| workspace.executor.is_managed()) {
            true => api.store.managed_of_owner(&principal.user, part).await?,
            false => Vec::new(),
        }
        .into_iter()
        .map(|managed| (managed.workspace.id, managed))
        .collect();
    let presence = ListPresence::read(&api, found.iter().map(|workspace| &workspace.name)).await?;
    let row = |workspace: &Workspace| {
        let seen = if workspace.owner == principal.user { Visibility::Owner } else { Visibility::Shared };
        row(&api, workspace, seen, own.get(&workspace.id), presence.has(&workspace.name))
    };
    let (workspaces, next_cursor) = page.cut(found, CURSOR, |workspace| workspace.name.to_string(), row);
    Ok(answer::json(StatusCode::OK, &WorkspacePageList { workspaces, next_cursor }))
}

#[utoipa::path(
    get,
    path = "/workspaces/{name}",
    operation_id = "getWorkspace",
    summary = "A workspace of yours, or one that another user shares with you by name or group",
    params(parameters::WorkspacePath),
    responses(
        (status = 200, description = "The workspace.", body = WorkspaceBody,
            headers(("ETag" = String, description = "Version of the desired state; for `If-Match`. Observations do not \
                change it."))),
        failures::SignedIn,
        failures::NotYours,
    ),
)]
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let now = wall_clock();
    let (workspace, seen) = find(&api, caller.user()?, name, now).await?;
    let managed = match seen {
        Visibility::Owner if workspace.executor.is_managed() => api.store.managed_by_id(workspace.id).await?,
        Visibility::Owner | Visibility::Shared => None,
    };
    let shown = detail(&api, caller.user()?, &workspace, seen, managed.as_ref(), now).await;
    Ok(tagged(answer::json(StatusCode::OK, &shown), managed.as_ref()))
}

/// Adds the entity tag of a workspace's intent.
pub(super) fn tagged(mut response: Response, managed: Option<&ManagedWorkspace>) -> Response {
    if let Some(tag) = managed.and_then(|managed| HeaderValue::try_from(state::tag(managed)).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Describes a workspace as far as one user may know of it.
///
/// Cancel safety: safe. Waits for a lane to the workspace's agent, if another replica has it, and for the agent, for a second at most.
pub(super) async fn detail(
    api: &ApiShared,
    principal: &Principal,
    workspace: &Workspace,
    seen: Visibility,
    managed: Option<&ManagedWorkspace>,
    now: UnixSeconds,
) -> WorkspaceBody {
    let shared: Vec<_> = shared_with(principal, &workspace.shares, now).cloned().collect();
    let may_reach = |port: Port| seen == Visibility::Owner || shared.iter().any(|share| share.port == port);
    let facts = PortFacts { api, workspace, is_owner: seen == Visibility::Owner, now };
    let session = presence::session(api, &workspace.name).await;
    let connected = session.as_ref().is_some_and(|session| !session.tunnel.is_detached());
    let agent = match session {
        Some(session) => Some(agent(&facts, &session, may_reach).await),
        None => None,
    };
    let port_url = api.site.workspace(&format!("{{port}}-{}", api.rules.format(&workspace.name, None)), "/");
    let by_path = || api.site.by_path(&format!("/{}/{{port}}/", workspace.name));
    let path_url = (seen == Visibility::Owner).then(by_path).flatten();
    let shared_with_you = shared.iter().map(ShareRow::new).collect();
    let ports = facts.named();
    let row = row(api, workspace, seen, managed, connected);
    let last_disconnect = match seen {
        // What is not known is not shown: the rest of the answer does not need it.
        Visibility::Owner => presence::last_disconnect(api, workspace).await.ok().flatten(),
        Visibility::Shared => None,
    };
    let last_disconnect = last_disconnect.map(|last| DisconnectRow { at: last.at.to_string(), reason: last.reason });
    WorkspaceBody { row, port_url, path_url, agent, ports, last_disconnect, shared_with_you }
}

/// Finds a workspace that the user may know of. A workspace that does not exist, one that the user may not see, and an
/// impossible name get the same answer; the first two after the same look-ups.
pub(super) async fn find(
    api: &ApiShared,
    principal: &Principal,
    name: Result<Path<String>, PathRejection>,
    now: UnixSeconds,
) -> Result<(Workspace, Visibility), ProblemRow> {
    let name = name.ok().and_then(|Path(name)| name.parse::<WorkspaceName>().ok()).ok_or(ApiProblem::NotFound)?;
    let found = api.store.workspace_or_none(&name).await?;
    let seen = found.and_then(|workspace| {
        let exposure = Exposure { owner: &workspace.owner, ports: None, shares: &workspace.shares };
        let seen = sees(principal, &exposure, now)?;
        Some((workspace, seen))
    });
    seen.ok_or_else(|| ApiProblem::NotFound.into())
}

fn row(
    api: &ApiShared,
    workspace: &Workspace,
    seen: Visibility,
    managed: Option<&ManagedWorkspace>,
    connected: bool,
) -> WorkspaceRow {
    let Workspace { id, name, owner, executor, created_at, display_name, .. } = workspace;
    let template = managed.and_then(ManagedWorkspace::kubernetes).and_then(|state| state.template.as_ref());
    WorkspaceRow {
        id: id.to_string(),
        name: name.to_string(),
        display_name: display_name.as_ref().filter(|_| seen == Visibility::Owner).map(ToString::to_string),
        owner: owner.to_string(),
        access: match seen {
            Visibility::Owner => "owner",
            Visibility::Shared => "shared",
        },
        executor: executor.as_str(),
        cluster: managed.and_then(ManagedWorkspace::kubernetes).map(|state| state.cluster_name.to_string()),
        template: template.map(|template| template.name.clone()),
        template_parameters: template.map(|template| template.parameters.clone()),
        provider: managed.and_then(ManagedWorkspace::ci).map(|state| state.provider.to_string()),
        run_url: managed.and_then(ManagedWorkspace::run_url).map(str::to_owned),
        state: managed.map(StateRow::new),
        idle: managed.map(|managed| IdleRow::new(managed, wall_clock())),
        created_at: created_at.to_string(),
        connected,
        url: match seen {
            Visibility::Owner => api.address(name, None),
            Visibility::Shared => api.address_on_host(name, None),
        },
    }
}

async fn agent(facts: &PortFacts<'_>, session: &LiveSession, may_reach: impl Fn(Port) -> bool) -> AgentRow {
    let report = session.report().await;
    let row = |port: Port| facts.row(port, session, report.as_ref());
    let named = session.ports().iter().filter_map(|port| Port::new(port.number));
    let commands = report.iter().filter(|_| facts.is_owner).flat_map(|report| report.commands.iter());
    AgentRow {
        connected_seconds: session.since.elapsed().as_secs(),
        default_port: session.default_port().filter(|port| may_reach(*port)).map(Port::get),
        ports: named.filter(|port| may_reach(*port)).map(row).collect(),
        listening: report
            .as_ref()
            .map(|report| report.listening.iter().filter(|port| may_reach(**port)).map(|port| row(*port)).collect()),
        commands: commands.map(CommandRow::new).collect(),
        version: facts.is_owner.then(|| session.agent_version.clone()),
        via: facts.is_owner.then(|| session.via().to_string()),
    }
}
