//! Idle stop of a workspace, for its owner: when it comes, what counted as use last, and a delay of it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::JsonObject;
use super::lifecycle::{owned, problem, shown};
use super::openapi::{bodies, failures, parameters, values};
use super::problem::ProblemRow;
use super::workspaces::WorkspaceBody;
use super::{ApiShared, Caller, actor};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{ManagedWorkspace, wall_clock};
use gateway_types::{Activity, IdleLimit, KEEP_TIME, KEEP_TIME_MAX, UnixSeconds};

/// Use of a managed workspace, and its stop without any; for the owner only.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WorkspaceIdle)]
pub(super) struct IdleRow {
    /// Minutes without use after which it is stopped; null for never.
    #[schema(required, minimum = 0)]
    minutes: Option<f64>,
    /// What its owner wants of those; 0 for never, null for what the operator says.
    #[schema(required, minimum = 0)]
    wanted_minutes: Option<f64>,
    /// When it is stopped if it is not used.
    #[schema(required, format = DateTime)]
    stops_at: Option<String>,
    /// How near that is.
    #[schema(schema_with = values::idle_stage)]
    stage: &'static str,
    /// Until when it was asked to be kept, if that is to come.
    #[schema(required, format = DateTime)]
    kept_until: Option<String>,
    /// What counted as use last.
    #[schema(required)]
    last_activity: Option<ActivityRow>,
}

// Something that counted as use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Activity)]
struct ActivityRow {
    #[schema(format = DateTime)]
    at: String,
    #[schema(schema_with = values::activity)]
    kind: &'static str,
    /// The same for people.
    what: &'static str,
    /// The user; null for a command in the workspace.
    #[schema(required)]
    by: Option<String>,
}

impl ActivityRow {
    fn new(activity: &Activity) -> Self {
        Self {
            at: activity.at.to_string(),
            kind: activity.kind.as_str(),
            what: activity.kind.words(),
            by: activity.user.as_ref().map(ToString::to_string),
        }
    }
}

impl IdleRow {
    /// Makes one from the store's record.
    pub(super) fn new(managed: &ManagedWorkspace, now: UnixSeconds) -> Self {
        let (idle, life) = (&managed.idle, &managed.lifecycle);
        Self {
            minutes: idle.limit.map(minutes),
            wanted_minutes: match idle.wanted {
                IdleLimit::Inherited => None,
                IdleLimit::Off => Some(0.0),
                IdleLimit::After(limit) => Some(minutes(limit)),
            },
            stops_at: idle.stops_at(life).map(|at| at.to_string()),
            stage: idle.stage(life, now).as_str(),
            kept_until: idle.is_kept_until(now).map(|until| until.to_string()),
            last_activity: idle.last.as_ref().map(ActivityRow::new),
        }
    }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

/// Reads a limit from its member in a body.
pub(super) fn limit(value: &Value) -> Result<IdleLimit, String> {
    let number = value.as_f64().ok_or_else(|| gateway_types::BadIdleLimit.to_string())?;
    IdleLimit::of_minutes(number).map_err(|error| error.to_string())
}

/// Keeps a workspace awake for a while.
#[utoipa::path(
    post,
    path = "/workspaces/{name}/keep",
    operation_id = "keepWorkspace",
    summary = "Keep a workspace from being stopped for idleness, for an hour or as long as you say",
    params(parameters::WorkspacePath),
    request_body = Option<bodies::Keep>,
    responses(
        (status = 200, description = "It is kept at least that long.", body = WorkspaceBody,
            headers(("ETag" = String, description = "Version of the desired state; for `If-Match`. Observations do not \
                change it."))),
        failures::SmallBody,
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 409, description = "`conflict`; `reason` is `not_managed` for an external workspace"),
    ),
)]
pub(super) async fn keep(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let time = body.read(|fields| {
        let time = fields.optional("seconds", |value| match value.as_u64().map(Duration::from_secs) {
            Some(time) if time > Duration::ZERO && time <= KEEP_TIME_MAX => Ok(time),
            Some(_) | None => Err(format!("has to be a number from 1 to {}", KEEP_TIME_MAX.as_secs())),
        });
        Some(time.unwrap_or(KEEP_TIME))
    })?;
    let now = wall_clock();
    let found = owned(&api, &caller, name, now).await?;
    let managed = keep_for(&api, &caller, &found, time, now).await?;
    shown(&api, &caller, StatusCode::OK, &managed, now).await
}

/// Keeps a workspace awake, and records the caller.
///
/// # Errors
/// `conflict` if it does not run or is not stopped for idleness.
pub async fn keep_for(
    api: &ApiShared,
    caller: &Caller,
    found: &ManagedWorkspace,
    time: Duration,
    now: UnixSeconds,
) -> Result<ManagedWorkspace, ProblemRow> {
    let slot = api.audit.slot().await?;
    let until = now.later(time);
    let managed = api.lifecycles.keep(found, until).await.map_err(problem)?;
    slot.record(caller.did(AuditEvent::WorkspaceKept {
        by: actor(caller.user()?),
        workspace: Text::of(&managed.workspace.name),
        until: Text::of(until),
    }));
    Ok(managed)
}

/// Sets the time limit that the owner wants, and records the caller.
///
/// # Errors
/// `invalid` above what the operator allows.
pub async fn limit_idle(
    api: &ApiShared,
    caller: &Caller,
    found: &ManagedWorkspace,
    wanted: IdleLimit,
) -> Result<ManagedWorkspace, ProblemRow> {
    let slot = api.audit.slot().await?;
    let managed = api.lifecycles.limit_idle(found, wanted).await.map_err(problem)?;
    slot.record(caller.did(AuditEvent::WorkspaceIdleLimit {
        by: actor(caller.user()?),
        workspace: Text::of(&managed.workspace.name),
        limit: Text::of(wanted),
    }));
    Ok(managed)
}
