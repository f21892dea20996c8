//! Answers made from one table of failures.
//!
//! Everything a user may read is fixed text per failure. Nothing of the request is repeated: not the host, the path, nor
//! a header (RFC 9457, section 5). The trace id is the gateway's own and leads to the details in the log.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, REFRESH, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};

use crate::fields::{GATEWAY_ERROR, GATEWAY_REASON, GATEWAY_SIDE, GATEWAY_TRACE, tokens};
use gateway_types::failed_request::Side;
use gateway_types::markup::escape;
use page_look::{LonePage, STYLE};

mod failure;
pub mod ports;

pub use failure::Failure;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// The page may do nothing but show its own style and icon, and no site may frame it.
static PAGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = BASE64.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// Addresses at the public host to which a page on any host leads. They are made of the configuration alone: nothing of a request, and
/// no secret, belongs into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicLinks {
    /// Address of the first page, escaped.
    home: String,
    /// Address of the page with help, escaped.
    help: String,
}

impl PublicLinks {
    /// Creates the links from whole addresses.
    #[must_use]
    pub fn new(home: &str, help: &str) -> Self {
        Self { home: escape(home), help: escape(help) }
    }

    /// Writes the line of a page that leads there.
    fn line(&self) -> String {
        format!("<p><a href=\"{}\">Help</a> or <a href=\"{}\">all workspaces</a></p>\n", self.help, self.home)
    }
}

/// Begin of the facts about a failure, after all that a person is to read.
const FACTS: &str = "<dl class=\"facts\">";

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// A page for people.
    Html,
    /// A problem document for programs (RFC 9457).
    Json,
}

/// Tells which form a client wants: a page for navigations, and for clients without fetch metadata whose Accept names
/// `text/html` and ranks it no lower than JSON. `*/*` alone is a program.
#[must_use]
pub fn wants(headers: &HeaderMap, method: &Method) -> Wants {
    let is_page = match headers.get(SEC_FETCH_MODE) {
        Some(mode) => mode == "navigate",
        None => *method != Method::CONNECT && accepts_html(headers),
    };
    if is_page { Wants::Html } else { Wants::Json }
}

/// Makes the answer for a failure; a page leads to `links`. The body is empty for a HEAD request.
#[must_use]
pub fn response(
    failure: Failure,
    wants: Wants,
    links: &PublicLinks,
    trace_id: &str,
    method_is_head: bool,
) -> Response<Bytes> {
    let trace = safe_trace(trace_id);
    let (body, content_type) = match wants {
        Wants::Html => (page(failure, links, trace), "text/html; charset=utf-8"),
        Wants::Json => (problem(failure, trace), "application/problem+json"),
    };
    let mut response = Response::new(if method_is_head { Bytes::new() } else { Bytes::from(body) });
    *response.status_mut() = failure.status();
    let headers = response.headers_mut();
    mark(headers, &FailureFacts::of(failure, trace));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if wants == Wants::Html
        && let Ok(policy) = HeaderValue::from_str(&PAGE_POLICY)
    {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    if let Some(seconds) = failure.retry_after_seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // Both statuses must name what would be accepted (RFC 9110, sections 15.5.2 and 15.5.6).
    if failure == Failure::SignInRequired {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gateway\""));
    }
    if failure == Failure::CookiesTooLarge {
        // Else every page of the site is refused until they are deleted by hand.
        headers.insert(CLEAR_SITE_DATA, HeaderValue::from_static("\"cookies\""));
    }
    if failure == Failure::MethodNotAllowed {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

/// Adds to the page of a stopped workspace the link at which its owner can start it. Nothing of the request is in
/// `address`; the browser itself names the page to return to when it follows this link, the only one that may tell.
pub fn offer_start(response: &mut Response<Bytes>, address: &str, method_is_head: bool) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'<' | b'>');
    if method_is_head || !address.bytes().all(is_plain) {
        return;
    }
    let Ok(page) = std::str::from_utf8(response.body()) else { return };
    let link = format!(
        "<p><a class=\"button primary\" referrerpolicy=\"unsafe-url\" href=\"{}\">Start it</a></p>\n{FACTS}",
        address.replace('&', "&amp;")
    );
    let page = page.replacen(FACTS, &link, 1);
    *response.body_mut() = Bytes::from(page);
}

