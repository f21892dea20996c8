//! Who may open raw TCP, what everybody else is told, and for how long it lasts.

use std::time::Duration;

use e2e::raw::{Message, RawApp};
use e2e::stopwatch::Stopwatch;
use gateway_store::wall_clock;
use gateway_types::Share;
use tunnel_link::raw::{PATH, code};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::streams::echo;
use super::support::{HANDSHAKE, World, soon};

/// Within this a revocation has cut what was open.
const CUT_WITHIN: Duration = Duration::from_secs(5);

/// What an answer says, without what differs by design.
fn told(answer: &Message) -> (String, Vec<(String, String)>, String) {
    let trace = answer.header("gateway-trace").expect("a trace").to_owned();
    let headers = answer.headers.iter().filter(|(name, _)| !matches!(name.as_str(), "gateway-trace" | "date"));
    (answer.start.clone(), headers.cloned().collect(), answer.text().replace(&trace, "TRACE"))
}

fn bearer(token: &str) -> String {
    format!("gateway-authorization: Bearer {token}\r\n{HANDSHAKE}")
}

/// An app that no connection may reach.
async fn untouched() -> (RawApp, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = count.clone();
    let app = RawApp::start(move |_raw| {
        counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::ready(())
    })
    .await;
    (app, count)
}

// Rows 4 and 5: a browser sends cookies by itself, so none of them opens raw TCP, whoever's it is.
#[tokio::test]
async fn cookie_opens_no_raw_tcp_nor_does_a_public_port() {
    let world = World::start().await;
    let (app, count) = untouched().await;
    let authority = world.gateway.authority("one", app.port);
    let port = gateway_types::Port::new(app.port).unwrap();
    let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let cookie = world.sign_in(&authority).await;
    let share = Share { port, audience: "public".parse().unwrap(), expires_at: None };
    assert!(world.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    for fields in [
        HANDSHAKE.to_owned(),
        format!("cookie: {cookie}\r\n{HANDSHAKE}"),
        format!("cookie: {cookie}\r\norigin: http://{authority}\r\nsec-fetch-site: same-origin\r\n{HANDSHAKE}"),
        format!("authorization: Basic eDp5\r\ncookie: {cookie}\r\n{HANDSHAKE}"),
        format!("gateway-authorization: Bearer nonsense\r\ncookie: {cookie}\r\n{HANDSHAKE}"),
    ] {
        let answer = world.ask("one", app.port, &format!("GET {PATH}"), &fields).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (401, Some("sign_in_required")), "{fields}");
    }
    // As a page the same cookie is good.
    let page = world.ask("one", app.port, "GET /", &format!("cookie: {cookie}\r\nsec-fetch-site: none\r\n")).await;
    assert_ne!(page.status(), 401, "{page:?}");
    assert!(count.load(std::sync::atomic::Ordering::SeqCst) <= 1, "raw TCP reached the app");
}

