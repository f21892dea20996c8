//! A provider, or somebody in its place, that does what it must not; and addresses that lead astray. Rows 8 and 22.

use e2e::browser::Browser;
use e2e::provider::Signature;
use gateway_store::wall_clock;
use serde_json::{Value, json};

use super::{Site, is_signed_in};

/// Signs in with one thing changed, and expects to be refused with a code.
async fn check_refused(site: &Site, what: &str, status: u16, code: &str) {
    let (found, error, mut browser) = site.outcome().await;
    assert_eq!((found, error.as_str()), (status, code), "{what}");
    assert_eq!(browser.cookie("localhost", "gateway_session"), None, "{what}");
    assert!(!is_signed_in(site, &mut browser).await, "{what}");
    assert_eq!(site.gateway.store.users().await.unwrap(), [], "{what}: nobody was let in");
    site.provider.person("u-ann", "ann", &["devs"]);
}

#[tokio::test]
async fn id_token_that_is_not_what_it_must_be_signs_nobody_in() {
    let site = Site::start().await;
    let now = wall_clock().get();
    let other_issuer = format!("{}/", site.provider.issuer);
    for (name, value) in [
        ("iss", json!("https://evil.example")),
        ("iss", json!(other_issuer)),
        ("iss", Value::Null),
        ("aud", json!("another-client")),
        ("aud", json!(["gateway", "another-client"])),
        ("aud", Value::Null),
        ("azp", json!("another-client")),
        ("nonce", json!("made-up")),
        ("nonce", Value::Null),
        ("nonce", json!(1)),
        ("exp", json!(now - 61)),
        ("exp", json!((now + 300).to_string())),
        ("exp", Value::Null),
        ("iat", json!(now + 120)),
        ("iat", Value::Null),
        ("nbf", json!(now + 120)),
        ("sub", json!(7)),
        ("sub", Value::Null),
        ("email_verified", json!("true")),
        ("email_verified", json!("false")),
    ] {
        site.provider.claim(name, value.clone());
        check_refused(&site, &format!("{name} {value}"), 401, "sign_in_failed").await;
    }
    for signature in [Signature::None, Signature::HmacOfPublicKey, Signature::OtherKey, Signature::UnknownKey] {
        site.provider.plan().signature = signature;
        check_refused(&site, &format!("{signature:?}"), 401, "sign_in_failed").await;
    }
    let (status, _, _) = site.outcome().await;
    assert_eq!(status, 200, "without any of that it works");
}

#[tokio::test]
async fn claims_that_a_user_is_made_of_are_read_strictly() {
    let site = Site::start().await;
    for (name, value) in [
        ("groups", json!("devs")),
        ("groups", json!({"devs": true})),
        ("groups", json!(["devs", 1])),
        ("groups", json!(vec!["g"; 257])),
        ("preferred_username", json!(["ann"])),
        ("preferred_username", json!("")),
        ("preferred_username", json!("ann lee")),
        ("preferred_username", json!("<script>alert(1)</script>")),
        ("preferred_username", json!("dev")),
        ("preferred_username", Value::Null),
        ("sub", json!("")),
        ("sub", json!("x".repeat(256))),
    ] {
        site.provider.claim(name, value.clone());
        check_refused(&site, &format!("{name} {value}"), 403, "sign_in_refused").await;
    }
}

// RFC 9207: an answer that names another issuer, or none although the provider always does, is somebody else's.
#[tokio::test]
async fn answer_of_a_mixed_up_issuer_is_refused_before_the_code_is_used() {
    let site = Site::start().await;
    for named in [Some("https://evil.example".to_owned()), Some(String::new()), None] {
        site.provider.plan().answer_issuer = named.clone();
        check_refused(&site, &format!("{named:?}"), 401, "sign_in_failed").await;
    }
    let exchanged = site.provider.seen().iter().any(|request| request.start.starts_with("POST /token"));
    assert!(!exchanged, "the code was shown to the provider");
}

#[tokio::test]
async fn refusal_at_the_provider_is_said_and_not_repeated() {
    let site = Site::start().await;
    site.provider.plan().error = Some("access_denied");
    let (status, code, browser) = site.outcome().await;
    assert_eq!((status, code.as_str()), (401, "sign_in_required"));
    assert_eq!(browser.cookie("localhost", "gateway_session"), None);
}

