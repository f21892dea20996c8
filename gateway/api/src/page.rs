//! Shared parts of the API's pages for people: their look, and the reading of forms. They hold no words of a request
//! but those that were parsed into types, or escaped.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::Caller;
use super::problem::{ApiProblem, ProblemRow};
use gateway_http::fields::GATEWAY_ERROR;
use gateway_types::markup::escape;
use gateway_types::principal::{Principal, Via};
use page_look::{LonePage, STYLE};

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// A page may show its own style and send its own form, and no site may frame it.
static PLAIN_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| policy(""));

/// Parts of a page.
pub(crate) struct PageContent<'a> {
    pub(crate) status: StatusCode,
    pub(crate) code: Option<&'static str>,
    pub(crate) title: &'a str,
    /// HTML.
    pub(crate) text: &'a str,
    /// HTML of the head, beside title and style.
    pub(crate) head: &'a str,
    /// Allows more than [`plain`] pages may.
    pub(crate) policy: HeaderValue,
}

/// Makes the policy of a page that may also do what `more` says: directives, each with a semicolon at its end.
pub(crate) fn policy(more: &str) -> HeaderValue {
    let style = hash_of(STYLE);
    let policy = format!(
        "default-src 'none'; style-src {style}; img-src data:; {more}form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"))
}

/// Names a style or script by its hash (Content Security Policy Level 3, section 2.3.1).
pub(crate) fn hash_of(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes())))
}

/// Makes a page that has nothing but text and forms.
pub(crate) fn plain(status: StatusCode, code: Option<&'static str>, title: &str, text: &str) -> Response {
    html(PageContent { status, code, title, text, head: "", policy: PLAIN_POLICY.clone() })
}

/// Makes a page.
pub(crate) fn html(parts: PageContent<'_>) -> Response {
    let PageContent { status, code, title, text, head, policy } = parts;
    let page = LonePage { title, head, body: text, home: Some("/") }.to_html();
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    if let Some(code) = code {
        headers.insert(GATEWAY_ERROR, HeaderValue::from_static(code));
    }
    response
}

/// Turns a problem document into a page, where a person asked for one.
pub(crate) fn tell(response: &mut Response, document: &serde_json::Value) {
    let text = |name: &str| escape(document.get(name).and_then(serde_json::Value::as_str).unwrap_or_default());
    let body = format!(
        "<p>{}</p><dl class=\"facts\"><dt>Code</dt><dd>{}</dd><dt>Trace</dt><dd>{}</dd></dl><p><a href=\"/\">All workspaces</a></p>",
        text("detail"),
        text("code"),
        text("trace_id")
    );
    let page = LonePage { title: &text("title"), head: "", body: &body, home: Some("/") }.to_html();
    *response.body_mut() = Body::from(page);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, PLAIN_POLICY.clone());
}

/// Returns the user who is signed in with a browser. A program's token is good for the API, and not for pages.
///
/// # Errors
/// `sign_in_required`.
pub fn browser(caller: &Caller) -> Result<&Principal, ProblemRow> {
    caller
        .user()
        .ok()
        .filter(|principal| principal.via == Via::Browser)
        .ok_or_else(|| ApiProblem::SignInRequired.into())
}

/// Refuses a body that is no form.
///
/// # Errors
/// `bad_request`.
pub fn check_form(headers: &HeaderMap) -> Result<(), ProblemRow> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    match media.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        true => Ok(()),
        false => Err(ApiProblem::BadRequest { reason: "not_a_form" }.into()),
    }
}

/// Returns a parameter if it is there exactly once.
pub fn only(form: &[u8], name: &str) -> Option<String> {
    let mut found = form_urlencoded::parse(form).filter(|(key, _)| key == name);
    let (_, value) = found.next()?;
    found.next().is_none().then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_is_named_by_its_hash_and_nothing_else_may_run() {
        let policy = PLAIN_POLICY.to_str().unwrap();
        assert!(policy.contains("form-action 'self'") && policy.contains("frame-ancestors 'none'"));
        assert!(policy.contains("style-src 'sha256-") && !policy.contains("unsafe") && !policy.contains("script"));
    }

    #[test]
    fn parameter_counts_only_if_it_is_there_once() {
        assert_eq!(only(b"a=1&b=2", "a").as_deref(), Some("1"));
        assert_eq!(only(b"a=1&a=2", "a"), None);
        assert_eq!(only(b"", "a"), None);
    }
}
