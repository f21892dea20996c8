//! Dev mode's link, and signing out.

use super::*;
use crate::sign_in::dev::LINK_AGE_MAX;

#[test]
fn without_a_session_authorize_says_where_the_link_is_and_makes_sure_that_there_is_one() {
    let it = fixture();
    let mut browser = Browser::default();
    let authorize = location(&browser.visit(&it, HOST, "/", it.now)).to_owned();
    for _ in 0..3 {
        let response = browser.visit(&it, PUBLIC, &authorize, it.now);
        assert_eq!((response.status(), error(&response)), (StatusCode::UNAUTHORIZED, "sign_in_required"));
        assert!(str::from_utf8(response.body()).unwrap().contains("printed"));
    }
    let printed = it.printed.lock().clone();
    let [link] = printed.as_slice() else { panic!("one link is printed, not {}", printed.len()) };
    assert_eq!(browser.visit(&it, PUBLIC, link, it.now).status(), StatusCode::SEE_OTHER);
    assert!(location(&browser.visit(&it, PUBLIC, &authorize, it.now)).contains(CALLBACK_PATH));
}

#[test]
fn used_link_shows_a_page_and_prints_a_fresh_one_that_works() {
    let it = fixture();
    let link = it.issue_link().to_string();
    assert_eq!(Browser::default().visit(&it, PUBLIC, &link, it.now).status(), StatusCode::SEE_OTHER);
    for _ in 0..3 {
        let response = Browser::default().visit(&it, PUBLIC, &link, it.now);
        assert_eq!((response.status(), error(&response)), (StatusCode::UNAUTHORIZED, "sign_in_required"));
        assert!(str::from_utf8(response.body()).unwrap().contains("This link was used"));
    }
    let printed = it.printed.lock().clone();
    assert_eq!(printed.len(), 1);
    assert_eq!(Browser::default().visit(&it, PUBLIC, &printed[0], it.now).status(), StatusCode::SEE_OTHER);
}

