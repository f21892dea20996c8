//! Links that break, and agents that come, while the gateway shuts down.

use std::time::{Duration, Instant};

use e2e::raw::Raw;
use e2e::relay::CUTS;
use e2e::scripted::hello;
use e2e::until;
use tunnel_link::drain::DrainResult;
use tunnel_proto::hello::Hello;

use crate::raw_agent::RawAgent;
use crate::resume::{Flaky, notice_stalls};

/// Status code of gRPC.
const UNAVAILABLE: u16 = 14;

/// Long beside what these drains take.
const DRAIN: Duration = Duration::from_secs(15);

/// Begins to stop the gateway, and waits until it does.
async fn begin_stop(flaky: &Flaky) {
    flaky.stage.gateway.begin_drain().await;
}

/// A request that is under way, and of which the last byte is missing.
async fn half_asked(flaky: &Flaky) -> Raw {
    let raw = flaky.ask(&flaky.apps.upload, "POST /", "content-length: 1\r\n").await;
    until("it is under way", || flaky.session.in_flight() == 1).await;
    raw
}

/// Says the last byte, and hears the answer to all of them.
async fn finish(mut raw: Raw) {
    raw.send([0]).await;
    let answer = raw.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.text()), (200, "1 true".to_owned()));
}

#[tokio::test]
async fn link_that_breaks_during_the_drain_comes_back_and_what_it_carries_finishes() {
    let flaky = Flaky::new(|config| {
        notice_stalls(config);
        config.timeouts.drain = DRAIN;
    })
    .await;
    let waiting = half_asked(&flaky).await;
    let mut stream = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(stream.head().await.expect("a head").status(), 101);
    until("both are under way", || flaky.session.in_flight() == 2).await;
    let started = Instant::now();
    begin_stop(&flaky).await;
    for how in CUTS {
        flaky.break_link(how).await;
        stream.send("still").await;
        assert_eq!(stream.exactly(5).await, b"still");
    }
    finish(waiting).await;
    drop(stream);
    assert_eq!(flaky.stage.gateway.stop().await, DrainResult::Clean);
    assert!(started.elapsed() < DRAIN, "{:?}", started.elapsed());
}

#[tokio::test]
async fn agents_without_a_session_here_are_sent_away_during_the_drain_and_displace_nobody() {
    let flaky = Flaky::new(|config| config.timeouts.drain = DRAIN).await;
    let gateway = &flaky.stage.gateway;
    let waiting = half_asked(&flaky).await;
    let (same, other) = (gateway.agent_token("one").await, gateway.agent_token("two").await);
    begin_stop(&flaky).await;
    for token in [&same, &other] {
        let (status, said) = RawAgent::dial(gateway, token, Hello { instance: 7, ..hello() }).await.refusal().await;
        assert_eq!((status, said.as_str()), (UNAVAILABLE, "this gateway is shutting down"));
    }
    assert_eq!(gateway.registry.of(&flaky.session.subject).map(|current| current.id), Some(flaky.session.id));
    assert!(gateway.registry.current(&"two".parse().unwrap()).is_none());
    finish(waiting).await;
    assert_eq!(flaky.stage.gateway.stop().await, DrainResult::Clean);
}

#[tokio::test]
async fn connection_that_says_nothing_to_the_agents_listener_does_not_hold_the_drain_up() {
    let flaky = Flaky::new(|config| {
        config.timeouts.drain = DRAIN;
        config.timeouts.agent_hello = DRAIN;
    })
    .await;
    let agents = flaky.stage.gateway.addresses.agents;
    let waiting = half_asked(&flaky).await;
    let before = Raw::connect(agents).await;
    begin_stop(&flaky).await;
    let silent = Raw::connect(agents).await;
    // Begun, but never to be a link.
    let (mut http2, mut http1) = (Raw::connect(agents).await, Raw::connect(agents).await);
    http2.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    http1.send("GET / HTTP/1.1\r\n").await;
    finish(waiting).await;
    let finished = Instant::now();
    assert_eq!(flaky.stage.gateway.stop().await, DrainResult::Clean);
    assert!(finished.elapsed() < DRAIN / 2, "{:?}", finished.elapsed());
    assert!(std::net::TcpStream::connect(agents).is_err(), "it listens to agents no more");
    drop((before, silent, http1, http2));
}
