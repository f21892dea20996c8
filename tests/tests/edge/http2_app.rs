//! Ports that speak HTTP/2 (traps 14 and 15): gRPC apps, over one shared connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use e2e::raw::RawApp;
use http::{HeaderMap, Response};
use tokio::task::JoinSet;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::support::{World, some, soon, whole};

/// An HTTP/2 app that echoes bodies frame by frame, tells what it saw in `x-…` fields, and ends with gRPC's trailers.
pub(super) struct GrpcApp {
    pub(super) app: RawApp,
    pub(super) connections: Arc<AtomicUsize>,
}

impl GrpcApp {
    /// Starts one that closes its connection after so many requests.
    pub(super) async fn start(requests_max: usize) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let app = RawApp::start(move |mut raw| {
            let connection_number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut connection = h2::server::handshake(raw.socket()).await.expect("a handshake");
                let mut streams = JoinSet::new();
                let mut served = 0;
                while let Some(Ok((request, respond))) = connection.accept().await {
                    streams.spawn(echo(connection_number, request, respond));
                    served += 1;
                    if served == requests_max {
                        connection.graceful_shutdown();
                    }
                }
                streams.join_all().await;
            }
        })
        .await;
        Self { app, connections }
    }

    pub(super) async fn world(&self) -> World {
        let port = Port { number: self.app.port, protocol: AppProtocol::Http2, host: HostMode::Original, tls: false };
        World::exposing(vec![port]).await
    }
}

