//! Named ports: what a devfile or a request says of them, what the gateway does by it, and what the owner is shown and asked.

use e2e::browser::Browser;
use e2e::raw::RawApp;
use serde_json::{Value, json};

use super::support::World;
use super::workspaces::world;

const DEVFILE: &str = "schemaVersion: 2.2.0
components:
- name: main
  attributes: {gateway/inject-editor: true}
  container:
    image: a
    endpoints:
    - {name: web, targetPort: 3000, exposure: public}
    - {name: api, targetPort: 50051, attributes: {gateway/protocol: h2, gateway/host: localhost, gateway/share: 'user:dev2'}}
    - {name: db, targetPort: 5432, exposure: none}
    - {name: plain, targetPort: 8000}
";

/// Writes the named ports of an answer, one in each line.
fn named(detail: &Value) -> Vec<String> {
    let line = |port: &Value| {
        let word = |name: &str| port[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {} {}", port["port"], word("name"), word("protocol"), word("host"), word("proposed"))
    };
    detail["ports"].as_array().unwrap().iter().map(line).collect()
}

async fn made(world: &World, body: &Value) -> Value {
    world.json("POST", "/workspaces", &world.dev(), &body.to_string(), 201).await
}

#[tokio::test]
async fn devfile_and_request_name_ports_and_nothing_is_open_before_the_owner_says_so() {
    let world = world().await;
    let ports = json!([{"port": 8000, "protocol": "https"}, {"port": 9000, "name": "more"}]);
    let body = json!({"name": "app", "executor": "kubernetes", "agent": "one", "devfile": DEVFILE, "ports": ports});
    let detail = made(&world, &body).await;
    let expected = [
        "3000 web http1 auto public",
        "8000 plain https auto -",
        "9000 more http1 auto -",
        "50051 api h2 localhost user:dev2",
    ];
    assert_eq!(named(&detail), expected);
    let shares = world.json("GET", "/workspaces/app/shares", &world.dev(), "", 200).await;
    assert_eq!(shares["shares"], json!([]), "a proposal opens nothing");

    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    let page = format!("http://{}/workspaces/app", world.public());
    let text = browser.visit(&page).await.text();
    assert!(text.contains("port 3000 (web) wants to be open to everybody, without a sign-in"), "{text}");
    let form = "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n\
        content-type: application/x-www-form-urlencoded\r\naccept: text/html\r\n";
    let foreign = form.replace("same-origin", "cross-site");
    assert_eq!(browser.ask("POST", &page, &foreign, "share=3000").await.status(), 401);
    for port in ["3000", "8000"] {
        let pressed = browser.ask("POST", &page, form, &format!("share={port}")).await;
        assert_eq!(
            (pressed.status(), pressed.header("location")),
            (303, Some("/workspaces/app")),
            "{}",
            pressed.text()
        );
    }
    let shares = world.json("GET", "/workspaces/app/shares", &world.dev(), "", 200).await;
    assert_eq!(shares["shares"].as_array().unwrap().len(), 1, "what is not proposed is not opened: {shares}");
    assert_eq!((&shares["shares"][0]["port"], &shares["shares"][0]["audience"]), (&3000.into(), &"public".into()));
    let detail = world.json("GET", "/workspaces/app", &world.dev(), "", 200).await;
    assert_eq!(named(&detail)[0], "3000 web http1 auto -", "it is no proposal any more");
    assert!(!browser.visit(&page).await.text().contains("port 3000 (web) wants to be open"));
}

#[tokio::test]
async fn ports_that_cannot_be_named_are_refused_with_their_place() {
    let world = world().await;
    let refused = async |ports: Value| {
        let body = json!({"name": "app", "executor": "kubernetes", "agent": "one", "devfile": DEVFILE, "ports": ports});
        let answer = world.json("POST", "/workspaces", &world.dev(), &body.to_string(), 422).await;
        answer["errors"].to_string()
    };
    for (ports, wrong) in [
        (json!([{"port": 0}]), "/ports/0/port"),
        (json!([{"port": 80, "protocol": "udp"}]), "/ports/0/protocol"),
        (json!([{"port": 80, "host": "example.org"}]), "/ports/0/host"),
        (json!([{"port": 80, "name": "A B"}]), "/ports/0/name"),
        (json!([{"port": 80}, {"port": 80}]), "twice"),
        (json!([{"port": 60_002}]), "terminal"),
        (json!([{"port": 5432}]), "exposure: none"),
        (json!([{"port": 80, "open": true}]), "unknown member"),
    ] {
        let told = refused(ports).await;
        assert!(told.contains(wrong), "{wrong}: {told}");
    }
}

#[tokio::test]
async fn external_workspace_names_ports_and_the_gateway_speaks_to_them_so() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let ports = json!([{"port": app.port, "name": "mirror", "host": "localhost"}, {"port": 1, "protocol": "https"}]);
    made(&world, &json!({"name": "my-app", "executor": "external", "ports": ports})).await;
    let _agent = world.gateway.agent("my-app").await;
    let mut raw = e2e::raw::Raw::connect(world.gateway.addresses.public).await;
    let (host, token) = (world.gateway.authority("my-app", app.port), &world.gateway.user_token);
    raw.send(format!("GET /x HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    let seen = raw.message().await.unwrap().text();
    assert!(seen.contains(&format!("localhost:{}", app.port)), "{seen}");
    let detail = world.json("GET", "/workspaces/my-app", &world.dev(), "", 200).await;
    let listening = detail["agent"]["listening"].as_array().unwrap();
    let row = listening.iter().find(|row| row["port"] == app.port).unwrap();
    assert_eq!((&row["label"], &row["protocol"], &row["open_to"]), (&"mirror".into(), &"http1".into(), &json!([])));
}
