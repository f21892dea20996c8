//! Each limit by address, user and port: whoever is above it hears its name, and everybody else notices nothing.

use std::time::{Duration, Instant};

use e2e::raw::{Message, Raw};
use e2e::{PATIENCE, until};
use tokio::task::JoinSet;

use crate::support::{
    END_HEADERS, END_STREAM, GOAWAY, H2, HEADERS, Stage, assert_refused, block, fields, frame, silent_app,
};

/// Addresses of strangers; the tests' own users come from 127.0.0.1.
const STRANGER: u8 = 2;
const OTHER: u8 = 3;

async fn ask(raw: &mut Raw, request: impl AsRef<[u8]>) -> Message {
    raw.send(request).await;
    raw.message().await.expect("an answer")
}

/// A request of somebody who says nothing of who they are.
fn anonymous(stage: &Stage) -> String {
    format!("GET /stranger HTTP/1.1\r\nhost: {}\r\n\r\n", stage.authority())
}

/// A token that is well-formed and known to nobody.
async fn unknown_token() -> String {
    let elsewhere = e2e::TestGateway::start().await;
    let token = elsewhere.user_token.clone();
    elsewhere.stop().await;
    token
}

fn with_token(stage: &Stage, token: &str) -> String {
    format!("GET /token HTTP/1.1\r\nhost: {}\r\ngateway-authorization: Bearer {token}\r\n\r\n", stage.authority())
}

#[tokio::test]
async fn address_above_its_connections_is_refused_by_name_and_others_get_in() {
    let stage = Stage::new(|config| config.limits.connections_per_address = 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut raw = stage.connect_from(STRANGER).await;
        // It has been taken in once it is answered.
        assert_eq!(ask(&mut raw, anonymous(&stage)).await.status(), 401);
        held.push(raw);
    }
    let mut refused = stage.connect_from(STRANGER).await;
    assert_refused(&ask(&mut refused, stage.get("/")).await, "limits.connections_per_address");
    assert!(refused.read_rest().await.is_empty(), "it is closed");
    assert_eq!(ask(&mut stage.connect_from(OTHER).await, stage.get("/")).await.status(), 200);
    // A user's connection is no longer one of a stranger.
    assert_eq!(ask(&mut held[0], stage.get("/")).await.status(), 200);
    assert_eq!(ask(&mut stage.connect_from(STRANGER).await, stage.get("/")).await.status(), 200);
    assert_eq!(stage.gateway.reached("limits.connections_per_address").await, 1.0);
    drop(held);
    stage.finish().await;
}

#[tokio::test]
async fn connections_that_come_too_fast_wait_and_are_then_refused_by_name() {
    let stage = Stage::new(|config| config.limits.connections_per_second_per_address = 1).await;
    let began = Instant::now();
    let (mut asking, mut served) = (JoinSet::new(), 0);
    // Until one is refused: where that takes long, more of them get their turn.
    let refused = loop {
        let (mut raw, get) = (stage.connect_from(STRANGER).await, stage.get("/"));
        asking.spawn(async move { (ask(&mut raw, get).await, raw) });
        match asking.try_join_next().map(Result::unwrap) {
            Some((answer, _)) if answer.status() != 200 => break answer,
            Some(_) => served += 1,
            None => {}
        }
        assert!(began.elapsed() < PATIENCE, "none is refused");
    };
    assert_refused(&refused, "limits.connections_per_second_per_address");
    stage.assert_serves().await;
    while let Some(answer) = asking.join_next().await {
        let (answer, _) = answer.unwrap();
        if answer.status() == 200 {
            served += 1;
        } else {
            assert_refused(&answer, "limits.connections_per_second_per_address");
        }
    }
    // Four at once, two that waited for a turn.
    assert!(served >= 6, "{served} were served");
    assert!(began.elapsed() >= Duration::from_millis(1500), "it waited for {:?}", began.elapsed());
    stage.finish().await;
}

// Agents behind a NAT dial from the address of its users.
#[tokio::test]
async fn dials_of_agents_take_nothing_from_the_users_of_their_address() {
    let stage = Stage::new(|config| {
        config.limits.connections_per_second_per_address = 2;
        config.limits.agent_connections_per_address = 20;
    })
    .await;
    let agents = stage.gateway.addresses.agents;
    let mut dialed = Vec::new();
    for _ in 0..100 {
        dialed.push(Raw::connect_from([127, 0, 0, STRANGER], agents).await);
    }
    let name = "limits.agent_connections_per_address";
    let began = Instant::now();
    while stage.gateway.reached(name).await < 80.0 {
        assert!(began.elapsed() < PATIENCE, "{} were refused", stage.gateway.reached(name).await);
    }
    assert_eq!(ask(&mut stage.connect_from(STRANGER).await, stage.get("/")).await.status(), 200);
    assert_eq!(stage.gateway.reached("limits.connections_per_second_per_address").await, 0.0);
    // Nor from the agents there that say who they are.
    let token = stage.gateway.agent_token("two").await;
    let mut from_there = Vec::new();
    for _ in 0..40 {
        from_there.push(Raw::connect(agents).await);
    }
    let agent = stage.gateway.start_agent(&token, Vec::new());
    stage.gateway.until_connected("two").await;
    agent.stop().await;
    drop((dialed, from_there));
    stage.finish().await;
}

