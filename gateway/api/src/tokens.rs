//! A user's own tokens, and those of the agents of their workspaces.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::body::{JsonObject, seconds, text};
use super::list::PageRequest;
use super::openapi::{bodies, failures, parameters, values};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, actor, answer, external};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{Note, Terms, TokenCreation, TokenId, TokenRecord, TokenRotation, TokenSubject, wall_clock};
use gateway_types::token::TokenKind;
use gateway_types::{UnixSeconds, WorkspaceName};

/// Keeps cursors of this list apart from others.
const CURSOR: &str = "t";

/// Shortest and longest life that can be asked for, in seconds.
const LIFE_SECONDS: (u64, u64) = (60, 365 * 24 * 60 * 60);

/// Longest time, in seconds, for which a rotated token may still be good.
const OVERLAP_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// Time that a rotated token stays good by default.
const OVERLAP_DEFAULT: Duration = Duration::from_secs(10 * 60);

#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
pub(super) struct TokenPage {
    tokens: Vec<TokenRow>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
struct TokenRow {
    id: String,
    /// `agent` or `user`.
    #[schema(schema_with = values::token_kind)]
    kind: &'static str,
    #[schema(required)]
    user: Option<String>,
    #[schema(required)]
    workspace: Option<String>,
    /// The last characters of its text.
    hint: String,
    /// `live`, `expired` or `revoked`.
    #[schema(schema_with = values::token_state)]
    state: &'static str,
    #[schema(required)]
    note: Option<String>,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// When it ends.
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
    /// When it was revoked.
    #[schema(required, format = DateTime)]
    revoked_at: Option<String>,
    /// The token that took its place.
    #[schema(required)]
    replaced_by: Option<String>,
}

impl TokenRow {
    fn new(token: &TokenRecord, now: UnixSeconds) -> Self {
        let (user, workspace) = match &token.subject {
            TokenSubject::Agent { workspace, .. } => (None, Some(workspace.to_string())),
            TokenSubject::User { user } => (Some(user.to_string()), None),
            // The operator's own: in no user's list.
            TokenSubject::Cluster { .. } => (None, None),
        };
        let time = |time: Option<UnixSeconds>| time.map(|time| time.to_string());
        Self {
            id: token.id.to_string(),
            kind: token.subject.kind().as_str(),
            user,
            workspace,
            hint: token.hint.clone(),
            state: match (token.is_live(now), token.revoked_at) {
                (true, _) => "live",
                (false, Some(_)) => "revoked",
                (false, None) => "expired",
            },
            note: token.note.as_ref().map(|note| note.as_str().to_owned()),
            created_at: token.created_at.to_string(),
            expires_at: time(token.expires_at),
            revoked_at: time(token.revoked_at),
            replaced_by: token.replaced_by.map(|id| id.to_string()),
        }
    }
}

// The only answer with the text of a token.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeToken)]
pub(super) struct CreatedToken {
    id: String,
    /// Its text, this once.
    token: String,
    /// When it ends.
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RotatedToken)]
pub(super) struct MadeForOld {
    #[serde(flatten)]
    made: CreatedToken,
    /// The old one.
    replaces: String,
    /// Time until which the old one is valid.
    #[schema(format = DateTime)]
    old_expires_at: String,
}

/// Body of a request for a token.
struct TokenRequest {
    kind: TokenKind,
    workspace: Option<WorkspaceName>,
    lasting: Option<Duration>,
    note: Option<Note>,
}

#[utoipa::path(
    get,
    path = "/tokens",
    operation_id = "listTokens",
    summary = "Your tokens, and those of the agents of your workspaces",
    params(parameters::PageQuery),
    responses(
        (status = 200, description = "A page, oldest first.", body = TokenPage),
        failures::SignedIn,
        failures::Mistaken,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let page: PageRequest<TokenId> = PageRequest::read(&uri, CURSOR)?;
    let found = api.store.tokens_of(&principal.user, page.after, page.look_up()).await?;
    let now = wall_clock();
    let (tokens, next_cursor) =
        page.cut(found, CURSOR, |token| token.id.to_string(), |token| TokenRow::new(token, now));
    Ok(answer::json(StatusCode::OK, &TokenPage { tokens, next_cursor }))
}

