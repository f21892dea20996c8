//! Signing out, here and at the provider, and the provider's word that sessions have ended. Row 23.

use std::time::Duration;

use e2e::browser::Browser;
use e2e::raw::{Message, RawApp};
use e2e::stopwatch::Stopwatch;
use gateway_store::wall_clock;
use serde_json::{Value, json};

use super::{Site, is_signed_in};

/// Within this a revocation has cut what was open.
const CUT_WITHIN: Duration = Duration::from_secs(5);

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

/// Sends what a provider would.
pub(super) async fn notify(site: &Site, form: &str) -> Message {
    Browser::default().ask("POST", &site.public("/.gateway/oidc/backchannel-logout"), FORM, form).await
}

#[tokio::test]
async fn sign_out_ends_every_host_at_once_and_goes_on_to_the_provider() {
    let site = Site::start().await;
    let mut browser = site.signed_in().await;
    let (_, page) = browser.follow(&site.workspace("/")).await;
    assert_eq!(page.status(), 200);
    let mut other = site.signed_in().await;
    let fields = "sec-fetch-site: same-origin\r\naccept: text/html\r\n";
    let stolen = browser.clone();
    let page = browser.ask("POST", &site.public("/.gateway/sign-out"), fields, "").await;
    assert_eq!(page.status(), 200);
    assert!(
        page.text().contains("/end?id_token_hint=") && page.text().contains("post_logout_redirect_uri="),
        "{page:?}"
    );
    assert_eq!(browser.cookie("localhost", "gateway_session"), None);
    for mut browser in [browser, stolen] {
        assert!(!is_signed_in(&site, &mut browser).await, "the id is worth nothing, whoever has it");
        assert_eq!(browser.visit(&site.workspace("/")).await.status(), 302);
    }
    assert!(is_signed_in(&site, &mut other).await, "another browser is another session");
    let mut third = site.signed_in().await;
    let page = third.ask("POST", &site.public("/.gateway/sign-out?everywhere"), fields, "").await;
    assert_eq!(page.status(), 200);
    assert!(!is_signed_in(&site, &mut other).await && !is_signed_in(&site, &mut third).await);
    let page = third.visit(&site.public("/.gateway/signed-out")).await;
    assert!(page.status() == 200 && page.text().contains("You are signed out"), "{page:?}");
}

#[tokio::test]
async fn sign_out_from_a_foreign_page_does_nothing() {
    let site = Site::start().await;
    let mut browser = site.signed_in().await;
    for fields in
        ["sec-fetch-site: same-site\r\n", "sec-fetch-site: cross-site\r\n", "origin: http://1-one.localhost\r\n", ""]
    {
        let answer = browser.ask("POST", &site.public("/.gateway/sign-out"), fields, "").await;
        assert_eq!(answer.status(), 400, "{fields}");
    }
    assert!(is_signed_in(&site, &mut browser).await);
}

#[tokio::test]
async fn providers_word_ends_one_session_or_all_of_a_user() {
    let site = Site::start().await;
    site.provider.claim("sid", json!("s-1"));
    let mut one = site.signed_in().await;
    site.provider.claim("sid", json!("s-2"));
    let (mut two, mut three) = (site.signed_in().await, site.signed_in().await);
    site.provider.person("u-bob", "bob", &[]);
    let mut bob = site.signed_in().await;
    let token = site.provider.logout_token(None, Some("s-1"), |_| {});
    let answer = notify(&site, &format!("logout_token={token}")).await;
    assert_eq!((answer.status(), answer.header("cache-control")), (200, Some("no-store")), "{answer:?}");
    assert!(!is_signed_in(&site, &mut one).await);
    assert!(is_signed_in(&site, &mut two).await && is_signed_in(&site, &mut three).await);
    let again = notify(&site, &format!("logout_token={token}")).await;
    assert_eq!(again.status(), 400, "a message counts once");
    let token = site.provider.logout_token(Some("u-ann"), None, |_| {});
    assert_eq!(notify(&site, &format!("logout_token={token}")).await.status(), 200);
    assert!(!is_signed_in(&site, &mut two).await && !is_signed_in(&site, &mut three).await);
    assert!(is_signed_in(&site, &mut bob).await);
}

#[tokio::test]
async fn message_that_is_not_the_providers_or_not_about_signing_out_ends_nothing() {
    let site = Site::start().await;
    let mut browser = site.signed_in().await;
    let now = wall_clock().get();
    let spoilt: [(&str, Value); 9] = [
        ("iss", json!("https://evil.example")),
        ("aud", json!("another-client")),
        ("nonce", json!("n")),
        ("events", json!({})),
        ("events", json!(["http://schemas.openid.net/event/backchannel-logout"])),
        ("iat", json!(now - 3600)),
        ("iat", json!("now")),
        ("exp", json!(now - 61)),
        ("jti", json!("")),
    ];
    for (name, value) in spoilt {
        let token = site.provider.logout_token(Some("u-ann"), None, |claims| claims[name] = value.clone());
        let answer = notify(&site, &format!("logout_token={token}")).await;
        assert_eq!((answer.status(), answer.header("cache-control")), (400, Some("no-store")), "{name} {value}");
    }
    let nobody = site.provider.logout_token(None, None, |_| {});
    let good = site.provider.logout_token(Some("u-ann"), None, |_| {});
    let forged = site.provider.forge("key-1", &json!({"iss": site.provider.issuer, "sub": "u-ann"}));
    for form in [
        format!("logout_token={nobody}"),
        format!("logout_token={forged}"),
        format!("logout_token={good}&logout_token={good}"),
        format!("logout_token={}", "x".repeat(40_000)),
        "logout_token=".to_owned(),
        format!("token={good}"),
    ] {
        assert_eq!(notify(&site, &form).await.status(), 400, "{:.60}", form);
    }
    let address = site.public("/.gateway/oidc/backchannel-logout");
    let as_json = Browser::default().ask("POST", &address, "content-type: application/json\r\n", "{}").await;
    assert_eq!(as_json.status(), 400);
    let by_get = Browser::default().ask("GET", &format!("{address}?logout_token={good}"), "", "").await;
    assert_eq!(by_get.status(), 400);
    assert!(is_signed_in(&site, &mut browser).await);
    assert_eq!(
        notify(&site, &format!("logout_token={good}")).await.status(),
        200,
        "the same token, as it should be sent"
    );
    assert!(!is_signed_in(&site, &mut browser).await);
}

#[tokio::test]
async fn providers_word_cuts_what_is_open() {
    let site = Site::start().await;
    let echo = RawApp::echo().await;
    let mut browser = site.signed_in().await;
    let address = format!("http://{}/", site.gateway.authority("one", echo.port));
    let (_, _) = browser.follow(&address).await;
    let origin = address.trim_end_matches('/');
    let fields = format!("connection: upgrade\r\nupgrade: echo\r\norigin: {origin}\r\n");
    let mut stream = browser.send("GET", &address, &fields, "").await;
    assert_eq!(stream.head().await.unwrap().status(), 101);
    stream.send("still here").await;
    assert_eq!(stream.exactly(10).await, b"still here");
    let since = Stopwatch::start();
    let token = site.provider.logout_token(Some("u-ann"), Some("s-u-ann"), |_| {});
    assert_eq!(notify(&site, &format!("logout_token={token}")).await.status(), 200);
    stream.read_rest().await;
    assert!(since.elapsed() < CUT_WITHIN, "it lived {:?} after the sign-out", since.elapsed());
    site.gateway.assert_quiet().await;
}
