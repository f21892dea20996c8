//! Apps with a certificate of their own: the agent speaks TLS to them, and what goes wrong there is named.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use e2e::TestGateway;
use e2e::raw::{Raw, RawApp};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{accept_async, client_async};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};
use tunnel_proto::version::FEATURE_APP_TLS;
use workspace_agent::Transport;

use super::support::{World, soon, within_a_second};

/// Returns an acceptor with a self-signed certificate and these protocols inside.
fn acceptor(protocols: &[&str]) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn tls(number: u16, protocol: AppProtocol, host: HostMode) -> Port {
    Port { number, protocol, host, tls: true }
}

/// Answers with what it saw: method, target, host, origin, and the body.
async fn tell(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let field = |name: &str| request.headers().get(name).map_or("none", |value| value.to_str().unwrap()).to_owned();
    let head = format!("{} {} {} {}\n", request.method(), request.uri(), field("host"), field("origin"));
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let redirect = Response::builder().header("location", "https://localhost:1/elsewhere");
    Ok(redirect.body(Full::from([head.as_bytes(), &body].concat())).unwrap())
}

/// Starts an app that speaks HTTP/1.1 inside TLS, and counts no connection that fails.
pub(super) async fn https_app(protocols: &'static [&'static str]) -> RawApp {
    let acceptor = acceptor(protocols);
    RawApp::start(move |mut raw: Raw| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(raw.socket()).await else { return };
            let serving =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(tell));
            serving.await.ok();
        }
    })
    .await
}

#[tokio::test]
async fn app_with_its_own_certificate_gets_requests_with_and_without_bodies() {
    for protocols in [&["http/1.1", "h2"][..], &[]] {
        let app = https_app(protocols).await;
        let world = World::exposing(vec![tls(app.port, AppProtocol::Http1, HostMode::Original)]).await;
        let authority = world.authority(app.port);
        let answer = world.ask(app.port, "GET /a?b", "").await;
        assert_eq!((answer.status(), answer.text()), (200, format!("GET /a?b {authority} none\n")), "{protocols:?}");
        let body = "x".repeat(300_000);
        let mut client = world.client().await;
        let fields = format!("content-length: {}\r\norigin: http://{authority}\r\n", body.len());
        for _ in 0..2 {
            client.send(world.head(app.port, "POST /p", &fields)).await;
            client.send(&body).await;
            let answer = soon(client.message()).await.expect("an answer");
            assert_eq!(answer.text(), format!("POST /p {authority} http://{authority}\n{body}"));
        }
        drop(client);
        world.gateway.assert_quiet().await;
    }
}

#[tokio::test]
async fn app_that_insists_on_localhost_sees_its_own_scheme_too() {
    let app = https_app(&[]).await;
    let port = app.port;
    let world = World::exposing(vec![tls(port, AppProtocol::Http1, HostMode::Localhost)]).await;
    let fields = format!("origin: http://{}\r\n", world.authority(port));
    let answer = world.ask(port, "GET /", &fields).await;
    assert_eq!(answer.text(), format!("GET / localhost:{port} https://localhost:{port}\n"));
}

