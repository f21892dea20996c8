//! Requests of owners to create, start, stop, restart and delete workspaces. They are carried out elsewhere, later: see
//! `events`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{IF_MATCH, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::body::{self, JsonFields, JsonObject, text};
use super::etag::Condition;
use super::openapi::{bodies, failures, parameters};
use super::problem::{ApiProblem, FaultLocation, Mistake, ProblemRow};
use super::workspaces::{WorkspaceBody, detail, tagged};
use super::{ApiShared, Caller, PREFIX, actor, answer, external, idle, ports, shares, state, workspace_templates};
use gateway_auth::policy::Visibility;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{CiProject, Executor, ManagedWorkspace, SecretText, Variable, VariableKind, Workspace, wall_clock};
use gateway_types::{
    ClusterName, DesiredState, DisplayName, IdleLimit, NamedPort, ProviderName, UnixSeconds, WorkspaceName,
};
use gateway_workspaces::ci::NoTarget;
use gateway_workspaces::service::{
    BadVariable, NewInCluster, NewOn, NewOnCi, NewWorkspace, VARIABLES_MAX, WorkspaceError, check_variables,
};
use gateway_workspaces::workspace_templates::NoTemplate;
use workspace_spec::project::{BadProject, PROJECTS_MAX, Project};

/// Name of a change to a state in the audit log.
pub(super) fn deed(desired: DesiredState) -> &'static str {
    match desired {
        DesiredState::Running => "start",
        DesiredState::Stopped => "stop",
        DesiredState::RestartRequested => "restart",
        DesiredState::Terminated => "terminate",
    }
}