#[utoipa::path(
    post,
    path = "/tokens",
    operation_id = "createToken",
    summary = "Make a token for programs of yours, or for the agent of a workspace of yours",
    request_body = bodies::NewToken,
    responses(
        (status = 201, description = "The token; its text is in no other answer.", body = CreatedToken),
        failures::SmallBody,
        failures::SignedIn,
        failures::NotYours,
        failures::Conflicting,
    ),
)]
pub(super) async fn create(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let request = read(&body)?;
    let made = make(&api, &caller, request).await?;
    Ok(answer::json(StatusCode::CREATED, &made))
}

/// Makes a token, and records its maker.
async fn make(api: &ApiShared, caller: &Caller, request: TokenRequest) -> Result<CreatedToken, ProblemRow> {
    let principal = caller.user()?;
    let TokenRequest { kind, workspace, lasting, note } = request;
    let now = wall_clock();
    let terms = Terms { note, expires_at: lasting.map(|time| now.later(time)) };
    if let Some(workspace) = &workspace {
        own_workspace(api, caller, workspace, now).await?;
    }
    let slot = api.audit.slot().await?;
    let created = match &workspace {
        Some(workspace) => api.store.create_own_agent_token(workspace, &principal.user, &terms, now).await?,
        None => api.store.create_own_user_token(&principal.user, &terms, now).await?,
    };
    let made = match created {
        TokenCreation::Made(made) => made,
        TokenCreation::NoSuchWorkspace => return Err(ApiProblem::NotFound.into()),
        TokenCreation::TooMany => return Err(ApiProblem::Conflict { reason: "too_many_tokens" }.into()),
    };
    let expires_at = terms.expires_at.map(|time| time.to_string());
    let event = AuditEvent::TokenCreated {
        by: actor(principal),
        token: Text::of(made.id),
        subject_kind: kind.as_str(),
        subject: workspace.map_or_else(|| Text::of(&principal.user), Text::of),
        expires_at: expires_at.as_deref().map(Text::new),
        note: terms.note.as_ref().map(|note| Text::new(note.as_str())),
    };
    slot.record(caller.did(event));
    Ok(CreatedToken { id: made.id.to_string(), token: made.token.reveal().to_owned(), expires_at })
}

/// Makes a token as a form asks for it, which has the members of the API's body. Returns its text.
///
/// # Errors
/// `invalid` with each mistake at its field, `overloaded` beyond the number of tokens that a user may have.
pub async fn make_of(api: &ApiShared, caller: &Caller, members: Map<String, Value>) -> Result<String, ProblemRow> {
    make(api, caller, read(&JsonObject::of(members))?).await.map(|made| made.token)
}

/// Makes an external workspace of the caller's, if there is none of the name.
async fn own_workspace(
    api: &ApiShared,
    caller: &Caller,
    name: &WorkspaceName,
    now: UnixSeconds,
) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    if api.store.workspace_or_none(name).await?.is_some() {
        return Ok(());
    }
    external::make(api, caller, principal, name, &[], now).await.map(drop)
}

fn read(body: &JsonObject) -> Result<TokenRequest, ProblemRow> {
    body.read(|fields| {
        let kind = fields.required("kind", |value| match value.as_str() {
            Some("user") => Ok(TokenKind::User),
            Some("agent") => Ok(TokenKind::Agent),
            Some(_) | None => Err("has to be user or agent".to_owned()),
        });
        let workspace: Option<WorkspaceName> = fields.optional("workspace", text);
        let lasting = fields.optional("expires_in", |value| seconds(value, LIFE_SECONDS.0, LIFE_SECONDS.1));
        let note = fields.optional("note", text);
        match (kind, fields.has("workspace")) {
            (Some(TokenKind::Agent), false) => fields.object("workspace", "has to name a workspace, for an agent"),
            (Some(TokenKind::User), true) => fields.object("workspace", "is for tokens of agents only"),
            // The operator makes tokens of clusters, on the gateway's machine.
            (Some(TokenKind::Agent), true)
            | (Some(TokenKind::User) | None, false)
            | (Some(TokenKind::Cluster), _)
            | (None, true) => {}
        }
        Some(TokenRequest { kind: kind?, workspace, lasting, note })
    })
}

