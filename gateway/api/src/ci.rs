//! Serves jobs of CI systems: the workspace agent's programs, which are public, and the definition of a workspace's
//! pipeline, which only the job that was asked for it gets.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use super::ApiShared;
use super::problem::{ApiProblem, ProblemRow};
use crate::stack::Delivery;

/// Makes definitions of pipelines for the jobs that they belong to.
pub trait Definitions: Send + Sync {
    /// Returns the definition for the job whose token is in the headers of a request.
    fn definition<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<String, NoDefinition>>;
}

/// Reason a job gets no definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDefinition {
    /// Workspaces are not made in CI systems here.
    Disabled,
    /// The token is not one of such a job; the code says why.
    Refused(&'static str),
    /// The job's pipeline may be one that the gateway does not know of yet; the code says so.
    NotYet(&'static str),
    /// The job's pipeline is over, or told to end.
    Over(&'static str),
    /// A party that has to be asked does not answer.
    Unavailable,
    /// The stored values make no pipeline any more.
    Broken,
}

impl From<NoDefinition> for ProblemRow {
    fn from(none: NoDefinition) -> Self {
        match none {
            NoDefinition::Disabled => ApiProblem::ExecutorDisabled.into(),
            NoDefinition::Refused(reason) => ApiProblem::NotSuchJob { reason }.into(),
            NoDefinition::NotYet(reason) => ApiProblem::NotYet { reason }.into(),
            NoDefinition::Over(reason) => ApiProblem::Conflict { reason }.into(),
            NoDefinition::Unavailable => ApiProblem::Overloaded { limit: "credential_unchecked" }.into(),
            NoDefinition::Broken => ApiProblem::Conflict { reason: "no_definition" }.into(),
        }
    }
}

/// Answers `GET /ci/pipeline`: the token alone selects the pipeline.
#[utoipa::path(
    get,
    path = "/ci/pipeline",
    operation_id = "getPipeline",
    summary = "Pipeline definition of a workspace, for the CI job that the gateway requested",
    description = "The `id_token` of a job of the configured project, as a bearer token, identifies the workspace. It \
        stays usable.",
    security(),
    responses(
        (status = 200, description = "The definition, as a `.gitlab-ci.yml` has it.", content_type = "application/yaml"),
        (status = 401, description = "`job_refused`: `reason` says what is wrong with the token, such as \
            `job_of_another_project`, `job_of_another_ref`, `run_unknown` or `credential_expired`"),
        (status = 409, description = "`executor_disabled`, or `conflict`: `reason` is `run_over`, \
            `workspace_stopped` or `no_definition`"),
        (status = 503, description = "`overloaded`: `limit` is `credential_unchecked`; or `not_yet`: `reason` is \
            `run_not_known_yet`, while the job's pipeline may be one that the gateway has asked for and not heard \
            of"),
    ),
)]
pub(super) async fn pipeline(State(api): State<Arc<ApiShared>>, headers: HeaderMap) -> Result<Response, ProblemRow> {
    let text = api.definitions.definition(&headers).await?;
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    Ok(response)
}

/// Answers `GET /ci/agents/{sha256}`.
#[utoipa::path(
    get,
    path = "/ci/agents/{sha256}",
    operation_id = "getAgentProgram",
    summary = "A program of the workspace agent, for jobs of CI systems",
    description = "Needs no sign-in: a program is no secret. Compare its SHA-256 before running it.",
    params(("sha256" = String, Path, description = "Its SHA-256 in lower-case hexadecimal.")),
    security(),
    responses(
        (status = 200, description = "The program.", content_type = "application/octet-stream"),
        (status = 404, description = "There is none with this SHA-256 (`not_found`)"),
    ),
)]
pub(super) async fn agent(
    State(api): State<Arc<ApiShared>>,
    Path(sha256): Path<String>,
) -> Result<Response, ProblemRow> {
    let download = api.downloads.find(&sha256).ok_or(ApiProblem::NotFound)?;
    let bytes = download.bytes();
    let mut response = Response::new(Body::from_stream(api.downloads.read(download)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Its name is the hash of its content, so it never changes.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    response.extensions_mut().insert(Delivery::File(bytes));
    Ok(response)
}
