//! Every failure that has a name, produced for real and looked at as a program, as a browser and
//! with HEAD.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use e2e::raw::{Message, Raw, RawApp};
use e2e::scripted::ScriptedAgent;
use e2e::{PATIENCE, TestGateway, until};
use gateway_config::TlsFiles;
use gateway_store::wall_clock;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

/// Stands in every part of a request that an answer might repeat.
const ECHO: &str = "do-not-repeat-me";

const SHORT: Duration = Duration::from_millis(200);

/// What a row of the table promises.
struct Row {
    code: &'static str,
    status: u16,
    retry_after: Option<&'static str>,
    /// Member of the problem document that says more: its name and value.
    detail: Option<(&'static str, &'static str)>,
}

const fn row(code: &'static str, status: u16) -> Row {
    Row { code, status, retry_after: None, detail: None }
}

const fn overloaded(limit: &'static str) -> Row {
    Row { code: "overloaded", status: 503, retry_after: Some("1"), detail: Some(("limit", limit)) }
}

/// Who asks, and what an answer should look like for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Program,
    Browser,
    Head,
}

const CLIENTS: [Client; 3] = [Client::Program, Client::Browser, Client::Head];

fn head(client: Client, authority: &str, token: Option<&str>) -> String {
    let method = if client == Client::Head { "HEAD" } else { "GET" };
    let accept = match client {
        Client::Browser => "accept: text/html,*/*;q=0.8\r\nsec-fetch-mode: navigate\r\nsec-fetch-site: none\r\n",
        Client::Program | Client::Head => "accept: */*\r\n",
    };
    let token = token.map(|token| format!("gateway-authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!("{method} /{ECHO}?{ECHO} HTTP/1.1\r\nhost: {authority}\r\n{token}{accept}x-{ECHO}: {ECHO}\r\n\r\n")
}

/// Asks on a connection of its own; also checks that nothing comes that does not belong to the answer.
async fn ask(gateway: &TestGateway, client: Client, authority: &str, token: Option<&str>) -> Message {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    raw.send(head(client, authority, token)).await;
    read(&mut raw, client).await
}

async fn read(raw: &mut Raw, client: Client) -> Message {
    let message = if client == Client::Head { raw.head().await } else { raw.message().await };
    raw.socket().shutdown().await.ok();
    let rest = raw.read_rest().await;
    assert!(rest.is_empty(), "behind the answer to {client:?}: {:?}", String::from_utf8_lossy(&rest));
    message.expect("an answer")
}

#[track_caller]
fn check(answer: &Message, client: Client, row: &Row) {
    let told = format!("{client:?}: {answer:?}");
    assert_eq!((answer.status(), answer.header("gateway-error")), (row.status, Some(row.code)), "{told}");
    let trace = answer.header("gateway-trace").expect("a trace id");
    let side = answer.header("gateway-side").expect("a side");
    let reason = answer.header("gateway-reason").expect("a reason");
    assert!(row.detail.is_none_or(|(_, detail)| detail == reason), "{told}");
    assert!(trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit()), "{told}");
    assert_eq!(answer.header("retry-after"), row.retry_after, "{told}");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{told}");
    let everything = format!("{answer:?} {}", answer.text());
    assert!(!everything.contains(ECHO), "{told}");
    // Only a page follows what happens, and only where that changes by itself.
    let reloads = match row.code {
        // An app that answers nonsense does not pass by itself.
        "port_closed" if row.detail.is_some_and(|(_, detail)| detail == "app_answer_invalid") => None,
        "agent_absent" | "port_closed" | "workspace_stopped" => Some("5"),
        "draining" => Some("2"),
        "overloaded" => Some("10"),
        _ => None,
    };
    let is_page = matches!(client, Client::Browser);
    assert_eq!(answer.header("refresh"), reloads.filter(|_| is_page), "{told}");
    assert_eq!(answer.text().contains("loads again"), is_page && reloads.is_some(), "{told}");
    match client {
        Client::Head => assert!(answer.body.is_empty(), "{told}"),
        Client::Program => {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{told}");
            let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!((&problem["code"], &problem["status"]), (&row.code.into(), &row.status.into()), "{told}");
            assert_eq!((&problem["trace_id"], &problem["side"]), (&trace.into(), &side.into()), "{told}");
            if let Some((name, value)) = row.detail {
                assert_eq!(problem[name], value, "{told}");
            }
        }
        Client::Browser => {
            assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{told}");
            assert!(answer.header("content-security-policy").is_some(), "{told}");
            let page = answer.text();
            assert!(page.starts_with("<!doctype html>") && page.contains(row.code) && page.contains(trace), "{told}");
            for fact in [reason, side] {
                assert!(page.contains(&format!("<dd>{fact}</dd>")), "{fact}: {told}");
            }
            if let Some((_, value)) = row.detail {
                assert!(page.contains(value), "{told}");
            }
        }
    }
}

/// Checks that metric and explanation have the words of the answer: one failure more of its code, reason and side, and of no other.
async fn check_agreement(gateway: &TestGateway, answer: &Message, before: &BTreeMap<String, f64>) {
    let field = |name: &str| answer.header(name).expect("a field").to_owned();
    let (code, reason, side) = (field("gateway-error"), field("gateway-reason"), field("gateway-side"));
    let after = gateway.metrics().await;
    let risen: Vec<&str> = after
        .iter()
        .filter(|(name, count)| name.starts_with("gateway_failures_total") && before.get(*name) != Some(count))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(risen, [format!("gateway_failures_total{{code=\"{code}\",reason=\"{reason}\",side=\"{side}\"}}")]);
    let mut operator = Raw::connect(gateway.addresses.public).await;
    let (public, token) = (gateway.addresses.public.port(), &gateway.user_token);
    let path = format!("/api/v1/failures/{}", field("gateway-trace"));
    operator
        .send(format!("GET {path} HTTP/1.1\r\nhost: localhost:{public}\r\nauthorization: Bearer {token}\r\n\r\n"))
        .await;
    let explained = operator.message().await.expect("an answer");
    let explained: serde_json::Value = serde_json::from_slice(&explained.body).expect("JSON");
    assert_eq!((&explained["code"], &explained["side"]), (&code.as_str().into(), &side.into()), "{explained}");
    assert_eq!(explained["detail"].as_str().unwrap_or(&code), reason, "{explained}");
}

/// Asks as everybody and checks the row each time. Pages, and they alone, lead to the public address.
async fn check_row(gateway: &TestGateway, authority: &str, row: &Row) {
    let public = format!("http://localhost:{}", gateway.addresses.public.port());
    let links = format!("<p><a href=\"{public}/help\">Help</a> or <a href=\"{public}/\">all workspaces</a></p>");
    for client in CLIENTS {
        let before = gateway.metrics().await;
        let answer = ask(gateway, client, authority, Some(&gateway.user_token)).await;
        check(&answer, client, row);
        check_agreement(gateway, &answer, &before).await;
        assert_eq!(answer.text().contains(&links), client == Client::Browser, "{client:?}: {answer:?}");
        assert_eq!(answer.text().contains(&public), client == Client::Browser, "{client:?}: {answer:?}");
    }
}

/// A port of this machine on which nothing listens, for as long as the socket is kept: it is bound, so nobody else gets it.
fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// An app that takes requests and answers none until its connection ends.
async fn silent_app() -> RawApp {
    RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await
}

#[tokio::test]
async fn no_such_host_is_the_same_answer_for_unknown_foreign_and_impossible_hosts() {
    let gateway = TestGateway::start().await;
    let (name, owner) = ("foreign".parse().unwrap(), "somebody".parse().unwrap());
    let token = gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    let _agent = gateway.start_agent(token.token.reveal(), Vec::new());
    gateway.until_connected("foreign").await;
    let app = RawApp::mirror().await;
    let authorities = [
        gateway.authority("foreign", app.port),
        gateway.authority("unknown", app.port),
        format!("0-foreign.localhost:{}", gateway.addresses.public.port()),
        "a_b.localhost".to_owned(),
        "elsewhere.example".to_owned(),
    ];
    for client in CLIENTS {
        let mut answers = Vec::new();
        for authority in &authorities {
            let answer = ask(&gateway, client, authority, Some(&gateway.user_token)).await;
            check(&answer, client, &row("no_such_host", 404));
            let trace = answer.header("gateway-trace").unwrap();
            let varies = |name: &str| matches!(name, "gateway-trace" | "date");
            let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| !varies(name)).cloned().collect();
            answers.push((headers, answer.text().replace(trace, "")));
        }
        for other in &answers[1..] {
            assert_eq!(other, &answers[0], "{client:?}");
        }
    }
    // Hosts outside the grammar are nobody's, also for those who are not signed in.
    check(&ask(&gateway, Client::Program, "a_b.localhost", None).await, Client::Program, &row("no_such_host", 404));
}

