//! Frame of all pages of the dashboard, and the answers that carry them.

use std::io::Write as _;
use std::sync::LazyLock;

use askama::Template;
use aws_lc_rs::digest;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use gateway_api::{ApiParts, admin};
use gateway_http::fields::tokens;
use gateway_types::principal::Principal;

/// Style of the dashboard: that of all pages, and its own.
const STYLE: &[&str] = &[page_look::STYLE, include_str!("assets/dashboard.css")];

/// Keeps pages as they are at the gateway, and has keys for what the mouse does. Each page works without it.
const SCRIPT: &[&str] = &[include_str!("assets/dashboard.js"), include_str!("assets/workspace.js")];

/// Shortest page that is sent compressed, in bytes: below, it is one packet anyway.
const COMPRESSED_FROM: usize = 1400;

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Scripts, styles and connections of this origin only; nothing inline, and no frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'",
);

/// A file that pages load.
struct Asset {
    path: &'static str,
    kind: &'static str,
    parts: &'static [&'static str],
}

const ASSETS: [Asset; 3] = [
    Asset { path: "/assets/look.css", kind: "text/css; charset=utf-8", parts: STYLE },
    Asset { path: "/assets/dashboard.js", kind: "text/javascript; charset=utf-8", parts: SCRIPT },
    Asset { path: "/assets/icon.svg", kind: "image/svg+xml", parts: &[page_look::ICON] },
];

/// Addresses of style and script, with their hashes, so that browsers keep them until they change.
static ADDRESSES: LazyLock<[String; 2]> = LazyLock::new(|| {
    [(&ASSETS[0].path, STYLE), (&ASSETS[1].path, SCRIPT)].map(|(path, parts)| {
        let hash = digest::digest(&digest::SHA256, parts.concat().as_bytes());
        format!("{path}?v={}", URL_SAFE_NO_PAD.encode(hash.as_ref().get(..9).unwrap_or_default()))
    })
});

/// Part of the dashboard, for the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Workspaces,
    Create,
    Me,
    Operator,
    Help,
}

/// Frame of a page.
pub(crate) struct Frame {
    pub(crate) user: String,
    /// The user may see pages for operators.
    pub(crate) is_operator: bool,
    section: Section,
}

impl Frame {
    pub(crate) fn new(parts: &ApiParts, principal: &Principal, section: Section) -> Self {
        let is_operator = admin::operator(parts, principal).is_ok();
        Self { user: principal.user.to_string(), is_operator, section }
    }

    pub(crate) fn style(&self) -> &'static str {
        let [style, _] = &*ADDRESSES;
        style
    }

    pub(crate) fn script(&self) -> &'static str {
        let [_, script] = &*ADDRESSES;
        script
    }

    pub(crate) fn logo(&self) -> &'static str {
        page_look::LOGO
    }

    pub(crate) fn product(&self) -> &'static str {
        page_look::PRODUCT
    }

    /// Attribute of the link of the section that is shown.
    fn here(&self, section: Section) -> &'static str {
        if self.section == section { " aria-current=\"page\"" } else { "" }
    }

    pub(crate) fn workspaces(&self) -> &'static str {
        self.here(Section::Workspaces)
    }

    pub(crate) fn create(&self) -> &'static str {
        self.here(Section::Create)
    }

    pub(crate) fn me(&self) -> &'static str {
        self.here(Section::Me)
    }

    pub(crate) fn operator(&self) -> &'static str {
        self.here(Section::Operator)
    }

    pub(crate) fn help(&self) -> &'static str {
        self.here(Section::Help)
    }
}

/// Answers with a page.
pub(crate) fn page(status: StatusCode, template: &impl Template) -> Response {
    answer(status, Body::from(written(template)))
}

/// Answers with a page, compressed where its reader takes that. Only for pages that hold no secret: the length of a compressed page tells
/// about its text.
pub(crate) fn compressed(template: &impl Template, request: &HeaderMap) -> Response {
    let html = written(template);
    let small = takes_gzip(request).then(|| gzip(html.as_bytes())).flatten();
    let is_small = small.is_some();
    let mut response = answer(StatusCode::OK, small.map_or_else(|| Body::from(html), Body::from));
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_small {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn written(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        // Cannot happen: templates write into memory.
        tracing::error!(%error, "a page could not be written");
        String::new()
    })
}

fn answer(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < COMPRESSED_FROM {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::new(3));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// Says whether `gzip` is among the codings that a client takes (RFC 9110, section 12.5.3).
fn takes_gzip(request: &HeaderMap) -> bool {
    tokens(request, &ACCEPT_ENCODING).any(|coding| {
        let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip"));
        let refused = |weight: &[u8]| matches!(weight, b"q=0" | b"q=0." | b"q=0.0" | b"q=0.00" | b"q=0.000");
        is_gzip && !parts.any(refused)
    })
}

/// Answers a request for a file of the pages, with or without a sign-in.
pub(crate) fn asset(path: &str, query: Option<&str>) -> Option<Response> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let is_named = query.is_some_and(|query| ADDRESSES.iter().any(|address| address.ends_with(query)));
    let cache = if is_named { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut response = Response::new(Body::from(asset.parts.concat()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_run_no_script_but_their_own_and_are_not_framed() {
        let policy = POLICY;
        let policy = policy.to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "form-action 'self'"] {
            assert!(policy.contains(part), "{part}");
        }
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn gzip_is_for_those_that_take_it() {
        let asks = |value: &'static str| {
            takes_gzip(&[(ACCEPT_ENCODING, HeaderValue::from_static(value))].into_iter().collect())
        };
        assert!(asks("gzip") && asks("deflate, gzip;q=0.5, br") && asks("GZIP"));
        assert!(!asks("br") && !asks("gzip;q=0") && !asks("*") && !takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn files_are_kept_for_as_long_as_their_address_names_them() {
        let cache = |query: Option<&str>| {
            let response = asset("/assets/look.css", query).unwrap();
            response.headers()[CACHE_CONTROL].to_str().unwrap().to_owned()
        };
        let [style, _] = &*ADDRESSES;
        assert!(cache(style.split_once('?').map(|(_, query)| query)).contains("immutable"));
        assert_eq!(cache(None), "no-cache");
        assert_eq!(cache(Some("v=old")), "no-cache");
        assert!(asset("/assets/none", None).is_none());
    }
}
