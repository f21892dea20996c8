//! Answers: JSON, and the headers that all of them carry.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response as AxumResponse;
use bytes::Bytes;
use futures_util::Stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use serde::Serialize;

use super::problem::ProblemBody;
use super::{Caller, page};
use crate::stack::Delivery;
use gateway_edge::service::FailureWords;
use gateway_http::fields::GATEWAY_TRACE;
use gateway_http::respond::{Wants, wants};
use gateway_types::failed_request::Side;

/// The description of this API (OpenAPI 3.1), made of its types and handlers: see `openapi`.
const OPENAPI: &str = include_str!("openapi.json");

/// Keeps a proxy (nginx) from buffering events that are to go out at once.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Answers `GET /openapi.json`; the one answer that needs no sign-in.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getDescription",
    summary = "This document",
    security(),
    responses(
        (status = 200, description = "This document.", body = Object, content_type = "application/json"),
    ),
)]
pub(super) async fn openapi() -> AxumResponse {
    with_type(StatusCode::OK, "application/json", Bytes::from_static(OPENAPI.as_bytes()))
}

/// Writes a value.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> AxumResponse {
    // The types that are written here have no way to fail.
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, "application/json", Bytes::from(body))
}

/// Answers that it is done.
pub(super) fn done() -> AxumResponse {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> AxumResponse {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Streams server-sent events as they come, for as long as the reader is authorised.
pub fn events(stream: impl Stream<Item = Result<String, Infallible>> + Send + 'static) -> AxumResponse {
    let mut response = with_type(StatusCode::OK, "text/event-stream", Bytes::new());
    *response.body_mut() = Body::from_stream(stream);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(Delivery::Events);
    response
}

/// Code of a refused request, in the extensions of its answer, and the text of its line in the log.
#[derive(Clone, Copy, Debug)]
pub struct RefusalCode {
    /// Code of the problem document.
    pub code: &'static str,
    /// The limit or rule, where the code covers several.
    pub detail: Option<&'static str>,
    /// What the log says.
    pub message: &'static str,
    /// Explanation.
    pub why: FailureWords,
}

impl RefusalCode {
    /// Makes the refusal of a request to the API, or of a call of a service. What exactly is wrong is in the answer, which repeats
    /// parts of the request: what is kept has fixed words.
    pub(crate) fn new(code: &'static str, detail: Option<&'static str>, message: &'static str) -> Self {
        let side = match code {
            "overloaded" if detail == Some("store") => Side::Replica,
            "overloaded" | "too_many" | "quota_exceeded" => Side::Limit,
            "sign_in_required" | "forbidden" | "not_operator" | "not_found" => Side::Policy,
            "agent_absent" | "agent_too_old" | "call_timeout" => Side::Agent,
            "draining" | "unavailable" | "internal" => Side::Replica,
            _ => Side::Client,
        };
        let what = "A page, the API or a service of the gateway refused the request.";
        let to_do = "The answer says what is wrong with it, and its code is in the reference of errors.";
        Self { code, detail, message, why: FailureWords { side, what, to_do } }
    }
}

/// Layer that adds to every answer the trace id, also inside a problem document, and the headers against keeping and
/// embedding it. An answer to HEAD has no body, even where one would go on for ever.
pub(super) async fn seal(caller: Caller, request: Request, next: Next) -> AxumResponse {
    let is_head = request.method() == Method::HEAD;
    let is_for_people = caller.is_page && wants(request.headers(), request.method()) == Wants::Html;
    let mut response = next.run(request).await;
    let trace = caller.trace();
    if let Some(ProblemBody { mut document, code, detail }) = response.extensions_mut().remove::<ProblemBody>() {
        if let Some(members) = document.as_object_mut() {
            members.insert("trace_id".to_owned(), (*trace).into());
        }
        if is_for_people {
            page::tell(&mut response, &document);
        } else {
            *response.body_mut() = Body::from(document.to_string());
        }
        response.extensions_mut().insert(RefusalCode::new(code, detail, "request to the API failed"));
    }
    if is_head {
        response.extensions_mut().remove::<Delivery>();
        *response.body_mut() = Body::empty();
    }
    seal_head(response.headers_mut(), &trace);
    response
}

fn seal_head(headers: &mut HeaderMap, trace: &str) {
    if let Ok(trace) = HeaderValue::from_str(trace) {
        headers.insert(GATEWAY_TRACE, trace);
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    // The library left it out or counted another body.
    headers.remove(http::header::CONTENT_LENGTH);
}
