//! Templates that workspaces are made from: the list of a cluster's, for all users who may make workspaces there, and what a request for
//! a workspace says of one. What is wrong with a file in all detail is for operators.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::{JsonFields, text};
use super::environments::caller::is_operator;
use super::openapi::{failures, parameters};
use super::problem::{ApiProblem, FaultLocation, Mistake, ProblemRow};
use super::{ApiShared, Caller, Route, answer};
use axum::routing::get;
use gateway_types::ClusterName;
use gateway_workspaces::service::TemplateRequest;
use gateway_workspaces::workspace_templates::ListedTemplate;
use workspace_spec::workspace_template::{Parameter, ParameterFault, ParameterValues, TemplateName, is_parameter_name};

/// Member of a request with the values of parameters.
const PARAMETERS: &str = "template_parameters";

#[derive(Serialize, ToSchema)]
#[schema(as = WorkspaceTemplates)]
pub(super) struct TemplateList {
    templates: Vec<TemplateItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = WorkspaceTemplate)]
struct TemplateItem {
    /// For `template` of a new workspace; of a file that can be no template, the file's name.
    name: String,
    #[schema(required)]
    title: Option<String>,
    #[schema(required)]
    description: Option<String>,
    #[schema(max_items = 32)]
    parameters: Vec<ParameterItem>,
    /// `template_invalid`: its file has mistakes, and it cannot be used until an operator corrects them.
    #[schema(required)]
    error: Option<&'static str>,
    /// What is wrong with the file; for operators.
    #[schema(value_type = Vec<FaultLocation>)]
    problems: Vec<Value>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TemplateParameter)]
struct ParameterItem {
    name: String,
    #[schema(required)]
    title: Option<String>,
    #[schema(required)]
    description: Option<String>,
    /// `text`, `number` or `boolean`. Values are texts in any case: `4`, `true`.
    kind: &'static str,
    /// The value if none is given.
    #[schema(required)]
    default: Option<String>,
    /// The values that it takes; empty for any.
    #[schema(max_items = 64)]
    options: Vec<String>,
    /// A regular expression that matches the whole value.
    #[schema(required)]
    pattern: Option<String>,
    /// It takes no empty value.
    required: bool,
}

impl From<&Parameter> for ParameterItem {
    fn from(parameter: &Parameter) -> Self {
        let Parameter { name, title, description, default, kind, is_required } = parameter;
        Self {
            name: name.clone(),
            title: title.clone(),
            description: description.clone(),
            kind: kind.as_str(),
            default: default.clone(),
            options: kind.options().to_vec(),
            pattern: kind.pattern().map(str::to_owned),
            required: *is_required,
        }
    }
}

impl TemplateItem {
    fn new(listed: ListedTemplate, is_operator: bool) -> Self {
        let ListedTemplate { name, template } = listed;
        match template {
            Ok(template) => Self {
                name,
                title: template.title().map(str::to_owned),
                description: template.description().map(str::to_owned),
                parameters: template.parameters().iter().map(ParameterItem::from).collect(),
                error: None,
                problems: Vec::new(),
            },
            Err(problems) => Self {
                name,
                title: None,
                description: None,
                parameters: Vec::new(),
                error: Some(INVALID),
                problems: problems
                    .into_iter()
                    .filter(|_| is_operator)
                    .map(|problem| FaultLocation::from(problem).told())
                    .collect(),
            },
        }
    }
}

/// The path.
pub(super) fn routes() -> Vec<Route> {
    vec![("/agents/{name}/workspace-templates", &["get"], get(list))]
}

#[utoipa::path(
    get,
    path = "/agents/{name}/workspace-templates",
    operation_id = "listWorkspaceTemplates",
    summary = "The templates that workspaces of a cluster can be made from",
    description = "Every signed-in user may make workspaces from them. They are files of the operator's, and read again when they change.",
    params(parameters::AgentPath),
    responses(
        (status = 200, description = "All of them, by name.", body = TemplateList),
        failures::SignedIn,
        (status = 404, description = "No such agent (`not_found`)"),
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let name: Option<ClusterName> = name.ok().and_then(|Path(name)| name.parse().ok());
    let name = name.ok_or(ApiProblem::NotFound)?;
    api.store.cluster(&name).await?.ok_or(ApiProblem::NotFound)?;
    let is_operator = is_operator(&api, principal);
    let item = |listed| TemplateItem::new(listed, is_operator);
    let templates = api.lifecycles.templates().list(&name).into_iter().map(item).collect();
    Ok(answer::json(StatusCode::OK, &TemplateList { templates }))
}

/// Name of the reason why a template cannot be used.
pub(super) const INVALID: &str = "template_invalid";

/// Reads which template a workspace is made from; `None` only with a mistake noted.
pub(super) fn read(fields: &mut JsonFields<'_>) -> Option<Option<TemplateRequest>> {
    let is_named = fields.has("template");
    let name = fields.optional("template", text::<TemplateName>);
    let given =
        fields.optional(PARAMETERS, |value| value.as_object().cloned().ok_or("has to be an object of texts".into()));
    if !is_named && fields.has(PARAMETERS) {
        fields.object(PARAMETERS, "is for a workspace that is made from a template");
        return None;
    }
    let mut parameters = ParameterValues::new();
    for (name, value) in given.unwrap_or_default() {
        match value {
            Value::String(value) => {
                parameters.insert(name, value);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                fields.at(pointer(&name), "has to be a text".to_owned());
            }
        }
    }
    match (name, is_named) {
        (Some(name), _) => Some(Some(TemplateRequest { name, parameters })),
        (None, false) => Some(None),
        (None, true) => None,
    }
}

/// Refuses a template for a workspace that is in no cluster.
pub(super) fn refuse(fields: &mut JsonFields<'_>) {
    for member in ["template", PARAMETERS] {
        let _nothing: Option<()> =
            fields.optional(member, |_| Err("has to be left out: templates are for workspaces in a cluster".into()));
    }
}

/// Explains why values of parameters cannot be used: one mistake for each parameter.
pub(super) fn problem(faults: Vec<ParameterFault>) -> ProblemRow {
    let mistake = |one: ParameterFault| Mistake { pointer: pointer(&one.parameter), detail: one.fault.to_string() };
    ProblemRow::invalid(faults.into_iter().map(mistake).collect())
}

/// Returns the place of a parameter in the body. A name that no parameter can have is not repeated.
fn pointer(name: &str) -> String {
    if is_parameter_name(name) { format!("/{PARAMETERS}/{name}") } else { format!("/{PARAMETERS}") }
}
