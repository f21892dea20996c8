//! The page that explains.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::frame::{Frame, Section, page};
use gateway_api::problem::ProblemRow;
use gateway_api::{ApiShared, Caller};

#[derive(Template)]
#[template(path = "help.html")]
struct HelpPage {
    frame: Frame,
    gateway: String,
    agents_url: String,
    zone: String,
}

/// Shows the page.
///
/// Cancel safety: safe.
pub(super) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let frame = Frame::new(&api, caller.user()?, Section::Help);
    let (gateway, agents_url) = (api.site.public(""), api.lifecycles.agents_url().to_owned());
    Ok(page(StatusCode::OK, &HelpPage { frame, gateway, agents_url, zone: api.rules.zone().to_string() }))
}
