//! Page and its parts, built into the program, with validators so that a browser asks again but rarely loads again.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{DemoApp, hex};

/// The page needs no more than this: no inline script or style, nothing from elsewhere.
const POLICY: &str = "default-src 'self'; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'";

/// Bytes of the digest that go into an entity tag; enough that two versions never share one.
const TAG_BYTES: usize = 12;

const ICON: &str = page_look::ICON;

const PARTS: [AssetPart; 4] = [
    AssetPart { path: "/", media_type: "text/html; charset=utf-8", text: include_str!("../assets/index.html") },
    AssetPart { path: "/app.css", media_type: "text/css; charset=utf-8", text: include_str!("../assets/app.css") },
    AssetPart { path: "/app.js", media_type: "text/javascript; charset=utf-8", text: include_str!("../assets/app.js") },
    AssetPart { path: "/favicon.svg", media_type: "image/svg+xml", text: ICON },
];

#[derive(Clone, Copy)]
struct AssetPart {
    path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

/// Routes to the page and its parts.
pub(super) fn routes() -> Router<DemoApp> {
    PARTS.into_iter().fold(Router::new(), |router, part| {
        let tag = entity_tag(part.text);
        let handler = move |headers: HeaderMap| {
            let answer = respond(part, &tag, &headers);
            async move { answer }
        };
        router.route(part.path, get(handler))
    })
}

fn entity_tag(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let short: Vec<u8> = digest.as_ref().iter().copied().take(TAG_BYTES).collect();
    format!("\"{}\"", hex(&short))
}

fn respond(part: AssetPart, tag: &str, headers: &HeaderMap) -> Response {
    // `no-cache` stores but always asks, so a new version of the program shows at once (RFC 9111, section 5.2.2.4).
    let fresh = [(ETAG, tag), (CACHE_CONTROL, "no-cache")];
    if holds(headers, tag) {
        return (StatusCode::NOT_MODIFIED, fresh).into_response();
    }
    let content = [
        (CONTENT_TYPE, part.media_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (fresh, content, part.text).into_response()
}

/// Whether the browser already holds the version called `tag`; weak comparison (RFC 9110, section 13.1.2).
fn holds(headers: &HeaderMap, tag: &str) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;

    use super::super::tests::answer;
    use super::*;

    const PAGE: &str = include_str!("../assets/index.html");
    const SCRIPT: &str = include_str!("../assets/app.js");

    #[tokio::test]
    async fn every_part_is_served_with_its_type_and_policy() {
        for part in PARTS {
            let request = Request::get(part.path).body(Body::empty()).unwrap();
            let response = answer(request).await;
            assert_eq!(response.status(), StatusCode::OK, "{}", part.path);
            assert_eq!(response.headers()[CONTENT_TYPE], part.media_type);
            assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, part.text.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_browser_that_holds_the_page_gets_not_modified() {
        let first = answer(Request::get("/").body(Body::empty()).unwrap()).await;
        let tag = first.headers()[ETAG].to_str().unwrap().to_owned();
        for (value, expected) in [
            (tag.clone(), StatusCode::NOT_MODIFIED),
            (format!("\"other\", W/{tag}"), StatusCode::NOT_MODIFIED),
            ("*".to_owned(), StatusCode::NOT_MODIFIED),
            ("\"other\"".to_owned(), StatusCode::OK),
        ] {
            let request = Request::get("/").header(IF_NONE_MATCH, &value);
            let response = answer(request.body(Body::empty()).unwrap()).await;
            assert_eq!(response.status(), expected, "{value}");
            assert_eq!(response.headers()[ETAG], tag);
        }
    }

    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for forbidden in [" style=", "<style", "onclick=", "onload=", "javascript:", "src=\"http", "href=\"http"] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        // The only script is the file; an inline one would have text between the tags.
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(PAGE.contains("<script src=\"app.js\" defer></script>"));
        for forbidden in ["eval(", "innerHTML", "setAttribute(\"style\"", ".style."] {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn every_element_that_the_script_names_is_on_the_page_once() {
        let named: Vec<&str> = SCRIPT.split("$(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() > 20, "{named:?}");
        for id in named.into_iter().chain(["ws-state", "ws-rtt", "sse-seq", "upload-result", "request-table"]) {
            assert_eq!(PAGE.matches(&format!(" id=\"{id}\"")).count(), 1, "{id}");
        }
    }
}
