//! WebSocket over HTTP/2 (RFC 8441), bridged to an HTTP/1.1 upgrade at the app (trap 11, rows 31 and 32).

use bytes::Bytes;
use e2e::raw::{Raw, RawApp};
use http::Request;

use super::support::{Http2, World, app, app_saying, ok, some, soon, whole, within_a_second};

pub(crate) fn connect(world: &World, port: u16, protocol: &'static str) -> Request<()> {
    let mut request = world.http2_request(port, "CONNECT", "/chat?x=1");
    request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    request.headers_mut().insert("sec-websocket-protocol", "a, b".parse().unwrap());
    request.extensions_mut().insert(h2::ext::Protocol::from(protocol));
    request
}

pub(crate) async fn user(world: &World) -> Http2 {
    let http2 = world.http2().await;
    http2.until_extended_connect().await;
    http2
}

/// Answers the handshake as a server would, with the value for the key it was given.
pub(crate) async fn accept(raw: &mut Raw, more: &str) {
    let head = raw.head().await.unwrap();
    assert_eq!(head.start, "GET /chat?x=1 HTTP/1.1", "{head:?}");
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "a, b"),
    ] {
        assert_eq!(head.header(name), Some(value), "{head:?}");
    }
    assert!(head.header("host").is_some() && head.header("content-length").is_none(), "{head:?}");
    let key = head.header("sec-websocket-key").expect("a key");
    let value = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
    raw.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {value}\r\n\
         sec-websocket-protocol: b\r\n\r\n{more}"
    ))
    .await;
}

#[tokio::test]
async fn websocket_over_http2_is_bridged_both_ways() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        accept(&mut raw, "greeting").await;
        loop {
            let said = raw.some().await;
            if said.is_empty() || raw.try_send(said).await.is_err() {
                return;
            }
        }
    })
    .await;
    let mut http2 = user(&world).await;
    let (response, mut send) = http2.start(connect(&world, app.port, "websocket"));
    let response = soon(response).await.unwrap();
    assert_eq!(response.status(), 200);
    for name in ["sec-websocket-accept", "sec-websocket-key", "upgrade", "connection", "content-length"] {
        assert!(!response.headers().contains_key(name), "{name}: {response:?}");
    }
    assert_eq!(response.headers()["sec-websocket-protocol"], "b");
    let mut body = response.into_body();
    assert_eq!(soon(some(&mut body)).await.unwrap(), "greeting");
    for number in 0..20 {
        let text = format!("ping {number}");
        send.send_data(text.clone().into(), false).unwrap();
        assert_eq!(soon(some(&mut body)).await.unwrap(), text);
    }
    // The user's end is the app's end, and the other way round.
    send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(some(&mut body).await.unwrap_or_default(), "");
    world.gateway.assert_empty().await;
}

// Row 32: what the app refuses is refused, with its own status and words.
#[tokio::test]
async fn refusal_of_the_app_arrives_as_it_is() {
    let world = World::start().await;
    let app =
        app(|_, _, _| super::support::Reply::Keep("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".into()))
            .await;
    let mut http2 = user(&world).await;
    let (response, _send) = http2.start(connect(&world, app.port, "websocket"));
    let answer = whole(response).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (403, "no"));
    world.gateway.assert_quiet().await;
}

// Row 32: over HTTP/2 a 200 means "switched", so the page of an app that ignored the upgrade must not look like one.
#[tokio::test]
async fn page_of_an_app_that_ignores_the_upgrade_is_not_taken_for_a_websocket() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("a page")).await;
    let mut http2 = user(&world).await;
    let (response, _send) = http2.start(connect(&world, app.port, "websocket"));
    let answer = whole(response).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.headers["gateway-error"], "port_closed");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn switch_with_a_wrong_accept_value_is_a_failure_over_http2() {
    let world = World::start().await;
    let app = app_saying(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: AAAA\r\n\r\n",
    )
    .await;
    let mut http2 = user(&world).await;
    let (response, _send) = http2.start(connect(&world, app.port, "websocket"));
    assert_eq!(whole(response).await.status, 502);
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn other_protocols_of_extended_connect_reach_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let mut http2 = user(&world).await;
    let (response, _send) = http2.start(connect(&world, app.port, "connect-udp"));
    assert_eq!(whole(response).await.status, 400);
    assert_eq!(app.seen.connections(), 0);
}

