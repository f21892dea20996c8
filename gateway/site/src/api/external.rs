//! External workspaces: their owners make and delete them by themselves. They run elsewhere, so nothing is started or stopped
//! here.

use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;
use tunnel_proto::reason::Reason;

use super::problem::{ApiProblem, ProblemRow};
use super::workspaces::detail;
use super::{ApiShared, Caller, PREFIX, actor, answer};
use gateway_auth::policy::Visibility;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{CreateError, Workspace, wall_clock};
use gateway_types::principal::Principal;
use gateway_types::{NamedPort, UnixSeconds, WorkspaceName};

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

/// Answers a request for a new external workspace.
pub(super) async fn create(
    api: &ApiShared,
    caller: &Caller,
    name: &WorkspaceName,
    ports: &[NamedPort],
    now: UnixSeconds,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let workspace = make(api, caller, principal, name, ports, now).await?;
    let shown = detail(api, principal, &workspace, Visibility::Owner, None, now).await;
    let mut response = answer::json(StatusCode::CREATED, &shown);
    if let Ok(location) = HeaderValue::try_from(format!("{PREFIX}/workspaces/{name}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Deletes an external workspace of the caller: its agent's session, tokens and shares end, and the name is free.
pub(crate) async fn delete(api: &ApiShared, caller: &Caller, name: &WorkspaceName) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    let slot = api.audit.slot().await?;
    if !api.store.delete_external(name, Some(&principal.user), wall_clock()).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(AuditEvent::WorkspaceForgotten { by: actor(principal), workspace: Text::of(name) }));
    api.workspaces.forget(name, Instant::now());
    // The next owner of the name must not find this agent there, as it could be until its token is checked again.
    if let Some(session) = api.registry.current(name) {
        api.registry.release(&session);
        session.lanes.close(Reason::Revoked);
        session.tunnel.close(Reason::Revoked, "the workspace was deleted");
    }
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
