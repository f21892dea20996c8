//! Sign-ins outlive the gateway's process, and what has ended stays so.

use std::path::Path;

use e2e::TestGateway;
use e2e::browser::Browser;
use e2e::raw::Message;
use gateway_config::{StoreConfig, StoreUrl};
use serde_json::Value;

use super::support::{app, ok};

/// Starts a gateway on the same database as before.
async fn begun(folder: &Path) -> TestGateway {
    let url = StoreUrl::SqliteFile(folder.join("gateway.db"));
    TestGateway::start_with(|config| config.store = StoreConfig::at(url)).await
}

fn public(gateway: &TestGateway, path: &str) -> String {
    format!("http://localhost:{}{path}", gateway.addresses.public.port())
}

fn workspace(gateway: &TestGateway, port: u16) -> String {
    format!("http://{}/", gateway.authority("one", port))
}

async fn post(browser: &mut Browser, address: &str, media: &str, body: &str) -> Message {
    let fields = format!("sec-fetch-site: same-origin\r\naccept: text/html\r\ncontent-type: {media}\r\n");
    browser.ask("POST", address, &fields, body).await
}

#[tokio::test]
async fn browser_stays_signed_in_over_a_kill_and_signed_out_over_another() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(|_, _, _| ok("in")).await;
    let gateway = begun(folder.path()).await;
    let agent = gateway.agent("one").await;
    let mut browser = Browser::default();
    browser.follow(&gateway.sign_in_link).await;
    let (_, page) = browser.follow(&workspace(&gateway, app.port)).await;
    assert_eq!((page.status(), page.text().as_str()), (200, "in"));
    agent.kill();
    // As if it were killed: nothing gets a last word.
    drop(gateway);

    let gateway = begun(folder.path()).await;
    let agent = gateway.agent("one").await;
    let page = browser.visit(&workspace(&gateway, app.port)).await;
    assert_eq!((page.status(), page.text().as_str()), (200, "in"), "without a redirect: {page:?}");
    assert_eq!(browser.visit(&public(&gateway, "/")).await.status(), 200);
    let out = post(&mut browser.clone(), &public(&gateway, "/.gateway/sign-out"), "text/plain", "").await;
    assert_eq!(out.status(), 200, "{out:?}");
    agent.kill();
    drop(gateway);

    let gateway = begun(folder.path()).await;
    let _agent = gateway.agent("one").await;
    assert_eq!(browser.visit(&workspace(&gateway, app.port)).await.status(), 302);
    assert_ne!(browser.visit(&public(&gateway, "/")).await.status(), 200);
    gateway.stop().await;
}

#[tokio::test]
async fn program_that_waits_for_its_user_gets_its_token_after_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = begun(folder.path()).await;
    let mut browser = Browser::default();
    browser.follow(&gateway.sign_in_link).await;
    let device = public(&gateway, "/api/v1/device");
    let asked = post(&mut Browser::default(), &device, "application/json", r#"{"machine":"laptop"}"#).await;
    let codes: Value = serde_json::from_slice(&asked.body).unwrap();
    drop(gateway);

    let gateway = begun(folder.path()).await;
    let form = format!("user_code={}&decision=allow", codes["user_code"].as_str().unwrap());
    let device = public(&gateway, "/.gateway/device");
    let page = post(&mut browser, &device, "application/x-www-form-urlencoded", &form).await;
    assert_eq!(page.status(), 200, "{}", page.text());
    drop(gateway);

    let gateway = begun(folder.path()).await;
    let poll = format!(r#"{{"device_code":{}}}"#, codes["device_code"]);
    let address = public(&gateway, "/api/v1/device/token");
    let granted = post(&mut Browser::default(), &address, "application/json", &poll).await;
    let granted: Value = serde_json::from_slice(&granted.body).unwrap();
    assert_eq!(granted["user"], "dev", "{granted}");
    gateway.stop().await;
}