#[tokio::test]
async fn nobody_is_redirected_on_a_page_visit_and_refused_otherwise() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    // The same for a workspace that is there and one that is not.
    for workspace in ["one", "unknown"] {
        let authority = gateway.authority(workspace, 4000);
        for client in [Client::Program, Client::Head] {
            let answer = ask(&gateway, client, &authority, None).await;
            check(&answer, client, &row("sign_in_required", 401));
            assert!(answer.header("www-authenticate").is_some());
        }
        let answer = ask(&gateway, Client::Browser, &authority, None).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (302, Some("sign_in_required")));
        assert!(answer.header("gateway-trace").is_some());
        let location = answer.header("location").expect("the sign-in");
        let public = format!("http://localhost:{}/", gateway.addresses.public.port());
        // Where to return to is the one thing that has to be repeated.
        assert!(location.starts_with(&public) && answer.body.is_empty(), "{location}");
        // An unsafe method is no page visit, whatever it says of itself.
        let mut raw = Raw::connect(gateway.addresses.public).await;
        raw.send(head(Client::Browser, &authority, None).replacen("GET", "POST", 1)).await;
        check(&read(&mut raw, Client::Browser).await, Client::Browser, &row("sign_in_required", 401));
        // Nor is a WebSocket.
        let mut raw = Raw::connect(gateway.addresses.public).await;
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
            sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        raw.send(format!("GET /{ECHO} HTTP/1.1\r\nhost: {authority}\r\n{upgrade}")).await;
        check(&read(&mut raw, Client::Program).await, Client::Program, &row("sign_in_required", 401));
    }
    // A damaged token is no token.
    let authority = gateway.authority("one", 4000);
    let damaged = format!("{}x", gateway.user_token);
    check(
        &ask(&gateway, Client::Program, &authority, Some(&damaged)).await,
        Client::Program,
        &row("sign_in_required", 401),
    );
}

