//! Shares are replaced as a whole, only from what one has seen, and count at once.

use std::time::Duration;

use e2e::raw::{Message, Raw, RawApp};
use e2e::stopwatch::Stopwatch;

use super::support::{As, World, code};

const PATH: &str = "/workspaces/one/shares";

async fn world() -> World {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    world
}

async fn put(world: &World, condition: &str, body: &str) -> Message {
    world.call_with("PUT", PATH, &world.dev(), condition, body).await
}

fn tag(answer: &Message) -> String {
    answer.header("etag").unwrap().to_owned()
}

#[tokio::test]
async fn change_of_what_was_changed_meanwhile_is_refused_and_changes_nothing() {
    let world = world().await;
    let empty = tag(&world.call("GET", PATH, &world.dev(), "").await);
    let ann = r#"{"shares":[{"port":80,"audience":"user:ann","expires_at":null}]}"#;
    let first = put(&world, &format!("if-match: {empty}\r\n"), ann).await;
    assert_eq!(first.status(), 200, "{}", first.text());
    assert_eq!(first.text(), ann);
    let late = put(&world, &format!("if-match: {empty}\r\n"), r#"{"shares":[]}"#).await;
    assert_eq!((late.status(), code(&late)), (412, "conflict"));
    let now = world.call("GET", PATH, &world.dev(), "").await;
    assert_eq!((now.text(), tag(&now)), (ann.to_owned(), tag(&first)));

    let known = world.call_with("GET", PATH, &world.dev(), &format!("if-none-match: {}\r\n", tag(&now)), "").await;
    assert_eq!((known.status(), known.body.len(), tag(&known)), (304, 0, tag(&now)));
    assert_eq!(put(&world, "if-match: *\r\n", r#"{"shares":[]}"#).await.status(), 200);
    assert_eq!(put(&world, "", ann).await.status(), 200, "without a condition, whatever is there is replaced");
    for weak in [format!("if-match: W/{}\r\n", tag(&now)), "if-match: \"x\"\r\n".to_owned()] {
        assert_eq!(put(&world, &weak, ann).await.status(), 412, "{weak}");
    }
}

#[tokio::test]
async fn all_mistakes_are_told_and_then_nothing_is_changed() {
    let world = world().await;
    let good = r#"{"shares":[{"port":80,"audience":"public"}]}"#;
    put(&world, "", good).await;
    let body = r#"{"shares":[
        {"port":81,"audience":"public"},
        {"port":0,"audience":"everybody","expires_at":"2000-01-01T00:00:00Z","more":1},
        {"port":"80","audience":7},
        {"port":82,"audience":"user:a"},{"port":82,"audience":"user:a"}, "x"], "other": true}"#;
    let answer = put(&world, "", body).await;
    assert_eq!((answer.status(), code(&answer)), (422, "invalid"));
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|one| one["pointer"].as_str().unwrap()).collect();
    for pointer in [
        "/shares/1/port",
        "/shares/1/audience",
        "/shares/1/expires_at",
        "/shares/1",
        "/shares/2/port",
        "/shares/2/audience",
        "/shares/4/audience",
        "/shares/5",
        "",
    ] {
        assert!(pointers.contains(&pointer), "{pointer}: {pointers:?}");
    }
    let now = world.call("GET", PATH, &world.dev(), "").await;
    assert!(now.text().contains("\"public\"") && !now.text().contains("81"), "{}", now.text());
    let many: Vec<String> = (1..=201).map(|port| format!(r#"{{"port":{port},"audience":"public"}}"#)).collect();
    assert_eq!(put(&world, "", &format!(r#"{{"shares":[{}]}}"#, many.join(","))).await.status(), 422);
}

#[tokio::test]
async fn changes_at_once_are_one_after_the_other() {
    let world = world().await;
    let start = tag(&world.call("GET", PATH, &world.dev(), "").await);
    let tries = (1..=8).map(|port| {
        let (world, start) = (&world, &start);
        async move {
            let body = format!(r#"{{"shares":[{{"port":{port},"audience":"public"}}]}}"#);
            put(world, &format!("if-match: {start}\r\n"), &body).await.status()
        }
    });
    let mut statuses = futures_util::future::join_all(tries).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
}

#[tokio::test]
async fn share_lets_in_at_once_and_cuts_within_five_seconds_when_it_is_gone() {
    let world = World::start().await;
    let _agent = world.gateway.agent("one").await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await;
        raw.read_rest().await;
    })
    .await;
    let As::Token(ann) = world.user("ann").await else { unreachable!() };
    let open = async || {
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        let host = world.gateway.authority("one", app.port);
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {ann}\r\n\r\n")).await;
        let head = client.head().await.unwrap();
        (client, head.status())
    };
    assert_eq!(open().await.1, 404, "which is remembered");
    put(&world, "", &format!(r#"{{"shares":[{{"port":{},"audience":"user:ann"}}]}}"#, app.port)).await;
    let (mut client, status) = open().await;
    assert_eq!(status, 200, "this replica made the change, so it counts at once");
    let since = Stopwatch::start();
    put(&world, "", r#"{"shares":[]}"#).await;
    client.read_rest().await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(open().await.1, 404);
}

#[tokio::test]
async fn port_that_was_opened_to_everybody_is_open_when_the_answer_is_there() {
    let world = world().await;
    let _agent = world.gateway.agent("one").await;
    let app = RawApp::mirror().await;
    let authority = world.gateway.authority("one", app.port);
    let asked = async || {
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        client.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
        client
    };
    for _ in 0..20 {
        let public = format!(r#"{{"shares":[{{"port":{},"audience":"public"}}]}}"#, app.port);
        assert_eq!(put(&world, "", &public).await.status(), 200);
        let mut client = asked().await;
        assert_eq!(client.message().await.expect("an answer").status(), 200);
        assert_eq!(put(&world, "", r#"{"shares":[]}"#).await.status(), 200);
        assert_eq!(asked().await.message().await.expect("an answer").status(), 401);
    }
}
