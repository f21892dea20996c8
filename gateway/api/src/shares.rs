//! Shares of a workspace's ports with others: read and replaced as a whole, by the owner.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::body::{JsonFields, JsonObject, text};
use super::etag::{self, Condition};
use super::openapi::{failures, parameters};
use super::problem::{ApiProblem, Mistake, ProblemRow};
use super::{ApiShared, Caller, actor, answer, workspaces};
use gateway_auth::policy::Visibility;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{ShareReplacement, Workspace, wall_clock};
use gateway_types::{Audience, Port, Share, UnixSeconds};

/// Most shares of one workspace that are made here.
const SHARES_MAX: usize = 200;

// A share as it is read and written.
#[derive(Serialize, ToSchema)]
#[schema(as = Share)]
pub(super) struct ShareRow {
    #[schema(minimum = 1, maximum = 65535)]
    port: u16,
    /// `user:NAME`, `group:NAME`, `signed-in` or `public`; for port 60002, the terminal, a user or a group only; port 60003, the request inspector, and 60022, SSH, cannot be shared.
    audience: String,
    /// When it ends; `null` for not at all.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Confirms a share with a user who has never signed in: the first person under that name gets the port. Without
    /// it, a gateway with an identity provider refuses such a share. Never in an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    unknown_user: Option<bool>,
}

impl ShareRow {
    pub(super) fn new(share: &Share) -> Self {
        Self {
            port: share.port.get(),
            audience: share.audience.to_string(),
            expires_at: share.expires_at.map(|time| time.to_string()),
            unknown_user: None,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Shares)]
pub(super) struct ShareList {
    #[schema(max_items = 200)]
    shares: Vec<ShareRow>,
}

#[utoipa::path(
    get,
    path = "/workspaces/{name}/shares",
    operation_id = "getShares",
    summary = "Who else may reach which port; for the owner",
    params(parameters::WorkspacePath, ("If-None-Match" = Option<String>, Header)),
    responses(
        (status = 200, description = "All shares that are live.", body = ShareList,
            headers(("ETag" = String, description = "Version of the list; for `If-Match` and `If-None-Match`."))),
        (status = 304, description = "They are as `If-None-Match` says.",
            headers(("ETag" = String, description = "Version of the list; for `If-Match` and `If-None-Match`."))),
        failures::SignedIn,
        failures::OwnerOnly,
    ),
)]
pub(super) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    let condition = Condition::read(&headers, &IF_NONE_MATCH)?;
    let now = wall_clock();
    let workspace = owned(&api, &caller, name, now).await?;
    let live: Vec<Share> = workspace.shares.iter().filter(|share| share.is_live(now)).cloned().collect();
    if condition.has(&etag::of_shares(&live)) {
        let mut response = answer::done();
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(tagged(response, &live));
    }
    Ok(tagged(listed(&live), &live))
}

#[utoipa::path(
    put,
    path = "/workspaces/{name}/shares",
    operation_id = "replaceShares",
    summary = "Replace all shares at once; connections without permission end within 5 s",
    description = "With `If-Match`, another version of the list is refused with 412 and not changed. Without it, the \
        present list is replaced.",
    params(parameters::WorkspacePath, ("If-Match" = Option<String>, Header)),
    request_body = ShareList,
    responses(
        (status = 200, description = "The shares as they are now.", body = ShareList,
            headers(("ETag" = String, description = "Version of the list; for `If-Match` and `If-None-Match`."))),
        failures::SmallBody,
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 412, description = "It has been changed since it was read (`conflict`)"),
    ),
)]
pub(super) async fn replace(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let condition = Condition::read(&headers, &IF_MATCH)?;
    let now = wall_clock();
    let workspace = owned(&api, &caller, name, now).await?;
    let wanted = read_shares(&body, now)?;
    let after = change(&api, &caller, &workspace, wanted, &condition).await?;
    Ok(tagged(listed(&after), &after))
}

