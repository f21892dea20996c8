use super::*;
use gateway_types::opaque::Opaque;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    lines.iter().map(pair).collect()
}

/// Stands in for the host parser: `PORT-NAME.zone`.
fn workspace_of(host: &str) -> Option<WorkspaceName> {
    let (_, name) = host.strip_suffix(".zone")?.split_once('-')?;
    name.parse().ok()
}

fn shape_with(method: &Method, lines: &[(&str, &str)], offered: &OfferedCredential) -> (Purpose, RequestSource) {
    let site = Site::new(&"https://gw.example".parse().unwrap()).unwrap();
    let workspace = "app".parse().unwrap();
    let here =
        Here { site: &site, authority: "8080-app.zone", workspace: Some(&workspace), workspace_of: &workspace_of };
    let shape = read(method, &headers(lines), offered, here);
    (shape.purpose, shape.source)
}

#[track_caller]
fn check(method: Method, lines: &[(&str, &str)], purpose: Purpose, source: RequestSource) {
    assert_eq!(shape_with(&method, lines, &OfferedCredential::Nothing), (purpose, source), "{method} {lines:?}");
}

const NAVIGATE: (&str, &str) = ("sec-fetch-mode", "navigate");
const DOCUMENT: (&str, &str) = ("sec-fetch-dest", "document");
const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");
const SIBLING: (&str, &str) = ("sec-fetch-site", "same-site");

#[test]
fn page_visit_is_a_top_level_navigation_with_get() {
    let typed = ("sec-fetch-site", "none");
    check(Method::GET, &[NAVIGATE, DOCUMENT, typed], Purpose::PageVisit, RequestSource::UserInitiated);
    check(Method::GET, &[NAVIGATE, DOCUMENT, CROSS], Purpose::PageVisit, RequestSource::Foreign);
    check(Method::GET, &[("accept", "text/html,*/*;q=0.8")], Purpose::PageVisit, RequestSource::Unstated);
    check(Method::GET, &[("accept", "a/b , TEXT/html;q=1")], Purpose::PageVisit, RequestSource::Unstated);
    check(Method::HEAD, &[NAVIGATE, DOCUMENT, typed], Purpose::Read, RequestSource::UserInitiated);
    check(Method::POST, &[NAVIGATE, DOCUMENT, CROSS], Purpose::Change, RequestSource::Foreign);
    check(Method::GET, &[NAVIGATE, ("sec-fetch-dest", "iframe"), SIBLING], Purpose::Read, RequestSource::Foreign);
    check(Method::GET, &[("accept", "*/*")], Purpose::Read, RequestSource::Unstated);
    check(Method::GET, &[("accept", "text/htmlx")], Purpose::Read, RequestSource::Unstated);
    let fetch = ("sec-fetch-mode", "cors");
    check(Method::GET, &[fetch, ("accept", "text/html"), CROSS], Purpose::Read, RequestSource::Foreign);
    let evil = ("origin", "https://evil.example");
    check(Method::GET, &[("accept", "text/html"), evil], Purpose::Read, RequestSource::Foreign);
    for prefetch in [("sec-purpose", "prefetch;prerender"), ("purpose", "Prefetch")] {
        check(Method::GET, &[NAVIGATE, DOCUMENT, typed, prefetch], Purpose::Read, RequestSource::UserInitiated);
    }
}

#[test]
fn upgrade_and_connect_are_changes() {
    let upgrade = ("upgrade", "websocket");
    check(Method::GET, &[upgrade, ("accept", "text/html")], Purpose::Change, RequestSource::Unstated);
    check(Method::CONNECT, &[], Purpose::Change, RequestSource::Unstated);
    check(Method::GET, &[upgrade, ("origin", "https://8080-app.zone")], Purpose::Change, RequestSource::SameOrigin);
    check(Method::GET, &[upgrade, ("origin", "https://8080-evil.zone")], Purpose::Change, RequestSource::Foreign);
}

#[test]
fn source_is_told_by_fetch_metadata_then_origin_then_referrer() {
    let post = Method::POST;
    check(post.clone(), &[], Purpose::Change, RequestSource::Unstated);
    check(
        post.clone(),
        &[("sec-fetch-site", "same-origin"), ("origin", "null")],
        Purpose::Change,
        RequestSource::SameOrigin,
    );
    check(post.clone(), &[("origin", "https://8080-APP.zone")], Purpose::Change, RequestSource::SameOrigin);
    check(post.clone(), &[("origin", "https://3000-app.zone")], Purpose::Change, RequestSource::SameWorkspace);
    check(post.clone(), &[SIBLING, ("origin", "https://3000-app.zone")], Purpose::Change, RequestSource::SameWorkspace);
    let referrer = ("referer", "https://3000-app.zone/page?x");
    check(Method::GET, &[SIBLING, referrer], Purpose::Read, RequestSource::SameWorkspace);
    let other = ("referer", "https://3000-evil.zone/https://3000-app.zone/");
    check(Method::GET, &[SIBLING, other], Purpose::Read, RequestSource::Foreign);
    check(Method::GET, &[SIBLING], Purpose::Read, RequestSource::Foreign);
}

#[test]
fn source_that_is_odd_counts_as_foreign() {
    for origin in [
        "null",
        "",
        "http://8080-app.zone",
        "https://8080-app.zone:444",
        "https://3000-app.zone:8443",
        "https://8080-app.zone.evil.example",
        "https://8080-app.zone@evil.example",
        "https://gw.example",
        "https://x-",
        "\u{ff}",
    ] {
        check(Method::POST, &[("origin", origin)], Purpose::Change, RequestSource::Foreign);
        check(Method::POST, &[CROSS, ("origin", origin)], Purpose::Change, RequestSource::Foreign);
    }
    let own = ("origin", "https://8080-app.zone");
    check(Method::POST, &[own, own], Purpose::Change, RequestSource::Foreign);
    let same = ("sec-fetch-site", "same-origin");
    check(Method::POST, &[same, CROSS], Purpose::Change, RequestSource::Foreign);
    check(Method::POST, &[("sec-fetch-site", "SAME-ORIGIN")], Purpose::Change, RequestSource::Foreign);
}

#[test]
fn request_with_a_token_or_refused_credentials_is_never_a_page_visit() {
    let visit = [NAVIGATE, DOCUMENT];
    let purpose = |offered| shape_with(&Method::GET, &visit, &offered).0;
    assert_eq!(purpose(OfferedCredential::Session(Opaque::random().unwrap().digest())), Purpose::PageVisit);
    assert_eq!(purpose(OfferedCredential::Token([0; 32])), Purpose::Read);
    assert_eq!(purpose(OfferedCredential::Refused), Purpose::Read);
}

#[test]
fn no_page_on_the_public_host_is_a_neighbour() {
    let site = Site::new(&"https://gw.example".parse().unwrap()).unwrap();
    let here = Here { site: &site, authority: "gw.example", workspace: None, workspace_of: &workspace_of };
    let from = |origin| read(&Method::POST, &headers(&[("origin", origin)]), &OfferedCredential::Nothing, here).source;
    assert_eq!(from("https://8080-app.zone"), RequestSource::Foreign);
    assert_eq!(from("https://elsewhere.example"), RequestSource::Foreign);
    assert_eq!(from("https://gw.example"), RequestSource::SameOrigin);
}
