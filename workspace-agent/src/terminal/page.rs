//! The page, and the header fields that protect it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use ::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Kept as `gzip` made it, and sent so: every browser reads that.
    is_compressed: bool,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

static ASSETS: [Asset; 10] = [
    own("look.css", STYLE, page_look::STYLE.as_bytes()),
    own("icon.svg", IMAGE, page_look::ICON.as_bytes()),
    own("terminal.css", STYLE, include_bytes!("../../assets/terminal.css")),
    own("terminal.js", SCRIPT, include_bytes!("../../assets/terminal.js")),
    own("connection.js", SCRIPT, include_bytes!("../../assets/connection.js")),
    own("emulator.js", SCRIPT, include_bytes!("../../assets/emulator.js")),
    foreign("xterm.mjs", SCRIPT, include_bytes!("../../assets/xterm/xterm.mjs.gz")),
    foreign("addon-fit.mjs", SCRIPT, include_bytes!("../../assets/xterm/addon-fit.mjs.gz")),
    foreign("xterm.css", STYLE, include_bytes!("../../assets/xterm/xterm.css.gz")),
    own("xterm-license.txt", TEXT, include_bytes!("../../assets/xterm/LICENSE")),
];

const fn own(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Asset {
    Asset { name, kind, bytes, is_compressed: false }
}

const fn foreign(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Asset {
    Asset { name, kind, bytes, is_compressed: true }
}

/// Tells these files from those that another agent has under the same names.
static TAG: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for asset in &ASSETS {
        asset.bytes.hash(&mut hasher);
    }
    HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish())).ok()
});

/// Content security policy: scripts and answers of this origin only. The emulator writes the colours that programs ask
/// for into style elements of its own, hence the one thing that is allowed inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const INDEX: &[u8] = include_bytes!("../../assets/index.html");

/// Returns the page.
pub(super) fn index() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(INDEX));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Returns a file of the page.
pub(super) fn asset(name: &str, asked: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    let tag = TAG.as_ref()?;
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

/// Adds to every answer the fields that keep other pages out of this one.
pub(super) fn protect(headers: &mut HeaderMap) {
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let fields = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_one_heading() {
        let page = std::str::from_utf8(INDEX).expect("text");
        assert_eq!(page.matches("<h1").count(), 1);
    }

    #[test]
    fn page_names_only_files_that_are_there() {
        let texts = ["index.html", "terminal.js", "connection.js", "emulator.js"];
        let texts = texts.map(|name| {
            let own = ASSETS.iter().find(|asset| asset.name == name).map(|asset| asset.bytes);
            String::from_utf8(own.unwrap_or(INDEX).to_vec()).expect("text")
        });
        let mut named = 0;
        for text in texts {
            let quoted = text.split('"').skip(1).step_by(2);
            let files = quoted.filter_map(|quoted| quoted.strip_prefix("assets/").or(quoted.strip_prefix("./")));
            for file in files {
                assert!(asset(file, &HeaderMap::new()).is_some(), "{file}");
                named += 1;
            }
        }
        assert!(named == 9, "{named}");
    }

    #[test]
    fn compressed_files_say_so_and_are_sent_once() {
        let answer = asset("xterm.mjs", &HeaderMap::new()).expect("a file");
        assert_eq!(answer.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes), Some(&b"gzip"[..]));
        let tag = answer.headers().get(ETAG).cloned().expect("a tag");
        let again = asset("xterm.mjs", &HeaderMap::from_iter([(IF_NONE_MATCH, tag)])).expect("a file");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(asset("../terminal.rs", &HeaderMap::new()).is_none());
    }
}