#[test]
fn link_ends_in_time_and_a_wrong_code_does_not_use_it_up() {
    let it = fixture();
    let link = it.issue_link().to_string();
    for wrong in ["?code=x", "", &format!("?code={}", Opaque::random().unwrap().reveal())] {
        let response = Browser::default().visit(&it, PUBLIC, &format!("{SIGN_IN_PATH}{wrong}"), it.now);
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let twice = format!("{link}&{}", link.split_once('?').unwrap().1);
    assert_eq!(Browser::default().visit(&it, PUBLIC, &twice, it.now).status(), StatusCode::UNAUTHORIZED);
    assert!(it.printed.lock().is_empty(), "the printed link is still good");
    let late = it.now + LINK_AGE_MAX;
    let last = late - MOMENT;
    assert_eq!(Browser::default().visit(&it, PUBLIC, &link, last).status(), StatusCode::SEE_OTHER);
    let link = it.issue_link().to_string();
    assert_eq!(Browser::default().visit(&it, PUBLIC, &link, late).status(), StatusCode::UNAUTHORIZED);
}

#[test]
fn link_is_redeemed_by_a_visit_and_by_nothing_else() {
    let it = fixture();
    let link = it.issue_link().to_string();
    let path = link.strip_prefix("http://gw.localhost:8080").unwrap();
    let navigate = ("sec-fetch-mode", "navigate");
    let cross = ("sec-fetch-site", "cross-site");
    for headers in [
        vec![("purpose", "prefetch")],
        vec![("sec-purpose", "prefetch"), navigate, cross, ("sec-fetch-dest", "document")],
        vec![cross, navigate, ("sec-fetch-dest", "iframe")],
        vec![cross, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")],
        vec![("origin", "https://evil.example")],
    ] {
        let response = Browser::default().send(&it, get(path, &headers), PUBLIC, it.now);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{headers:?}");
    }
    for method in [Method::HEAD, Method::POST, Method::OPTIONS] {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        assert_eq!(Browser::default().send(&it, request, PUBLIC, it.now).status(), StatusCode::BAD_REQUEST);
    }
    let clicked = [cross, navigate, ("sec-fetch-dest", "document"), ("sec-fetch-user", "?1")];
    let response = Browser::default().send(&it, get(path, &clicked), PUBLIC, it.now);
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
}

#[test]
fn program_that_claims_nothing_may_redeem_the_link() {
    let it = fixture();
    let link = it.issue_link().to_string();
    let path = link.strip_prefix("http://gw.localhost:8080").unwrap();
    let response = Browser::default().send(&it, get(path, &[("accept", "*/*")]), PUBLIC, it.now);
    assert_eq!((response.status(), location(&response)), (StatusCode::SEE_OTHER, "/"));
}

#[test]
fn link_opened_again_in_the_same_browser_goes_on_and_leaves_newer_links_alone() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let newer = it.issue_link().to_string();
    let response = browser.visit(&it, PUBLIC, &newer, it.now);
    assert_eq!((response.status(), location(&response)), (StatusCode::SEE_OTHER, "/"));
    assert_eq!(Browser::default().visit(&it, PUBLIC, &newer, it.now).status(), StatusCode::SEE_OTHER);
}

#[test]
fn link_leads_on_to_a_path_or_a_workspace_and_nowhere_else() {
    let it = fixture();
    let go = |more: &str| {
        let link = it.issue_link();
        location(&Browser::default().visit(&it, PUBLIC, &format!("{link}{more}"), it.now)).to_owned()
    };
    assert_eq!(go("&return=/w/a%3Fb"), "/w/a?b");
    for evil in
        ["//evil.example", "%5C%5Cevil", "http:evil", "http://evil.example", "/%5Cevil", "/%09/evil", "/%0d%0ax:y"]
    {
        assert_eq!(go(&format!("&return={evil}")), "/", "{evil}");
    }
    assert_eq!(go("&host=evil.example"), "/");
    assert_eq!(go("&host=evil.example/.zone&return=/a"), "/a");
    assert_eq!(go(&format!("&host={HOST}&return=//evil")), "http://8080-app.zone:8080/");
    let link = it.issue_link();
    let link = link.to_workspace(HOST, &ReturnPath::parse("/a?b=c&d").unwrap()).to_string();
    let response = Browser::default().visit(&it, PUBLIC, &link, it.now);
    assert_eq!(location(&response), "http://8080-app.zone:8080/a?b=c&d");
}

#[test]
fn sign_out_needs_a_post_from_the_gateways_own_page() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it);
    let callback = browser.up_to_callback(&it, HOST, "/");
    browser.visit(&it, HOST, &callback, it.now);
    let post = |headers: &[(&str, &str)]| {
        let mut request = get(SIGN_OUT_PATH, headers);
        *request.method_mut() = Method::POST;
        request
    };
    for headers in [
        vec![],
        vec![("sec-fetch-site", "same-site")],
        vec![("sec-fetch-site", "cross-site"), ("origin", "http://gw.localhost:8080")],
        vec![("origin", "http://8080-app.zone:8080")],
        vec![("origin", "null")],
    ] {
        assert_eq!(browser.send(&it, post(&headers), PUBLIC, it.now).status(), StatusCode::BAD_REQUEST, "{headers:?}");
    }
    let by_get = get(SIGN_OUT_PATH, &[("sec-fetch-site", "same-origin")]);
    assert_eq!(browser.send(&it, by_get, PUBLIC, it.now).status(), StatusCode::BAD_REQUEST);
    assert!(browser.user_at(&it, HOST, it.now).is_some());
    let response = browser.send(&it, post(&[("origin", "http://gw.localhost:8080")]), PUBLIC, it.now);
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers()[SET_COOKIE].to_str().unwrap().starts_with("gateway_session=; Path=/; Max-Age=0"));
    assert_eq!(browser.user_at(&it, HOST, it.now), None);
}

#[test]
fn debug_shows_no_code() {
    let it = fixture();
    let link = it.issue_link();
    let code = link.to_string().split_once("code=").unwrap().1.to_owned();
    assert!(!format!("{link:?}{:?}", it.pages).contains(&code));
}