// RFC 8441, section 5, and RFC 6455, section 4.2.1: refused as over HTTP/1.1.
#[tokio::test]
async fn other_versions_of_websocket_reach_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let mut http2 = user(&world).await;
    for version in [Some("12"), None, Some("13, 12")] {
        let mut request = connect(&world, app.port, "websocket");
        request.headers_mut().remove("sec-websocket-version");
        if let Some(version) = version {
            request.headers_mut().insert("sec-websocket-version", version.parse().unwrap());
        }
        let (response, _send) = http2.start(request);
        let answer = whole(response).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["gateway-error"]), (400, &"bad_request".parse().unwrap()));
        assert!(answer.text().contains("websocket_version"), "{answer:?}");
    }
    assert_eq!(app.seen.connections(), 0);
}

// Row 26.
#[tokio::test]
async fn app_hears_of_a_reset_websocket_stream() {
    let world = World::start().await;
    let (gone, mut heard) = tokio::sync::mpsc::channel(1);
    let app = RawApp::start(move |mut raw| {
        let gone = gone.clone();
        async move {
            accept(&mut raw, "").await;
            raw.read_rest().await;
            gone.send(()).await.unwrap();
        }
    })
    .await;
    let mut http2 = user(&world).await;
    let (response, mut send) = http2.start(connect(&world, app.port, "websocket"));
    let response = soon(response).await.unwrap();
    send.send_reset(h2::Reason::CANCEL);
    drop(response);
    within_a_second(heard.recv()).await.unwrap();
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn large_messages_pass_over_an_http2_stream() {
    const LENGTH: usize = 8 * 1024 * 1024;
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        accept(&mut raw, "").await;
        let said = raw.exactly(LENGTH).await;
        raw.send(said).await;
        raw.read_rest().await;
    })
    .await;
    let mut http2 = user(&world).await;
    let (response, mut send) = http2.start(connect(&world, app.port, "websocket"));
    let mut body = soon(response).await.unwrap().into_body();
    send.send_data(vec![9; LENGTH].into(), false).unwrap();
    let mut read = 0;
    while read < LENGTH {
        read += some(&mut body).await.expect("more").len();
    }
    assert_eq!(read, LENGTH);
}

// Row 31: HTTP/2 connections carry enough streams, and WebSockets on them do not hold up requests.
#[tokio::test]
async fn many_websockets_and_requests_share_one_connection() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        accept(&mut raw, "").await;
        raw.read_rest().await;
    })
    .await;
    let pages = super::support::app(|_, _, _| ok("page")).await;
    let mut http2 = user(&world).await;
    let mut open = Vec::new();
    for _ in 0..100 {
        let (response, send) = http2.start(connect(&world, app.port, "websocket"));
        open.push((soon(response).await.unwrap(), send));
    }
    let answer = soon(http2.ask(world.http2_request(pages.port, "GET", "/"))).await;
    assert_eq!(answer.text(), "page");
    drop((http2, open));
    world.gateway.assert_quiet().await;
}

// Row 31: where they do harm all the same, they can be switched off. Browsers then open a connection for each.
#[tokio::test]
async fn websockets_over_http2_can_be_switched_off() {
    let world = World::configured(|config| config.listen.websocket_http2 = false, Vec::new()).await;
    let pages = app(|_, _, _| ok("page")).await;
    let mut http2 = world.http2().await;
    // With the answer, the gateway's settings have come too.
    let answer = http2.ask(world.http2_request(pages.port, "GET", "/")).await;
    assert_eq!(answer.text(), "page");
    assert!(!http2.announces_extended_connect());
    for path in ["/chat", tunnel_link::raw::PATH] {
        let mut request = world.http2_request(pages.port, "CONNECT", path);
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let (response, _send) = http2.start(request);
        let refused = soon(response).await.expect_err("a reset");
        assert_eq!(refused.reason(), Some(h2::Reason::PROTOCOL_ERROR), "{path}: {refused}");
    }
    // One stream is refused, and not the connection.
    assert_eq!(http2.ask(world.http2_request(pages.port, "GET", "/")).await.text(), "page");
    assert_eq!(pages.seen.connections(), 1, "nothing but pages was asked for");
    let mut client = world.client().await;
    let echo = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(super::upgrade::ACCEPTED).await;
    })
    .await;
    client.send(world.head(echo.port, "GET /", super::upgrade::HANDSHAKE)).await;
    assert_eq!(client.head().await.unwrap().status(), 101, "WebSockets over HTTP/1.1 are as before");
}