#[tokio::test]
async fn strangers_requests_above_the_rate_are_refused_by_name_and_users_of_their_address_are_served() {
    let stage = Stage::new(|config| config.limits.requests_per_second_per_address = 4).await;
    let mut raw = stage.connect().await;
    while ask(&mut raw, anonymous(&stage)).await.status() == 401 {}
    // Whatever they ask for, among many others.
    let nowhere = "GET / HTTP/1.1\r\nhost: no.such.host.example\r\n\r\n".to_owned();
    let page = format!("GET / HTTP/1.1\r\nhost: localhost:{}\r\n\r\n", stage.gateway.addresses.public.port());
    for request in [anonymous(&stage), nowhere, page] {
        let mut several = stage.connect().await;
        let began = Instant::now();
        let mut answer = ask(&mut several, &request).await;
        while answer.status() != 503 && began.elapsed() < PATIENCE {
            answer = ask(&mut several, &request).await;
        }
        assert_refused(&answer, "limits.requests_per_second_per_address");
    }
    stage.assert_serves().await;
    assert_eq!(ask(&mut stage.connect_from(OTHER).await, anonymous(&stage)).await.status(), 401);
    // Who signs in on the connection is no stranger any more.
    assert_eq!(ask(&mut raw, stage.get("/")).await.status(), 200);
    assert_eq!(ask(&mut raw, anonymous(&stage)).await.status(), 401);
    assert!(stage.gateway.reached("limits.requests_per_second_per_address").await >= 3.0);
    drop(raw);
    stage.finish().await;
}

#[tokio::test]
async fn connection_on_which_strangers_go_on_above_the_rate_is_closed() {
    let stage = Stage::new(|config| config.limits.requests_per_second_per_address = 1).await;
    let mut raw = stage.connect_from(STRANGER).await;
    let mut answers = 0;
    loop {
        if raw.try_send(anonymous(&stage)).await.is_err() {
            break;
        }
        let Some(answer) = raw.message().await else { break };
        answers += 1;
        assert!(matches!(answer.status(), 401 | 503), "{answer:?}");
    }
    assert!((17..40).contains(&answers), "{answers} answers");
    // A hundred streams at a time, over HTTP/2.
    let mut h2 = H2::connect(&stage, &[]).await;
    let authority = stage.authority();
    let get = block(&[(":method", "GET"), (":scheme", "http"), (":authority", &authority), (":path", "/")]);
    let mut ended = None;
    for number in 0..1000 {
        let stream = 2 * number + 1;
        h2.raw.try_send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get)).await.ok();
        match h2.until(&[HEADERS, GOAWAY], stream).await {
            Some(frame) if frame.kind == HEADERS => {}
            end => {
                ended = Some((number, end));
                break;
            }
        }
    }
    let (number, _) = ended.expect("a thousand requests were answered");
    assert!((17..100).contains(&number), "after {number}");
    assert_eq!(ask(&mut stage.connect_from(OTHER).await, anonymous(&stage)).await.status(), 401);
    stage.assert_serves().await;
    drop((raw, h2));
    stage.finish().await;
}

#[tokio::test]
async fn bad_tokens_end_in_a_named_refusal_and_lock_nobody_out() {
    let stage = Stage::new(|config| config.limits.failed_sign_ins_per_minute = 3).await;
    // Known to the gateway from now on.
    stage.assert_serves().await;
    let bad = unknown_token().await;
    let mut raw = stage.connect().await;
    for token in [&bad[..], &bad, "damaged"] {
        assert_eq!(ask(&mut raw, with_token(&stage, token)).await.status(), 401);
    }
    for token in [&bad[..], "damaged"] {
        let answer = ask(&mut raw, with_token(&stage, token)).await;
        assert_refused(&answer, "limits.failed_sign_ins_per_minute");
        assert_eq!(answer.header("retry-after"), Some("10"));
    }
    // The same address: whoever is known, whoever says nothing, and whoever has a good link.
    stage.assert_serves().await;
    assert_eq!(ask(&mut raw, anonymous(&stage)).await.status(), 401);
    let link = stage.gateway.sign_in_link.strip_prefix("http://").unwrap().to_owned();
    let (host, path) = link.split_at(link.find('/').unwrap());
    let visit = "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";
    let wrong = format!("GET /.gateway/sign-in?code={} HTTP/1.1\r\nhost: {host}\r\n{visit}\r\n", "A".repeat(43));
    let answer = ask(&mut raw, wrong).await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("overloaded")), "{answer:?}");
    let good = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{visit}\r\n");
    assert_eq!(ask(&mut raw, good).await.status(), 303);
    // Another address, with a token that has to be looked up.
    let fresh = stage.gateway.store.create_user_token(&"dev".parse().unwrap(), gateway_store::wall_clock()).await;
    let fresh = fresh.unwrap().token.reveal().to_owned();
    assert_eq!(ask(&mut stage.connect_from(OTHER).await, with_token(&stage, &fresh)).await.status(), 200);
    drop(raw);
    stage.finish().await;
}