#[tokio::test]
async fn port_that_the_agent_does_not_expose_is_not_allowed() {
    let gateway = TestGateway::start().await;
    let app = RawApp::mirror().await;
    let exposed = Port { number: app.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let _agent = gateway.agent_with("one", vec![exposed]).await;
    let (_bound, closed) = closed_port();
    check_row(&gateway, &gateway.authority("one", closed), &row("port_not_allowed", 403)).await;
    let answer = ask(&gateway, Client::Program, &gateway.authority("one", app.port), Some(&gateway.user_token)).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn workspace_without_a_session_has_no_agent() {
    let gateway = TestGateway::start().await;
    gateway.agent_token("one").await;
    let expected = Row { retry_after: Some("3"), ..row("agent_absent", 503) };
    check_row(&gateway, &gateway.authority("one", 4000), &expected).await;
}

#[tokio::test]
async fn workspace_that_is_stopped_is_named_so() {
    let gateway = TestGateway::start().await;
    gateway.configured_cluster("one", "enabled: true\n").await;
    gateway.workspace_in("one", "stopped").await;
    let row = Row { retry_after: Some("10"), ..row("workspace_stopped", 503) };
    check_row(&gateway, &gateway.authority("stopped", 80), &row).await;
}

#[tokio::test]
async fn port_is_closed_when_nothing_listens_and_when_the_app_hangs_up() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    let (_bound, closed) = closed_port();
    check_row(&gateway, &gateway.authority("one", closed), &row("port_closed", 502)).await;
    let hanging_up = RawApp::start(|mut raw| async move {
        raw.head().await;
    })
    .await;
    let closed = Row { detail: Some(("reason", "app_closed")), ..row("port_closed", 502) };
    check_row(&gateway, &gateway.authority("one", hanging_up.port), &closed).await;
    let resetting = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.socket().set_zero_linger().expect("a socket");
    })
    .await;
    check_row(&gateway, &gateway.authority("one", resetting.port), &row("port_closed", 502)).await;
    let nonsense = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.send("220 smtp.example ESMTP\r\n").await;
        raw.read_rest().await;
    })
    .await;
    let invalid = Row { detail: Some(("reason", "app_answer_invalid")), ..row("port_closed", 502) };
    check_row(&gateway, &gateway.authority("one", nonsense.port), &invalid).await;
    // Two lengths, which differ, on a connection that stays.
    let ambiguous = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab").await;
        raw.read_rest().await;
    })
    .await;
    check_row(&gateway, &gateway.authority("one", ambiguous.port), &invalid).await;
    gateway.assert_quiet().await;
}