/// A failed request that came before, as the page of a later one lists it for the owner of the workspace.
#[derive(Clone, Copy, Debug)]
pub struct EarlierFailure<'a> {
    /// Time since, in seconds.
    pub seconds_ago: u64,
    /// Status of its answer.
    pub status: u16,
    /// Its reason.
    pub reason: &'a str,
    /// The side that it is of.
    pub side: Side,
    /// Port that was asked for.
    pub port: Option<u16>,
    /// Its trace id.
    pub trace: &'a str,
}

impl EarlierFailure<'_> {
    fn row(&self) -> String {
        let Self { seconds_ago, status, reason, side, port, trace } = self;
        let ago = match seconds_ago {
            0..120 => format!("{seconds_ago} s"),
            120..7200 => format!("{} min", seconds_ago / 60),
            7200.. => format!("{} h", seconds_ago / 3600),
        };
        let port = port.map(|port| format!(", port {port}")).unwrap_or_default();
        let (reason, side, trace) = (escape(reason), side.as_str(), safe_trace(trace));
        format!("<li>{ago} ago{port}: {status}, {side}, {reason}, trace <code>{trace}</code></li>\n")
    }
}

/// Adds to the page of a failure the last ones that the same owner met at this workspace. Nothing where there are none.
pub fn list_earlier(response: &mut Response<Bytes>, earlier: &[EarlierFailure<'_>]) {
    let Ok(page) = std::str::from_utf8(response.body()) else { return };
    if earlier.is_empty() || !page.contains(FACTS) {
        return;
    }
    let rows: String = earlier.iter().map(EarlierFailure::row).collect();
    let list = format!(
        "<details class=\"earlier\"><summary>Your last failed requests to this workspace</summary>\n<ul>\n{rows}</ul>\n\
         <p>gateway explain TRACE says more.</p></details>\n{FACTS}"
    );
    let page = page.replacen(FACTS, &list, 1);
    *response.body_mut() = Bytes::from(page);
}

/// Facts that every answer to a failed request has.
#[derive(Clone, Copy, Debug)]
pub struct FailureFacts<'a> {
    /// Its code.
    pub code: &'static str,
    /// Which case of it.
    pub reason: &'static str,
    /// The side that it is of.
    pub side: Side,
    /// Trace id.
    pub trace: &'a str,
}

impl<'a> FailureFacts<'a> {
    fn of(failure: Failure, trace: &'a str) -> Self {
        Self { code: failure.code(), reason: failure.reason(), side: failure.side(), trace }
    }

    /// Writes them into a head, but for the code.
    fn mark(&self, headers: &mut HeaderMap) {
        headers.insert(GATEWAY_REASON, HeaderValue::from_static(self.reason));
        headers.insert(GATEWAY_SIDE, HeaderValue::from_static(self.side.as_str()));
        if let Ok(trace) = HeaderValue::from_str(safe_trace(self.trace)) {
            headers.insert(GATEWAY_TRACE, trace);
        }
    }

    /// Writes them as a list of a page.
    fn to_html(self) -> String {
        let Self { code, reason, side, trace } = self;
        format!(
            "{FACTS}\n<dt>Code</dt><dd>{code}</dd>\n<dt>Reason</dt><dd>{reason}</dd>\n<dt>Side</dt><dd>{}</dd>\n\
             <dt>Trace</dt><dd>{}</dd>\n</dl>\n",
            side.as_str(),
            safe_trace(trace)
        )
    }
}

