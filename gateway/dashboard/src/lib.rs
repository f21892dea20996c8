//! Pages for users and operators: their workspaces, what others share with them, and everything that one does with a workspace.
//!
//! * [`frame`]: what is around each page, its style and script, and its answer's header fields.
//! * [`standing`]: the four plain states, and the sentence beside them. Pure.
//! * [`overview`]: a user's workspaces as rows; `home` shows them, `live` follows them.
//! * `workspace`: the page of one workspace. `create` makes them, `me` is about the user, `help` explains. `operator`
//!   shows what the API says to operators.
//! * `templates/`: the pages themselves; askama checks them at compile time and escapes everything.
//!
//! Each page is complete without JavaScript: forms are answered with a redirect, and a script only follows what changes. A form
//! counts only from this very origin (`Caller::new`), so no page needs a secret in its forms.

mod create;
mod frame;
mod help;
mod home;
mod live;
mod me;
mod operator;
mod overview;
mod standing;
mod usage;
mod words;
mod workspace;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode, Uri};

use gateway_api::ApiShared;
use gateway_api::stack::EdgeFailure;
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_http::respond::Failure;

/// Paths of pages, beside those of workspaces.
const PAGES: [&str; 5] = ["/", "/create", "/help", "/me", operator::PATH];

/// Beginning of the paths of operators' pages.
const OPERATOR_PAGES: &str = "/operator/";

/// Path of the live updates of the first page.
pub const LIVE: &str = "/live";

/// Returns whether a path has a page.
#[must_use]
pub fn is_page(path: &str) -> bool {
    path.starts_with(WORKSPACE_PAGES) || PAGES.contains(&path) || path.starts_with(OPERATOR_PAGES)
}

/// Makes the routes of the pages.
pub fn router() -> Router<Arc<ApiShared>> {
    Router::new()
        .route("/", get(home::show))
        .route(LIVE, get(live::follow))
        .route("/create", get(create::show).post(create::make))
        .route("/help", get(help::show))
        .route("/me", get(me::show).post(me::act))
        .route(operator::PATH, get(operator::first))
        .route("/operator/{topic}", get(operator::show).post(operator::act))
        .route("/workspaces/{name}", get(workspace::show).post(workspace::act))
}

/// Makes the routes of what every visitor gets.
pub fn files() -> Router {
    Router::new()
        .route("/workspaces", get(async || see_other("/")))
        .route("/assets/{name}", get(file))
        .fallback(async || EdgeFailure(Failure::NoSuchPage))
        .method_not_allowed_fallback(async || EdgeFailure(Failure::MethodNotAllowed))
}

async fn file(uri: Uri) -> Result<Response, EdgeFailure> {
    frame::asset(uri.path(), uri.query()).ok_or(EdgeFailure(Failure::NoSuchPage))
}

/// Leads to another address, after a form or from an old path.
pub(crate) fn see_other(address: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let address = HeaderValue::try_from(address).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, address);
    response
}
