//! Explains a failed request by the trace id of its answer, whichever replica answered it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::audited::{HANDED_OVER, newest};
use super::openapi::failures;
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiParts, ApiShared, Caller, answer};
use gateway_store::{Workspace, wall_clock_ms};
use gateway_types::UnixSeconds;
use gateway_types::failed_request::FailedRequest;
use gateway_types::principal::Principal;

/// Length of a trace id: hexadecimal digits.
const TRACE_LENGTH: usize = 32;

/// A failed request.
#[derive(Serialize, ToSchema)]
#[schema(as = FailedRequest)]
pub(super) struct FailedItem {
    trace_id: String,
    #[schema(format = DateTime)]
    at: String,
    code: String,
    /// What exactly failed where the code covers several cases: of `overloaded`, the limit.
    #[schema(required)]
    detail: Option<String>,
    /// Whose side it is: `app`, `agent`, `way` between gateway and agent, `replica`, `policy`, `limit` or `client`.
    side: &'static str,
    /// What happened, in a sentence.
    what: String,
    /// What to do about it.
    to_do: String,
    /// Status of the answer.
    status: u16,
    /// Time from the head of the request to its answer.
    took_milliseconds: u64,
    #[schema(required)]
    user: Option<String>,
    #[schema(required)]
    workspace: Option<String>,
    #[schema(required)]
    port: Option<u16>,
    /// Address of the client.
    #[schema(required)]
    address: Option<String>,
}

#[utoipa::path(
    get,
    path = "/failures/{trace}",
    operation_id = "explainFailure",
    summary = "Explain a failed request by its trace id",
    description = "The last 10,000 failures of each replica for 24 hours, without paths and header fields. For operators, for the user who \
        asked, and for the owner of the workspace that was asked for; for all others there is none.",
    params(("trace" = String, Path, min_length = 32, max_length = 32, description = "The `gateway-trace` of the answer.")),
    responses(
        (status = 200, description = "The request, whose side its failure is, and what to do.", body = FailedItem),
        (status = 404, description = "No such failure that you may know of (`not_found`)"),
        failures::SignedIn,
    ),
)]
pub(super) async fn explain(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    trace: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let Path(trace) = trace.map_err(|_| ApiProblem::NotFound)?;
    let is_trace = trace.len() == TRACE_LENGTH && trace.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_trace.then_some(()).ok_or(ApiProblem::NotFound)?;
    let found = match (api.failed.find(&trace, wall_clock_ms()), &api.peers) {
        (Some(found), _) => Some(found),
        (None, Some(peers)) => peers.explain(&trace).await,
        (None, None) => None,
    };
    let found = found.ok_or(ApiProblem::NotFound)?;
    if !may_know(&api, principal, &found).await? {
        return Err(ApiProblem::NotFound.into());
    }
    Ok(answer::json(StatusCode::OK, &item(found)))
}

/// Returns whether a user may know of a failed request.
async fn may_know(api: &ApiParts, principal: &Principal, failed: &FailedRequest) -> Result<bool, ProblemRow> {
    let is_own = failed.user.as_deref() == Some(principal.user.as_str());
    if is_own || super::admin::operator(api, principal).is_ok() {
        return Ok(true);
    }
    let Some(name) = failed.workspace.as_ref().and_then(|name| name.parse().ok()) else { return Ok(false) };
    let Some(workspace) = api.store.workspace(&name).await? else { return Ok(false) };
    let since_ms = belongs_since(api, &workspace).await?;
    Ok(workspace.owner == principal.user && failed.at_ms >= since_ms)
}

/// Returns the time since which a workspace is its owner's, in milliseconds: it was made then, or handed over. What was before is of
/// another one of its name, or another owner's.
async fn belongs_since(api: &ApiParts, workspace: &Workspace) -> Result<u64, ProblemRow> {
    let last = newest(api, workspace, HANDED_OVER).await?;
    let made_ms = u64::try_from(workspace.created_at.get()).unwrap_or_default().saturating_mul(1000);
    Ok(last.map_or(made_ms, |last| last.record.at_ms))
}

fn item(failed: FailedRequest) -> FailedItem {
    FailedItem {
        at: UnixSeconds::of_milliseconds(failed.at_ms).to_string(),
        trace_id: failed.trace_id,
        code: failed.code,
        detail: failed.detail,
        side: failed.side.as_str(),
        what: failed.what,
        to_do: failed.to_do,
        status: failed.status,
        took_milliseconds: failed.took_ms,
        user: failed.user,
        workspace: failed.workspace,
        port: failed.port,
        address: failed.address,
    }
}
