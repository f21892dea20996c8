//! The first page: a user's workspaces, what others share with them, and for a user without any the ways to the first one.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};

use super::frame::{Frame, Section, compressed};
use super::overview::{Overview, OwnRow, SharedRow};
use super::standing::PlainState;
use super::usage;
use gateway_api::page::only;
use gateway_api::problem::ProblemRow;
use gateway_api::{ApiShared, Caller};

/// Most rows of one page; a search narrows longer lists down.
const ROWS_MAX: usize = 1_000;

/// Longest search text that counts, in characters.
const SEARCH_CHARS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    frame: Frame,
    search: String,
    filters: Vec<Filter>,
    rows: Vec<OwnRow>,
    /// Rows beyond those.
    left_out: usize,
    /// The user has workspaces, found or not.
    has_any: bool,
    shared: Vec<SharedRow>,
    usage: Vec<String>,
    is_filtered: bool,
    /// Names what the page has, for its live updates.
    tag: String,
}

/// A filter by state.
struct Filter {
    address: String,
    text: &'static str,
    glyph: &'static str,
    count: usize,
    is_on: bool,
}

/// Shows the page.
///
/// Cancel safety: safe.
pub(crate) async fn show(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let overview = Overview::read(&api, principal).await?;
    let tag = overview.tag();
    let Overview { own, shared, managed } = overview;
    let query = uri.query().unwrap_or_default().as_bytes();
    let search: String = only(query, "q").unwrap_or_default().trim().chars().take(SEARCH_CHARS_MAX).collect();
    let state = only(query, "state").and_then(|word| PlainState::ALL.into_iter().find(|state| state.word() == word));
    let has_any = !own.is_empty();
    let lower_case = search.to_lowercase();
    let found: Vec<OwnRow> = own.into_iter().filter(|row| row.matches(&lower_case)).collect();
    let filters = filters(&found, &search, state);
    let mut rows: Vec<OwnRow> =
        found.into_iter().filter(|row| state.is_none_or(|state| row.standing.state == state)).collect();
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let usage = usage::lines(&api.lifecycles, managed.values(), &principal.user).await;
    let is_filtered = state.is_some() || !search.is_empty();
    let frame = Frame::new(&api, principal, Section::Workspaces);
    Ok(compressed(&Home { frame, search, filters, rows, left_out, has_any, shared, usage, is_filtered, tag }, &headers))
}

fn filters(rows: &[OwnRow], search: &str, on: Option<PlainState>) -> Vec<Filter> {
    let address = |state: Option<PlainState>| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !search.is_empty() {
            query.append_pair("q", search);
        }
        if let Some(state) = state {
            query.append_pair("state", state.word());
        }
        match query.finish() {
            query if query.is_empty() => "/".to_owned(),
            query => format!("/?{query}"),
        }
    };
    let all = Filter { address: address(None), text: "all", glyph: "", count: rows.len(), is_on: on.is_none() };
    let of = |state: PlainState| Filter {
        address: address(Some(state)),
        text: state.word(),
        glyph: state.glyph(),
        count: rows.iter().filter(|row| row.standing.state == state).count(),
        is_on: on == Some(state),
    };
    [all].into_iter().chain(PlainState::ALL.map(of)).collect()
}