#[tokio::test]
async fn user_above_their_requests_is_refused_by_name_and_another_user_is_served() {
    let stage = Stage::new(|config| config.limits.requests_per_user = 2).await;
    let silent = silent_app().await;
    let get = format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, silent.port));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut raw = stage.connect().await;
        raw.send(&get).await;
        held.push(raw);
    }
    let session = stage.gateway.registry.all().remove(0);
    until("both are under way", || session.in_flight() == 2).await;
    // Whatever port, and from wherever.
    let mut refused = stage.connect_from(OTHER).await;
    assert_refused(&ask(&mut refused, stage.get("/")).await, "limits.requests_per_user");
    let (name, user, now) = ("two".parse().unwrap(), "guest".parse().unwrap(), gateway_store::wall_clock());
    let token = stage.gateway.store.create_agent_token(&name, &user, now).await.unwrap();
    let agent = stage.gateway.start_agent(token.token.reveal(), Vec::new());
    stage.gateway.until_connected("two").await;
    let token = stage.gateway.store.create_user_token(&user, now).await.unwrap();
    let authority = stage.gateway.authority("two", stage.app.port);
    let get = format!(
        "GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {}\r\n\r\n",
        token.token.reveal()
    );
    assert_eq!(ask(&mut stage.connect().await, get).await.status(), 200);
    drop(held);
    until("they are over", || session.in_flight() == 0).await;
    stage.assert_serves().await;
    agent.stop().await;
    stage.finish().await;
}

#[tokio::test]
async fn user_above_the_rate_is_refused_by_name() {
    let stage = Stage::new(|config| config.limits.requests_per_second_per_user = 1).await;
    let mut raw = stage.connect().await;
    let (began, mut served) = (Instant::now(), 0);
    let refused = loop {
        let answer = ask(&mut raw, stage.get(&format!("/{served}"))).await;
        if answer.status() != 200 {
            break answer;
        }
        served += 1;
        assert!(began.elapsed() < PATIENCE, "{served} were served");
    };
    assert_refused(&refused, "limits.requests_per_second_per_user");
    assert!(served >= 4, "{served} were served");
    assert!(!stage.seen().contains(&format!("GET /{served} HTTP/1.1")), "it reached the app");
    drop(raw);
    stage.finish().await;
}

#[tokio::test]
async fn port_above_its_requests_is_refused_by_name_and_the_others_are_served() {
    let stage = Stage::new(|config| config.limits.requests_per_port = 2).await;
    let silent = silent_app().await;
    let get = format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, silent.port));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut raw = stage.connect().await;
        raw.send(&get).await;
        held.push(raw);
    }
    let session = stage.gateway.registry.all().remove(0);
    until("both are under way", || session.in_flight() == 2).await;
    assert_refused(&ask(&mut stage.connect_from(OTHER).await, &get).await, "limits.requests_per_port");
    stage.assert_serves().await;
    drop(held);
    stage.finish().await;
}

#[tokio::test]
async fn strangers_at_a_public_port_are_bounded_by_address_and_leave_it_to_others() {
    let stage = Stage::new(|config| config.limits.requests_per_address = 2).await;
    let silent = silent_app().await;
    stage.gateway.publish("one", stage.app.port).await;
    stage.gateway.publish("one", silent.port).await;
    let get = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", stage.gateway.authority("one", silent.port));
    let session = stage.gateway.registry.all().remove(0);
    until("what asked for the port is over", || session.in_flight() == 0).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut raw = stage.connect_from(STRANGER).await;
        raw.send(&get).await;
        held.push(raw);
    }
    until("both are under way", || session.in_flight() == 2).await;
    let mut refused = stage.connect_from(STRANGER).await;
    assert_refused(&ask(&mut refused, anonymous(&stage)).await, "limits.requests_per_address");
    assert_eq!(ask(&mut stage.connect_from(OTHER).await, anonymous(&stage)).await.status(), 200);
    assert_eq!(ask(&mut refused, stage.get("/")).await.status(), 200, "a user from the same address");
    drop(held);
    drop(refused);
    stage.finish().await;
}

#[tokio::test]
async fn limits_that_were_reached_are_counted_by_name_and_never_by_address() {
    let stage = Stage::new(|config| config.limits.requests_per_second_per_address = 1).await;
    for host in 10..20 {
        let mut raw = stage.connect_from(host).await;
        for _ in 0..6 {
            ask(&mut raw, anonymous(&stage)).await;
        }
    }
    let metrics = stage.gateway.metrics().await;
    let rows: Vec<_> = metrics
        .iter()
        .filter(|(name, count)| name.starts_with("gateway_limits_reached") && **count > 0.0)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(rows, ["gateway_limits_reached_total{limit=\"limits.requests_per_second_per_address\"}"]);
    assert!(metrics["gateway_addresses"] >= 10.0);
    assert!(metrics.keys().all(|name| !name.contains("127.0.0")), "{metrics:?}");
    stage.finish().await;
}