async fn echo(connection: usize, request: http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let (head, mut body) = request.into_parts();
    let field = |name: &str| head.headers.get(name).map_or("none", |value| value.to_str().unwrap()).to_owned();
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("x-app-connection", connection)
        .header("x-te", field("te"))
        .header("x-host", field("host"))
        .header("x-connection", field("connection"))
        .header("x-forwarded", field("x-forwarded-for"))
        .header("x-cookies", head.headers.get_all("cookie").iter().count())
        .header("x-secret", field("gateway-authorization"))
        .header("x-uri", head.uri.to_string());
    let mut send = respond.send_response(response.body(()).unwrap(), false).unwrap();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        send.send_data(data, false).unwrap();
    }
    let mut trailers = HeaderMap::new();
    if let Ok(Some(sent)) = body.trailers().await {
        trailers.extend(sent);
    }
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers.insert("content-length", "1".parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

#[tokio::test]
async fn grpc_call_passes_with_trailers_both_ways() {
    let app = GrpcApp::start(usize::MAX).await;
    let world = app.world().await;
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.app.port, "POST", "/pkg.Service/Call?x");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request.headers_mut().append("cookie", "a=b".parse().unwrap());
    request.headers_mut().append("cookie", "c=d".parse().unwrap());
    let (response, mut send) = http2.start(request);
    // Full duplex: the answer begins, and each message comes back, before the call ends.
    let response = soon(response).await.unwrap();
    let authority = world.authority(app.app.port);
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("x-te", "trailers"),
        ("x-host", "none"),
        ("x-connection", "none"),
        ("x-forwarded", "127.0.0.1"),
        ("x-cookies", "2"),
        ("x-secret", "none"),
        ("x-uri", &format!("http://{authority}/pkg.Service/Call?x")),
    ] {
        assert_eq!(response.headers()[name], value, "{name}");
    }
    let mut body = response.into_body();
    for number in 0..5 {
        let text = format!("message {number}");
        send.send_data(text.clone().into(), false).unwrap();
        assert_eq!(soon(some(&mut body)).await.unwrap(), text);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers.insert("authorization", "evil".parse().unwrap());
    send.send_trailers(trailers).unwrap();
    assert!(soon(body.data()).await.is_none());
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    assert_eq!((trailers["grpc-status"].as_bytes(), trailers["x-sum"].as_bytes()), (&b"0"[..], &b"7"[..]));
    assert_eq!(trailers.len(), 2, "{trailers:?}");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn http1_user_reaches_an_http2_app() {
    let app = GrpcApp::start(usize::MAX).await;
    let world = app.world().await;
    let mut client = world.client().await;
    for (fields, body) in
        [("content-length: 5\r\n", "hello"), ("transfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n")]
    {
        client.send(world.head(app.app.port, "POST /x?y", fields) + body).await;
        let answer = client.message().await.unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{answer:?}");
        assert_eq!(answer.header("x-uri"), Some(format!("http://{}/x?y", world.authority(app.app.port)).as_str()));
    }
    let fields = "connection: keep-alive, x-private\r\nkeep-alive: 5\r\nx-private: 1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n";
    client.send(world.head(app.app.port, "PUT /", fields) + "hi").await;
    let mut answer = client.message().await.unwrap();
    if answer.status() == 100 {
        answer = client.message().await.unwrap();
    }
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hi"), "{answer:?}");
    assert_eq!(app.connections.load(Ordering::SeqCst), 1);
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let app = GrpcApp::start(usize::MAX).await;
    let world = app.world().await;
    let mut http2 = world.http2().await;
    http2.ask(world.http2_request(app.app.port, "GET", "/")).await;
    let calls: Vec<_> = (0..20).map(|_| http2.start(world.http2_request(app.app.port, "POST", "/"))).collect();
    for (response, mut send) in calls {
        send.send_data("x".into(), true).unwrap();
        assert_eq!(whole(response).await.text(), "x");
    }
    assert_eq!(app.connections.load(Ordering::SeqCst), 1);
}

// Row 28, trap 21: an app that says it goes away is left, and no call fails.
#[tokio::test]
async fn calls_move_to_a_new_connection_when_the_app_goes_away() {
    let app = GrpcApp::start(2).await;
    let world = app.world().await;
    let mut http2 = world.http2().await;
    for number in 0..10 {
        let (response, mut send) = http2.start(world.http2_request(app.app.port, "POST", "/"));
        let text = format!("call {number}");
        send.send_data(text.clone().into(), true).unwrap();
        let answer = whole(response).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, text));
    }
    assert_eq!(app.connections.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn connection_without_calls_is_closed_after_its_time() {
    let app = GrpcApp::start(usize::MAX).await;
    let port = Port { number: app.app.port, protocol: AppProtocol::Http2, host: HostMode::Original, tls: false };
    let change = |config: &mut gateway_config::Config| {
        config.timeouts.upstream_idle = std::time::Duration::from_secs(1);
    };
    let world = World::configured(change, vec![port]).await;
    let mut http2 = world.http2().await;
    let (response, mut send) = http2.start(world.http2_request(app.app.port, "POST", "/"));
    let mut body = soon(response).await.unwrap().into_body();
    // A call that goes on for longer than that is not cut.
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    send.send_data("late".into(), true).unwrap();
    assert_eq!(some(&mut body).await.unwrap(), "late");
    while soon(body.data()).await.is_some() {}
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn localhost_mode_sets_the_authority() {
    let app = GrpcApp::start(usize::MAX).await;
    let port = Port { number: app.app.port, protocol: AppProtocol::Http2, host: HostMode::Localhost, tls: false };
    let world = World::exposing(vec![port]).await;
    let answer = world.http2().await.ask(world.http2_request(app.app.port, "GET", "/a")).await;
    assert_eq!(answer.headers["x-uri"], format!("http://localhost:{}/a", app.app.port));
}

#[tokio::test]
async fn closed_port_and_http1_app_behind_an_http2_port_are_named() {
    let old = super::support::app_saying("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let h2 = |number| Port { number, protocol: AppProtocol::Http2, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![h2(old.port), h2(1)]).await;
    for port in [old.port, 1] {
        let answer = world.ask(port, "GET /", "").await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("port_closed")), "{answer:?}");
        assert_eq!(answer.text().contains("app_answer_invalid"), port == old.port, "{}", answer.text());
    }
    world.gateway.assert_quiet().await;
}
