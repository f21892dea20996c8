//! Host, Origin, Referer and Location: as they are by default, as `localhost` where a port is set to it.

use e2e::raw::RawApp;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::support::{Reply, World, app};

fn localhost(number: u16) -> Port {
    Port { number, protocol: AppProtocol::Http1, host: HostMode::Localhost }
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