#[utoipa::path(
    post,
    path = "/workspaces",
    operation_id = "createWorkspace",
    summary = "Make a workspace in a cluster, which is to run from then on",
    description = "Its Kubernetes objects are made here, once, and kept as they are for its whole life. The answer \
        comes once they are stored; `/workspaces/{name}/events` reports the progress. The body may have up \
        to 8 MiB, a devfile up to 3 MB.",
    request_body = bodies::NewWorkspace,
    responses(
        (status = 201, description = "It is made.", body = WorkspaceBody,
            headers(
                ("ETag" = String, description = "Version of the desired state; for `If-Match`. Observations do not \
                change it."),
                ("Location" = String, description = "Where it is."),
            )),
        failures::SignedIn,
        (status = 400, description = "Malformed request (`bad_request`)"),
        (status = 409, description = "`executor_disabled`, `quota_exceeded` with `quota`, or `conflict`: `reason` is \
            `name_taken` (by anybody), or `template_invalid` if the template's file has mistakes"),
        (status = 413, description = "The body is too large (`too_large`)"),
        (status = 415, description = "The body is not JSON (`bad_request`)"),
        (status = 422, description = "Mistakes, each with its place (`invalid`); of a devfile, or what a template \
            makes, all at once, as `problems`"),
        (status = 429, description = "`too_many_requests`; `limit` is `uploads_per_user`"),
    ),
)]
pub(super) async fn create(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    // Devfiles are large: the caller is known before a byte of them is read.
    let (object, permit) = body::read_large(request, &api.uploads, &principal.user).await?;
    let now = wall_clock();
    let named = read(&object)?;
    drop(object);
    let (workspace, managed) = make_named(&api, &caller, named).await?;
    drop(permit);
    let name = &workspace.name;
    let shown = detail(&api, principal, &workspace, Visibility::Owner, managed.as_ref(), now).await;
    let mut response = tagged(answer::json(StatusCode::CREATED, &shown), managed.as_ref());
    if let Ok(location) = HeaderValue::try_from(format!("{PREFIX}/workspaces/{name}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Makes a workspace that is to run, and records its maker.
async fn make(api: &ApiShared, caller: &Caller, new: NewWorkspace) -> Result<ManagedWorkspace, ProblemRow> {
    let principal = caller.user()?;
    let name = new.name.clone();
    let slot = api.audit.slot().await?;
    let managed = api.lifecycles.create(&principal.user, new, wall_clock()).await.map_err(problem)?;
    slot.record(caller.did(AuditEvent::WorkspaceCreated {
        by: actor(principal),
        workspace: Text::of(&name),
        cluster: managed.kubernetes().map(|state| Text::of(&state.cluster_name)),
        provider: managed.ci().map(|state| Text::of(&state.provider)),
    }));
    // The cache may remember that there was none.
    api.workspaces.forget(&name, Instant::now());
    Ok(managed)
}

/// Makes a workspace as a form asks for it, which has the members of the API's body.
///
/// # Errors
/// `invalid` with each mistake at its field, a refusal by quota, `conflict` for a name that is taken.
pub async fn make_of(
    api: &ApiShared,
    caller: &Caller,
    members: Map<String, Value>,
) -> Result<WorkspaceName, ProblemRow> {
    make_named(api, caller, read(&JsonObject::of(members))?).await.map(|(workspace, _)| workspace.name)
}

/// Makes a workspace, with the name that people are to read. Returns its state too, if the gateway runs it.
async fn make_named(
    api: &ApiShared,
    caller: &Caller,
    named: NamedRequest,
) -> Result<(Workspace, Option<ManagedWorkspace>), ProblemRow> {
    let NamedRequest { request, display_name } = named;
    let (mut workspace, managed) = match request {
        WorkspaceRequest::External(name, ports) => {
            (external::make(api, caller, caller.user()?, &name, &ports, wall_clock()).await?, None)
        }
        WorkspaceRequest::Managed(new) => {
            let managed = make(api, caller, new).await?;
            (managed.workspace.clone(), Some(managed))
        }
    };
    if display_name.is_some() {
        rename(api, caller, &workspace, display_name.as_ref()).await?;
        workspace.display_name = display_name;
    }
    Ok((workspace, managed))
}

/// Says what is wrong with a form, and makes nothing. What only shows when it is made, such as a name that is taken, is not said.
///
/// # Errors
/// `invalid` with each mistake at its field, `overloaded` with too many checks under way.
pub async fn check_of(api: &ApiShared, caller: &Caller, members: Map<String, Value>) -> Result<(), ProblemRow> {
    match read(&JsonObject::of(members))?.request {
        WorkspaceRequest::External(..) => Ok(()),
        WorkspaceRequest::Managed(new) => api.lifecycles.check(&caller.user()?.user, &new).await.map_err(problem),
    }
}

#[utoipa::path(
    patch,
    path = "/workspaces/{name}",
    operation_id = "changeWorkspace",
    summary = "Start, stop, restart or terminate a workspace; for the owner",
    description = "A request for the present desired state changes nothing, except after a failure: then it is tried \
        again. `Terminated` is final. With `If-Match`, a desired state of another version is refused with 412.",
    params(parameters::WorkspacePath, ("If-Match" = Option<String>, Header)),
    request_body = bodies::WorkspaceChange,
    responses(
        (status = 200, description = "Its present state; its events report the progress.", body = WorkspaceBody,
            headers(("ETag" = String, description = "Version of the desired state; for `If-Match`. Observations do not \
                change it."))),
        failures::WorkspaceBody,
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 409, description = "`conflict`; `reason` is `terminated`, or `not_managed` for an external \
            workspace. `quota_exceeded` with `quota` if it would begin to run"),
        (status = 412, description = "Its desired state has changed since you read it (`conflict`)"),
    ),
)]
pub(super) async fn change(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let condition = Condition::read(&headers, &IF_MATCH)?;
    let now = wall_clock();
    let workspace = shares::owned(&api, &caller, name, now).await?;
    let wanted = body.read(read_change)?;
    if let Some(display_name) = &wanted.display_name {
        rename(&api, &caller, &workspace, display_name.as_ref()).await?;
        if wanted.desired.is_none() && wanted.idle.is_none() && !workspace.executor.is_managed() {
            let workspace = api.store.workspace(&workspace.name).await?.ok_or(ApiProblem::NotFound)?;
            let detail = detail(&api, caller.user()?, &workspace, Visibility::Owner, None, now).await;
            return Ok(answer::json(StatusCode::OK, &detail));
        }
    }
    let managed = managed_of(&api, workspace).await?;
    let managed = match wanted.desired {
        Some(desired) => request(&api, &caller, managed, desired, &condition).await?,
        None => managed,
    };
    let managed = match wanted.idle {
        Some(limit) => idle::limit_idle(&api, &caller, &managed, limit).await?,
        None => managed,
    };
    shown(&api, &caller, StatusCode::OK, &managed, now).await
}

