//! TLS in front: ALPN, the certificate's host, and what an app is told of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use e2e::TestGateway;
use e2e::raw::RawApp;
use gateway_config::Config;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::{Http2, soon};

/// A gateway behind a certificate for its public host and some of its zone. (No client takes a wildcard for a zone of one
/// label.)
struct Secured {
    gateway: TestGateway,
    certificate: CertificateDer<'static>,
    folder: PathBuf,
}

impl Drop for Secured {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Secured {
    async fn start(name: &str, hosts: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("gateway-edge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names: Vec<_> = hosts.iter().copied().chain(["localhost"]).map(str::to_owned).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let variables = BTreeMap::from([
            ("GATEWAY_TLS__PUBLIC__CERT".to_owned(), cert.display().to_string()),
            ("GATEWAY_TLS__PUBLIC__KEY".to_owned(), key.display().to_string()),
        ]);
        let loaded = Config::load(None, &variables).expect("a configuration");
        let gateway = TestGateway::start_with(|config| {
            config.tls = loaded.tls;
            config.public_url = loaded.public_url.with_port(0);
        })
        .await;
        Self { gateway, certificate: made.cert.der().clone(), folder }
    }

    async fn connect(&self, server_name: &str, alpn: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.gateway.addresses.public).await.unwrap();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.expect("a handshake")
    }

    fn request(&self, port: u16, workspace: &str) -> http::Request<()> {
        http::Request::builder()
            .uri(format!("https://{}/", self.gateway.authority(workspace, port)))
            .header("gateway-authorization", format!("Bearer {}", self.gateway.user_token))
            .body(())
            .unwrap()
    }
}

#[tokio::test]
async fn alpn_chooses_the_version_and_the_app_is_told_https() {
    let app = RawApp::mirror().await;
    let name = format!("{}-one.localhost", app.port);
    let secured = Secured::start("alpn", &[&name]).await;
    let _agent = secured.gateway.agent("one").await;
    let stream = secured.connect(&name, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = Http2::over(stream).await;
    let text = http2.ask(secured.request(app.port, "one")).await.text();
    assert!(text.contains("\nx-forwarded-proto: https\n"), "{text}");
    let mut stream = secured.connect(&name, &["http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (authority, token) = (secured.gateway.authority("one", app.port), &secured.gateway.user_token);
    let head = format!(
        "GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nx-forwarded-proto: https\n"), "{answer}");
    secured.gateway.assert_quiet().await;
}

// RFC 7301, section 3.2; RFC 9113, section 3.2: what the handshake chose is spoken, and nothing else.
#[tokio::test]
async fn connection_speaks_the_protocol_that_its_handshake_chose() {
    let app = RawApp::mirror().await;
    let name = format!("{}-one.localhost", app.port);
    let secured = Secured::start("held", &[&name]).await;
    let _agent = secured.gateway.agent("one").await;
    let (authority, token) = (secured.gateway.authority("one", app.port), &secured.gateway.user_token);
    let head = format!("GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n");
    let mut stream = secured.connect(&name, &["h2"]).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.ok();
    assert!(!answer.starts_with(b"HTTP/1.1"), "{}", String::from_utf8_lossy(&answer));
    let goaway = answer.windows(5).any(|window| window == [7, 0, 0, 0, 0]);
    assert!(goaway, "{answer:?}");
    let mut stream = secured.connect(&name, &["http/1.1"]).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.ok();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("gateway-error: bad_request"), "{text}");
    // Clients that offer nothing are served by what they say.
    let mut http2 = Http2::over(secured.connect(&name, &[]).await).await;
    assert_eq!(http2.ask(secured.request(app.port, "one")).await.status, 200);
    let mut stream = secured.connect(&name, &[]).await;
    stream.write_all(head.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1).as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    secured.gateway.assert_quiet().await;
}

// Trap 4: the certificate and its policy were chosen for another host (RFC 9110, section 7.4).
#[tokio::test]
async fn request_for_another_host_than_the_handshakes_is_misdirected() {
    let secured = Secured::start("sni", &["1-two.localhost"]).await;
    let _agent = secured.gateway.agent("one").await;
    let app = RawApp::mirror().await;
    for name in ["localhost".to_owned(), "1-two.localhost".to_owned()] {
        let mut http2 = Http2::over(secured.connect(&name, &["h2"]).await).await;
        let answer = http2.ask(secured.request(app.port, "one")).await;
        assert_eq!(answer.status, 421, "{name}: {answer:?}");
        assert_eq!(answer.headers["gateway-error"], "misdirected");
    }
}

// Row 1: over TLS the cookies are bound to one host.
#[tokio::test]
async fn cookies_over_tls_are_secure_and_bound_to_one_host() {
    let secured = Secured::start("cookies", &["8080-one.localhost"]).await;
    let _agent = secured.gateway.agent("one").await;
    let mut http2 = Http2::over(secured.connect("8080-one.localhost", &["h2"]).await).await;
    let mut request = secured.request(8080, "one");
    request.headers_mut().remove("gateway-authorization");
    request.headers_mut().insert("accept", "text/html".parse().unwrap());
    let answer = http2.ask(request).await;
    assert_eq!(answer.status, 302, "{answer:?}");
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-gateway_pre=") && cookie.contains("; Secure"), "{cookie}");
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; Path=/") && !cookie.contains("Domain"), "{cookie}");
    assert!(answer.headers["location"].to_str().unwrap().starts_with("https://localhost:"), "{answer:?}");
}

// A user who speaks plain HTTP to a TLS port, or hangs up, does not disturb the next one.
#[tokio::test]
async fn broken_handshakes_disturb_nobody() {
    let app = RawApp::mirror().await;
    let name = format!("{}-one.localhost", app.port);
    let secured = Secured::start("broken", &[&name]).await;
    let _agent = secured.gateway.agent("one").await;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1], &[]] {
        let mut stream = TcpStream::connect(secured.gateway.addresses.public).await.unwrap();
        stream.write_all(bytes).await.unwrap();
    }
    let mut http2 = Http2::over(secured.connect(&name, &["h2"]).await).await;
    assert_eq!(http2.ask(secured.request(app.port, "one")).await.status, 200);
}