/// Adds the facts to a page or problem document that was made elsewhere, and to its header.
pub fn add_facts(response: &mut Response<Bytes>, facts: &FailureFacts<'_>) {
    facts.mark(response.headers_mut());
    let body = match serde_json::from_slice::<serde_json::Value>(response.body()) {
        Ok(mut problem) => {
            if let Some(members) = problem.as_object_mut() {
                members.insert("side".to_owned(), facts.side.as_str().into());
                members.insert("reason".to_owned(), facts.reason.into());
                members.insert("trace_id".to_owned(), safe_trace(facts.trace).into());
            }
            problem.to_string()
        }
        Err(_) => {
            let Ok(page) = std::str::from_utf8(response.body()) else { return };
            page.replacen("</main>", &format!("{}</main>", facts.to_html()), 1)
        }
    };
    *response.body_mut() = Bytes::from(body);
}

/// Reloads the page of a failure that passes by itself, so that it follows the state. Only for the answer to a GET: a
/// browser reloads with GET, which would drop the form of any other request.
pub fn follow(response: &mut Response<Bytes>, failure: Failure) {
    let Some(seconds) = failure.reload_after_seconds() else { return };
    let Ok(page) = std::str::from_utf8(response.body()) else { return };
    let line = format!("<p class=\"follows\">This page loads again every {seconds} seconds.</p>\n{FACTS}");
    let page = page.replacen(FACTS, &line, 1);
    *response.body_mut() = Bytes::from(page);
    response.headers_mut().insert(REFRESH, HeaderValue::from(seconds));
}

fn mark(headers: &mut HeaderMap, facts: &FailureFacts<'_>) {
    headers.insert(GATEWAY_ERROR, HeaderValue::from_static(facts.code));
    facts.mark(headers);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// A trace id is generated, but a page must not depend on that: anything but letters, digits and dashes is not shown.
fn safe_trace(trace_id: &str) -> &str {
    let is_plain = trace_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain && trace_id.len() <= 64 { trace_id } else { "unknown" }
}

fn page(failure: Failure, links: &PublicLinks, trace: &str) -> String {
    let body = format!(
        "<p>{}</p>\n<p class=\"hint\">{}</p>\n{}{}",
        failure.public_text(),
        failure.hint(),
        FailureFacts::of(failure, trace).to_html(),
        links.line()
    );
    LonePage { title: failure.title(), head: "", body: &body, home: Some(&links.home) }.to_html()
}

fn problem(failure: Failure, trace: &str) -> String {
    let mut problem = serde_json::json!({
        "type": "about:blank",
        "title": failure.title(),
        "status": failure.status().as_u16(),
        "detail": failure.public_text(),
        "hint": failure.hint(),
        "code": failure.code(),
        "side": failure.side(),
        "trace_id": trace,
    });
    if let (Some(members), Some(detail)) = (problem.as_object_mut(), failure.detail()) {
        let name = if matches!(failure, Failure::Overloaded { .. }) { "limit" } else { "reason" };
        members.insert(name.to_owned(), detail.into());
    }
    problem.to_string()
}

/// Says whether Accept names `text/html` or XHTML, wants it, and ranks it no lower than JSON (RFC 9110, section 12.5.1).
fn accepts_html(headers: &HeaderMap) -> bool {
    let mut html = 0;
    let mut json = 0;
    for range in tokens(headers, &ACCEPT) {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let media_type = parts.next().unwrap_or_default();
        let weight =
            parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q="))).map_or(1000, weight);
        if media_type.eq_ignore_ascii_case(b"text/html") || media_type.eq_ignore_ascii_case(b"application/xhtml+xml") {
            html = html.max(weight);
        }
        if media_type.eq_ignore_ascii_case(b"application/json")
            || media_type.eq_ignore_ascii_case(b"application/problem+json")
        {
            json = json.max(weight);
        }
    }
    html > 0 && html >= json
}

/// Reads a quality value in thousandths (RFC 9110, section 12.4.2); an invalid one counts as 0.
fn weight(text: &[u8]) -> u16 {
    match text.split_first() {
        Some((b'1', _)) => 1000,
        Some((b'0', rest)) => {
            let digits = rest.strip_prefix(b".").unwrap_or_default();
            let digit = |place: usize| {
                digits.get(place).filter(|byte| byte.is_ascii_digit()).map_or(0, |byte| u16::from(byte - b'0'))
            };
            digit(0) * 100 + digit(1) * 10 + digit(2)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
