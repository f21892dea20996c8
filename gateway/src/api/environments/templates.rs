//! Templates, and what they render to.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;

use super::asker::operator;
use super::ops;
use super::prepare::wish;
use crate::api::problem::{Problem, Refused};
use crate::api::{Caller, Shared, answer, body};
use crate::environments::refusal::RefusalCode;
use crate::environments::template::TemplateName;
use crate::model::ClusterName;

#[derive(Serialize)]
struct TemplateRow {
    name: String,
    data: String,
}

#[derive(Serialize)]
struct Name {
    name: String,
}

#[derive(Serialize)]
struct List {
    templates: Vec<Name>,
}

pub(super) async fn render(
    State(api): State<Arc<Shared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let user = operator(&api, &caller)?;
    let (object, seat) = body::read_large(request, &api.uploads, &user).await?;
    let rendered = ops::render(&api, &caller, object.read(wish)?).await?;
    drop((object, seat));
    let row = TemplateRow { name: rendered.template.to_string(), data: rendered.to_yaml() };
    Ok(answer::json(StatusCode::OK, &row))
}

pub(super) async fn list(
    State(api): State<Arc<Shared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    operator(&api, &caller)?;
    let agent = agent(name.map(|Path(name)| name).ok())?;
    let names = api.environments.service.templates(&agent)?;
    let templates = names.iter().map(|name| Name { name: name.to_string() }).collect();
    Ok(answer::json(StatusCode::OK, &List { templates }))
}

pub(super) async fn show(
    State(api): State<Arc<Shared>>,
    caller: Caller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Problem> {
    operator(&api, &caller)?;
    let (name, template) = path.map(|Path(both)| both).ok().unzip();
    let agent = agent(name)?;
    let template: Option<TemplateName> = template.and_then(|text| text.parse().ok());
    let template = template.ok_or(Refused::Environment(RefusalCode::NoSuchTemplate))?;
    let found = ops::template(&api, &caller, &agent, &template)?;
    let row = TemplateRow { name: found.name().to_string(), data: found.text().to_owned() };
    Ok(answer::json(StatusCode::OK, &row))
}

/// Answers with the built-in template; everybody who is signed in may see it.
pub(super) async fn default(State(api): State<Arc<Shared>>, caller: Caller) -> Result<Response, Problem> {
    caller.user()?;
    let found = api.environments.service.default_template();
    let row = TemplateRow { name: found.name().to_string(), data: found.text().to_owned() };
    Ok(answer::json(StatusCode::OK, &row))
}

/// Reads the name of an agent; what cannot be one is none.
fn agent(name: Option<String>) -> Result<ClusterName, Problem> {
    let agent = name.and_then(|name| name.parse().ok());
    agent.ok_or_else(|| Refused::Environment(RefusalCode::NoSuchAgent).into())
}
