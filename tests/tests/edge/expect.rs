//! `Expect: 100-continue` (trap 13): the app decides whether the body is sent, and the user hears of it from the app only.

use std::time::Duration;

use e2e::raw::{Message, Raw, RawApp};
use tokio::time::Instant;

use super::support::{World, app, ok, whole, within_a_second};

const FIELDS: &str = "expect: 100-continue\r\ncontent-length: 5\r\n";

async fn asked(world: &World, port: u16) -> Raw {
    let mut client = world.client().await;
    client.send(world.head(port, "PUT /", FIELDS)).await;
    client
}

/// Reads a head with `Expect` and says go on.
async fn continued(raw: &mut Raw) -> Message {
    let head = raw.head().await.unwrap();
    assert_eq!(head.header("expect"), Some("100-continue"));
    raw.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    head
}

#[tokio::test]
async fn body_flows_when_the_app_says_continue() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        loop {
            continued(&mut raw).await;
            let body = raw.exactly(5).await;
            raw.send([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", body.as_slice()].concat()).await;
        }
    })
    .await;
    let mut client = asked(&world, app.port).await;
    let interim = within_a_second(client.head()).await.unwrap();
    assert_eq!(interim.status(), 100);
    client.send("hello").await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    // The connection is good for another one, on both sides.
    client.send(world.head(app.port, "PUT /", FIELDS)).await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    client.send("again").await;
    assert_eq!(client.message().await.unwrap().text(), "again");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn refusal_without_continue_reaches_the_user_who_is_not_told_to_continue() {
    let world = World::start().await;
    for status in ["417 Expectation Failed", "401 Unauthorized", "200 OK"] {
        // It keeps its connection open, as servers do.
        let app = RawApp::start(move |mut raw| async move {
            raw.head().await.unwrap();
            raw.send(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno")).await;
            assert_eq!(raw.read_rest().await, b"", "no byte of the body was asked for");
        })
        .await;
        let mut client = asked(&world, app.port).await;
        let answer = within_a_second(client.message()).await.unwrap();
        assert_eq!((answer.status().to_string(), answer.text().as_str()), (status[..3].into(), "no"));
        // Nothing may be left behind that waits for a body that never comes.
        world.until_no_channel().await;
        drop(client);
    }
    world.gateway.assert_quiet().await;
}

// The answer goes on for longer than the wait for the app's word.
#[tokio::test]
async fn refusal_without_continue_is_not_cut_short() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 401 Unauthorized\r\ncontent-length: 6\r\n\r\n").await;
        for piece in ["go", " a", "wa"] {
            tokio::time::sleep(Duration::from_millis(600)).await;
            raw.send(piece).await;
        }
        assert_eq!(raw.read_rest().await, b"", "no byte of the body was asked for");
    })
    .await;
    let mut client = asked(&world, app.port).await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (401, "go awa"));
    world.until_no_channel().await;
}

#[tokio::test]
async fn app_that_never_says_continue_gets_the_body_after_a_second() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&request.text())).await;
    let mut client = asked(&world, app.port).await;
    let since = Instant::now();
    assert_eq!(client.head().await.unwrap().status(), 100);
    assert!(since.elapsed() >= Duration::from_millis(900), "too early: {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(5), "too late: {:?}", since.elapsed());
    client.send("hello").await;
    assert_eq!(client.message().await.unwrap().text(), "hello");
}

#[tokio::test]
async fn body_that_comes_without_waiting_is_not_lost() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        continued(&mut raw).await;
        let body = raw.exactly(5).await;
        raw.send([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", body.as_slice()].concat()).await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "PUT /", FIELDS) + "hello").await;
    let mut answer = client.message().await.unwrap();
    if answer.status() == 100 {
        answer = client.message().await.unwrap();
    }
    assert_eq!(answer.text(), "hello");
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "PUT", "/");
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    request.headers_mut().insert("content-length", "5".parse().unwrap());
    let (response, mut body) = http2.start(request);
    body.send_data("hello".into(), true).unwrap();
    assert_eq!(whole(response).await.text(), "hello");
}

#[tokio::test]
async fn nobody_is_told_to_continue_before_they_are_known() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let mut client = world.client().await;
    client.send(format!("PUT / HTTP/1.1\r\nhost: {}\r\n{FIELDS}\r\n", world.authority(app.port))).await;
    assert_eq!(client.head().await.unwrap().status(), 401);
    let mut client = asked(&world, 1).await;
    assert_eq!(client.head().await.unwrap().status(), 502, "a closed port asks for no body either");
    assert_eq!(app.seen.connections(), 0);
}

#[tokio::test]
async fn unknown_expectation_is_refused() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let answer = world.ask(app.port, "PUT /", "expect: 200-ok\r\n").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (417, Some("bad_request")));
    assert_eq!(app.seen.connections(), 0);
}
