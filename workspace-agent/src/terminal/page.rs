//! The page, and the header fields that protect it.

use std::sync::LazyLock;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{HeaderMap, Response};
use bytes::Bytes;
use http_body_util::Full;

use crate::own_pages::{self, Asset, IMAGE, Policies, SCRIPT, STYLE, TEXT};

static ASSETS: [Asset; 10] = [
    Asset::new("look.css", STYLE, page_look::STYLE.as_bytes()),
    Asset::new("icon.svg", IMAGE, page_look::ICON.as_bytes()),
    Asset::new("terminal.css", STYLE, include_bytes!("../../assets/terminal.css")),
    Asset::new("terminal.js", SCRIPT, include_bytes!("../../assets/terminal.js")),
    Asset::new("connection.js", SCRIPT, include_bytes!("../../assets/connection.js")),
    Asset::new("emulator.js", SCRIPT, include_bytes!("../../assets/emulator.js")),
    Asset::compressed("xterm.mjs", SCRIPT, include_bytes!("../../assets/xterm/xterm.mjs.gz")),
    Asset::compressed("addon-fit.mjs", SCRIPT, include_bytes!("../../assets/xterm/addon-fit.mjs.gz")),
    Asset::compressed("xterm.css", STYLE, include_bytes!("../../assets/xterm/xterm.css.gz")),
    Asset::new("xterm-license.txt", TEXT, include_bytes!("../../assets/xterm/LICENSE")),
];

static TAG: LazyLock<Option<HeaderValue>> = LazyLock::new(|| own_pages::tag(&ASSETS));

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
    own_pages::asset(&ASSETS, TAG.as_ref(), name, asked)
}

/// Adds to every answer the fields that keep other pages out of this one.
pub(super) fn protect(headers: &mut HeaderMap) {
    own_pages::protect(headers, Policies { content: POLICY, referrer: "no-referrer" });
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;
    use ::http::header::{CONTENT_ENCODING, ETAG, IF_NONE_MATCH};

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
