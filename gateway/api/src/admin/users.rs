//! Users, and who of them may come in.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::query::Filters;
use crate::body::JsonObject;
use crate::list::PageRequest;
use crate::openapi::{bodies, failures, parameters, values};
use crate::problem::{ApiProblem, ProblemRow};
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::policy::OperatorGrant;
use gateway_net::audit::{Actor, AuditEvent, Text};
use gateway_store::{ListedUser, UserFilter, WorkspaceId, wall_clock};
use gateway_types::{DesiredState, UserName};
use gateway_workspaces::service::WorkspaceError;

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "au";

/// Words for the state of users.
const STATES: [(&str, bool); 2] = [("disabled", true), ("enabled", false)];

/// Users that are asked for.
#[derive(Debug)]
pub struct UserQuery {
    part: String,
    is_disabled: Option<bool>,
    page: PageRequest<UserName>,
}

impl UserQuery {
    /// Reads `q`, `state`, `limit` and `cursor`.
    ///
    /// # Errors
    /// `invalid` with all mistakes of the query.
    pub fn read(uri: &Uri) -> Result<Self, ProblemRow> {
        let (page, narrowed) = PageRequest::read_filtered(uri, CURSOR, &["q", "state"])?;
        let mut filters = Filters::new(narrowed);
        let read = Self { part: filters.part("q"), is_disabled: filters.word("state", &STATES), page };
        filters.finish()?;
        Ok(read)
    }
}

/// A page of all users.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminUsers)]
pub struct AdminUserPage {
    /// By name.
    pub users: Vec<AdminUserRow>,
    /// For the next page; `null` on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A user as operators see them: one who signed in, owns a workspace, has a token, or was disabled.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminUser)]
pub struct AdminUserRow {
    /// Name, which addresses of workspaces and shares use.
    pub name: String,
    /// Groups at the last sign-in.
    pub(crate) groups: Vec<String>,
    #[schema(schema_with = values::user_state)]
    pub(crate) state: &'static str,
    /// Last sign-in with the identity provider.
    #[schema(required, format = DateTime)]
    pub(crate) last_sign_in: Option<String>,
    /// Null for a user who may sign in.
    #[schema(required, format = DateTime)]
    pub disabled_at: Option<String>,
    /// Number of their workspaces.
    #[schema(schema_with = values::count)]
    pub(crate) workspaces: u64,
}

/// Result of disabling or enabling a user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserChange)]
pub struct UserChangeRow {
    pub(crate) name: String,
    #[schema(schema_with = values::user_state)]
    pub(crate) state: &'static str,
    /// Workspaces that are to stop now.
    pub(crate) stopped: Vec<String>,
    /// Workspaces that could not be stopped: ask again.
    pub(crate) not_stopped: Vec<String>,
}

/// Returns a page of all users that fit, by name.
///
/// # Errors
/// `overloaded` if the store does not answer.
///
/// # Cancel safety
/// Safe.
pub async fn list(api: &ApiParts, _grant: &OperatorGrant, query: &UserQuery) -> Result<AdminUserPage, ProblemRow> {
    let found = api.store.listed_users(UserFilter {
        part: &query.part,
        is_disabled: query.is_disabled,
        after: query.page.after.as_ref(),
        limit: query.page.look_up(),
    });
    let (users, next_cursor) = query.page.cut(found.await?, CURSOR, |user| user.name.to_string(), row);
    Ok(AdminUserPage { users, next_cursor })
}

fn row(user: &ListedUser) -> AdminUserRow {
    AdminUserRow {
        name: user.name.to_string(),
        groups: user.groups.iter().map(ToString::to_string).collect(),
        state: state(user.disabled_at.is_some()),
        last_sign_in: user.last_seen.map(|time| time.to_string()),
        disabled_at: user.disabled_at.map(|time| time.to_string()),
        workspaces: user.workspaces,
    }
}

fn state(is_disabled: bool) -> &'static str {
    if is_disabled { "disabled" } else { "enabled" }
}

/// Disables a user: every session and token of theirs ends within seconds, on all replicas. With `stop`, the workspaces
/// that an executor runs for them are stopped too.
///
/// # Errors
/// `not_found` for a user that is not known, `conflict` for the operator who asks: they could not take it back.
///
/// # Cancel safety
/// Dropped before it returns, the user may be disabled and some of the workspaces stopped; a repetition goes on.
pub async fn disable(
    api: &ApiParts,
    grant: &OperatorGrant,
    caller: &Caller,
    name: &UserName,
    stop: bool,
) -> Result<UserChangeRow, ProblemRow> {
    if name == grant.user() {
        return Err(ApiProblem::Conflict { reason: "yourself" }.into());
    }
    let slot = api.audit.slot().await?;
    if !api.store.disable_user(name, wall_clock()).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(AuditEvent::UserChanged { by: by(grant), user: Text::of(name), how: state(true) }));
    let mut changed =
        UserChangeRow { name: name.to_string(), state: state(true), stopped: Vec::new(), not_stopped: Vec::new() };
    if stop {
        for workspace in api.store.running_of(name).await? {
            stop_one(api, grant, caller, workspace, &mut changed).await?;
        }
    }
    Ok(changed)
}

