//! Prerequisites of a job: whether any are unmet, and meeting them.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::actions::{self, CallerJobRequest, EnsureRequest, TemplateSource};
use super::caller::{JobCaller, operator};
use super::request::{AskedAgent, AskedEnvironment, AskedInfo, AskedProject};
use super::stream;
use super::view::OutcomeRow;
use crate::body::{self, JsonFields, JsonObject, text};
use crate::openapi::{bodies, failures, values};
use crate::problem::ProblemRow;
use crate::{ApiShared, Caller, answer};
use gateway_environments::request::{JobFacts, Unmet};
use gateway_types::ClusterName;
use workspace_spec::environment::template::TemplateName;

#[derive(Serialize, ToSchema)]
#[schema(as = Unmet)]
pub(crate) struct UnmetRow {
    unmet: bool,
    #[schema(schema_with = values::met, required)]
    reason: Option<&'static str>,
}

#[utoipa::path(
    post,
    path = "/environments/unmet",
    operation_id = "unmetPrerequisites",
    summary = "Whether a job needs preparation before it may run",
    description = "Answered from memory: it sends no request and changes nothing.",
    request_body = bodies::EnvironmentRequest,
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "Whether, and if not, why.", body = UnmetRow),
        failures::ForJobs,
        failures::EnvironmentBody,
        failures::NotNow,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`"),
    ),
)]
pub(super) async fn unmet(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    // The caller is known before a byte of the body is read.
    let asker = JobCaller::of(&api, &caller)?;
    let asked = JsonObject::from_request(request, &api).await?.read(asked)?;
    let row = match actions::unmet(&api, &asker, asked)? {
        Unmet::Unmet => UnmetRow { unmet: true, reason: None },
        Unmet::Met(met) => UnmetRow { unmet: false, reason: Some(met.as_str()) },
    };
    Ok(answer::json(StatusCode::OK, &row))
}

#[utoipa::path(
    post,
    path = "/environments/complete",
    operation_id = "completePrerequisites",
    summary = "Prepare the environment of a job",
    description = "Happens once for each job, also with repeated requests and over a restart of the gateway. The \
        answer comes at the end. With `Accept: text/event-stream`, progress is streamed: `waiting` \
        (`why`), `object` (an object, `step` and `message`), `retrying` (`code`, `message`, `at`) and last `done` \
        (an `EnvironmentOutcome`). A comment comes every 15 s; a stream without `done` broke off: ask again.",
    request_body = bodies::EnvironmentRequest,
    security(("bearer" = []), ("gatewayAuthorization" = []), ("session" = []), ("job" = [])),
    responses(
        (status = 200, description = "Everything is there, or nothing was to be done.",
            content((OutcomeRow = "application/json"), (String = "text/event-stream"))),
        failures::ForJobs,
        failures::Ending,
        failures::EnvironmentBody,
        failures::Unknown,
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`; or \
            `project_not_allowed`, `environment_not_allowed` or `ref_not_protected`, by the agent's `ci_access`; \
            jobs get `project_not_allowed` also where there is no agent of that name"),
    ),
)]
pub(super) async fn complete(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ProblemRow> {
    let asker = JobCaller::of(&api, &caller)?;
    let asked = JsonObject::from_request(request, &api).await?.read(asked)?;
    let (following, held) = actions::complete(&api, &asker, asked).await?;
    if stream::wants_events(&headers) {
        return Ok(stream::events(&api, following, held));
    }
    stream::end(&api, following, held).await
}

#[utoipa::path(
    post,
    path = "/environments/ensure",
    operation_id = "ensureEnvironment",
    summary = "Create the objects of a rendered template; for operators",
    description = "And no others that this environment had before. It is answered when it is done. With `Accept: \
        text/event-stream` what happens is told as it happens: `waiting` (`why`), `object` (an object, `step` and \
        `message`), `retrying` (`code`, `message`, `at`) and last `done` (an `EnvironmentOutcome`). A comment comes \
        every 15 s; a stream without `done` broke off: ask again.",
    request_body = bodies::EnvironmentWanted,
    responses(
        (status = 200, description = "Everything is there.",
            content((OutcomeRow = "application/json"), (String = "text/event-stream"))),
        failures::Ending,
        failures::EnvironmentBody,
        failures::Unknown,
        (status = 401, description = "No user is signed in (`sign_in_required`)"),
        (status = 403, description = "`forbidden`: you are no operator: `environments.operators`, `auth.admins`"),
        (status = 503, description = "`overloaded` with the limit, `store_unavailable`, or of the agent: \
            `agent_absent`, `agent_too_old`, `agent_displaced`"),
    ),
)]
pub(super) async fn ensure(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ProblemRow> {
    let user = operator(&api, &caller)?;
    let asker = JobCaller::Operator(user.clone());
    let held = asker.permit(&api)?;
    let (object, permit) = body::read_large(request, &api.uploads, &user).await?;
    let following = actions::ensure(&api, &asker, object.read(wish)?).await?;
    drop((object, permit));
    if stream::wants_events(&headers) {
        return Ok(stream::events(&api, following, held));
    }
    stream::end(&api, following, held).await
}

fn asked(fields: &mut JsonFields<'_>) -> Option<CallerJobRequest> {
    let agent = fields.required("agent", text::<ClusterName>);
    let template = fields.optional("template", text::<TemplateName>);
    let is_disabled = fields.optional("disabled", truth).unwrap_or_default();
    let url = fields.optional("url", words);
    let environment = fields.optional("environment", words);
    let job = fields.maybe_nested("job", job);
    Some(CallerJobRequest { agent: agent?, template, is_disabled, url, environment, job })
}

fn job(fields: &mut JsonFields<'_>) -> Option<JobFacts> {
    let project_id = fields.required("project_id", number);
    let project_path = fields.required("project_path", words);
    let environment = fields.optional("environment", words);
    let tier = fields.optional("tier", words);
    let action = fields.optional("action", words);
    let is_ref_protected = fields.optional("is_ref_protected", truth).unwrap_or_default();
    let pipeline_id = fields.optional("pipeline_id", number);
    let job_id = fields.required("job_id", number);
    let user_id = fields.required("user_id", number);
    let username = fields.required("username", words);
    Some(JobFacts {
        project_id: project_id?,
        project_path: project_path?,
        environment,
        tier,
        action,
        is_ref_protected,
        pipeline_id,
        job_id: job_id?,
        user_id: user_id?,
        username: username?,
    })
}

/// Reads what is to be rendered, or ensured.
pub(super) fn wish(fields: &mut JsonFields<'_>) -> Option<EnsureRequest> {
    let agent = fields.required("agent", text::<ClusterName>);
    let template = fields.nested("template", |fields| {
        let name = fields.required("name", text::<TemplateName>);
        let data = fields.optional("data", words);
        Some(TemplateSource { name: name?, data })
    });
    let info = fields.nested("info", info);
    Some(EnsureRequest { agent: agent?, template: template?, info: info? })
}

fn info(fields: &mut JsonFields<'_>) -> Option<AskedInfo> {
    let agent = fields.maybe_nested("agent", agent);
    let environment = fields.nested("environment", |fields| {
        let (id, name) = (fields.optional("id", number), fields.required("name", words));
        let (slug, page_url) = (fields.optional("slug", words), fields.optional("page_url", words));
        let (url, tier) = (fields.optional("url", words), fields.optional("tier", words));
        Some(AskedEnvironment { id, name: name?, slug, page_url, url, tier })
    });
    let project = fields.nested("project", |fields| {
        let (id, slug) = (fields.required("id", number), fields.optional("slug", words));
        let (path, url) = (fields.required("path", words), fields.optional("url", words));
        Some(AskedProject { id: id?, slug, path: path?, url })
    });
    let ci_pipeline = fields.maybe_nested("ci_pipeline", |fields| fields.required("id", number));
    let ci_job = fields.maybe_nested("ci_job", |fields| fields.required("id", number));
    let user = fields.maybe_nested("user", |fields| {
        let (id, username) = (fields.required("id", number), fields.required("username", words));
        Some((id?, username?))
    });
    Some(AskedInfo { agent, environment: environment?, project: project?, ci_pipeline, ci_job, user })
}

fn agent(fields: &mut JsonFields<'_>) -> Option<AskedAgent> {
    let name = fields.required("name", words);
    // Other facts that a client repeats after it has shown or rendered one: the gateway knows them itself.
    let (_, _) = (fields.optional("id", number), fields.optional("url", words));
    Some(AskedAgent { name: name? })
}

/// Reads any text; what it may say is decided where it is used.
fn words(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "has to be a text".to_owned())
}

fn number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| "has to be a whole number".to_owned())
}

fn truth(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "has to be true or false".to_owned())
}
