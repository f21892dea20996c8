//! Reads the [`RequestShape`] of a request from its method and headers.

use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, ORIGIN, REFERER, UPGRADE};
use http::{Method, Uri};

use crate::policy::{Purpose, RequestShape, RequestSource};
use crate::request::OfferedCredential;
use crate::site::Site;
use gateway_types::WorkspaceName;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
const PURPOSE: HeaderName = HeaderName::from_static("purpose");

/// Place of arrival of a request, compared with its claimed source.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    /// The gateway's public address, for the scheme.
    pub site: &'a Site,
    /// The request's `Host` or `:authority`, port included.
    pub authority: &'a str,
    /// The workspace that it names; `None` on the public host.
    pub workspace: Option<&'a WorkspaceName>,
    /// The host parser: the workspace that a host without its port names.
    pub workspace_of: &'a dyn Fn(&str) -> Option<WorkspaceName>,
}

/// Reads the shape of a request. `offered` matters because a request with a token, or with unusable credentials, is
/// answered and never redirected: unusable credentials would otherwise cause a redirect loop.
#[must_use]
pub fn read(method: &Method, headers: &HeaderMap, offered: &OfferedCredential, here: Here<'_>) -> RequestShape {
    let may_redirect = match offered {
        OfferedCredential::Nothing | OfferedCredential::Session(_) => true,
        OfferedCredential::Token(_) | OfferedCredential::Refused => false,
    };
    let purpose = if !method.is_safe() || headers.contains_key(UPGRADE) {
        Purpose::Change
    } else if may_redirect && is_page_visit(method, headers) {
        Purpose::PageVisit
    } else {
        Purpose::Read
    };
    RequestShape { purpose, source: source(headers, here) }
}

/// Returns whether a user opens a page in a tab: a `GET` that is a top-level navigation and no prefetch.
///
/// Over plain HTTP browsers send no Fetch Metadata (except to localhost). There a request that accepts HTML counts,
/// unless it has an `Origin`, which navigations with `GET` do not have.
#[must_use]
pub fn is_page_visit(method: &Method, headers: &HeaderMap) -> bool {
    if method != Method::GET {
        return false;
    }
    let may_be = match (headers.get(SEC_FETCH_MODE), headers.get(SEC_FETCH_DEST)) {
        (None, None) => !headers.contains_key(ORIGIN) && accepts_html(headers),
        (Some(mode), dest) => mode == "navigate" && dest.is_none_or(|dest| dest == "document"),
        (None, Some(dest)) => dest == "document",
    };
    // Last, because few requests come here.
    may_be && !headers.contains_key(UPGRADE) && !is_prefetch(headers)
}

/// Returns whether the request is a prefetch, ahead of a click that may never come.
#[must_use]
pub fn is_prefetch(headers: &HeaderMap) -> bool {
    let says = |value: &HeaderValue| {
        let text = value.as_bytes().to_ascii_lowercase();
        text.windows(b"prefetch".len()).any(|part| part == b"prefetch")
    };
    headers.get_all(SEC_PURPOSE).iter().chain(headers.get_all(PURPOSE)).any(says)
}

/// Returns whether the request asks for HTML by name, as browsers do for pages and programs do not.
#[must_use]
pub fn accepts_html(headers: &HeaderMap) -> bool {
    let html = |value: &HeaderValue| {
        value.as_bytes().split(|byte| *byte == b',').any(|range| {
            let media = range.split(|byte| *byte == b';').next().unwrap_or_default();
            media.trim_ascii().eq_ignore_ascii_case(b"text/html")
        })
    };
    headers.get_all(ACCEPT).iter().any(html)
}

fn source(headers: &HeaderMap, here: Here<'_>) -> RequestSource {
    let Some(site) = only(headers, &SEC_FETCH_SITE) else {
        return match only(headers, &ORIGIN) {
            Some(origin) => related(origin, here),
            None => RequestSource::Unstated,
        };
    };
    match site {
        "same-origin" => RequestSource::SameOrigin,
        "none" => RequestSource::UserInitiated,
        // Another port of the same workspace is another site or the same, by the zone. Without `Origin` (a picture, a
        // script) the referrer tells; a page can withhold it but not forge it.
        _ => match only(headers, &ORIGIN) {
            Some(origin) => neighbour(origin, here),
            None => only(headers, &REFERER)
                .and_then(origin_of)
                .map_or(RequestSource::Foreign, |origin| neighbour(&origin, here)),
        },
    }
}

/// Compares an origin with the request's own.
fn related(origin: &str, here: Here<'_>) -> RequestSource {
    match here.site.authority_of_origin(origin) {
        Some(authority) if authority.eq_ignore_ascii_case(here.authority) => RequestSource::SameOrigin,
        Some(_) | None => neighbour(origin, here),
    }
}

/// Classifies an origin as another port of the same workspace (same scheme, same listener, same workspace) or as
/// foreign.
fn neighbour(origin: &str, here: Here<'_>) -> RequestSource {
    let same = here.site.authority_of_origin(origin).is_some_and(|authority| {
        let (host, port) = split_port(authority);
        let (_, own_port) = split_port(here.authority);
        let workspace = (here.workspace_of)(host);
        port == own_port && workspace.is_some() && workspace.as_ref() == here.workspace
    });
    if same { RequestSource::SameWorkspace } else { RequestSource::Foreign }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
}

fn origin_of(referrer: &str) -> Option<String> {
    let uri: Uri = referrer.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

/// Returns the header's only value; an empty text, which matches nothing, for several or unreadable ones.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { Some("") } else { Some(first.to_str().unwrap_or_default()) }
}

#[cfg(test)]
mod tests;