#[utoipa::path(
    delete,
    path = "/tokens/{id}",
    operation_id = "revokeToken",
    summary = "Revoke a token at once; again is no error",
    params(parameters::TokenPath),
    responses(
        (status = 204, description = "It is revoked."),
        failures::SignedIn,
        failures::NotYours,
    ),
)]
pub(super) async fn revoke(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    revoke_one(&api, &caller, token_id(id)?).await?;
    Ok(answer::done())
}

/// Revokes a token of the caller's, and records that.
///
/// # Errors
/// `not_found` if the caller has no such token.
pub async fn revoke_one(api: &ApiShared, caller: &Caller, id: TokenId) -> Result<(), ProblemRow> {
    let principal = caller.user()?;
    let slot = api.audit.slot().await?;
    let revoked = api.store.revoke_own_token(&principal.user, id, wall_clock()).await?;
    let hash = revoked.ok_or(ApiProblem::NotFound)?;
    slot.record(caller.did(AuditEvent::TokenRevoked { by: actor(principal), token: Text::of(id) }));
    api.identities.forget_token(&hash, Instant::now());
    Ok(())
}

#[utoipa::path(
    post,
    path = "/tokens/{id}/rotate",
    operation_id = "rotateToken",
    summary = "Replace a token by a new one; the old one ends a little later",
    params(parameters::TokenPath),
    request_body = Option<bodies::Rotation>,
    responses(
        (status = 201, description = "The new token.", body = MadeForOld),
        failures::SmallBody,
        failures::SignedIn,
        failures::NotYours,
        failures::Conflicting,
    ),
)]
pub(super) async fn rotate(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let id = token_id(id)?;
    let (overlap, lasting) = body.read(|fields| {
        let overlap = fields.optional("overlap", |value| seconds(value, 0, OVERLAP_SECONDS_MAX));
        let lasting = fields.optional("expires_in", |value| seconds(value, LIFE_SECONDS.0, LIFE_SECONDS.1));
        Some((overlap.unwrap_or(OVERLAP_DEFAULT), lasting))
    })?;
    let slot = api.audit.slot().await?;
    let rotated = api.store.rotate_token(Some(&principal.user), id, overlap, lasting, wall_clock()).await?;
    let (successor, expires_at, until, old_hash) = match rotated {
        TokenRotation::Done { successor, expires_at, until, old_hash } => (successor, expires_at, until, old_hash),
        TokenRotation::NoSuchToken => return Err(ApiProblem::NotFound.into()),
        TokenRotation::NotLive => return Err(ApiProblem::Conflict { reason: "token_not_live" }.into()),
    };
    let event = AuditEvent::TokenRotated {
        by: actor(principal),
        token: Text::of(id),
        successor: Text::of(successor.id),
        until: Text::of(until),
    };
    slot.record(caller.did(event));
    api.identities.forget_token(&old_hash, Instant::now());
    let made = CreatedToken {
        id: successor.id.to_string(),
        token: successor.token.reveal().to_owned(),
        expires_at: expires_at.map(|time| time.to_string()),
    };
    let made = MadeForOld { made, replaces: id.to_string(), old_expires_at: until.to_string() };
    Ok(answer::json(StatusCode::CREATED, &made))
}

fn token_id(id: Result<Path<String>, PathRejection>) -> Result<TokenId, ProblemRow> {
    id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(|| ApiProblem::NotFound.into())
}
