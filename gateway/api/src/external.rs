//! External workspaces: their owners make and delete them by themselves. They run elsewhere, so nothing is started or stopped
//! here.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use tokio::time::Instant;
use tunnel_proto::reason::Reason;

use super::body::{JsonObject, text};
use super::openapi::{bodies, failures, parameters};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, actor, answer, shares};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{CreateError, HandOver, Workspace, wall_clock};
use gateway_types::principal::Principal;
use gateway_types::{NamedPort, UnixSeconds, UserName, WorkspaceName};

/// Makes a workspace and records its maker.
pub(crate) async fn make(
    api: &ApiShared,
    caller: &Caller,
    principal: &Principal,
    name: &WorkspaceName,
    ports: &[NamedPort],
    now: UnixSeconds,
) -> Result<Workspace, ProblemRow> {
    let slot = api.audit.slot().await?;
    let made = api.store.create_external(name, &principal.user, Some(api.external_max), ports, now).await;
    let made = made.map_err(problem)?;
    slot.record(caller.did(AuditEvent::WorkspaceCreated {
        by: actor(principal),
        workspace: Text::of(name),
        cluster: None,
        provider: None,
    }));
    // The cache may remember that there was none.
    api.workspaces.forget(name, Instant::now());
    Ok(made)
}

/// Deletes an external workspace of the caller: its agent's session, tokens and shares end, and the name is free.
///
/// # Errors
/// `not_found` if there is no such workspace of the caller's, and the refusals of a workspace that is run for its owner.
pub async fn delete(api: &ApiShared, caller: &Caller, name: &WorkspaceName) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    let slot = api.audit.slot().await?;
    if !api.store.delete_external(name, Some(&principal.user), wall_clock()).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(AuditEvent::WorkspaceForgotten { by: actor(principal), workspace: Text::of(name) }));
    cut(api, name, "the workspace was deleted");
    Ok(())
}

/// Forgets what is remembered of a workspace, and ends the session of its agent: the next owner of the name must not find this agent
/// there, as it could be until its token is checked again.
fn cut(api: &ApiShared, name: &WorkspaceName, why: &'static str) {
    api.workspaces.forget(name, Instant::now());
    if let Some(session) = api.registry.current(name) {
        api.registry.release(&session);
        session.lanes.close(Reason::Revoked);
        session.tunnel.close(Reason::Revoked, why);
    }
}

#[utoipa::path(
    post,
    path = "/workspaces/{name}/hand-over",
    operation_id = "handOverWorkspace",
    summary = "Give an external workspace of yours to another user",
    description = "Its shares, the tokens of its agent and what you have open there end. The other user connects a machine with a token of \
        their own.",
    params(parameters::WorkspacePath),
    request_body = bodies::HandOver,
    responses(
        (status = 204, description = "It is theirs."),
        failures::SmallBody,
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 409, description = "`conflict`; `reason` is `managed` for a workspace that the gateway runs, or \
            `limits.external_workspaces_per_user` if the other user has as many as they may have"),
    ),
)]
pub(super) async fn hand_over_asked(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let workspace = shares::owned(&api, &caller, name, wall_clock()).await?;
    let to = body.read(|fields| fields.required("to", text::<UserName>))?;
    hand_over(&api, &caller, &workspace, &to).await?;
    Ok(answer::done())
}

/// Gives a workspace of the caller's to another user, and records that.
///
/// # Errors
/// `invalid` for a user who cannot have it, `conflict` for a workspace that is run for its owner.
pub async fn hand_over(
    api: &ApiShared,
    caller: &Caller,
    workspace: &Workspace,
    to: &UserName,
) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    if workspace.executor.is_managed() {
        return Err(ApiProblem::Conflict { reason: "managed" }.into());
    }
    // A name without a sign-in would belong to the first person to come under it.
    if *to == principal.user || api.environments.dev.is_none() && !api.store.is_user_known(to).await? {
        return Err(ProblemRow::mistake("/to", "has to be another user, who has signed in here before"));
    }
    let slot = api.audit.slot().await?;
    match api.store.hand_over(&workspace.name, &principal.user, to, api.external_max).await? {
        HandOver::Done => {}
        HandOver::NoSuchWorkspace => return Err(ApiProblem::NotFound.into()),
        HandOver::TooMany => {
            return Err(ApiProblem::Conflict { reason: "limits.external_workspaces_per_user" }.into());
        }
    }
    let (by, workspace, to) = (actor(principal), &workspace.name, Text::of(to));
    slot.record(caller.did(AuditEvent::WorkspaceHandedOver { by, workspace: Text::of(workspace), to }));
    api.public_ports.change(workspace, std::iter::empty());
    cut(api, workspace, "the workspace was handed over");
    Ok(())
}

fn problem(error: CreateError) -> ProblemRow {
    match error {
        CreateError::NameTaken => ApiProblem::Conflict { reason: "name_taken" }.into(),
        CreateError::OverQuota(_) => ApiProblem::Conflict { reason: "limits.external_workspaces_per_user" }.into(),
        CreateError::ConfigChanged => ApiProblem::Changed.into(),
        CreateError::Store(error) => error.into(),
    }
}
