//! The page about the user: browsers that are signed in, tokens, and how SSH is set up.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, json};
use tokio::time::Instant;

use super::frame::{Frame, Section, page};
use super::{see_other, words};
use gateway_api::page::{browser, check_form, only};
use gateway_api::problem::{ApiProblem, Fault, ProblemRow};
use gateway_api::{ApiShared, Caller, body, sessions, tokens};
use gateway_store::{TokenSubject, wall_clock};

/// Most tokens that are shown.
const TOKENS_MAX: u32 = 200;

/// Days that a token may last in the form.
const DAYS_MAX: u64 = 365;

#[derive(Template)]
#[template(path = "me.html")]
struct MePage {
    frame: Frame,
    groups: String,
    browsers: Vec<BrowserLine>,
    tokens: Vec<TokenLine>,
    /// A token that was just made, this once.
    made: Option<String>,
    faults: Vec<Fault>,
    gateway: String,
    zone: String,
}

/// A browser that is signed in.
struct BrowserLine {
    id: String,
    is_current: bool,
    signed_in: String,
    used: String,
    address: String,
    hosts: Vec<String>,
}

/// A token that counts.
struct TokenLine {
    id: String,
    what: String,
    hint: String,
    note: String,
    made: String,
    until: String,
}

/// Shows the page.
///
/// Cancel safety: safe.
pub(super) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    answer(&api, &caller, StatusCode::OK, None, Vec::new()).await
}

/// Carries out the action of a button.
///
/// Cancel safety: a change that was begun is made or not made, as a whole.
pub(super) async fn act(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    check_form(request.headers())?;
    let form = body::read(request.into_body()).await?;
    let id = only(&form, "id").unwrap_or_default();
    let malformed = || ApiProblem::BadRequest { reason: "no_action" };
    let done = match only(&form, "action").as_deref() {
        Some("end") => sessions::end_one(&api, &caller, &id.parse().map_err(|_| malformed())?).await,
        Some("revoke") => tokens::revoke_one(&api, &caller, id.parse().map_err(|_| malformed())?).await,
        Some("token") => {
            return match make_token(&api, &caller, &form).await {
                Ok(token) => answer(&api, &caller, StatusCode::OK, Some(token), Vec::new()).await,
                Err(problem) => answer(&api, &caller, problem.status(), None, problem.faults()).await,
            };
        }
        Some(_) | None => return Err(malformed().into()),
    };
    match done {
        Ok(()) => Ok(see_other("/me")),
        Err(problem) => answer(&api, &caller, problem.status(), None, problem.faults()).await,
    }
}

async fn make_token(api: &ApiShared, caller: &Caller, form: &[u8]) -> Result<String, ProblemRow> {
    let mut members = Map::new();
    members.insert("kind".to_owned(), json!("user"));
    let days = only(form, "days").and_then(|days| days.trim().parse::<u64>().ok());
    let days = days.filter(|days| (1..=DAYS_MAX).contains(days));
    // Another number of days is refused with the API's words.
    members.insert("expires_in".to_owned(), json!(days.unwrap_or_default() * 24 * 60 * 60));
    if let Some(note) = only(form, "note").filter(|note| !note.trim().is_empty()) {
        members.insert("note".to_owned(), json!(note.trim()));
    }
    tokens::make_of(api, caller, members).await
}

async fn answer(
    api: &ApiShared,
    caller: &Caller,
    status: StatusCode,
    made: Option<String>,
    faults: Vec<Fault>,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let now = wall_clock();
    let current = sessions::current(caller);
    let browsers = api.sessions.list_all(&principal.user, Instant::now()).await?;
    let browsers = browsers.into_iter().map(|row| BrowserLine {
        is_current: current.as_ref() == Some(&row.name),
        id: row.name.to_string(),
        signed_in: words::length(row.age),
        used: words::length(row.idle),
        address: row.peer.to_canonical().to_string(),
        hosts: row.hosts.iter().map(|sign_in| sign_in.host.to_string()).collect(),
    });
    let tokens = api.store.tokens_of(&principal.user, None, TOKENS_MAX).await?;
    let tokens = tokens.iter().rev().filter(|token| token.is_live(now)).map(|token| TokenLine {
        id: token.id.to_string(),
        what: match &token.subject {
            TokenSubject::Agent { workspace, .. } => format!("agent of {workspace}"),
            TokenSubject::User { .. } => "your programs".to_owned(),
            TokenSubject::Cluster { cluster, .. } => format!("agent of cluster {cluster}"),
        },
        hint: token.hint.clone(),
        note: token.note.as_ref().map(|note| note.as_str().to_owned()).unwrap_or_default(),
        made: words::ago(token.created_at, now),
        until: token.expires_at.map(|time| time.to_string()).unwrap_or_default(),
    });
    let groups: Vec<&str> = principal.groups.iter().map(gateway_types::GroupName::as_str).collect();
    let content = MePage {
        frame: Frame::new(api, principal, Section::Me),
        groups: groups.join(", "),
        browsers: browsers.collect(),
        tokens: tokens.collect(),
        made,
        faults,
        gateway: api.site.public(""),
        zone: api.rules.zone().to_string(),
    };
    Ok(page(status, &content))
}
