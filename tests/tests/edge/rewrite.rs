//! Host, Origin, Referer and Location: as they are by default, as `localhost` where a port is set to it.

use e2e::raw::RawApp;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::support::{Reply, World, app};

fn localhost(number: u16) -> Port {
    Port { number, protocol: AppProtocol::Http1, host: HostMode::Localhost, tls: false }
}

// Trap 34.
#[tokio::test]
async fn original_host_origin_and_referer_reach_the_app_by_default() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let authority = world.authority(app.port);
    let fields = format!("origin: http://{authority}\r\nreferer: http://{authority}/a?b\r\n");
    let text = world.ask(app.port, "POST /", &fields).await.text();
    for line in [
        format!("host: {authority}"),
        format!("origin: http://{authority}"),
        format!("referer: http://{authority}/a?b"),
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
}

// Trap 34: dev servers check Host and Origin. Only what names the own host is changed.
#[tokio::test]
async fn localhost_mode_rewrites_host_and_own_origin_only() {
    let app = RawApp::mirror().await;
    let world = World::exposing(vec![localhost(app.port)]).await;
    let (authority, port) = (world.authority(app.port), app.port);
    let fields = format!("origin: http://{authority}\r\nreferer: http://{authority}/a?b\r\n");
    let text = world.ask(port, "POST /", &fields).await.text();
    for line in [
        format!("host: localhost:{port}"),
        format!("origin: http://localhost:{port}"),
        format!("referer: http://localhost:{port}/a?b"),
        format!("x-forwarded-host: {authority}"),
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    let text = world.ask(port, "POST /", "origin: http://evil.example\r\n").await.text();
    assert!(text.contains("\norigin: http://evil.example\n"), "{text}");
    let mut http2 = world.http2().await;
    let text = http2.ask(world.http2_request(port, "GET", "/")).await.text();
    assert_eq!(text.matches("\nhost: ").count(), 1, "{text}");
    assert!(text.contains(&format!("\nhost: localhost:{port}\n")), "{text}");
}

// The app names the host that it was told is its own, and no browser takes a cookie for that.
#[tokio::test]
async fn cookie_for_localhost_is_for_the_apps_real_host_in_localhost_mode() {
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 200 OK\r\nset-cookie: a=1; Domain=localhost; Path=/x; HttpOnly\r\nset-cookie: b=2\r\ncontent-length: 0\r\n\r\n".into(),
        )
    })
    .await;
    let world = World::exposing(vec![localhost(app.port)]).await;
    let answer = world.ask(app.port, "GET /", "").await;
    let cookies: Vec<_> =
        answer.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value).collect();
    assert_eq!(cookies, ["a=1; Path=/x; HttpOnly", "b=2"]);
}

// Trap 35.
#[tokio::test]
async fn redirect_to_localhost_is_mapped_back_and_others_are_not() {
    let world = World::start().await;
    let app = app(|_, _, request| {
        let location = request.header("x-location").unwrap();
        Reply::Keep(format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"))
    })
    .await;
    let (authority, port) = (world.authority(app.port), app.port);
    let own = format!("http://{authority}/a?b#c");
    for (location, expected) in [
        (format!("http://localhost:{port}/a?b#c"), own.clone()),
        (format!("http://127.0.0.1:{port}/a?b#c"), own.clone()),
        ("http://localhost:1/a".into(), "http://localhost:1/a".into()),
        ("/relative".into(), "/relative".into()),
        ("https://elsewhere.example/".into(), "https://elsewhere.example/".into()),
    ] {
        let answer = world.ask(port, "GET /", &format!("x-location: {location}\r\n")).await;
        assert_eq!(answer.header("location"), Some(expected.as_str()));
    }
}

#[tokio::test]
async fn http2_authority_becomes_the_one_host_field() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let authority = world.authority(app.port);
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "GET", "/");
    request.headers_mut().insert("host", authority.parse().unwrap());
    let text = http2.ask(request).await.text();
    assert_eq!(text.matches("\nhost: ").count(), 1, "{text}");
    assert!(text.contains(&format!("\nhost: {authority}\n")), "{text}");
    // Trap 4: if both are there they agree.
    let mut request = world.http2_request(app.port, "GET", "/");
    request.headers_mut().insert("host", "1-two.localhost".parse().unwrap());
    assert_eq!(http2.ask(request).await.status, 400);
}

/// An app that refuses every host but its own machine's, as dev servers do, and answers with the host that it saw.
async fn insisting(words: &'static str) -> super::support::App {
    app(move |_, _, request| {
        let host = request.header("host").unwrap().to_owned();
        let (status, body) = match host.starts_with("localhost:") {
            true => ("200 OK", host),
            false => ("403 Forbidden", words.to_owned()),
        };
        Reply::Keep(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    })
    .await
}

#[tokio::test]
async fn app_that_insists_on_its_host_works_from_its_owners_first_request_on() {
    let world = World::start().await;
    let app = insisting("Invalid Host header").await;
    let other = RawApp::mirror().await;
    let first = world.ask(app.port, "GET /", "").await;
    assert_eq!((first.status(), first.text()), (200, format!("localhost:{}", app.port)));
    assert_eq!(app.seen.requests().len(), 2, "asked once more");
    assert_eq!(world.ask(app.port, "POST /", "").await.status(), 200);
    assert_eq!(app.seen.requests().len(), 3, "it is remembered");
    let text = world.ask(other.port, "GET /", "").await.text();
    assert!(text.contains(&format!("\nhost: {}\n", world.authority(other.port))), "no other port: {text}");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn refusal_that_is_no_dev_servers_is_passed_on_whole() {
    let world = World::start().await;
    let app = insisting("You may not see this.").await;
    for _ in 0..2 {
        let answer = world.ask(app.port, "GET /", "").await;
        assert_eq!((answer.status(), answer.text().as_str()), (403, "You may not see this."));
    }
    assert_eq!(app.seen.requests().len(), 2, "each was asked once");
    let large = "x".repeat(100_000);
    let body = large.clone();
    let refusing = super::support::app(move |_, _, _| {
        Reply::Keep(format!("HTTP/1.1 400 Bad\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    })
    .await;
    let answer = world.ask(refusing.port, "GET /", "").await;
    assert_eq!((answer.status(), answer.text() == large), (400, true));
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn app_that_takes_no_host_is_asked_once_more_and_never_again() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        let body = "Invalid Host header";
        Reply::Keep(format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    })
    .await;
    for _ in 0..3 {
        assert_eq!(world.ask(app.port, "GET /", "").await.text(), "Invalid Host header");
    }
    assert_eq!(app.seen.requests().len(), 4);
}

#[tokio::test]
async fn owner_alone_decides_which_host_an_app_sees() {
    let world = World::start().await;
    let app = insisting("Invalid Host header").await;
    world.gateway.publish("one", app.port).await;
    let mut client = world.client().await;
    client.send(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", world.authority(app.port))).await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (403, "Invalid Host header"));
    assert!(app.seen.requests().iter().all(|request| !request.header("host").unwrap().starts_with("localhost")));
}

#[tokio::test]
async fn host_that_a_person_said_stays() {
    let app = insisting("Invalid Host header").await;
    let original = Port { number: app.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![original]).await;
    assert_eq!(world.ask(app.port, "GET /", "").await.status(), 403);
    assert_eq!(app.seen.requests().len(), 1);
}
