//! The agents' listener itself: what it says over HTTP/1.1, and what TLS settles.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::{TestAgent, TestGateway};
use gateway_config::Config;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use workspace_agent::{Gateway, Transport};

use crate::middle::http1;
use crate::proxies::assert_serves;

async fn answer(gateway: &TestGateway, request: &str) -> (u16, String) {
    let mut raw = Raw::connect(gateway.addresses.agents).await;
    raw.send(request.replace('\n', "\r\n")).await;
    let answer = raw.message().await.expect("an answer");
    assert!(raw.head().await.is_none(), "one request, and the end");
    (answer.status(), answer.text())
}

#[tokio::test]
async fn http1_that_is_no_link_is_refused_by_name() {
    let gateway = TestGateway::start().await;
    let upgrade = "host: x\nconnection: upgrade\nupgrade: websocket\nsec-websocket-version: 13\n";
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\nsec-websocket-protocol: tunnel.v1\n";
    let path = "/tunnel.v1.Tunnel/Connect";
    for (request, status, text) in [
        ("GET / HTTP/1.1\nhost: x\n\n".to_owned(), 404, "users and their commands go to http://"),
        (format!("GET /healthz HTTP/1.1\n{upgrade}{key}\n"), 404, "users and their commands go to http://"),
        (format!("GET {path} HTTP/1.1\nhost: x\n\n"), 426, "Upgrade header"),
        (format!("POST {path} HTTP/1.1\n{upgrade}{key}content-length: 0\n\n"), 426, "HTTP/2"),
        (format!("GET {path} HTTP/1.1\n{upgrade}\n"), 400, "Sec-WebSocket-Key"),
        (format!("GET {path} HTTP/1.0\nhost: x\n\n"), 426, "HTTP/2"),
        (format!("GET {path} HTTP/1.1\n{upgrade}{key}\n"), 401, ""),
        (format!("GET {path} HTTP/1.1\n{upgrade}{key}authorization: Bearer x\n\n"), 401, ""),
        ("nonsense\n\n".to_owned(), 400, ""),
    ] {
        let (told, said) = answer(&gateway, &request).await;
        assert_eq!((told, said.contains(text)), (status, true), "{request}: {told} {said}");
    }
}

