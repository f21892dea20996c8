//! The files of the agent's own pages, and the header fields that keep other pages out of these: for terminals and the request inspector.

use std::hash::{DefaultHasher, Hash, Hasher};

use ::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const STYLE: &str = "text/css; charset=utf-8";
pub(crate) const IMAGE: &str = "image/svg+xml";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A file of a page.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    kind: &'static str,
    pub(crate) bytes: &'static [u8],
    /// Kept as `gzip` made it, and sent so: every browser reads that.
    is_compressed: bool,
}

impl Asset {
    /// Names a file that is kept as it is.
    pub(crate) const fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, kind, bytes, is_compressed: false }
    }

    /// Names a file that `gzip` made.
    pub(crate) const fn compressed(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, kind, bytes, is_compressed: true }
    }
}

/// Makes the tag that tells these files from those that another agent has under the same names.
pub(crate) fn tag(assets: &[Asset]) -> Option<HeaderValue> {
    let mut hasher = DefaultHasher::new();
    for asset in assets {
        asset.bytes.hash(&mut hasher);
    }
    HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish())).ok()
}

/// Returns a file by its name, without its bytes for a browser that has them.
pub(crate) fn asset(
    assets: &'static [Asset],
    tag: Option<&HeaderValue>,
    name: &str,
    asked: &HeaderMap,
) -> Option<Response<Full<Bytes>>> {
    let asset = assets.iter().find(|asset| asset.name == name)?;
    let tag = tag?;
    let is_known = asked.get_all(IF_NONE_MATCH).iter().any(|known| known == tag);
    let mut response = Response::new(if is_known { Full::default() } else { Full::from(asset.bytes) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(ETAG, tag.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if asset.is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

/// Policies in which pages differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies {
    /// Content security policy.
    pub(crate) content: &'static str,
    /// Referrer policy.
    pub(crate) referrer: &'static str,
}

/// Adds to every answer the fields that keep other pages out of these.
pub(crate) fn protect(headers: &mut HeaderMap, policies: Policies) {
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let fields = [
        (CONTENT_SECURITY_POLICY, policies.content),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, policies.referrer),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