/// Replaces the shares of a workspace of the caller's if the condition holds for the present ones, and records the caller.
async fn change(
    api: &ApiShared,
    caller: &Caller,
    workspace: &Workspace,
    wanted: Vec<ShareRequest>,
    condition: &Condition,
) -> Result<Vec<Share>, ProblemRow> {
    let now = wall_clock();
    let Workspace { name, owner, shares: present, .. } = workspace;
    confirm_unknown(api, &wanted, present).await?;
    let shares: Vec<Share> = wanted.into_iter().map(|wanted| wanted.share).collect();
    let slot = api.audit.slot().await?;
    let expected = |present: &[Share]| condition.allows_change_of(&etag::of_shares(present));
    let (before, after) = match api.store.replace_shares(name, owner, &shares, expected, now).await? {
        ShareReplacement::Done { before, after } => (before, after),
        ShareReplacement::NoSuchWorkspace => return Err(ApiProblem::NotFound.into()),
        ShareReplacement::Changed => return Err(ApiProblem::Changed.into()),
    };
    // Here it counts at once; elsewhere within the seconds that a remembered record may be old.
    api.workspaces.forget(name, Instant::now());
    let public = after.iter().filter(|share| share.audience == Audience::Public && share.is_live(now));
    api.public_ports.change(name, public.map(|share| share.port));
    let missing = |from: &[Share], of: &[Share]| of.iter().filter(|share| !from.contains(share)).map(told).collect();
    let event = AuditEvent::SharesChanged {
        by: actor(caller.user()?),
        workspace: Text::of(name),
        added: missing(&before, &after),
        removed: missing(&after, &before),
    };
    slot.record(caller.did(event));
    Ok(after)
}

/// Opens a port to an audience, beside what is shared already, or changes the end of such a share. `is_unknown_meant`: that the user's
/// name has no sign-in so far is known.
///
/// # Errors
/// `invalid` for an audience or port that cannot be shared, `conflict` after a change meanwhile or for a user who has never signed in.
pub async fn add(
    api: &ApiShared,
    caller: &Caller,
    workspace: &Workspace,
    share: Share,
    is_unknown_meant: bool,
) -> Result<(), ProblemRow> {
    if let Err(refused) = share.check() {
        return Err(ProblemRow::mistake("/audience", refused.to_string()));
    }
    let mut wanted = others(workspace, &share);
    if wanted.len() >= SHARES_MAX {
        return Err(ProblemRow::mistake("/audience", format!("there are {SHARES_MAX} shares already")));
    }
    wanted.push(ShareRequest { share, is_unknown_meant });
    change(api, caller, workspace, wanted, &unchanged(workspace)).await.map(drop)
}

/// Ends a share. One that has ended already is no mistake.
///
/// # Errors
/// `conflict` after a change meanwhile.
pub async fn end(api: &ApiShared, caller: &Caller, workspace: &Workspace, share: &Share) -> Result<(), ProblemRow> {
    change(api, caller, workspace, others(workspace, share), &unchanged(workspace)).await.map(drop)
}

/// Returns the live shares of a workspace but for that of this port and audience.
fn others(workspace: &Workspace, share: &Share) -> Vec<ShareRequest> {
    let is_other = |other: &&Share| (other.port, &other.audience) != (share.port, &share.audience);
    let live = live(workspace);
    let request = |share: &Share| ShareRequest { share: share.clone(), is_unknown_meant: false };
    live.iter().filter(is_other).map(request).collect()
}

/// Returns the condition that the shares are those that were read.
fn unchanged(workspace: &Workspace) -> Condition {
    Condition::OneOf(vec![etag::of_shares(&live(workspace))])
}

fn live(workspace: &Workspace) -> Vec<Share> {
    let now = wall_clock();
    workspace.shares.iter().filter(|share| share.is_live(now)).cloned().collect()
}

/// Opens a port as its workspace's devfile proposes, for the owner. Nothing happens where nothing is proposed any more.
///
/// # Errors
/// As [`add`].
pub async fn open_proposed(
    api: &ApiShared,
    caller: &Caller,
    workspace: &Workspace,
    port: Port,
) -> Result<(), ProblemRow> {
    let now = wall_clock();
    let Some((_, audience)) = workspace.proposals(now).find(|(named, _)| named.port == port) else { return Ok(()) };
    add(api, caller, workspace, Share { port, audience: audience.clone(), expires_at: None }, false).await
}

