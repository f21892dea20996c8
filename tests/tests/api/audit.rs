//! The audit log has what happened, by whom, from where and why it was allowed, and holds no secret.

use e2e::raw::{Raw, RawApp};
use serde_json::{Value, json};

use super::device;
use super::support::{As, SAME_ORIGIN, World, records};

/// An app that answers, and one connection to it as somebody; returns the status.
async fn open(world: &World, port: u16, fields: &str, times: usize) -> u16 {
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let host = world.gateway.authority("one", port);
    let mut status = 0;
    for _ in 0..times {
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
        status = client.message().await.unwrap().status();
    }
    status
}

#[tokio::test]
async fn access_is_recorded_once_per_connection_with_the_reason_and_its_end() {
    let world = World::start().await;
    let _agent = world.gateway.agent("one").await;
    let app = RawApp::mirror().await;
    let share = format!(r#"{{"shares":[{{"port":{},"audience":"user:ann"}}]}}"#, app.port);
    world.json("PUT", "/workspaces/one/shares", &world.dev(), &share, 200).await;
    let As::Token(ann) = world.user("ann").await else { unreachable!() };
    let dev = format!("gateway-authorization: Bearer {}\r\n", world.gateway.user_token);
    assert_eq!(open(&world, app.port, &dev, 5).await, 200);
    assert_eq!(open(&world, app.port, &format!("gateway-authorization: Bearer {ann}\r\n"), 1).await, 200);
    let opened = world.audited("access_opened", 2).await;
    let told = |record: &Value| {
        json!([record["user"], record["because"], record["workspace"], record["port"], record["peer"]])
    };
    assert_eq!(told(&opened[0]), json!(["dev", "owner", "one", app.port, "127.0.0.1"]));
    assert_eq!(told(&opened[1]), json!(["ann", "user:ann", "one", app.port, "127.0.0.1"]));
    assert_eq!(opened[0]["credential"], json!({"kind": "token", "id": "t-1"}));
    let ended = world.audited("access_ended", 2).await;
    // Each ends by itself.
    for begin in &opened {
        let end = ended.iter().find(|end| end["access"] == begin["access"]).expect("its end");
        assert_eq!(end["why"], "closed");
    }
}

#[tokio::test]
async fn access_that_is_cut_says_why() {
    let world = World::start().await;
    let _agent = world.gateway.agent("one").await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await;
        raw.read_rest().await;
    })
    .await;
    let public = format!(r#"{{"shares":[{{"port":{},"audience":"public"}}]}}"#, app.port);
    world.json("PUT", "/workspaces/one/shares", &world.dev(), &public, 200).await;
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let host = world.gateway.authority("one", app.port);
    loop {
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        let head = client.head().await.unwrap();
        if head.status() == 200 {
            break;
        }
        client = Raw::connect(world.gateway.addresses.public).await;
    }
    world.json("PUT", "/workspaces/one/shares", &world.dev(), r#"{"shares":[]}"#, 200).await;
    client.read_rest().await;
    let opened = world.audited("access_opened", 1).await;
    assert_eq!((&opened[0]["user"], &opened[0]["because"]), (&Value::Null, &"public".into()));
    assert_eq!(opened[0]["credential"], json!({"kind": "none"}));
    let ended = world.audited("access_ended", 1).await;
    assert_eq!(ended[0]["why"], json!({"cut": {"code": "sign_in_required"}}));
    let changes = world.audited("shares_changed", 2).await;
    assert_eq!(changes[0]["added"]["items"], json!([format!("{} public", app.port)]));
    assert_eq!(changes[1]["removed"]["items"], json!([format!("{} public", app.port)]));
    assert_eq!((&changes[0]["by"], &changes[0]["credential"]["id"]), (&json!({"user": "dev"}), &"t-1".into()));
}

#[tokio::test]
async fn agents_that_come_and_those_that_are_turned_away_are_recorded() {
    let world = World::start().await;
    let agent = world.gateway.agent("one").await;
    let connected = world.audited("agent_connected", 1).await;
    assert_eq!((&connected[0]["workspace"], &connected[0]["how"]), (&"one".into(), &"new".into()));
    assert_eq!(connected[0]["credential"], json!({"kind": "token", "id": "t-2"}));
    // It knows that it is in: one that does not yet leaves without a word, and its session waits for it.
    let app = RawApp::mirror().await;
    open(&world, app.port, &format!("gateway-authorization: Bearer {}\r\n", world.gateway.user_token), 1).await;
    agent.stop().await;
    world.audited("agent_ended", 1).await;
    let As::Token(user) = world.dev() else { unreachable!() };
    let mut refused = world.gateway.start_agent(&user, Vec::new());
    assert!(refused.ended().await.is_err());
    let record = world.audited("agent_refused", 1).await;
    assert!(record[0]["reason"].as_str().unwrap().contains("not an agent's"), "{record:?}");
    assert_eq!(record[0]["peer"], "127.0.0.1");
}

#[tokio::test]
async fn log_has_everything_that_was_done_and_no_secret() {
    let world = World::start().await;
    let agent_token = world.gateway.agent_token("one").await;
    let agent = world.gateway.start_agent(&agent_token, Vec::new());
    world.gateway.until_connected("one").await;
    let app = RawApp::mirror().await;
    let link_code = world.gateway.sign_in_link.split_once("code=").unwrap().1.to_owned();
    let cookie = world.browser().await;
    let browser = As::Cookie(cookie.clone(), SAME_ORIGIN);
    let made = world.json("POST", "/tokens", &browser, r#"{"kind":"user","note":"for\nci"}"#, 422).await;
    assert!(made["token"].is_null());
    let made = world.json("POST", "/tokens", &browser, r#"{"kind":"user","note":"for ci"}"#, 201).await;
    let id = made["id"].as_str().unwrap();
    let rotated = world.json("POST", &format!("/tokens/{id}/rotate"), &browser, "{}", 201).await;
    world.json("DELETE", &format!("/tokens/{id}"), &browser, "", 204).await;
    open(&world, app.port, &format!("gateway-authorization: Bearer {}\r\n", rotated["token"].as_str().unwrap()), 1)
        .await;
    let codes = device::ask(&world).await;
    device::press(&world, &cookie, SAME_ORIGIN, codes["user_code"].as_str().unwrap(), "allow").await;
    let poll = format!(r#"{{"device_code":{}}}"#, codes["device_code"]);
    let granted = world.json("POST", "/device/token", &As::Nobody, &poll, 200).await;
    let sign_out = format!("{SAME_ORIGIN}cookie: {cookie}\r\n");
    assert_eq!(world.send("POST", "/.gateway/sign-out", &sign_out, "").await.status(), 200);
    world.send("GET", "/.gateway/sign-in?code=wrong", "accept: text/html\r\n", "").await;
    agent.stop().await;
    world.audited("sign_in_failed", 1).await;
    world.audited("agent_ended", 1).await;
    for (event, count) in [
        ("gateway_started", 1),
        ("signed_in", 1),
        ("signed_out", 1),
        ("token_created", 2),
        ("token_rotated", 1),
        ("token_revoked", 1),
        ("device_approved", 1),
        ("access_opened", 1),
        ("agent_connected", 1),
    ] {
        world.audited(event, count).await;
    }
    let own_token = world.gateway.user_token[4..34].to_owned();
    let text = world.stopped().await;
    let records = records(&text);
    for record in &records {
        assert_eq!(record["v"], 1);
        assert!(record["time"].as_str().unwrap().parse::<gateway_types::UnixSeconds>().is_ok(), "{record}");
    }
    let of = |event: &str| records.iter().find(|record| record["event"] == event).unwrap();
    assert_eq!((&of("signed_in")["user"], &of("signed_in")["how"]), (&"dev".into(), &"dev_link".into()));
    assert_eq!(of("token_created")["credential"], of("signed_in")["credential"], "it was the browser's session");
    assert!(of("token_created")["trace"].is_string());
    let secret = |value: &Value| value.as_str().unwrap().trim_start_matches("gwu_")[..30].to_owned();
    for secret in [
        secret(&made["token"]),
        secret(&rotated["token"]),
        secret(&granted["access_token"]),
        secret(&codes["device_code"]),
        codes["user_code"].as_str().unwrap().to_owned(),
        cookie.split_once('=').unwrap().1[..30].to_owned(),
        agent_token[4..34].to_owned(),
        own_token,
        link_code[..30].to_owned(),
    ] {
        assert!(!text.contains(&secret), "{secret} is in the log");
    }
}
