//! A user who goes away (row 26, traps 22 and 23): the app hears of it within a second, whatever was going on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use e2e::raw::{Raw, RawApp};
use tokio::sync::Semaphore;

use super::support::{World, some, soon, within_a_second};

/// An app that says `reply` after the head, and tells when its connection came and went.
struct Watched {
    app: RawApp,
    came: Arc<Semaphore>,
    gone: Arc<Semaphore>,
}

impl Watched {
    async fn start(reply: &'static str) -> Self {
        let (came, gone) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (on_came, on_gone) = (came.clone(), gone.clone());
        let app = RawApp::start(move |mut raw: Raw| {
            let (came, gone) = (on_came.clone(), on_gone.clone());
            async move {
                raw.head().await.unwrap();
                raw.send(reply).await;
                came.add_permits(1);
                raw.read_rest().await;
                gone.add_permits(1);
            }
        })
        .await;
        Self { app, came, gone }
    }

    async fn until_came(&self) {
        soon(self.came.acquire()).await.unwrap().forget();
    }

    async fn until_gone(&self) {
        within_a_second(self.gone.acquire()).await.unwrap().forget();
    }
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n";
const UPLOAD: &str = "content-length: 1000000\r\n";

#[tokio::test]
async fn app_hears_that_a_waiting_http1_user_is_gone() {
    let world = World::start().await;
    let app = Watched::start("").await;
    let mut client = world.client().await;
    client.send(world.head(app.app.port, "GET /", "")).await;
    app.until_came().await;
    drop(client);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_that_a_user_of_an_event_stream_is_gone() {
    let world = World::start().await;
    let app = Watched::start(EVENTS).await;
    let mut client = world.client().await;
    client.send(world.head(app.app.port, "GET /", "")).await;
    client.head().await.unwrap();
    drop(client);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_that_an_uploading_user_is_gone() {
    let world = World::start().await;
    let app = Watched::start("").await;
    for fields in [UPLOAD, "transfer-encoding: chunked\r\n"] {
        let mut client = world.client().await;
        client.send(world.head(app.app.port, "POST /", fields) + "5\r\nhello\r\n").await;
        app.until_came().await;
        drop(client);
        app.until_gone().await;
    }
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_that_an_uploading_user_of_a_started_answer_is_gone() {
    let world = World::start().await;
    let app = Watched::start(EVENTS).await;
    let mut client = world.client().await;
    client.send(world.head(app.app.port, "POST /", UPLOAD) + "hello").await;
    client.head().await.unwrap();
    drop(client);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_that_a_user_who_was_to_continue_is_gone() {
    let world = World::start().await;
    let app = Watched::start("HTTP/1.1 100 Continue\r\n\r\n").await;
    let mut client = world.client().await;
    client.send(world.head(app.app.port, "POST /", &format!("expect: 100-continue\r\n{UPLOAD}"))).await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    drop(client);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_of_a_reset_http2_stream_before_and_within_the_answer() {
    let world = World::start().await;
    let mut http2 = world.http2().await;
    let app = Watched::start("").await;
    let (response, upload) = http2.start(world.http2_request(app.app.port, "GET", "/"));
    app.until_came().await;
    drop((response, upload));
    app.until_gone().await;
    let app = Watched::start(EVENTS).await;
    let (response, mut upload) = http2.start(world.http2_request(app.app.port, "GET", "/"));
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(some(&mut body).await.unwrap(), "data: 1\n\n");
    upload.send_reset(h2::Reason::CANCEL);
    drop(body);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_of_a_reset_http2_upload() {
    let world = World::start().await;
    let mut http2 = world.http2().await;
    let app = Watched::start("").await;
    let (response, mut upload) = http2.start(world.http2_request(app.app.port, "POST", "/"));
    upload.send_data("hello".into(), false).unwrap();
    app.until_came().await;
    upload.send_reset(h2::Reason::CANCEL);
    app.until_gone().await;
    drop(response);
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn apps_hear_that_a_whole_http2_connection_is_gone() {
    let world = World::start().await;
    let app = Watched::start(EVENTS).await;
    let mut http2 = world.http2().await;
    let streams: Vec<_> = (0..5).map(|_| http2.start(world.http2_request(app.app.port, "GET", "/"))).collect();
    for _ in 0..5 {
        app.until_came().await;
    }
    drop((http2, streams));
    for _ in 0..5 {
        app.until_gone().await;
    }
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_hears_that_a_websocket_user_is_gone() {
    let world = World::start().await;
    let app = Watched::start(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    )
    .await;
    let mut client = world.client().await;
    let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.send(world.head(app.app.port, "GET /", fields)).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    drop(client);
    app.until_gone().await;
    world.gateway.assert_empty().await;
}

// The other way round: an app that goes away is not waited for.
#[tokio::test]
async fn user_hears_at_once_that_the_app_is_gone() {
    let world = World::start().await;
    let app = super::support::app_saying("").await;
    let answer = soon(world.ask(app.port, "GET /", "")).await;
    assert_eq!(answer.status(), 502);
    world.gateway.assert_quiet().await;
}

// And an agent that goes away with requests under way: it may come back for as long as its grace, and no longer.
#[tokio::test]
async fn users_hear_by_name_that_the_session_is_lost() {
    let grace = Duration::from_millis(300);
    let gateway = e2e::TestGateway::start_with(|config| config.tunnel.resume_grace = grace).await;
    let agent = gateway.agent("one").await;
    let app = Watched::start("").await;
    let mut client = Raw::connect(gateway.addresses.public).await;
    let (authority, token) = (gateway.authority("one", app.app.port), &gateway.user_token);
    client.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    app.until_came().await;
    let killed = Instant::now();
    agent.kill();
    let answer = soon(client.message()).await.unwrap();
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")), "{answer:?}");
    assert!(killed.elapsed() >= grace, "{:?}", killed.elapsed());
    app.until_gone().await;
    e2e::until("the session is gone", || gateway.registry.is_empty()).await;
    client.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    let answer = soon(client.message()).await.unwrap();
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")), "{answer:?}");
}