#[tokio::test]
async fn websocket_passes_to_an_app_that_speaks_wss() {
    let acceptor = acceptor(&["http/1.1"]);
    let app = RawApp::start(move |mut raw: Raw| {
        let acceptor = acceptor.clone();
        async move {
            let stream: TlsStream<&mut TcpStream> = acceptor.accept(raw.socket()).await.expect("TLS");
            let mut socket = accept_async(stream).await.expect("a handshake");
            while let Some(Ok(frame)) = socket.next().await {
                if frame.is_binary() && socket.send(frame).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    // An upgrade is one of HTTP/1.1 whatever the port is named with.
    for protocol in [AppProtocol::Http1, AppProtocol::Http2] {
        let world = World::exposing(vec![tls(app.port, protocol, HostMode::Original)]).await;
        let mut request = format!("ws://{}/", world.authority(app.port)).into_client_request().unwrap();
        let token = format!("Bearer {}", world.gateway.user_token);
        request.headers_mut().insert("gateway-authorization", token.parse().unwrap());
        let mut client = world.client().await;
        let (mut socket, _) = soon(client_async(request, client.socket())).await.unwrap();
        for size in [0, 126, 70_000, 1_000_000] {
            let frame = Frame::Binary(vec![5; size].into());
            socket.send(frame.clone()).await.unwrap();
            assert_eq!(soon(socket.next()).await.unwrap().unwrap(), frame, "{size}");
        }
        socket.close(None).await.unwrap();
        assert!(soon(socket.next()).await.unwrap().unwrap().is_close());
    }
}

#[tokio::test]
async fn app_that_speaks_http2_inside_tls_is_asked_for_it_by_alpn() {
    let acceptor = acceptor(&["h2", "http/1.1"]);
    let app = RawApp::start(move |mut raw: Raw| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(raw.socket()).await.expect("TLS");
            let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let seen =
                    format!("{} {}", String::from_utf8_lossy(&agreed.clone().unwrap_or_default()), request.uri());
                let mut send = respond.send_response(Response::new(()), false).unwrap();
                send.send_data(seen.into(), true).unwrap();
            }
        }
    })
    .await;
    let world = World::exposing(vec![tls(app.port, AppProtocol::Http2, HostMode::Localhost)]).await;
    let answer = world.ask(app.port, "GET /x", "").await;
    assert_eq!(answer.text(), format!("h2 https://localhost:{}/x", app.port));
}

#[tokio::test]
async fn raw_tcp_keeps_the_apps_own_tls() {
    let app = https_app(&[]).await;
    let world = World::exposing(vec![tls(app.port, AppProtocol::Http1, HostMode::Original)]).await;
    let session = world.gateway.registry.current(&"one".parse().unwrap()).expect("a session");
    let (mut channel, _accepted) = session.open(gateway_types::Port::new(app.port).unwrap()).expect("room");
    channel.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    channel.flush().await.unwrap();
    // An alert: the app itself was asked in the clear.
    let mut record = [0; 2];
    soon(channel.read_exact(&mut record)).await.unwrap();
    assert_eq!(record, [21, 3]);
}

#[track_caller]
fn check_named(answer: &e2e::raw::Message, detail: &str) {
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("port_closed")), "{answer:?}");
    assert!(answer.text().contains(detail), "{detail}: {answer:?}");
}

#[tokio::test]
async fn what_speaks_no_tls_or_speaks_it_unasked_is_named() {
    // As servers answer a request that begins with a ClientHello.
    let plain = RawApp::start(|mut raw: Raw| async move {
        raw.some().await;
        raw.send("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
    })
    .await;
    let secured = https_app(&[]).await;
    let only_http2 = {
        let acceptor = acceptor(&["h2"]);
        RawApp::start(move |mut raw: Raw| {
            let acceptor = acceptor.clone();
            async move { drop(acceptor.accept(raw.socket()).await) }
        })
        .await
    };
    let silent = RawApp::start(|mut raw: Raw| async move { drop(raw.read_rest().await) }).await;
    let world = World::exposing(vec![
        tls(plain.port, AppProtocol::Http1, HostMode::Original),
        tls(only_http2.port, AppProtocol::Http1, HostMode::Original),
        Port { number: secured.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false },
        tls(silent.port, AppProtocol::Http1, HostMode::Original),
    ])
    .await;
    check_named(&within_a_second(world.ask(plain.port, "GET /", "")).await, "app_speaks_no_tls");
    check_named(&within_a_second(world.ask(only_http2.port, "GET /", "")).await, "app_speaks_no_tls");
    check_named(&within_a_second(world.ask(secured.port, "GET /", "")).await, "app_speaks_tls");
    check_named(&soon(world.ask(silent.port, "GET /", "")).await, "app_speaks_no_tls");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn agent_that_knows_no_tls_to_apps_is_named_and_nothing_is_sent_in_the_clear() {
    let gateway = TestGateway::start().await;
    let app = RawApp::start(|mut raw: Raw| async move { panic!("it was sent {:?}", raw.read_rest().await) }).await;
    let token = gateway.agent_token("one").await;
    let exposed = vec![tls(app.port, AppProtocol::Http1, HostMode::Original)];
    let (address, transport) = (gateway.addresses.agents, Transport::default());
    let _agent = gateway.start_older_agent(address, transport, &token, exposed, &[FEATURE_APP_TLS]);
    gateway.until_connected("one").await;
    let mut client = Raw::connect(gateway.addresses.public).await;
    let (host, token) = (gateway.authority("one", app.port), &gateway.user_token);
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    check_named(&soon(client.message()).await.expect("an answer"), "agent_without_tls");
}