#[tokio::test]
async fn open_times_out_when_the_agent_does_not_answer() {
    let gateway = TestGateway::start_with(|config| config.timeouts.channel_open = SHORT).await;
    let agent = ScriptedAgent::attach(&gateway, "one").await;
    check_row(&gateway, &gateway.authority("one", 4000), &row("open_timeout", 504)).await;
    // The agent hears that nobody waits any more.
    for _ in CLIENTS {
        let incoming = tokio::time::timeout(PATIENCE, agent.session.accept()).await.unwrap().expect("a channel");
        tokio::time::timeout(PATIENCE, incoming.abandoned()).await.expect("given up");
    }
    gateway.assert_quiet().await;
}

#[tokio::test]
async fn open_times_out_when_the_apps_backlog_is_full() {
    let gateway = TestGateway::start_with(|config| config.timeouts.channel_open = SHORT).await;
    let _agent = gateway.agent("one").await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(Ok(filler)) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        fillers.push(filler);
        assert!(fillers.len() < 64, "the backlog never fills");
    }
    check_row(&gateway, &gateway.authority("one", address.port()), &row("open_timeout", 504)).await;
    drop(listener);
    gateway.assert_quiet().await;
}

#[tokio::test]
async fn response_times_out_when_the_app_stays_silent() {
    let gateway = TestGateway::start_with(|config| config.timeouts.response_header = SHORT).await;
    let _agent = gateway.agent("one").await;
    let app = silent_app().await;
    let detail = Some(("reason", "timeouts.response_header"));
    check_row(&gateway, &gateway.authority("one", app.port), &Row { detail, ..row("response_timeout", 504) }).await;
    gateway.assert_quiet().await;
}

/// Waits until one request is under way to an app.
async fn until_asked(gateway: &TestGateway) {
    until("the request is under way", || {
        gateway
            .registry
            .all()
            .iter()
            .any(|session| session.in_flight() == 1 && session.tunnel.stats().channels_live == 1)
    })
    .await;
}

#[tokio::test]
async fn session_is_lost_when_the_agent_dies_during_the_request() {
    let gateway = TestGateway::start_with(|config| config.tunnel.resume_grace = SHORT).await;
    let app = silent_app().await;
    for client in CLIENTS {
        let agent = gateway.agent("one").await;
        let mut raw = Raw::connect(gateway.addresses.public).await;
        raw.send(head(client, &gateway.authority("one", app.port), Some(&gateway.user_token))).await;
        until_asked(&gateway).await;
        agent.kill();
        check(&read(&mut raw, client).await, client, &row("session_lost", 502));
        until("the session is gone", || gateway.registry.is_empty()).await;
    }
}

