//! Templates, and their rendering.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::actions;
use super::caller::operator;
use super::prepare::wish;
use crate::openapi::{bodies, failures, parameters};
use crate::problem::{ApiProblem, FaultLocation, ProblemRow};
use crate::{ApiShared, Caller, answer, body};
use gateway_environments::files::RefusedFile;
use gateway_environments::refusal::RefusalCode;
use gateway_types::ClusterName;
use workspace_spec::environment::template::TemplateName;

/// Most faults shown of one file in a list: the template itself shows more.
const LISTED_MAX: usize = 5;

#[derive(Serialize, ToSchema)]
#[schema(as = EnvironmentTemplate)]
pub(crate) struct TemplateRow {
    name: String,
    /// YAML.
    data: String,
    /// What is wrong with the file of an agent's template as it is now: then this is the last that was good, or what came
    /// of that. Left out if nothing is.
    #[schema(value_type = Vec<FaultLocation>)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Value>,
}

#[derive(Serialize, ToSchema)]
struct NamedTemplate {
    name: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EnvironmentTemplates)]
pub(crate) struct TemplateList {
    #[schema(inline)]
    templates: Vec<NamedTemplate>,
    /// Files that are not in force as they are.
    #[schema(inline)]
    refused: Vec<RefusedRow>,
}

// A file that is not in force as it is.
#[derive(Serialize, ToSchema)]
struct RefusedRow {
    /// From the agent's folder on; the folder of templates itself where that cannot be read.
    file: String,
    /// Which template it would be; what is in force by that name is older, or nothing is.
    #[schema(required)]
    template: Option<String>,
    /// The first 5 things that are wrong with it.
    #[schema(value_type = Vec<FaultLocation>)]
    problems: Vec<Value>,
}

impl From<RefusedFile> for RefusedRow {
    fn from(refused: RefusedFile) -> Self {
        let RefusedFile { file, template, problems } = refused;
        let problems =
            problems.into_iter().take(LISTED_MAX).map(|problem| FaultLocation::from(problem).told()).collect();
        Self { file, template: template.map(|name| name.to_string()), problems }
    }
}

fn told(problems: &[FaultLocation]) -> Vec<Value> {
    problems.iter().map(FaultLocation::told).collect()
}

#[utoipa::path(
    post,
    path = "/environments/render",
    operation_id = "renderEnvironmentTemplate",
    summary = "Render a template with values; for operators",
    description = "Asks no agent and changes nothing.",
    request_body = bodies::EnvironmentWanted,
    responses(
        (status = 200, description = "Rendered.", body = TemplateRow),
        failures::OperatorOnly,
        failures::EnvironmentBody,
        failures::Unknown,
        (status = 429, description = "You send too much already (`too_many_requests`)"),
    ),
)]
pub(super) async fn render(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    let user = operator(&api, &caller)?;
    let (object, permit) = body::read_large(request, &api.uploads, &user).await?;
    let (rendered, problems) = actions::render(&api, &caller, object.read(wish)?).await?;
    drop((object, permit));
    let (name, data) = (rendered.template.to_string(), rendered.to_yaml());
    let row = TemplateRow { name, data, problems: told(&problems) };
    Ok(answer::json(StatusCode::OK, &row))
}

#[utoipa::path(
    get,
    path = "/agents/{name}/environment-templates",
    operation_id = "listEnvironmentTemplates",
    summary = "The templates of an agent; for operators",
    params(parameters::AgentPath),
    responses(
        (status = 200, description = "All, by name.", body = TemplateList),
        failures::OperatorOnly,
        failures::Unknown,
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    operator(&api, &caller)?;
    let agent = agent(name.map(|Path(name)| name).ok())?;
    let service = &api.environments.service;
    let templates = service.templates(&agent)?.iter().map(|name| NamedTemplate { name: name.to_string() }).collect();
    let refused = service.refused_templates(&agent).into_iter().map(RefusedRow::from).collect();
    Ok(answer::json(StatusCode::OK, &TemplateList { templates, refused }))
}

#[utoipa::path(
    get,
    path = "/agents/{name}/environment-templates/{template}",
    operation_id = "getEnvironmentTemplate",
    summary = "A template of an agent; for operators",
    params(parameters::TemplatePath),
    responses(
        (status = 200, description = "The newest valid one.", body = TemplateRow),
        failures::OperatorOnly,
        failures::Unknown,
        (status = 422, description = "The file is wrong and there never was a good one (`template_invalid`), with \
            all that is wrong in `problems`"),
    ),
)]
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ProblemRow> {
    operator(&api, &caller)?;
    let (name, template) = path.map(|Path(both)| both).ok().unzip();
    let agent = agent(name)?;
    let template: Option<TemplateName> = template.and_then(|text| text.parse().ok());
    let template = template.ok_or(ApiProblem::Environment(RefusalCode::NoSuchTemplate))?;
    let found = actions::template(&api, &caller, &agent, &template)?;
    let problems = told(&actions::template_problems(&api, &agent, &template));
    let row = TemplateRow { name: found.name().to_string(), data: found.text().to_owned(), problems };
    Ok(answer::json(StatusCode::OK, &row))
}

/// Answers with the built-in template; all users who are signed in may see it.
#[utoipa::path(
    get,
    path = "/environment-templates/default",
    operation_id = "getDefaultEnvironmentTemplate",
    summary = "The built-in template, for agents without a template `default`",
    responses(
        (status = 200, description = "The template.", body = TemplateRow),
        (status = 401, description = "No user is signed in (`sign_in_required`)"),
        (status = 409, description = "`environments_off`"),
        (status = 503, description = "`overloaded` with the limit, `store_unavailable`, or of the agent: \
            `agent_absent`, `agent_too_old`, `agent_displaced`"),
    ),
)]
pub(super) async fn default(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    caller.user()?;
    let found = api.environments.service.default_template();
    let row = TemplateRow { name: found.name().to_string(), data: found.text().to_owned(), problems: Vec::new() };
    Ok(answer::json(StatusCode::OK, &row))
}

/// Reads the name of an agent; an invalid name is no agent.
fn agent(name: Option<String>) -> Result<ClusterName, ProblemRow> {
    let agent = name.and_then(|name| name.parse().ok());
    agent.ok_or_else(|| ApiProblem::Environment(RefusalCode::NoSuchAgent).into())
}
