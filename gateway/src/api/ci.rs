//! What jobs of CI systems get here: the workspace agent's programs, which are for everybody.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::Shared;
use super::problem::{Problem, Refused};

/// How long an answer is, which is sent as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) bytes: u64,
}

/// Answers `GET /ci/agents/{sha256}`.
pub(super) async fn agent(State(api): State<Arc<Shared>>, Path(sha256): Path<String>) -> Result<Response, Problem> {
    let download = api.downloads.find(&sha256).ok_or(Refused::NotFound)?;
    let bytes = download.bytes();
    let stream = api.downloads.read(download).map_err(|_| Refused::Overloaded { limit: "agent_downloads" })?;
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // It is called by what it is.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    response.extensions_mut().insert(Measured { bytes });
    Ok(response)
}
