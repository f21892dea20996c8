//! Records of environments, and changes of their state.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};
use serde::Serialize;

use super::actions::{self, Which, missing};
use super::caller::{JobCaller, operator};
use super::stream;
use super::view::EnvironmentRow;
use crate::body::{JsonObject, text};
use crate::list::PageRequest;
use crate::openapi::{bodies, failures, parameters};
use crate::problem::{ApiProblem, Mistake, ProblemRow};
use crate::{ApiShared, Caller, answer};
use gateway_environments::refusal::RefusalCode;
use gateway_environments::service::{DesiredEnvironment, Filter};
use gateway_types::ClusterName;

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "e";

/// Filters of the list.
const FILTERS: [&str; 4] = ["agent", "project_id", "name", "state"];

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Environments)]
pub(crate) struct EnvironmentPage {
    environments: Vec<EnvironmentRow>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Filters of a query.
struct Narrowed {
    filter: Filter,
    name: Option<String>,
}

/// Lists environments. With a name it is one or none; a job sees its own.
#[utoipa::path(
    get,
    path = "/environments",
    operation_id = "listEnvironments",
    summary = "The environments that the gateway manages; for jobs their own",
    params(parameters::EnvironmentFilters, parameters::PageQuery),
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "A page, by number.", body = EnvironmentPage),
        failures::ForJobs,
        failures::NotNow,
        failures::Mistaken,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`; or \
            `project_not_allowed`: a job's environment is not there, and no agent of that name has `ci_access` for \
            its project"),
        (status = 404, description = "`no_such_agent`"),
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let asker = JobCaller::of(&api, &caller)?;
    let (page, said) = PageRequest::<u64>::read_filtered(&uri, CURSOR, &FILTERS)?;
    let Narrowed { filter, name } = narrowed(&said)?;
    let is_one = name.is_some() || matches!(asker, JobCaller::Job(_));
    if !is_one {
        let found = actions::list(&api, &filter, page.after, page.look_up()).await?;
        let key = |found: &gateway_environments::record::Environment| found.id.to_string();
        let (environments, next_cursor) = page.cut(found, CURSOR, key, |found| EnvironmentRow::from(found.clone()));
        return Ok(answer::json(StatusCode::OK, &EnvironmentPage { environments, next_cursor }));
    }
    let agent = filter.agent.ok_or_else(|| missing("?agent"))?;
    let which = Which::Named { agent, project_id: filter.project_id, name };
    let environments = match actions::find(&api, &asker, which).await {
        Ok(found) => vec![EnvironmentRow::from(found)],
        Err(problem) if problem.is(ApiProblem::Environment(RefusalCode::NoSuchEnvironment)) => Vec::new(),
        Err(problem) => return Err(problem),
    };
    let is_so = |row: &EnvironmentRow| filter.state.is_none_or(|state| state.as_str() == row.state);
    let environments = environments.into_iter().filter(is_so).collect();
    Ok(answer::json(StatusCode::OK, &EnvironmentPage { environments, next_cursor: None }))
}

fn narrowed(said: &std::collections::BTreeMap<&'static str, String>) -> Result<Narrowed, ProblemRow> {
    let mut mistakes = Vec::new();
    let mut wrong = |name: &str, detail: String| mistakes.push(Mistake { pointer: format!("?{name}"), detail });
    let mut filter = Filter::default();
    if let Some(agent) = said.get("agent") {
        match agent.parse::<ClusterName>() {
            Ok(agent) => filter.agent = Some(agent),
            Err(error) => wrong("agent", error.to_string()),
        }
    }
    if let Some(project) = said.get("project_id") {
        match project.parse::<u64>() {
            Ok(project) => filter.project_id = Some(project),
            Err(_) => wrong("project_id", "has to be a whole number".to_owned()),
        }
    }
    if let Some(state) = said.get("state") {
        match state.parse::<DesiredEnvironment>() {
            Ok(state) => filter.state = Some(state),
            Err(error) => wrong("state", error.to_string()),
        }
    }
    if mistakes.is_empty() {
        Ok(Narrowed { filter, name: said.get("name").cloned() })
    } else {
        Err(ProblemRow::invalid(mistakes))
    }
}

/// Reads the number of an environment; anything else is none.
fn numbered(id: Result<Path<String>, PathRejection>) -> Result<u64, ProblemRow> {
    let number = id.ok().and_then(|Path(text)| text.parse().ok());
    number.ok_or_else(|| ApiProblem::Environment(RefusalCode::NoSuchEnvironment).into())
}

#[utoipa::path(
    get,
    path = "/environments/{id}",
    operation_id = "getEnvironment",
    summary = "An environment; for jobs their own",
    params(parameters::EnvironmentPath),
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "The environment.", body = EnvironmentRow),
        failures::ForJobs,
        failures::Unknown,
        failures::NotNow,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`"),
    ),
)]
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let asker = JobCaller::of(&api, &caller)?;
    let found = actions::find(&api, &asker, Which::Id(numbered(id)?)).await?;
    Ok(answer::json(StatusCode::OK, &EnvironmentRow::from(found)))
}

