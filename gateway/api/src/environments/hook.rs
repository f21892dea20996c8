//! Deleted projects: reported by GitLab's system hook, or by an operator.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::actions::missing;
use super::caller::{hook, operator};
use crate::body::read;
use crate::openapi::parameters;
use crate::problem::{ApiProblem, ProblemRow};
use crate::{ApiShared, Caller, answer};
use gateway_environments::on_record::OnRecord;
use gateway_environments::request::By;
use workspace_spec::environment::facts::ID_MAX;

/// The event of a project that was deleted (GitLab documentation, system hooks).
const PROJECT_DESTROY: &str = "project_destroy";

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Swept {
    environments: u32,
}

/// The parts of an event that count here.
#[derive(Deserialize)]
struct HookEvent {
    event_name: Option<String>,
    project_id: Option<u64>,
}

/// Takes an event. Those of other kinds are accepted too: a hook that is refused often is not called any more.
#[utoipa::path(
    post,
    path = "/environments/hooks/gitlab",
    operation_id = "gitlabSystemHook",
    summary = "Receive deletions of projects, as a system hook of GitLab",
    description = "`X-Gitlab-Token` has to be what is in `environments.hook_token_file`. `project_destroy` stops all \
        environments of the project and deletes their objects, unless their templates keep them. Other events have no \
        effect.",
    request_body = Object,
    security(("hook" = [])),
    responses(
        (status = 204, description = "Heard."),
        (status = 400, description = "Malformed request (`bad_request`)"),
        (status = 401, description = "`hook_refused`: the secret is wrong or missing"),
        (status = 409, description = "`environments_off`"),
        (status = 415, description = "Not JSON (`bad_request`)"),
        (status = 422, description = "The event has no `project_id` (`invalid`)"),
        (status = 503, description = "`overloaded` with the limit, `store_unavailable`, or of the agent: \
            `agent_absent`, `agent_too_old`, `agent_displaced`"),
    ),
)]
pub(super) async fn gitlab(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    hook(&caller)?;
    let bytes = match read(request.into_body()).await {
        Ok(bytes) => bytes,
        // Events of deleted projects are short.
        Err(problem) if problem.is(ApiProblem::TooLarge) => return Ok(answer::done()),
        Err(problem) => return Err(problem),
    };
    let heard: HookEvent =
        serde_json::from_slice(&bytes).map_err(|_| ApiProblem::BadRequest { reason: "malformed_json" })?;
    if heard.event_name.as_deref() != Some(PROJECT_DESTROY) {
        return Ok(answer::done());
    }
    let project = heard.project_id.filter(|id| *id <= ID_MAX).ok_or_else(|| missing("/project_id"))?;
    let by = OnRecord::new(By::Hook, api.audit.slot().await?);
    let count = api.environments.service.sweep(project, by).await?;
    tracing::info!(project, count, "a project was deleted: stopping its environments");
    Ok(answer::done())
}

/// Does the same at an operator's request.
#[utoipa::path(
    delete,
    path = "/projects/{id}/environments",
    operation_id = "sweepProject",
    summary = "Stop all environments of a deleted project; for operators",
    description = "And delete their objects, unless their templates keep them. From here on its jobs are refused (`project_deleted`), until an operator has something made for it with `/environments/ensure`.",
    params(parameters::ProjectPath),
    responses(
        (status = 200, description = "How many.", body = Swept),
        (status = 401, description = "No user is signed in (`sign_in_required`)"),
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`"),
        (status = 409, description = "`environments_off`"),
        (status = 422, description = "Not a number (`invalid`)"),
        (status = 503, description = "`overloaded` with the limit, `store_unavailable`, or of the agent: \
            `agent_absent`, `agent_too_old`, `agent_displaced`"),
    ),
)]
pub(super) async fn sweep(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let user = operator(&api, &caller)?;
    let project: Option<u64> = id.ok().and_then(|Path(text)| text.parse().ok()).filter(|id| *id <= ID_MAX);
    let project = project.ok_or_else(|| ProblemRow::mistake("/id", "has to be a whole number"))?;
    let by = OnRecord::new(By::User(user), api.audit.slot().await?);
    let environments = api.environments.service.sweep(project, by).await?;
    Ok(answer::json(StatusCode::OK, &Swept { environments }))
}