/// Holds one request at an app that never answers, and checks what a second one gets.
async fn check_overload(gateway: TestGateway, limit: &'static str) {
    let _agent = gateway.agent("one").await;
    let app = silent_app().await;
    let authority = gateway.authority("one", app.port);
    let mut holder = Raw::connect(gateway.addresses.public).await;
    holder.send(head(Client::Program, &authority, Some(&gateway.user_token))).await;
    until_asked(&gateway).await;
    check_row(&gateway, &authority, &overloaded(limit)).await;
    // The limit is the first one's to give back.
    drop(holder);
    gateway.assert_quiet().await;
    let mirror = RawApp::mirror().await;
    until("the channel is given back", || {
        gateway.registry.all().iter().all(|session| session.tunnel.stats().channels_live == 0)
    })
    .await;
    let answer =
        ask(&gateway, Client::Program, &gateway.authority("one", mirror.port), Some(&gateway.user_token)).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn requests_per_workspace_are_bounded_by_name() {
    let gateway = TestGateway::start_with(|config| config.limits.requests_per_workspace = 1).await;
    check_overload(gateway, "limits.requests_per_workspace").await;
}

#[tokio::test]
async fn channels_per_session_are_bounded_by_name() {
    let gateway = TestGateway::start_with(|config| config.tunnel.channels_per_session = 1).await;
    check_overload(gateway, "tunnel.channels_per_session").await;
}

#[tokio::test]
async fn session_budget_is_bounded_by_name() {
    let gateway = TestGateway::start_with(|config| {
        config.tunnel.window_initial = 16 * 1024;
        config.tunnel.window_max = 16 * 1024;
        config.tunnel.session_budget = 16 * 1024;
    })
    .await;
    check_overload(gateway, "tunnel.session_budget").await;
}

#[tokio::test]
async fn request_that_comes_during_the_drain_is_told_so() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    let app = RawApp::mirror().await;
    let authority = gateway.authority("one", app.port);
    // The heads are under way when the drain begins; connections without one are just closed.
    let mut late = Vec::new();
    for client in CLIENTS {
        let mut raw = Raw::connect(gateway.addresses.public).await;
        let head = head(client, &authority, Some(&gateway.user_token));
        let (first, rest) = head.split_at(20);
        raw.send(first).await;
        late.push((client, raw, rest.to_owned()));
    }
    // An answer proves that everything sent before on other connections had its turn.
    drop(ask(&gateway, Client::Program, &authority, Some(&gateway.user_token)).await);
    gateway.begin_drain().await;
    let expected = Row { retry_after: Some("1"), ..row("draining", 503) };
    for (client, mut raw, rest) in late {
        raw.send(rest).await;
        let answer = read(&mut raw, client).await;
        check(&answer, client, &expected);
        assert_eq!(answer.header("connection"), Some("close"));
    }
    gateway.stop().await;
}

/// Sends bytes as they are, as a program with a good token, and returns the answer and that the connection was closed.
async fn refused(gateway: &TestGateway, request: &str) -> Message {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    // The answer may come, and the connection close, before everything was sent.
    raw.try_send(request).await.ok();
    let message = raw.message().await.unwrap_or_else(|| panic!("no answer to {:.200}", request));
    assert!(raw.read_rest().await.is_empty(), "more than one answer to {request:.200}");
    message
}