#[tokio::test]
async fn connection_that_never_says_what_it_is_is_cut() {
    let gateway = TestGateway::start_with(|config| config.timeouts.agent_hello = Duration::from_millis(200)).await;
    for said in ["", "P", "GET / HTTP/1.1\r\n"] {
        let mut raw = Raw::connect(gateway.addresses.agents).await;
        raw.send(said).await;
        let gone = tokio::time::timeout(Duration::from_secs(5), raw.head()).await.expect("it is cut");
        assert!(gone.is_none_or(|answer| answer.status() == 408), "{said:?}");
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn connection_of_http2_without_a_hello_is_cut_when_the_time_for_one_is_over() {
    let time = Duration::from_secs(2);
    let gateway = TestGateway::start_with(|config| config.timeouts.agent_hello = time).await;
    let mut raw = Raw::connect(gateway.addresses.agents).await;
    let began = std::time::Instant::now();
    raw.send(PREFACE).await;
    raw.read_rest().await;
    let lived = began.elapsed();
    assert!(lived >= time, "{lived:?}");
    // Twice the time is what it had once. A machine that stands still makes it longer, and this test no wiser.
    assert!(lived < 2 * time, "{lived:?}");
}

#[tokio::test]
async fn flood_before_a_hello_is_told_to_be_calm_and_leaves_no_connection_behind() {
    let gateway = TestGateway::start().await;
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let priority = [&[0, 0, 5, 2, 0, 0, 0, 0, 1][..], &[0, 0, 0, 3, 7]].concat();
    for (told, frame) in [("pings", &ping[..]), ("settings", &settings), ("priorities", &priority)] {
        let mut raw = Raw::connect(gateway.addresses.agents).await;
        raw.send(PREFACE).await;
        // More than a Hello takes. The gateway may be through with it before all of it is written.
        raw.try_send(frame.repeat(128 * 1024 / frame.len())).await.ok();
        let said = raw.read_rest().await;
        let goaway = said.windows(17).any(|frame| frame[3] == 7 && frame[13..] == [0, 0, 0, 11]);
        assert!(goaway, "{told}: {} bytes and no GOAWAY", said.len());
    }
}

/// Certificates for `localhost` in a folder that goes with them.
struct Certificates {
    folder: PathBuf,
}

impl Drop for Certificates {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Certificates {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gateway-out-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    async fn gateway(&self) -> TestGateway {
        let variables = BTreeMap::from([
            ("GATEWAY_TLS__AGENTS__CERT".to_owned(), self.file("cert.pem").display().to_string()),
            ("GATEWAY_TLS__AGENTS__KEY".to_owned(), self.file("key.pem").display().to_string()),
        ]);
        let loaded = Config::load(None, &variables).expect("a configuration");
        TestGateway::start_with(|config| config.tls = loaded.tls).await
    }

    fn acceptor(&self, alpn: &[&str]) -> TlsAcceptor {
        let chain = CertificateDer::pem_file_iter(self.file("cert.pem")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(self.file("key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn each_transport_reaches_a_listener_with_tls() {
    let certificates = Certificates::new("tls");
    let (gateway, app) = (certificates.gateway().await, RawApp::mirror().await);
    let token = gateway.agent_token("one").await;
    for transport in [Transport::Auto, Transport::Http2, Transport::Websocket] {
        let url = format!("https://localhost:{}", gateway.addresses.agents.port());
        let found = Gateway::parse(&url, Some(&certificates.file("cert.pem"))).expect("an address");
        let agent = TestAgent::start(found, transport, &token, Vec::new());
        gateway.until_connected("one").await;
        assert_serves(&gateway, &app, "one").await;
        agent.stop().await;
        gateway.until_gone("one").await;
    }
}

/// TLS ends at a balancer that settles on one of these protocols, or on none, and speaks HTTP/1.1 whatever it was.
async fn check_balancer(name: &str, alpn: &'static [&'static str], connections: usize) {
    let certificates = Certificates::new(name);
    let (gateway, app) = (TestGateway::start().await, RawApp::mirror().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let (acceptor, agents) = (certificates.acceptor(alpn), gateway.addresses.agents);
    let (handshakes, led) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (shaken, leading) = (handshakes.clone(), led.clone());
    let mut balancer = JoinSet::new();
    balancer.spawn(async move {
        let mut serving = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("accepting on loopback");
            shaken.fetch_add(1, Ordering::Relaxed);
            let (acceptor, led) = (acceptor.clone(), leading.clone());
            serving.spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    http1(stream, agents, true, led).await;
                }
            });
        }
    });
    let found = Gateway::parse(&format!("https://localhost:{port}"), Some(&certificates.file("cert.pem")));
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(found.expect("an address"), Transport::Auto, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_serves(&gateway, &app, "one").await;
    assert_eq!((handshakes.load(Ordering::Relaxed), led.load(Ordering::Relaxed)), (connections, 1), "{alpn:?}");
    agent.stop().await;
}

#[tokio::test]
async fn what_a_balancers_handshake_settled_is_used_without_a_trial() {
    check_balancer("http1", &["http/1.1"], 1).await;
}

#[tokio::test]
async fn balancer_that_settles_nothing_or_promises_too_much_is_found_out() {
    check_balancer("none", &[], 2).await;
    check_balancer("wrong", &["h2", "http/1.1"], 2).await;
}

#[tokio::test]
async fn proxy_is_spoken_to_over_tls_when_its_url_says_so() {
    let certificates = Certificates::new("proxy");
    let (gateway, app) = (certificates.gateway().await, RawApp::mirror().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let (acceptor, agents) = (certificates.acceptor(&["http/1.1"]), gateway.addresses.agents);
    let mut proxy = JoinSet::new();
    proxy.spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut stream = acceptor.accept(stream).await.expect("a handshake");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        assert!(head.starts_with(b"CONNECT localhost:"), "{}", String::from_utf8_lossy(&head));
        let mut onward = TcpStream::connect(agents).await.expect("the gateway listens");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("written");
        tokio::io::copy_bidirectional(&mut stream, &mut onward).await.ok();
    });
    let authority = certificates.file("cert.pem");
    let url = format!("https://localhost:{}", gateway.addresses.agents.port());
    let environment = |name| (name == "https_proxy").then(|| format!("https://localhost:{port}"));
    let found = Gateway::parse(&url, Some(&authority)).expect("an address").behind(environment, Some(&authority));
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(found.expect("a usable proxy"), Transport::Http2, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_serves(&gateway, &app, "one").await;
    agent.stop().await;
}