#[tokio::test]
async fn workspace_of_another_and_none_at_all_are_refused_with_the_same_bytes() {
    let world = World::start().await;
    let (app, count) = untouched().await;
    let eve = world.token_of("eve").await;
    let answers = [
        world.ask("one", app.port, &format!("GET {PATH}"), &bearer(&eve)).await,
        world.ask("none", app.port, &format!("GET {PATH}"), &bearer(&eve)).await,
    ];
    assert_eq!((answers[0].status(), answers[0].header("gateway-error")), (404, Some("no_such_host")));
    assert_eq!(told(&answers[0]), told(&answers[1]));
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_cannot_be_opened_is_refused_by_its_code_before_the_switch() {
    let exposed = |number| Port { number, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let app = echo().await;
    // Port 1 is exposed, and nothing listens there.
    let world = World::configured(|_| {}, vec![exposed(app.port), exposed(1)]).await;
    let token = world.gateway.user_token.clone();
    assert_eq!(world.refusal(&token, "one", 1).await, (502, "port_closed".to_owned()));
    assert_eq!(world.refusal(&token, "one", 2).await, (403, "port_not_allowed".to_owned()));
    world.gateway.agent_token("absent").await;
    assert_eq!(world.refusal(&token, "absent", 22).await, (503, "agent_absent".to_owned()));
    let agent_token = world.gateway.agent_token("one").await;
    assert_eq!(world.refusal(&agent_token, "one", app.port).await, (401, "sign_in_required".to_owned()));
    // The stream that is allowed works beside them.
    let mut user = world.open(app.port).await;
    user.say("x").await;
    assert_eq!(user.hear(1).await, b"x");
    user.kill();
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn other_spellings_of_the_path_and_other_handshakes_open_nothing() {
    let world = World::start().await;
    let (app, count) = untouched().await;
    let token = world.gateway.user_token.clone();
    for path in ["/.gateway/tcp/", "/.gateway//tcp", "/%2egateway/tcp", "/x/../.gateway/tcp", "/.gateway/tcp/x"] {
        let answer = world.ask("one", app.port, &format!("GET {path}"), &bearer(&token)).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (404, Some("no_such_host")), "{path}");
    }
    let plain = format!("gateway-authorization: Bearer {token}\r\n");
    for (start, fields, detail) in [
        ("GET", plain.clone(), "tcp_websocket"),
        ("OPTIONS", plain.clone(), "tcp_websocket"),
        ("POST", bearer(&token), "websocket_method"),
        ("GET", bearer(&token).replace("tcp.gateway.v1", "chat"), "tcp_subprotocol"),
        ("GET", bearer(&token).replace("websocket-version: 13", "websocket-version: 8"), "websocket_version"),
        ("GET", bearer(&token).replace("upgrade: websocket", "upgrade: tcp"), "tcp_websocket"),
    ] {
        let answer = world.ask("one", app.port, &format!("{start} {PATH}"), &fields).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (400, Some("bad_request")), "{start} {fields}");
        assert!(answer.text().contains(detail), "{detail}: {}", answer.text());
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
    world.gateway.assert_empty().await;
}

// Row 18: access lasts as long as the stream is allowed, not as long as it is open.
#[tokio::test]
async fn revoked_token_cuts_a_stream_with_its_reason() {
    let world = World::start().await;
    let app = echo().await;
    let (mut busy, mut idle) = (world.open(app.port).await, world.open(app.port).await);
    busy.say("x").await;
    assert_eq!(busy.hear(1).await, b"x");
    let began = Stopwatch::start();
    world.revoke_tokens_of("dev").await;
    for user in [&mut busy, &mut idle] {
        assert_eq!(user.closed().await, (code::ACCESS_ENDED, "sign_in_required".to_owned()));
    }
    assert!(began.elapsed() < CUT_WITHIN, "{:?}", began.elapsed());
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn every_one_of_a_hundred_revocations_cuts_in_time() {
    let world = World::start().await;
    let app = echo().await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let token = world.token_of("dev").await;
        let mut user = world.open_as(&token, app.port).await;
        let newest = world.gateway.store.list_tokens().await.unwrap().pop().unwrap().id;
        let store = world.gateway.store.clone();
        // At all moments of a look's interval.
        let wait = Duration::from_millis(newest.to_string().bytes().map(u64::from).sum::<u64>() * 37 % 3_000);
        waiting.spawn(async move {
            tokio::time::sleep(wait).await;
            let began = Stopwatch::start();
            assert!(store.revoke_token(newest, wall_clock()).await.unwrap());
            assert_eq!(user.closed().await, (code::ACCESS_ENDED, "sign_in_required".to_owned()));
            began.elapsed()
        });
    }
    let took = soon(waiting.join_all()).await;
    let longest = took.iter().max().expect("a hundred");
    assert!(*longest < CUT_WITHIN, "{longest:?}");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn share_opens_one_port_and_cuts_it_when_it_is_taken_back() {
    let world = World::start().await;
    let app = echo().await;
    let bob = world.token_of("bob").await;
    let port = gateway_types::Port::new(app.port).unwrap();
    let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let share = Share { port, audience: "user:bob".parse().unwrap(), expires_at: None };
    assert!(world.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    let mut user = world.open_as(&bob, app.port).await;
    user.say("x").await;
    assert_eq!(user.hear(1).await, b"x");
    assert_eq!(world.refusal(&bob, "one", app.port - 1).await, (403, "port_not_allowed".to_owned()));
    // A user who does not read is cut all the same.
    let began = Stopwatch::start();
    assert!(world.gateway.store.unshare(&name, port, &share.audience).await.unwrap());
    assert_eq!(user.closed().await, (code::ACCESS_ENDED, "no_such_host".to_owned()));
    assert!(began.elapsed() < CUT_WITHIN, "{:?}", began.elapsed());
}

#[tokio::test]
async fn stalled_stream_is_cut_too() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move { while raw.try_send(vec![0; 65_536]).await.is_ok() {} }).await;
    let user = world.open(app.port).await;
    soon(async {
        while world.session().stats().queued_bytes == 0 && world.session().in_flight() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let began = Stopwatch::start();
    world.revoke_tokens_of("dev").await;
    e2e::until("the stream is cut", || world.session().in_flight() == 0).await;
    assert!(began.elapsed() < CUT_WITHIN, "{:?}", began.elapsed());
    drop(user);
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn slot_of_a_stream_is_one_of_the_workspaces_requests() {
    let world = World::configured(|config| config.limits.requests_per_workspace = 2, Vec::new()).await;
    let app = echo().await;
    let token = world.gateway.user_token.clone();
    let (first, mut second) = (world.open(app.port).await, world.open(app.port).await);
    let (status, code) = world.refusal(&token, "one", app.port).await;
    assert_eq!((status, code.as_str()), (503, "overloaded"));
    first.kill();
    e2e::until("the slot is free", || world.session().in_flight() == 1).await;
    let mut third = world.open(app.port).await;
    for user in [&mut second, &mut third] {
        user.say("x").await;
        assert_eq!(user.hear(1).await, b"x");
    }
}

impl World {
    /// Signs a browser in at a workspace's host; returns its cookie there.
    async fn sign_in(&self, authority: &str) -> String {
        const VISIT: &str =
            "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";
        let visit = async |url: &str, cookie: &str| {
            let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
            let mut client = e2e::raw::Raw::connect(self.gateway.addresses.public).await;
            let cookie = if cookie.is_empty() { String::new() } else { format!("cookie: {cookie}\r\n") };
            client.send(format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n{VISIT}{cookie}\r\n")).await;
            client.message().await.expect("an answer")
        };
        let cookie = |answer: &Message| answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let public = cookie(&visit(&self.gateway.sign_in_link, "").await);
        let begun = visit(&format!("http://{authority}/"), "").await;
        let location = begun.header("location").expect("a way to sign in").to_owned();
        let vouched = visit(&location, &public).await;
        let arrived = visit(vouched.header("location").expect("a way back"), &cookie(&begun)).await;
        cookie(&arrived)
    }
}
