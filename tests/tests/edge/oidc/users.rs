//! Who signed in: names that stick, groups, and users who are disabled. Rows 7, 22 and 23.

use std::time::Duration;

use e2e::browser::Browser;
use e2e::raw::RawApp;
use e2e::stopwatch::Stopwatch;
use gateway_store::wall_clock;
use serde_json::json;

use super::{Site, is_signed_in};

/// Within this a revocation has cut what was open.
const CUT_WITHIN: Duration = Duration::from_secs(5);

/// Waits until the answer to a question is yes; as long as a change may take to count.
async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Stopwatch::start();
    while !holds().await {
        assert!(since.elapsed() < CUT_WITHIN, "not within {CUT_WITHIN:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn name_sticks_to_the_person_and_cannot_be_taken_over() {
    let site = Site::start().await;
    site.signed_in().await;
    // The claim changes: the name here does not.
    site.provider.claim("preferred_username", json!("root"));
    let mut browser = site.signed_in().await;
    let page = browser.visit(&site.public("/")).await;
    assert!(page.text().contains("<span class=\"user\">ann</span>"), "{page:?}");
    // Somebody else calls themselves `ann` at the provider.
    site.provider.person("u-eve", "ANN", &[]);
    let (status, code, mut eve) = site.outcome().await;
    assert_eq!((status, code.as_str()), (403, "sign_in_refused"));
    assert!(!is_signed_in(&site, &mut eve).await);
    assert_eq!(eve.visit(&site.workspace("/")).await.status(), 302);
    let users = site.gateway.store.users().await.unwrap();
    assert_eq!(users.len(), 1);
}

#[tokio::test]
async fn claims_that_the_id_token_leaves_out_are_asked_for_and_must_be_of_the_same_person() {
    let site = Site::start().await;
    site.share("group:devs").await;
    for name in ["preferred_username", "groups"] {
        site.provider.claim(name, json!(null));
    }
    site.provider.plan().user_info = Some(json!({"sub": "u-eve", "preferred_username": "ann"}));
    let (status, code, _) = site.outcome().await;
    assert_eq!((status, code.as_str()), (401, "sign_in_failed"));
    site.provider.claim("sub", json!("u-bob"));
    site.provider.plan().user_info = Some(json!({"sub": "u-bob", "preferred_username": "bob", "groups": ["devs"]}));
    let mut bob = site.signed_in().await;
    let (_, page) = bob.follow(&site.workspace("/")).await;
    assert_eq!(page.status(), 200, "{page:?}");
    site.provider.plan().user_info = Some(json!({"sub": "u-bob", "preferred_username": "bob", "groups": "devs"}));
    assert_eq!(site.outcome().await.1, "sign_in_refused");
}

#[tokio::test]
async fn group_lets_a_member_in_and_those_who_left_it_out_within_seconds() {
    let site = Site::start().await;
    site.share("group:devs").await;
    site.provider.person("u-bob", "bob", &["ops"]);
    let mut bob = site.signed_in().await;
    let (_, page) = bob.follow(&site.workspace("/")).await;
    assert_eq!(page.header("gateway-error"), Some("no_such_host"), "{page:?}");
    site.provider.claim("groups", json!(["ops", "devs"]));
    let mut bob = site.signed_in().await;
    let (_, page) = bob.follow(&site.workspace("/")).await;
    assert_eq!(page.status(), 200, "{page:?}");
    // Another sign-in, in another browser, that brings no groups: they end in the first browser too.
    site.provider.claim("groups", json!([]));
    site.signed_in().await;
    soon("the group ends everywhere", async || bob.visit(&site.workspace("/")).await.status() == 404).await;
}

#[tokio::test]
async fn token_has_the_groups_of_the_last_sign_in_and_no_older_ones() {
    let site = Site::configured(|config| {
        config.auth.session_max = Duration::from_secs(10);
        config.auth.session_idle = Duration::from_secs(10);
    })
    .await;
    site.share("group:devs").await;
    let token = site.token_of("bob").await;
    assert_eq!(site.with_token(&token).await.header("gateway-error"), Some("no_such_host"), "never signed in");
    site.provider.person("u-bob", "bob", &["devs"]);
    site.signed_in().await;
    assert_eq!(site.with_token(&token).await.status(), 200);
    // After as long as a session may last, nobody knows whether they are still a member.
    let since = Stopwatch::start();
    while site.with_token(&token).await.status() == 200 {
        assert!(since.elapsed() < e2e::PATIENCE, "the groups live on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(site.with_token(&token).await.header("gateway-error"), Some("no_such_host"));
    site.signed_in().await;
    assert_eq!(site.with_token(&token).await.status(), 200, "signing in again brings them back");
}

#[tokio::test]
async fn providers_word_takes_the_groups_of_tokens_too() {
    let site = Site::start().await;
    site.share("group:devs").await;
    let token = site.token_of("bob").await;
    site.provider.person("u-bob", "bob", &["devs"]);
    site.signed_in().await;
    assert_eq!(site.with_token(&token).await.status(), 200);
    let notice = site.provider.logout_token(Some("u-bob"), None, |_| {});
    assert_eq!(super::logout::notify(&site, &format!("logout_token={notice}")).await.status(), 200);
    soon("the token has no groups", async || site.with_token(&token).await.status() == 404).await;
}

#[tokio::test]
async fn disabled_user_is_cut_off_everywhere_and_stays_signed_out_when_enabled() {
    let site = Site::start().await;
    let echo = RawApp::echo().await;
    let mut browser = site.signed_in().await;
    browser.follow(&site.workspace("/")).await;
    let token = site.token_of("ann").await;
    assert_eq!(site.with_token(&token).await.status(), 200);
    let address = format!("http://{}/", site.gateway.authority("one", echo.port));
    let fields = format!("gateway-authorization: Bearer {token}\r\nconnection: upgrade\r\nupgrade: echo\r\n");
    let mut stream = Browser::default().send("GET", &address, &fields, "").await;
    assert_eq!(stream.head().await.unwrap().status(), 101);
    let since = Stopwatch::start();
    assert!(site.gateway.store.disable_user(&"ann".parse().unwrap(), wall_clock()).await.unwrap());
    stream.read_rest().await;
    assert!(since.elapsed() < CUT_WITHIN, "the stream lived {:?} after", since.elapsed());
    soon("the token is worth nothing", async || site.with_token(&token).await.status() == 401).await;
    soon("the session is over", async || !is_signed_in(&site, &mut browser).await).await;
    assert!(since.elapsed() < CUT_WITHIN, "it took {:?}", since.elapsed());
    let (status, code, _) = site.outcome().await;
    assert_eq!((status, code.as_str()), (403, "sign_in_refused"), "and they do not come in again");
    assert!(site.gateway.store.enable_user(&"ann".parse().unwrap()).await.unwrap());
    soon("the token counts again", async || site.with_token(&token).await.status() == 200).await;
    assert!(!is_signed_in(&site, &mut browser).await, "what was cut stays cut");
    site.signed_in().await;
}

#[tokio::test]
async fn only_members_of_the_required_group_sign_in() {
    let site = Site::configured(|config| {
        config.auth.oidc.as_mut().unwrap().required_group = Some("staff".parse().unwrap());
    })
    .await;
    let (status, code, _) = site.outcome().await;
    assert_eq!((status, code.as_str()), (403, "sign_in_refused"));
    assert_eq!(site.gateway.store.users().await.unwrap(), []);
    site.provider.claim("groups", json!(["staff"]));
    site.signed_in().await;
}

#[tokio::test]
async fn share_with_a_name_that_nobody_has_had_needs_a_word() {
    let site = Site::start().await;
    site.signed_in().await;
    let token = site.token_of("ann").await;
    let address = site.public("/api/v1/workspaces/one/shares");
    let put = async |user: &str, more: &str| {
        let fields = format!("gateway-authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let body = format!(r#"{{"shares":[{{"port":3000,"audience":"user:{user}"{more}}}]}}"#);
        Browser::default().ask("PUT", &address, &fields, &body).await
    };
    let refused = put("bob", "").await;
    assert_eq!(refused.header("gateway-error"), Some("invalid"), "{}", refused.text());
    assert!(
        refused.text().contains("/shares/0/audience") && refused.text().contains("unknown_user"),
        "{}",
        refused.text()
    );
    assert_eq!(put("bob", r#","unknown_user":true"#).await.status(), 200);
    assert_eq!(put("bob", "").await.status(), 200, "what is there stays");
    assert!(!put("bob", "").await.text().contains("unknown_user"));
    site.provider.person("u-eve", "eve", &[]);
    assert_eq!(put("eve", "").await.header("gateway-error"), Some("invalid"));
    site.signed_in().await;
    assert_eq!(put("eve", "").await.status(), 200, "she has signed in by now");
}

/// Who was refused is in the audit log: whoever asks an operator "why can I not sign in" is found there by name.
#[tokio::test]
async fn refused_sign_in_is_in_the_audit_log_with_the_user_s_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = path.clone();
    let site = Site::configured(|config| config.audit.path = Some(log)).await;
    let refused = async |count: usize| {
        let read = || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            records.filter(|record| record["event"] == "sign_in_failed").collect::<Vec<_>>()
        };
        soon("the refusal is written", async || read().len() == count).await;
        read().pop().unwrap()
    };
    site.signed_in().await;
    assert!(site.gateway.store.disable_user(&"ann".parse().unwrap(), wall_clock()).await.unwrap());
    assert_eq!(site.outcome().await.0, 403);
    let record = refused(1).await;
    assert_eq!((&record["reason"], &record["user"]), (&"not_admitted".into(), &"ann".into()), "{record}");
    // A name that cannot be one here is told too, without what could be more than a name.
    site.provider.person("u-odd", "odd name\u{1b}[31m<b>", &[]);
    assert_eq!(site.outcome().await.0, 403);
    let record = refused(2).await;
    assert_eq!(record["user"], "oddname[31m<b>", "{record}");
}