/// Stops a workspace of a disabled user, and notes it.
async fn stop_one(
    api: &ApiParts,
    grant: &OperatorGrant,
    caller: &Caller,
    workspace: WorkspaceId,
    changed: &mut UserChangeRow,
) -> Result<(), ProblemRow> {
    let Some(found) = api.store.managed_by_id(workspace).await? else { return Ok(()) };
    let (slot, name) = (api.audit.slot().await?, found.workspace.name.clone());
    match api.lifecycles.change(found, DesiredState::Stopped, |_| true, wall_clock()).await {
        Ok(managed) => {
            let generation = managed.lifecycle.generation;
            let (by, workspace, how) = (by(grant), Text::of(&name), "stop");
            slot.record(caller.did(AuditEvent::WorkspaceRequested { by, workspace, how, generation }));
            changed.stopped.push(name.to_string());
        }
        // It is gone, or is to be terminated: then it does not run on.
        Err(WorkspaceError::NoSuchWorkspace | WorkspaceError::Refused(_)) => {}
        Err(error) => {
            tracing::warn!(workspace = %name, %error, "a workspace of a disabled user could not be stopped");
            changed.not_stopped.push(name.to_string());
        }
    }
    Ok(())
}

/// Enables a user again. Sessions that were ended stay ended, and workspaces stopped.
///
/// # Errors
/// `not_found` for a user that never was disabled nor signed in.
///
/// # Cancel safety
/// Dropped before it returns, the user is enabled or not.
pub async fn enable(
    api: &ApiParts,
    grant: &OperatorGrant,
    caller: &Caller,
    name: &UserName,
) -> Result<UserChangeRow, ProblemRow> {
    let slot = api.audit.slot().await?;
    if !api.store.enable_user(name).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(AuditEvent::UserChanged { by: by(grant), user: Text::of(name), how: state(false) }));
    Ok(UserChangeRow { name: name.to_string(), state: state(false), stopped: Vec::new(), not_stopped: Vec::new() })
}

/// Names the operator as the author of a change.
fn by(grant: &OperatorGrant) -> Actor {
    Actor::User(Text::of(grant.user()))
}

fn user_name(name: Result<Path<String>, PathRejection>) -> Result<UserName, ProblemRow> {
    name.ok().and_then(|Path(name)| name.parse().ok()).ok_or_else(|| ApiProblem::NotFound.into())
}

#[utoipa::path(
    get,
    path = "/admin/users",
    operation_id = "listUsers",
    summary = "All users; for operators",
    params(parameters::PageQuery, parameters::UserFilters),
    responses(
        (status = 200, description = "A page, by name.", body = AdminUserPage),
        failures::SignedIn,
        failures::Operators,
        failures::Mistaken,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let query = UserQuery::read(&uri)?;
    Ok(answer::json(StatusCode::OK, &list(&api, &grant, &query).await?))
}

#[utoipa::path(
    post,
    path = "/admin/users/{name}/disable",
    operation_id = "disableUser",
    summary = "Disable a user, and stop what they run if wanted; for operators",
    description = "Their sessions and tokens count no more within seconds, on every replica, and streams are cut. \
        With `stop`, workspaces in clusters and CI systems are stopped too.",
    params(parameters::UserPath),
    request_body = bodies::UserDisabling,
    responses(
        (status = 200, description = "The user is disabled.", body = UserChangeRow),
        failures::SmallBody,
        failures::SignedIn,
        failures::Operators,
        (status = 404, description = "No user of that name is known (`not_found`)"),
        (status = 409, description = "`conflict`; `reason` is `yourself`: another operator may do that"),
    ),
)]
pub(crate) async fn disable_user(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let name = user_name(name)?;
    let stop = body.read(|fields| {
        let has_stop = fields.has("stop");
        let stop = fields.optional("stop", |value| value.as_bool().ok_or_else(|| "has to be true or false".to_owned()));
        if has_stop { stop } else { Some(false) }
    })?;
    Ok(answer::json(StatusCode::OK, &disable(&api, &grant, &caller, &name, stop).await?))
}

#[utoipa::path(
    post,
    path = "/admin/users/{name}/enable",
    operation_id = "enableUser",
    summary = "Enable a user again; for operators",
    description = "Sessions that were ended stay ended, and workspaces stopped.",
    params(parameters::UserPath),
    responses(
        (status = 200, description = "The user is enabled.", body = UserChangeRow),
        failures::SignedIn,
        failures::Operators,
        (status = 404, description = "No user of that name is known (`not_found`)"),
    ),
)]
pub(crate) async fn enable_user(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let name = user_name(name)?;
    Ok(answer::json(StatusCode::OK, &enable(&api, &grant, &caller, &name).await?))
}
