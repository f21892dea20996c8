//! Sign-in of programs: the whole way, and what a hostile program, user or page can try on it.

use std::time::Duration;

use e2e::raw::Message;
use gateway_types::token::{Token, TokenKind};
use serde_json::Value;

use super::support::{As, SAME_ORIGIN, World, code};

const PAGE: &str = "/.gateway/device";

/// What a browser says that opens a page from its address bar.
const VISIT: &str =
    "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";

pub(crate) async fn ask(world: &World) -> Value {
    world.json("POST", "/device", &As::Nobody, r#"{"machine":"ann@laptop"}"#, 200).await
}

async fn poll(world: &World, codes: &Value) -> Message {
    let body = format!(r#"{{"device_code":{}}}"#, codes["device_code"]);
    world.call("POST", "/device/token", &As::Nobody, &body).await
}

/// Opens the page.
async fn visit(world: &World, cookie: &str, user_code: &str) -> Message {
    world.send("GET", &format!("{PAGE}?user_code={user_code}"), &format!("{VISIT}cookie: {cookie}\r\n"), "").await
}

/// Presses one of the page's buttons; `site` is what the browser says of the page.
pub(crate) async fn press(world: &World, cookie: &str, site: &str, user_code: &str, decision: &str) -> Message {
    let fields =
        format!("{site}cookie: {cookie}\r\ncontent-type: application/x-www-form-urlencoded\r\naccept: text/html\r\n");
    world.send("POST", PAGE, &fields, &format!("user_code={user_code}&decision={decision}")).await
}

fn user_code(codes: &Value) -> &str {
    codes["user_code"].as_str().unwrap()
}

#[tokio::test]
async fn program_gets_a_token_once_its_user_has_confirmed_the_code() {
    let world = World::start().await;
    let codes = ask(&world).await;
    assert_eq!(codes["verification_uri"], format!("http://{}{PAGE}", world.public()));
    assert_eq!(
        codes["verification_uri_complete"],
        format!("http://{}{PAGE}?user_code={}", world.public(), user_code(&codes))
    );
    let early = poll(&world, &codes).await;
    assert_eq!((early.status(), code(&early)), (400, "authorization_pending"));
    assert_eq!(serde_json::from_slice::<Value>(&early.body).unwrap()["error"], "authorization_pending");

    let cookie = world.browser().await;
    let page = visit(&world, &cookie, user_code(&codes)).await;
    assert_eq!(page.status(), 200);
    for shown in [user_code(&codes), "ann@laptop", "127.0.0.1", "dev", "Refuse", "just run"] {
        assert!(page.text().contains(shown), "{shown}: {}", page.text());
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{policy}");
    let still = poll_after(&world, &codes).await;
    assert_eq!(code(&still), "authorization_pending", "opening the page decides nothing");

    let pressed = press(&world, &cookie, SAME_ORIGIN, user_code(&codes), "allow").await;
    assert_eq!((pressed.status(), pressed.text().contains("Allowed")), (200, true), "{}", pressed.text());
    let granted = poll_after(&world, &codes).await;
    assert_eq!(granted.status(), 200, "{}", granted.text());
    let granted: Value = serde_json::from_slice(&granted.body).unwrap();
    let token = granted["access_token"].as_str().unwrap();
    assert_eq!(Token::parse(token).unwrap().kind(), TokenKind::User);
    assert_eq!((&granted["user"], &granted["token_type"]), (&"dev".into(), &"Bearer".into()));
    assert_eq!(granted["expires_in"], 30 * 24 * 60 * 60);
    let who = world.json("GET", "/whoami", &As::Token(token.to_owned()), "", 200).await;
    assert_eq!((&who["user"], &who["token"]["note"]), (&"dev".into(), &"gateway login on ann@laptop".into()));
    let again = poll_after(&world, &codes).await;
    assert_eq!((again.status(), code(&again)), (400, "expired_token"), "a yes is told once");
    let approved = world.audited("device_approved", 1).await;
    assert_eq!((&approved[0]["machine"], &approved[0]["asked_from"]), (&"ann@laptop".into(), &"127.0.0.1".into()));
}

/// Polls as late as the gateway wants it.
async fn poll_after(world: &World, codes: &Value) -> Message {
    tokio::time::sleep(Duration::from_secs(5)).await;
    poll(world, codes).await
}

#[tokio::test]
async fn program_that_polls_too_fast_is_slowed_down() {
    let world = World::start().await;
    let codes = ask(&world).await;
    assert_eq!(code(&poll(&world, &codes).await), "authorization_pending");
    for interval in [10, 15] {
        let answer = poll(&world, &codes).await;
        assert_eq!(code(&answer), "slow_down");
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap()["interval"], interval);
    }
    for guess in ["", "x", &"A".repeat(43)] {
        let answer = world.call("POST", "/device/token", &As::Nobody, &format!(r#"{{"device_code":"{guess}"}}"#)).await;
        assert_eq!((answer.status(), code(&answer)), (400, "expired_token"), "{guess}");
    }
}

#[tokio::test]
async fn refusal_in_the_browser_is_final() {
    let world = World::start().await;
    let (codes, cookie) = (ask(&world).await, world.browser().await);
    press(&world, &cookie, SAME_ORIGIN, user_code(&codes), "refuse").await;
    let changed = press(&world, &cookie, SAME_ORIGIN, user_code(&codes), "allow").await;
    assert_eq!(changed.status(), 404, "a decision is taken once");
    let answer = poll(&world, &codes).await;
    assert_eq!((answer.status(), code(&answer)), (400, "access_denied"));
    world.audited("device_denied", 1).await;
}

// A page of another site must not be able to press the button, nor anything without a browser's session.
#[tokio::test]
async fn nobody_but_the_page_itself_can_confirm() {
    let world = World::start().await;
    let (codes, cookie) = (ask(&world).await, world.browser().await);
    for site in [
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "sec-fetch-site: none\r\n",
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "",
    ] {
        let answer = press(&world, &cookie, site, user_code(&codes), "allow").await;
        assert_eq!((answer.status(), code(&answer)), (401, "sign_in_required"), "{site}");
    }
    let token = format!("authorization: Bearer {}\r\n{SAME_ORIGIN}", world.gateway.user_token);
    for fields in [token.as_str(), SAME_ORIGIN, "cookie: gateway_session=x\r\nsec-fetch-site: same-origin\r\n"] {
        let fields = format!("{fields}content-type: application/x-www-form-urlencoded\r\n");
        let body = format!("user_code={}&decision=allow", user_code(&codes));
        let answer = world.send("POST", PAGE, &fields, &body).await;
        assert_eq!(answer.status(), 401, "{fields}");
    }
    let fields = format!("{SAME_ORIGIN}cookie: {cookie}\r\ncontent-type: text/plain\r\n");
    let answer = world.send("POST", PAGE, &fields, &format!("user_code={}&decision=allow", user_code(&codes))).await;
    assert_eq!(answer.status(), 400, "what a page of another kind could send");
    let body = format!("user_code={}", user_code(&codes));
    let fields = format!("{SAME_ORIGIN}cookie: {cookie}\r\ncontent-type: application/x-www-form-urlencoded\r\n");
    assert_eq!(world.send("POST", PAGE, &fields, &body).await.status(), 400, "no decision is no yes");
    assert_eq!(code(&poll(&world, &codes).await), "authorization_pending");
    let link =
        "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: cross-site\r\n";
    let target = format!("{PAGE}?user_code={}", user_code(&codes));
    let page = world.send("GET", &target, &format!("{link}cookie: {cookie}\r\n"), "").await;
    assert_eq!(page.status(), 200, "a link may open the page");
}

#[tokio::test]
async fn guessing_user_codes_ends_after_a_few_and_with_it_the_right_one() {
    let world = World::start().await;
    let (codes, cookie) = (ask(&world).await, world.browser().await);
    for number in 0..10 {
        let guess = if number % 2 == 0 { "BBBB-BBBB" } else { "not a code".split(' ').next().unwrap() };
        let answer = visit(&world, &cookie, guess).await;
        assert_eq!((answer.status(), code(&answer)), (404, "not_found"), "{number}");
    }
    let answer = visit(&world, &cookie, "CCCC-CCCC").await;
    assert_eq!((answer.status(), code(&answer)), (429, "too_many_requests"));
    let right = press(&world, &cookie, SAME_ORIGIN, user_code(&codes), "allow").await;
    assert_eq!(right.status(), 429, "whoever hits it late has not");
    assert_eq!(code(&poll(&world, &codes).await), "authorization_pending");
    let records = world.audited("sign_in_failed", 10).await;
    assert!(records.iter().all(|record| record["reason"] == "code_unknown" && record["how"] == "device"));
}

#[tokio::test]
async fn one_address_has_few_sign_ins_under_way() {
    let world = World::start().await;
    let first = ask(&world).await;
    for _ in 0..9 {
        ask(&world).await;
    }
    let answer = world.call("POST", "/device", &As::Nobody, "").await;
    assert_eq!((answer.status(), code(&answer)), (429, "too_many_requests"));
    assert!(answer.text().contains("sign_ins_per_address"));
    assert_eq!(code(&poll(&world, &first).await), "authorization_pending", "those under way go on");
}

#[tokio::test]
async fn page_asks_for_sign_in_and_for_a_code_and_escapes_what_it_shows() {
    let world = World::start().await;
    let answer = world.send("GET", PAGE, VISIT, "").await;
    assert_eq!((answer.status(), code(&answer)), (401, "sign_in_required"));
    assert!(!answer.text().contains("user_code"));
    let cookie = world.browser().await;
    let page = world.send("GET", PAGE, &format!("{VISIT}cookie: {cookie}\r\n"), "").await;
    assert_eq!((page.status(), page.text().contains("name=\"user_code\"")), (200, true));
    let hostile = r#"{"machine":"<script>alert(1)</script>\u001b[2J\u202e\"onload=x"}"#;
    let codes = world.json("POST", "/device", &As::Nobody, hostile, 200).await;
    let page = visit(&world, &cookie, user_code(&codes)).await.text();
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains("\"onload"), "{page}");
    let hostile = visit(&world, &cookie, "%3Cscript%3E%22").await.text();
    assert!(!hostile.contains("script"), "{hostile}");
}

#[tokio::test]
async fn foreign_pages_cannot_use_up_a_users_tries() {
    let world = World::start().await;
    let cookie = world.browser().await;
    let foreign =
        "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: cross-site\r\n";
    for _ in 0..20 {
        let fields = format!("{foreign}cookie: {cookie}\r\n");
        let page = world.send("GET", &format!("{PAGE}?user_code=BBBB-BBBB"), &fields, "").await;
        assert_eq!(page.status(), 200, "{}", page.text());
        assert!(page.text().contains("value=\"BBBB-BBBB\""), "nothing is looked up before the user goes on");
    }
    let codes = ask(&world).await;
    let page = visit(&world, &cookie, user_code(&codes)).await;
    assert!(page.status() == 200 && page.text().contains("ann@laptop"), "{}", page.text());
}