/// What a caller changes of a workspace.
struct WantedChange {
    desired: Option<DesiredState>,
    idle: Option<IdleLimit>,
    /// Another display name, or none.
    display_name: Option<Option<DisplayName>>,
}

/// Reads what is to be changed: the desired state, unless it is something else alone. A limit of `null` is the operator's, a display name
/// of `null` none.
fn read_change(fields: &mut JsonFields<'_>) -> Option<WantedChange> {
    let has_idle = fields.names("idle_minutes");
    let idle = fields.optional("idle_minutes", idle::limit);
    let idle = if has_idle { idle.or(Some(IdleLimit::Inherited)) } else { None };
    let has_display_name = fields.names("display_name");
    let display_name = fields.optional("display_name", text::<DisplayName>);
    let display_name = has_display_name.then_some(display_name);
    let desired = if (has_idle || has_display_name) && !fields.has("desired_state") {
        fields.optional("desired_state", text::<DesiredState>)
    } else {
        Some(fields.required("desired_state", text::<DesiredState>)?)
    };
    Some(WantedChange { desired, idle, display_name })
}

/// Terminates a workspace, or forgets one of which nothing is left, or that runs elsewhere.
#[utoipa::path(
    delete,
    path = "/workspaces/{name}",
    operation_id = "deleteWorkspace",
    summary = "Terminate a workspace with its storage, or forget a terminated one. An external one is \
        deleted at once, with its tokens and shares",
    params(parameters::WorkspacePath, ("If-Match" = Option<String>, Header)),
    responses(
        (status = 202, description = "It is to be terminated; its events tell when it is.", body = WorkspaceBody,
            headers(("ETag" = String, description = "Version of the desired state; for `If-Match`. Observations do not \
                change it."))),
        (status = 204, description = "It is forgotten, or was external and is deleted; its name is free."),
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 400, description = "Malformed request (`bad_request`)"),
        (status = 409, description = "`conflict`; `reason` is `not_terminated` while something is left of it"),
        (status = 412, description = "Its desired state has changed since you read it (`conflict`)"),
    ),
)]
pub(super) async fn remove(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    let condition = Condition::read(&headers, &IF_MATCH)?;
    let now = wall_clock();
    let workspace = shares::owned(&api, &caller, name, now).await?;
    if !workspace.executor.is_managed() {
        external::delete(&api, &caller, &workspace.name).await?;
        return Ok(answer::done());
    }
    let managed = managed_of(&api, workspace).await?;
    if !managed.lifecycle.is_over() {
        let managed = request(&api, &caller, managed, DesiredState::Terminated, &condition).await?;
        return shown(&api, &caller, StatusCode::ACCEPTED, &managed, now).await;
    }
    if !condition.allows_change_of(&state::tag(&managed)) {
        return Err(ApiProblem::Changed.into());
    }
    forget(&api, &caller, &managed).await?;
    Ok(answer::done())
}

/// Forgets a workspace of which nothing is left, and records the caller.
///
/// # Errors
/// `conflict` while something is left of it.
pub async fn forget(api: &ApiShared, caller: &Caller, managed: &ManagedWorkspace) -> Result<(), ProblemRow> {
    let slot = api.audit.slot().await?;
    api.lifecycles.forget(managed, wall_clock()).await.map_err(problem)?;
    let name = &managed.workspace.name;
    slot.record(caller.did(AuditEvent::WorkspaceForgotten { by: actor(caller.user()?), workspace: Text::of(name) }));
    api.workspaces.forget(name, Instant::now());
    Ok(())
}

/// Gives a workspace of the caller's a display name, or takes it away, and records the caller.
///
/// # Errors
/// `not_found` if it is gone meanwhile.
pub async fn rename(
    api: &ApiShared,
    caller: &Caller,
    workspace: &Workspace,
    display_name: Option<&DisplayName>,
) -> Result<(), ProblemRow> {
    let slot = api.audit.slot().await?;
    if !api.store.rename(&workspace.name, &workspace.owner, display_name).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(AuditEvent::WorkspaceRenamed {
        by: actor(caller.user()?),
        workspace: Text::of(&workspace.name),
        display_name: display_name.map(Text::of),
    }));
    Ok(())
}