#[tokio::test]
async fn bad_requests_are_refused_by_rule_and_close_the_connection() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    let app = RawApp::mirror().await;
    let authority = gateway.authority("one", app.port);
    let token = format!("gateway-authorization: Bearer {}\r\nx-{ECHO}: {ECHO}\r\n", gateway.user_token);
    let host = format!("host: {authority}\r\n{token}");
    let long = "a".repeat(33 * 1024);
    let cases: [(&str, u16, String); 19] = [
        ("host_missing", 400, format!("GET /{ECHO} HTTP/1.1\r\n{token}\r\n")),
        ("host_missing", 400, format!("GET /{ECHO} HTTP/1.0\r\n{token}\r\n")),
        ("host_duplicate", 400, format!("GET / HTTP/1.1\r\n{host}host: {authority}\r\n\r\n")),
        ("target_host", 400, format!("GET http://other.localhost/ HTTP/1.1\r\n{host}\r\n")),
        ("target_form", 400, format!("GET ftp://{authority}/ HTTP/1.1\r\n{host}\r\n")),
        (
            "length_and_encoding",
            400,
            format!("POST / HTTP/1.1\r\n{host}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("content_length", 400, format!("POST / HTTP/1.1\r\n{host}content-length: 1\r\ncontent-length: 2\r\n\r\nab")),
        (
            "transfer_encoding",
            400,
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("bare_line_feed", 400, format!("GET / HTTP/1.1\nhost: {authority}\n{token}\n")),
        ("folded_line", 400, format!("GET / HTTP/1.1\r\n{host} folded\r\n\r\n")),
        ("blank_before_colon", 400, format!("GET / HTTP/1.1\r\n{host}a : b\r\n\r\n")),
        ("malformed", 400, format!("GET / HTTP/1.1\r\n{host}a: \0\r\n\r\n")),
        ("malformed", 400, format!("GET / HTTP/9.9\r\n{host}\r\n")),
        (
            "upgrade_mixed",
            400,
            format!("GET / HTTP/1.1\r\n{host}connection: upgrade\r\nupgrade: h2c, websocket\r\n\r\n"),
        ),
        ("underscore_field", 400, format!("GET / HTTP/1.1\r\n{host}x_forwarded_for: 1.2.3.4\r\n\r\n")),
        (
            "websocket_key",
            400,
            format!(
                "GET / HTTP/1.1\r\n{host}connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n"
            ),
        ),
        ("uri_too_long", 414, format!("GET /{long} HTTP/1.1\r\n{host}\r\n")),
        ("", 405, format!("CONNECT {authority} HTTP/1.1\r\n{host}\r\n")),
        ("", 417, format!("POST / HTTP/1.1\r\n{host}content-length: 1\r\nexpect: 200-ok\r\n\r\n")),
    ];
    for (reason, status, request) in &cases {
        let answer = refused(&gateway, request).await;
        check(&answer, Client::Program, &row("bad_request", *status));
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        if !reason.is_empty() {
            assert_eq!(problem["reason"], *reason, "{request:.300}");
        }
        assert_eq!(answer.header("connection"), Some("close"), "{request:.300}");
    }
    gateway.assert_quiet().await;
}

#[tokio::test]
async fn refusal_before_any_request_is_a_page_for_browsers_and_bodyless_for_head() {
    let gateway = TestGateway::start().await;
    let bad = row("bad_request", 400);
    for client in CLIENTS {
        // Found in the bytes, and found by the library.
        for (reason, field) in [("folded_line", " folded"), ("malformed", "a: \0")] {
            let head = head(client, "one.localhost", None);
            let mut raw = Raw::connect(gateway.addresses.public).await;
            raw.send(head.replacen("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"), 1)).await;
            let detail = Some(("reason", reason));
            check(&read(&mut raw, client).await, client, &Row { detail, ..bad });
        }
    }
}

#[tokio::test]
async fn header_too_large_is_said_for_bytes_and_for_fields() {
    let gateway = TestGateway::start().await;
    let _agent = gateway.agent("one").await;
    let authority = gateway.authority("one", 4000);
    for client in CLIENTS {
        let head = head(client, &authority, Some(&gateway.user_token));
        for (extra, detail) in [
            (format!("cookie: {}\r\n", "a".repeat(65 * 1024)), Some(("reason", "cookies"))),
            (format!("x: {}\r\n", "a".repeat(65 * 1024)), None),
            ("a: b\r\n".repeat(101), None),
        ] {
            let mut raw = Raw::connect(gateway.addresses.public).await;
            raw.try_send(head.replacen("\r\n\r\n", &format!("\r\n{extra}\r\n"), 1)).await.ok();
            let answer = read(&mut raw, client).await;
            check(&answer, client, &Row { detail, ..row("header_too_large", 431) });
            assert_eq!(answer.header("clear-site-data").is_some(), detail.is_some(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn connection_for_another_host_is_misdirected() {
    let folder = std::env::temp_dir().join(format!("gateway-misdirected-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made =
        rcgen::generate_simple_self_signed(["4000-one.localhost".to_owned(), "4000-two.localhost".to_owned()]).unwrap();
    let files =
        TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem"), certs_dir: None, client_ca: None };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let gateway = TestGateway::start_with(|config| config.tls.public = Some(files)).await;
    gateway.agent_token("one").await;
    gateway.agent_token("two").await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for client in CLIENTS {
        for (host, expected) in
            [("4000-one.localhost", row("agent_absent", 503)), ("4000-two.localhost", row("misdirected", 421))]
        {
            let stream = TcpStream::connect(gateway.addresses.public).await.unwrap();
            let name = ServerName::try_from("4000-one.localhost").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            let request =
                head(client, host, Some(&gateway.user_token)).replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
            let answer = parse(&bytes);
            let retry_after = (expected.status == 503).then_some("3");
            check(&answer, client, &Row { retry_after, ..expected });
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Reads a whole answer that has a length.
fn parse(bytes: &[u8]) -> Message {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap().to_owned();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Message { start, headers, body: body.as_bytes().to_vec() }
}