#[utoipa::path(
    patch,
    path = "/environments/{id}",
    operation_id = "changeEnvironment",
    summary = "Set the state of an environment; for jobs their own",
    description = "Once it is `stopped`, what was recorded of it is deleted, unless its template says `never`; \
        `stopping` deletes nothing. `/environments/{id}/events` reports the progress.",
    params(parameters::EnvironmentPath),
    request_body = bodies::EnvironmentChange,
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "As it is now.", body = EnvironmentRow),
        failures::ForJobs,
        failures::EnvironmentBody,
        failures::Unknown,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`; or \
            `project_not_allowed`, `environment_not_allowed` or `ref_not_protected`, by the agent's `ci_access`; or \
            `action_not_allowed`: the job neither starts nor stops its environment"),
        (status = 409, description = "`environments_off`, `not_enabled`, `no_environment` or `environment_busy`; \
            or `environment_stopped`: a stopped one becomes available by a job"),
    ),
)]
pub(super) async fn change(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ProblemRow> {
    let asker = JobCaller::of(&api, &caller)?;
    let id = numbered(id)?;
    let body = JsonObject::from_request(request, &api).await?;
    let wanted = body.read(|fields| fields.required("state", text::<DesiredEnvironment>))?;
    let changed = actions::set_state(&api, &asker, Which::Id(id), wanted).await?;
    Ok(answer::json(StatusCode::OK, &EnvironmentRow::from(changed)))
}

/// Reads whether an environment is only to be forgotten.
fn is_forgotten(uri: &Uri) -> Result<bool, ProblemRow> {
    let (mut is_forgotten, mut mistakes) = (false, Vec::new());
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let detail = match (&*name, &*value) {
            ("forget", "true" | "false") => {
                is_forgotten = &*value == "true";
                continue;
            }
            ("forget", _) => "has to be true or false",
            _ => "has an unknown parameter; known is forget",
        };
        let name = if name == "forget" { "forget" } else { "" };
        mistakes.push(Mistake { pointer: format!("?{name}"), detail: detail.to_owned() });
    }
    if mistakes.is_empty() { Ok(is_forgotten) } else { Err(ProblemRow::invalid(mistakes)) }
}

/// Reads whether only the end of a removal is waited for.
fn is_of_removal(uri: &Uri) -> Result<bool, ProblemRow> {
    let (mut is_of_removal, mut mistakes) = (false, Vec::new());
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let (name, detail) = match (&*name, &*value) {
            ("of", "removal" | "everything") => {
                is_of_removal = &*value == "removal";
                continue;
            }
            ("of", _) => ("of", "has to be removal or everything"),
            _ => ("", "has an unknown parameter; known is of"),
        };
        mistakes.push(Mistake { pointer: format!("?{name}"), detail: detail.to_owned() });
    }
    if mistakes.is_empty() { Ok(is_of_removal) } else { Err(ProblemRow::invalid(mistakes)) }
}

/// Deletes the recorded objects, or with `forget` only the record. Progress is streamed, or the answer comes at once:
/// an object may be held up for ever.
#[utoipa::path(
    delete,
    path = "/environments/{id}",
    operation_id = "deleteEnvironment",
    summary = "Delete an environment's recorded objects, whatever its template says; for operators",
    description = "It is answered when that is stored; `/environments/{id}/events` tells how far it is. With \
        `Accept: text/event-stream` what happens is told as it happens: `waiting` (`why`), `object` (an object, \
        `step` and `message`), `retrying` (`code`, `message`, `at`) and last `done` (an `EnvironmentOutcome`). A \
        comment comes every 15 s; a stream without `done` broke off: ask again.",
    params(parameters::EnvironmentPath, parameters::ForgetQuery),
    responses(
        (status = 200, description = "The stream; or the forgotten environment.",
            content((String = "text/event-stream"), (EnvironmentRow = "application/json"))),
        (status = 202, description = "It is due.", body = EnvironmentRow),
        failures::OperatorOnly,
        failures::Unknown,
        failures::Late,
        (status = 422, description = "`invalid`: an unknown parameter"),
        (status = 429, description = "You wait for or follow too much already (`too_many_requests`)"),
    ),
)]
pub(super) async fn remove(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    let asker = JobCaller::Operator(operator(&api, &caller)?);
    let id = numbered(id)?;
    if is_forgotten(&uri)? {
        let forgotten = actions::forget(&api, &asker, id).await?;
        return Ok(answer::json(StatusCode::OK, &EnvironmentRow::from(forgotten)));
    }
    if stream::wants_events(&headers) {
        let held = asker.permit(&api)?;
        return Ok(stream::events(&api, actions::remove(&api, &asker, id).await?, held));
    }
    drop(actions::remove(&api, &asker, id).await?);
    let found = actions::find(&api, &asker, Which::Id(id)).await?;
    Ok(answer::json(StatusCode::ACCEPTED, &EnvironmentRow::from(found)))
}

#[utoipa::path(
    get,
    path = "/environments/{id}/events",
    operation_id = "followEnvironment",
    summary = "Live events of an environment; for jobs their own",
    description = "Server-sent events. `waiting` (`why`), `object` (an object, `step` and `message`), `retrying` \
        (`code`, `message`, `at`) and last `done` (an `EnvironmentOutcome`), at once where nothing is under way, or \
        with `of=removal` where nothing has to go. A comment comes every 15 s.",
    params(parameters::EnvironmentPath, parameters::OfQuery),
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        failures::ForJobs,
        failures::Unknown,
        failures::NotNow,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`"),
        (status = 422, description = "`invalid`: an unknown parameter, or an unknown value of `of`"),
        (status = 429, description = "You follow too much already (`too_many_requests`)"),
    ),
)]
pub(super) async fn follow(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ProblemRow> {
    let asker = JobCaller::of(&api, &caller)?;
    let is_of_removal = is_of_removal(&uri)?;
    let found = actions::find(&api, &asker, Which::Id(numbered(id)?)).await?;
    let held = asker.permit_at(&api, &found.agent)?;
    let service = &api.environments.service;
    let following = if is_of_removal { service.follow_removal(found.id) } else { service.follow(found.id) };
    Ok(stream::events(&api, following, held))
}
