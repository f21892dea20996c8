//! A user's own credentials for git servers. Stored sealed; no answer has a secret.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::JsonObject;
use super::openapi::{bodies, failures, parameters, values};
use super::problem::{ApiProblem, ProblemRow};
use super::{ApiShared, Caller, actor, answer};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{GitCredentialKind, GitCredentialRow, NewGitCredential, SecretText, wall_clock};
use gateway_types::GitHost;

/// User beside a password or token that names none. Forges that take tokens as passwords look at the token alone.
const USER_DEFAULT: &str = "git";

/// Longest name of a user at a git server, and longest secret, in bytes.
const USER_BYTES_MAX: usize = 255;
const SECRET_BYTES_MAX: usize = 16 * 1024;

#[derive(Serialize, ToSchema)]
#[schema(as = GitCredentials)]
pub(super) struct GitCredentialList {
    credentials: Vec<GitCredentialItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = GitCredential)]
pub(super) struct GitCredentialItem {
    /// With its port if that is not 443.
    host: String,
    /// `basic` is a password or token, `oauth` a refresh token.
    #[schema(schema_with = values::git_credential_kind)]
    kind: &'static str,
    /// Name at that server.
    user: String,
    /// When the server said that it does not count any more.
    #[schema(required, format = DateTime)]
    refused_at: Option<String>,
    /// When it was stored first.
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<&GitCredentialRow> for GitCredentialItem {
    fn from(row: &GitCredentialRow) -> Self {
        Self {
            host: row.host.to_string(),
            kind: row.kind.as_str(),
            user: row.user.clone(),
            refused_at: row.refused_at.map(|time| time.to_string()),
            created_at: row.created_at.to_string(),
        }
    }
}

/// Body of a request to store one.
struct NewCredential {
    kind: GitCredentialKind,
    user: Option<String>,
    secret: SecretText,
}

#[utoipa::path(
    get,
    path = "/git-credentials",
    operation_id = "listGitCredentials",
    summary = "Your credentials for git servers, without their secrets",
    responses(
        (status = 200, description = "All of them, by host.", body = GitCredentialList),
        failures::SignedIn,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let rows = api.store.git_credentials_of(&caller.user()?.user).await?;
    let credentials = rows.iter().map(Into::into).collect();
    Ok(answer::json(StatusCode::OK, &GitCredentialList { credentials }))
}

#[utoipa::path(
    put,
    path = "/git-credentials/{host}",
    operation_id = "storeGitCredential",
    summary = "Store a credential for a git server, in the place of the one before",
    description = "Programs in your workspaces get it when git asks for it. Of `password` and `refresh_token` one is given; the latter \
        where the operator has configured OAuth for the host (`no_oauth`).",
    params(parameters::GitHostPath),
    request_body = bodies::NewGitCredential,
    responses(
        (status = 204, description = "It is stored."),
        failures::SmallBody,
        failures::SignedIn,
        failures::NotYours,
        failures::Conflicting,
    ),
)]
pub(super) async fn put(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    host: Result<Path<String>, PathRejection>,
    body: JsonObject,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let host = git_host(host)?;
    let NewCredential { kind, user, secret } = read(&body)?;
    let user = match (kind, user) {
        (_, Some(user)) => user,
        (GitCredentialKind::Basic, None) => USER_DEFAULT.to_owned(),
        (GitCredentialKind::Oauth, None) => api.git.oauth_user(&host).unwrap_or_default().to_owned(),
    };
    if kind == GitCredentialKind::Oauth && api.git.oauth_user(&host).is_none() {
        return Err(ApiProblem::Conflict { reason: "no_oauth" }.into());
    }
    let slot = api.audit.slot().await?;
    let new = NewGitCredential { kind, user: &user, secret: &secret };
    if !api.store.put_git_credential(&principal.user, &host, new, wall_clock()).await? {
        return Err(ApiProblem::Conflict { reason: "too_many_git_credentials" }.into());
    }
    let event = AuditEvent::GitCredentialChanged { by: actor(principal), host: Text::of(&host), how: "stored" };
    slot.record(caller.did(event));
    Ok(answer::done())
}

fn read(body: &JsonObject) -> Result<NewCredential, ProblemRow> {
    body.read(|fields| {
        let user = fields.optional("user", |value| plain(value, USER_BYTES_MAX, ":"));
        let password = fields.optional("password", |value| plain(value, SECRET_BYTES_MAX, ""));
        let refresh_token = fields.optional("refresh_token", |value| plain(value, SECRET_BYTES_MAX, " "));
        let (kind, secret) = match (password, refresh_token) {
            (Some(password), None) => (GitCredentialKind::Basic, password),
            (None, Some(token)) => (GitCredentialKind::Oauth, token),
            (Some(_), Some(_)) => {
                fields.object("refresh_token", "is there beside a password; give one of them");
                return None;
            }
            (None, None) => {
                if !fields.has("password") && !fields.has("refresh_token") {
                    fields.object("password", "is missing, and so is refresh_token");
                }
                return None;
            }
        };
        Some(NewCredential { kind, user, secret: SecretText::new(secret) })
    })
}

/// Reads a text that a line of git's protocol can hold.
fn plain(value: &Value, bytes_max: usize, without: &str) -> Result<String, String> {
    let text = value.as_str().ok_or("has to be a text")?;
    let is_plain = !text.chars().any(|one| one.is_control() || without.contains(one));
    if text.is_empty() || text.len() > bytes_max || !is_plain {
        return Err(format!("has to have 1 to {bytes_max} bytes and no control characters"));
    }
    Ok(text.to_owned())
}

#[utoipa::path(
    delete,
    path = "/git-credentials/{host}",
    operation_id = "removeGitCredential",
    summary = "Forget a credential for a git server",
    description = "What workspaces got of it before counts until the server ends it: revoke it there too.",
    params(parameters::GitHostPath),
    responses(
        (status = 204, description = "It is forgotten."),
        failures::SignedIn,
        failures::NotYours,
    ),
)]
pub(super) async fn remove(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    host: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let host = git_host(host)?;
    let slot = api.audit.slot().await?;
    if !api.store.remove_git_credential(&principal.user, &host).await? {
        return Err(ApiProblem::NotFound.into());
    }
    let event = AuditEvent::GitCredentialChanged { by: actor(principal), host: Text::of(&host), how: "removed" };
    slot.record(caller.did(event));
    Ok(answer::done())
}

fn git_host(host: Result<Path<String>, PathRejection>) -> Result<GitHost, ProblemRow> {
    host.ok().and_then(|Path(host)| host.parse().ok()).ok_or_else(|| ApiProblem::NotFound.into())
}
