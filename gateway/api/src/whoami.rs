//! `GET /whoami`: the user that this request proves, and the credential.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::{failures, values};
use super::problem::ProblemRow;
use super::{ApiShared, Caller, answer};
use gateway_auth::browser::session_name;
use gateway_auth::request::OfferedCredential;
use gateway_types::principal::Via;

#[derive(Serialize, ToSchema)]
pub(super) struct WhoAmI {
    user: String,
    groups: Vec<String>,
    #[schema(schema_with = values::via)]
    via: &'static str,
    /// May see and change what belongs to any user (`auth.admins`, `auth.admin_group`).
    is_operator: bool,
    #[schema(required)]
    token: Option<OwnToken>,
    /// Id of the browser's session.
    #[schema(required)]
    session: Option<String>,
    public_url: String,
    /// Address of a port; `{port}` and `{name}` are to be replaced.
    workspace_url: String,
}

#[derive(Serialize, ToSchema)]
struct OwnToken {
    id: String,
    #[schema(required)]
    note: Option<String>,
    /// When it ends.
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
}

#[utoipa::path(
    get,
    path = "/whoami",
    operation_id = "whoAmI",
    summary = "The identity that this request proves, and its credential",
    responses(
        (status = 200, description = "Who it is.", body = WhoAmI),
        failures::SignedIn,
    ),
)]
pub(super) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let (token, session) = match &caller.offered {
        OfferedCredential::Token(hash) => {
            let record = api.store.token_by_hash(hash).await?;
            let token = record.map(|record| OwnToken {
                id: record.id.to_string(),
                note: record.note.map(|note| note.as_str().to_owned()),
                expires_at: record.expires_at.map(|time| time.to_string()),
            });
            (token, None)
        }
        OfferedCredential::Session(id) => (None, Some(session_name(id).to_string())),
        OfferedCredential::Nothing | OfferedCredential::Refused => (None, None),
    };
    let who = WhoAmI {
        user: principal.user.to_string(),
        groups: principal.groups.iter().map(ToString::to_string).collect(),
        via: match principal.via {
            Via::Browser => "browser",
            Via::ApiToken => "token",
        },
        is_operator: caller.operator(&api).is_ok(),
        token,
        session,
        public_url: api.site.public(""),
        workspace_url: api.site.workspace(&format!("{{port}}-{{name}}.{}", api.rules.zone()), "/"),
    };
    Ok(answer::json(StatusCode::OK, &who))
}