/// Finds a workspace for its owner. Other users who may know of it are told that they may not do that.
///
/// # Errors
/// `not_found`, and `forbidden` for those with a share.
pub async fn owned(
    api: &ApiShared,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
    now: UnixSeconds,
) -> Result<Workspace, ProblemRow> {
    match workspaces::find(api, caller.user()?, name, now).await? {
        (workspace, Visibility::Owner) => Ok(workspace),
        (_, Visibility::Shared) => Err(ApiProblem::Forbidden.into()),
    }
}

/// A share as it is asked for.
struct ShareRequest {
    share: Share,
    /// Confirms that the user's name has no sign-in so far.
    is_unknown_meant: bool,
}

/// Refuses a share with a name that has no sign-in so far, because it would go to the first person to come under it,
/// unless the request says that this is meant. In dev mode, names are the operator's own.
async fn confirm_unknown(api: &ApiShared, wanted: &[ShareRequest], present: &[Share]) -> Result<(), ProblemRow> {
    if api.environments.dev.is_some() {
        return Ok(());
    }
    let mut mistakes = Vec::new();
    for (index, ShareRequest { share, is_unknown_meant }) in wanted.iter().enumerate() {
        let Audience::User(user) = &share.audience else { continue };
        let is_new = !present.iter().any(|present| present.port == share.port && present.audience == share.audience);
        if is_new && !is_unknown_meant && !api.store.is_user_known(user).await? {
            let detail = "there is no sign-in under this name yet, so the first person to come under it would have the port; let them sign in, \
                 or say \"unknown_user\": true beside it";
            mistakes.push(Mistake { pointer: format!("/shares/{index}/audience"), detail: detail.to_owned() });
        }
    }
    if mistakes.is_empty() { Ok(()) } else { Err(ProblemRow::invalid(mistakes)) }
}

fn read_shares(body: &JsonObject, now: UnixSeconds) -> Result<Vec<ShareRequest>, ProblemRow> {
    body.read(|fields| {
        let mut seen: Vec<(Port, String)> = Vec::new();
        fields.objects("shares", SHARES_MAX, |fields| {
            let share = read_share(fields, now);
            let truth = |value: &Value| value.as_bool().ok_or_else(|| "has to be true or false".to_owned());
            let is_unknown_meant = fields.optional("unknown_user", truth).unwrap_or_default();
            let share = share?;
            let key = (share.port, share.audience.to_string());
            if seen.contains(&key) {
                fields.object("audience", "is there twice for this port");
                return None;
            }
            seen.push(key);
            Some(ShareRequest { share, is_unknown_meant })
        })
    })
}

fn read_share(fields: &mut JsonFields<'_>, now: UnixSeconds) -> Option<Share> {
    let port = fields.required("port", |value| {
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        number.and_then(Port::new).ok_or_else(|| "has to be a number from 1 to 65535".to_owned())
    });
    let audience = fields.required("audience", text);
    let expires_at = fields.optional("expires_at", |value: &Value| {
        let time: UnixSeconds = text(value)?;
        if time > now { Ok(time) } else { Err("is not in the future".to_owned()) }
    });
    let share = Share { port: port?, audience: audience?, expires_at };
    if let Err(refused) = share.check() {
        fields.object("audience", refused.to_string());
        return None;
    }
    Some(share)
}

/// Writes a share as the audit log has it.
fn told(share: &Share) -> String {
    let until = share.expires_at.map(|time| format!(" until {time}")).unwrap_or_default();
    format!("{} {}{until}", share.port, share.audience)
}

fn listed(shares: &[Share]) -> Response {
    answer::json(StatusCode::OK, &ShareList { shares: shares.iter().map(ShareRow::new).collect() })
}

fn tagged(mut response: Response, shares: &[Share]) -> Response {
    if let Ok(tag) = HeaderValue::try_from(etag::of_shares(shares)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
