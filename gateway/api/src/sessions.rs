//! A user's own browser sessions.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tokio::time::Instant;

use super::openapi::{failures, parameters};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, answer};
use gateway_auth::browser::{SessionName, SessionRow, session_name};
use gateway_auth::request::OfferedCredential;
use gateway_net::audit::{AuditEvent, Items, Text};
use gateway_store::wall_clock;
use gateway_types::UnixSeconds;
use gateway_types::principal::Principal;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Sessions)]
pub(super) struct SessionList {
    sessions: Vec<BrowserSessionRow>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Session)]
struct BrowserSessionRow {
    /// Not the cookie, and worth nothing as one.
    id: String,
    /// It is the one that asks.
    current: bool,
    /// When it began.
    #[schema(format = DateTime)]
    signed_in_at: String,
    /// When it was used last.
    #[schema(format = DateTime)]
    used_at: String,
    /// When it ends, if it is not used.
    #[schema(format = DateTime)]
    expires_at: String,
    /// The address of the sign-in.
    #[schema(value_type = String)]
    address: IpAddr,
    /// Workspace hosts that it is signed in to.
    #[schema(value_type = u64)]
    hosts: usize,
    /// Each sign-in to a workspace host, the newest first. One that you do not know may be another person's doing: end
    /// the session.
    #[schema(inline)]
    sign_ins: Vec<SignInRow>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SignInRow {
    /// The workspace host.
    #[schema(value_type = String)]
    host: Box<str>,
    /// When it was.
    #[schema(format = DateTime)]
    signed_in_at: String,
    /// When it was used last.
    #[schema(format = DateTime)]
    used_at: String,
    /// Where the browser was that took it.
    #[schema(value_type = String)]
    address: IpAddr,
}

#[utoipa::path(
    get,
    path = "/sessions",
    operation_id = "listSessions",
    summary = "Your browsers that are signed in",
    responses(
        (status = 200, description = "All of them, the newest first.", body = SessionList),
        failures::SignedIn,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let current = current(&caller);
    let now = wall_clock();
    let ago = |time: Duration| UnixSeconds::new(now.get().saturating_sub(seconds(time))).to_string();
    let row = |row: SessionRow| BrowserSessionRow {
        current: current.as_ref() == Some(&row.name),
        id: row.name.to_string(),
        signed_in_at: ago(row.age),
        used_at: ago(row.idle),
        expires_at: now.later(row.ends_in).to_string(),
        address: row.peer.to_canonical(),
        hosts: row.hosts.len(),
        sign_ins: row
            .hosts
            .into_iter()
            .map(|sign_in| SignInRow {
                host: sign_in.host,
                signed_in_at: ago(sign_in.age),
                used_at: ago(sign_in.idle),
                address: sign_in.peer.to_canonical(),
            })
            .collect(),
    };
    let sessions = api.sessions.list_all(&principal.user, Instant::now()).await?.into_iter().map(row).collect();
    Ok(answer::json(StatusCode::OK, &SessionList { sessions }))
}

#[utoipa::path(
    delete,
    path = "/sessions/{id}",
    operation_id = "endSession",
    summary = "Sign one browser out",
    params(parameters::SessionPath),
    responses(
        (status = 204, description = "It is signed out."),
        failures::SignedIn,
        failures::NotYours,
    ),
)]
pub(super) async fn end(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let name = id.ok().and_then(|Path(id)| id.parse::<SessionName>().ok()).ok_or(ApiProblem::NotFound)?;
    end_one(&api, &caller, &name).await?;
    Ok(answer::done())
}

/// Signs one browser of the caller's out, and records that.
///
/// # Errors
/// `not_found` if the caller has no such session.
pub async fn end_one(api: &ApiShared, caller: &Caller, name: &SessionName) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    let slot = api.audit.slot().await?;
    if !api.sessions.end_one(&principal.user, name, Instant::now()).await? {
        return Err(ApiProblem::NotFound.into());
    }
    slot.record(caller.did(signed_out(principal, std::slice::from_ref(name))));
    Ok(())
}

/// Names the browser that asks, if it is one.
pub fn current(caller: &Caller) -> Option<SessionName> {
    match &caller.offered {
        OfferedCredential::Session(id) => Some(session_name(id)),
        OfferedCredential::Token(_) | OfferedCredential::Nothing | OfferedCredential::Refused => None,
    }
}

/// Ends all of them: signs out everywhere. Tokens stay; they are listed and revoked on their own.
#[utoipa::path(
    delete,
    path = "/sessions",
    operation_id = "endSessions",
    summary = "Sign out everywhere; tokens stay",
    responses(
        (status = 204, description = "No browser of yours is signed in any more."),
        failures::SignedIn,
    ),
)]
pub(super) async fn end_all(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let slot = api.audit.slot().await?;
    let ended = api.sessions.end_every(&principal.user, Instant::now()).await?;
    slot.record(caller.did(signed_out(principal, &ended)));
    Ok(answer::done())
}

fn signed_out(principal: &Principal, sessions: &[SessionName]) -> AuditEvent {
    AuditEvent::SignedOut { user: Text::of(&principal.user), how: "user", sessions: sessions.iter().collect::<Items>() }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
