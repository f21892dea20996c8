//! Connections that come while the gateway drains: until it ends they are answered, and never refused.

use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::until;
use tunnel_link::drain::DrainResult;

use super::support::{World, soon};

/// A gateway that drains, and one request of a user that it waits for.
async fn draining() -> (World, Raw, RawApp) {
    let world = World::configured(|config| config.timeouts.drain = Duration::from_secs(60), Vec::new()).await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.read_rest().await;
    })
    .await;
    let mut held = world.client().await;
    held.send(world.head(app.port, "GET /slow", "")).await;
    until("the request is at the app", || world.channels() == 1).await;
    world.gateway.begin_drain().await;
    (world, held, app)
}

#[tokio::test]
async fn connection_that_comes_in_a_drain_is_told_so_and_closed() {
    let (world, held, app) = draining().await;
    for start in ["GET /", "POST /api/v1/tokens", "GET /.gateway/callback"] {
        let mut client = world.client().await;
        client.send(world.head(app.port, start, "")).await;
        let answer = client.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("draining")), "{start}: {answer:?}");
        assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")), "{start}");
        assert_eq!(soon(client.read_rest()).await, b"", "{start}");
    }
    drop(held);
    assert_eq!(world.gateway.stop().await, DrainResult::Clean);
}

#[tokio::test]
async fn http2_connection_that_comes_in_a_drain_is_told_so() {
    let (world, held, app) = draining().await;
    let mut http2 = world.http2().await;
    let (response, _send) = http2.start(world.http2_request(app.port, "GET", "/"));
    let response = soon(response).await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["gateway-error"], "draining");
    assert_eq!(response.headers()["retry-after"], "1");
    drop(held);
    assert_eq!(world.gateway.stop().await, DrainResult::Clean);
}

#[tokio::test]
async fn silent_connections_hold_up_no_drain() {
    let world = World::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(world.client().await);
    }
    // An answer proves that the connections before it were accepted.
    world.ask(1, "GET /", "").await;
    assert_eq!(world.gateway.stop().await, DrainResult::Clean);
    for client in &mut silent {
        assert_eq!(soon(client.read_rest()).await, b"");
    }
}