/// Requests another state, and records the caller.
///
/// # Errors
/// `conflict` if it may not take that state now, a refusal by quota.
pub async fn request(
    api: &ApiShared,
    caller: &Caller,
    managed: ManagedWorkspace,
    desired: DesiredState,
    condition: &Condition,
) -> Result<ManagedWorkspace, ProblemRow> {
    let slot = api.audit.slot().await?;
    let (id, before) = (managed.workspace.id, managed.lifecycle.generation);
    let may_change = |life: &gateway_types::Lifecycle| condition.allows_change_of(&state::tag_of(id, life.generation));
    let changed = api.lifecycles.change(managed, desired, may_change, wall_clock()).await.map_err(problem)?;
    // A request for the state that is desired already changes nothing, and is not recorded.
    if changed.lifecycle.generation != before {
        slot.record(caller.did(AuditEvent::WorkspaceRequested {
            by: actor(caller.user()?),
            workspace: Text::of(&changed.workspace.name),
            how: deed(desired),
            generation: changed.lifecycle.generation,
        }));
    }
    Ok(changed)
}

/// Finds a managed workspace of the caller. A share gives no say in its state.
pub(super) async fn owned(
    api: &ApiShared,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
    now: UnixSeconds,
) -> Result<ManagedWorkspace, ProblemRow> {
    managed_of(api, shares::owned(api, caller, name, now).await?).await
}

/// Loads the managed state of a workspace.
///
/// # Errors
/// `conflict` for an external workspace, which has none.
pub async fn managed_of(api: &ApiShared, workspace: Workspace) -> Result<ManagedWorkspace, ProblemRow> {
    let Workspace { id, executor, .. } = workspace;
    if !executor.is_managed() {
        return Err(ApiProblem::Conflict { reason: "not_managed" }.into());
    }
    api.store.managed_by_id(id).await?.ok_or_else(|| ApiProblem::NotFound.into())
}

pub(super) async fn shown(
    api: &ApiShared,
    caller: &Caller,
    status: StatusCode,
    managed: &ManagedWorkspace,
    now: UnixSeconds,
) -> Result<Response, ProblemRow> {
    let detail = detail(api, caller.user()?, &managed.workspace, Visibility::Owner, Some(managed), now).await;
    Ok(tagged(answer::json(status, &detail), Some(managed)))
}

/// A workspace that a caller asks for.
enum WorkspaceRequest {
    /// Name of a workspace that runs elsewhere, and its named ports.
    External(WorkspaceName, Vec<NamedPort>),
    /// A workspace that is run for its owner.
    Managed(NewWorkspace),
}

/// A request, and the name that people are to read.
struct NamedRequest {
    request: WorkspaceRequest,
    display_name: Option<DisplayName>,
}

fn read(body: &JsonObject) -> Result<NamedRequest, ProblemRow> {
    body.read(|fields| {
        let display_name = fields.optional("display_name", text::<DisplayName>);
        Some(NamedRequest { request: read_request(fields)?, display_name })
    })
}