#[tokio::test]
async fn answer_is_good_once_and_only_in_the_browser_that_began() {
    let site = Site::start().await;
    // Login CSRF: the victim is sent to the address with which the attacker would have finished.
    let mut attacker = Browser::default();
    let callback = site.up_to_callback(&mut attacker).await;
    let mut victim = Browser::default();
    assert_eq!(victim.visit(&callback).await.status(), 401);
    site.up_to_callback(&mut victim).await;
    assert_eq!(victim.visit(&callback).await.status(), 401, "in a sign-in of its own too");
    assert_eq!(victim.cookie("localhost", "gateway_session"), None);
    // Replay: what worked once works no more, not even in the same browser.
    let mut browser = Browser::default();
    let callback = site.up_to_callback(&mut browser).await;
    assert_eq!(browser.visit(&callback).await.status(), 303);
    assert_eq!(browser.visit(&callback).await.status(), 401);
    let without_state = callback.replace("state=", "stat=");
    assert_eq!(browser.visit(&without_state).await.status(), 400);
    // A code of one sign-in in another of the same browser: PKCE and the nonce do not fit.
    let mut tab = Browser::default();
    let (first, second) = (site.up_to_callback(&mut tab).await, site.up_to_callback(&mut tab).await);
    let code_of = |address: &str| {
        let url = url_of(address);
        url.into_iter().find(|(name, _)| name == "code").map(|(_, code)| code).unwrap()
    };
    let mixed = first.replace(&code_of(&first), &code_of(&second));
    let page = tab.visit(&mixed).await;
    assert_eq!((page.status(), page.header("gateway-error")), (401, Some("sign_in_failed")));
}

fn url_of(address: &str) -> Vec<(String, String)> {
    let (_, query) = address.split_once('?').unwrap();
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[tokio::test]
async fn sign_in_leads_to_our_own_hosts_only() {
    let site = Site::start().await;
    let public = site.public("/");
    for (query, expected) in [
        ("return=//evil.example", public.clone()),
        ("return=https://evil.example/", public.clone()),
        ("return=/%5Cevil.example", public.clone()),
        ("return=%09//evil.example", public.clone()),
        ("return=/%0d%0alocation:evil", public.clone()),
        ("host=evil.example&return=/", public.clone()),
        ("host=evil.example%2f.localhost&return=/", public.clone()),
        ("host=x@one.localhost&return=/", public.clone()),
        (
            "host=1-one.localhost&return=//evil.example",
            format!("http://1-one.localhost:{}/", site.gateway.addresses.public.port()),
        ),
    ] {
        let mut browser = Browser::default();
        let callback =
            browser.follow_until(&site.public(&format!("/.gateway/sign-in?{query}")), "/oidc/callback").await;
        let answer = browser.visit(&callback).await;
        let to = answer.header("location").unwrap_or_else(|| panic!("{query}: {answer:?}"));
        let to = if to.starts_with('/') { site.public(to) } else { to.to_owned() };
        assert_eq!(to, expected, "{query}");
        assert!(
            answer.header("referrer-policy") == Some("no-referrer")
                && answer.header("cache-control") == Some("no-store")
        );
    }
    for host in ["evil.example", "localhost", "one.localhost.evil.example", "a.b.localhost"] {
        let pre = "A".repeat(43);
        let address = site.public(&format!("/.gateway/authorize?host={host}&return=/&pre={pre}"));
        assert_eq!(Browser::default().visit(&address).await.status(), 400, "{host}");
    }
    let sent = site.provider.seen().iter().map(|request| request.start.clone()).collect::<String>();
    assert!(!sent.contains("evil"), "the provider hears nothing of where the browser wants to go");
}

#[tokio::test]
async fn storm_of_tokens_with_made_up_keys_asks_the_provider_once() {
    let site = Site::start().await;
    site.signed_in().await;
    let asked = site.provider.keys_asked();
    assert_eq!(asked, 1);
    for number in 0..100 {
        let claims = json!({"iss": site.provider.issuer, "aud": "gateway", "sub": "u-ann", "iat": wall_clock().get()});
        let token = site.provider.forge(&format!("made-up-{number}"), &claims);
        let answer = super::logout::notify(&site, &format!("logout_token={token}")).await;
        assert_eq!(answer.status(), 400);
    }
    assert!(site.provider.keys_asked() <= 2, "{} requests for keys", site.provider.keys_asked());
}