fn read_request(fields: &mut JsonFields<'_>) -> Option<WorkspaceRequest> {
    let name = fields.required("name", text::<WorkspaceName>);
    let executor = fields.required("executor", |value| match value.as_str() {
        Some("kubernetes") => Ok(Executor::Kubernetes),
        Some("ci") => Ok(Executor::Ci),
        Some("external") => Ok(Executor::External),
        Some(_) | None => Err("has to be kubernetes, ci or external".to_owned()),
    });
    if executor == Some(Executor::External) {
        // Any other member is refused as unknown.
        let ports = ports::read(fields);
        return Some(WorkspaceRequest::External(name?, ports?));
    }
    let on = match executor {
        Some(Executor::Ci) => on_ci(fields),
        Some(Executor::Kubernetes | Executor::External) | None => on_kubernetes(fields),
    };
    let devfile =
        fields.optional("devfile", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".into()));
    let idle = fields.optional("idle_minutes", idle::limit).unwrap_or_default();
    let ports = ports::read(fields);
    let variables = match fields.has("variables") {
        true => fields.objects("variables", VARIABLES_MAX, variable),
        false => fields.optional("variables", |_| Ok(Vec::new())).or_else(|| Some(Vec::new())),
    };
    let variables = variables?;
    for wrong in check_variables(&variables) {
        fields.at(place(&wrong), wrong.to_string());
    }
    Some(WorkspaceRequest::Managed(NewWorkspace {
        name: name?,
        on: on?,
        devfile: devfile.map(Into::into),
        variables,
        idle,
        ports: ports?,
    }))
}

/// Reads the settings of a workspace in a cluster.
fn on_kubernetes(fields: &mut JsonFields<'_>) -> Option<NewOn> {
    let cluster = fields.required("agent", text::<ClusterName>);
    let projects = projects(fields);
    let editor = fields.optional("editor", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".into()));
    let template = workspace_templates::read(fields);
    Some(NewOn::Kubernetes(NewInCluster { cluster: cluster?, projects: projects?, editor, template: template? }))
}

fn projects(fields: &mut JsonFields<'_>) -> Option<Vec<Project>> {
    match fields.has("projects") {
        true => fields.objects("projects", PROJECTS_MAX, |fields| {
            let url =
                fields.required("url", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".into()));
            let reference =
                fields.optional("ref", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".into()));
            let project = Project { url: url?, reference };
            for problem in project.problems() {
                let member = match problem {
                    BadProject::Url | BadProject::Credentials => "url",
                    BadProject::Reference => "ref",
                };
                fields.object(member, problem.to_string());
            }
            Some(project)
        }),
        false => fields.optional("projects", |_| Ok(Vec::new())).or_else(|| Some(Vec::new())),
    }
}

/// Reads the settings of a workspace in a CI system.
fn on_ci(fields: &mut JsonFields<'_>) -> Option<NewOn> {
    let provider = fields.optional("agent", text::<ProviderName>);
    let is_named = fields.has("agent");
    let project = fields.optional("project", project);
    if projects(fields).is_some_and(|projects| !projects.is_empty()) {
        fields.object("projects", "has to be empty: a job is made for one project");
    }
    let no_editor =
        |value: &Value| value.is_null().then_some(()).ok_or("has to be left out: jobs have one editor".into());
    let _nothing: Option<()> = fields.optional("editor", no_editor);
    workspace_templates::refuse(fields);
    let tags = fields.optional("tags", |value| {
        let tags = value.as_array().ok_or("has to be a list of texts")?;
        let tags = tags.iter().map(|tag| tag.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
        tags.ok_or_else(|| "has to be a list of texts".to_owned())
    });
    let is_project = fields.has("project");
    let is_good = is_named == provider.is_some() && is_project == project.is_some();
    is_good.then(|| NewOn::Ci(NewOnCi { provider, project, tags: tags.unwrap_or_default() }))
}

fn project(value: &Value) -> Result<CiProject, String> {
    const SHAPE: &str = "has to be an object with url and, if wanted, ref";
    let members = value.as_object().ok_or(SHAPE)?;
    if members.keys().any(|name| name != "url" && name != "ref") {
        return Err(SHAPE.to_owned());
    }
    let url = members.get("url").and_then(Value::as_str).ok_or(SHAPE)?.to_owned();
    let reference = match members.get("ref") {
        None | Some(Value::Null) => None,
        Some(reference) => Some(reference.as_str().ok_or(SHAPE)?.to_owned()),
    };
    Ok(CiProject { url, reference })
}

fn variable(fields: &mut JsonFields<'_>) -> Option<Variable> {
    let name = fields.required("name", |value| value.as_str().map(str::to_owned).ok_or("has to be a text".into()));
    let value = fields.required("value", |value: &Value| {
        value.as_str().map(|text| SecretText::new(text.to_owned())).ok_or("has to be a text".into())
    });
    let kind = fields.required("kind", |value| match value.as_str() {
        Some("env") => Ok(VariableKind::Env),
        Some("file") => Ok(VariableKind::File),
        Some(_) | None => Err("has to be env or file".to_owned()),
    });
    Some(Variable { kind: kind?, name: name?, value: value? })
}

/// Returns the place of a wrong variable in the body.
fn place(wrong: &BadVariable) -> String {
    match wrong {
        BadVariable::EnvName { number }
        | BadVariable::FileName { number }
        | BadVariable::Reserved { number }
        | BadVariable::Twice { number } => format!("/variables/{number}/name"),
        BadVariable::Nul { number } => format!("/variables/{number}/value"),
        BadVariable::Number | BadVariable::Size => "/variables".to_owned(),
    }
}

/// Explains why a template cannot be used.
pub fn template_problem(error: NoTemplate) -> ProblemRow {
    problem(error.into())
}

/// Explains why a workspace is not made or changed.
pub(super) fn problem(error: WorkspaceError) -> ProblemRow {
    let mistake = |pointer: &str, error: &WorkspaceError| ProblemRow::mistake(pointer, error.to_string());
    let conflict = |reason| ApiProblem::Conflict { reason }.into();
    match error {
        WorkspaceError::NoSuchWorkspace => ApiProblem::NotFound.into(),
        WorkspaceError::NoSuchCluster | WorkspaceError::ClusterDisabled => mistake("/agent", &error),
        WorkspaceError::Editor(_) => mistake("/editor", &error),
        WorkspaceError::TemplateAndDevfile | WorkspaceError::Template(NoTemplate::NotFound) => {
            mistake("/template", &error)
        }
        WorkspaceError::Template(NoTemplate::Broken(_)) => conflict(workspace_templates::INVALID),
        WorkspaceError::Parameters(faults) => workspace_templates::problem(faults),
        WorkspaceError::Rendered(problems) => {
            ProblemRow::rendered(problems.into_iter().map(FaultLocation::from).collect())
        }
        WorkspaceError::CiDisabled => ApiProblem::ExecutorDisabled.into(),
        WorkspaceError::Target(NoTarget::Unknown | NoTarget::Unnamed) => mistake("/agent", &error),
        WorkspaceError::Target(NoTarget::Tag(number)) => mistake(&format!("/tags/{number}"), &error),
        WorkspaceError::Target(NoTarget::Tags) => mistake("/tags", &error),
        WorkspaceError::NameTooLong { .. } => mistake("/name", &error),
        WorkspaceError::Variables(wrong) => ProblemRow::invalid(
            wrong.iter().map(|one| Mistake { pointer: place(one), detail: one.to_string() }).collect(),
        ),
        WorkspaceError::Ports(_) => mistake("/ports", &error),
        WorkspaceError::NameTaken => conflict("name_taken"),
        WorkspaceError::OverQuota(over) => ProblemRow::quota(&over),
        WorkspaceError::Refused(_) => conflict("terminated"),
        WorkspaceError::NotOver => conflict("not_terminated"),
        WorkspaceError::Changed => ApiProblem::Changed.into(),
        WorkspaceError::Busy => ApiProblem::Overloaded { limit: "workspace_changes" }.into(),
        WorkspaceError::Interrupted => ApiProblem::Overloaded { limit: "interrupted" }.into(),
        WorkspaceError::ClusterUnreadable => {
            tracing::error!("the stored configuration of a cluster cannot be read");
            ApiProblem::Overloaded { limit: "cluster_configuration" }.into()
        }
        WorkspaceError::Devfile(problems) => ProblemRow::devfile(
            problems
                .into_iter()
                .map(|one| FaultLocation {
                    code: "",
                    path: one.path,
                    line: one.line,
                    column: one.column,
                    message: one.message,
                })
                .collect(),
        ),
        WorkspaceError::Frozen(problems) => ProblemRow::devfile(
            problems
                .into_iter()
                .map(|message| FaultLocation { code: "", path: String::new(), line: None, column: None, message })
                .collect(),
        ),
        WorkspaceError::Pipeline(problems) => ProblemRow::devfile(
            problems
                .into_iter()
                .map(|one| FaultLocation { code: "", path: one.place, line: None, column: None, message: one.message })
                .collect(),
        ),
        WorkspaceError::Randomness(error) => error.into(),
        WorkspaceError::Store(error) => error.into(),
    }
}
