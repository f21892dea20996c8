//! Connections that are no HTTP, too much of it, too many, or stuck in their handshake.

use std::sync::Arc;
use std::time::Duration;

use e2e::raw::Raw;
use e2e::{PATIENCE, TestGateway};
use gateway_config::TlsFiles;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Stage, problem};

#[tokio::test]
async fn garbage_is_answered_by_name_or_cut() {
    let stage = Stage::new(|config| config.timeouts.request_header = Duration::from_secs(3)).await;
    // The beginning of a TLS hello, of SSH, of SMTP, and noise.
    let mut noise = vec![0x9e_u8; 70_000];
    noise.iter_mut().enumerate().for_each(|(index, byte)| *byte = byte.wrapping_mul(index as u8 | 1));
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 501]].concat();
    for garbage in
        [hello, b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), b"EHLO example\r\n".to_vec(), noise, vec![0; 9000], b"\r".to_vec()]
    {
        let told = format!("{:?}", &garbage[..garbage.len().min(20)]);
        let mut raw = stage.connect().await;
        raw.try_send(&garbage).await.ok();
        if let Some(answer) = raw.message().await {
            let code = answer.header("gateway-error").expect(&told);
            assert!(
                matches!((answer.status(), code), (400 | 414, "bad_request") | (431, "header_too_large")),
                "{told}: {answer:?}"
            );
        }
        assert!(raw.read_rest().await.is_empty(), "{told}");
        stage.assert_serves().await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn request_lines_and_fields_without_end_are_refused_by_name() {
    let stage = Stage::new(|_| {}).await;
    let endless = "a".repeat(64 * 1024);
    let fields = stage.fields();
    for (first, status, code) in [
        ("GET /".to_owned(), 414, "bad_request"),
        (format!("GET / HTTP/1.1\r\n{fields}x: "), 431, "header_too_large"),
        ("G".to_owned(), 414, "bad_request"),
    ] {
        let mut raw = stage.connect().await;
        raw.send(&first).await;
        // Until it is refused; the refusal is not lost, although more comes than anybody reads.
        for _ in 0..8 {
            if raw.try_send(&endless).await.is_err() {
                break;
            }
        }
        let answer = raw.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (status, Some(code)), "{first:?}");
    }
    let many = format!("GET / HTTP/1.1\r\n{fields}{}\r\n", "a: b\r\n".repeat(10_000));
    let mut raw = stage.connect().await;
    raw.try_send(&many).await.ok();
    let answer = raw.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (431, Some("header_too_large")));
    assert_eq!(problem(&answer)["code"], "header_too_large");
    stage.assert_serves().await;
    stage.finish().await;
}

#[tokio::test]
async fn connections_above_the_limit_wait_and_are_then_served() {
    let stage = Stage::new(|config| config.limits.connections = 2).await;
    let mut holders = [stage.connect().await, stage.connect().await];
    // Users' connections: not idle for long enough to make room.
    for holder in &mut holders {
        holder.send(stage.get("/held")).await;
        assert_eq!(holder.message().await.expect("an answer").status(), 200);
    }
    for holder in holders {
        // Both places are taken, one by one they are given back.
        let mut first = stage.connect().await;
        let mut second = stage.connect().await;
        first.send(stage.get("/waits")).await;
        second.send(stage.get("/waits")).await;
        let waited = tokio::time::timeout(Duration::from_millis(200), second.socket().readable()).await;
        assert!(waited.is_err(), "served above the limit");
        drop(holder);
        assert_eq!(first.message().await.expect("an answer").status(), 200);
        drop(first);
        assert_eq!(second.message().await.expect("an answer").status(), 200);
        drop(second);
    }
    stage.finish().await;
}

/// A gateway that speaks TLS, and a connector that trusts it.
async fn tls_gateway(
    name: &str,
    handshakes: usize,
    timeout: Duration,
) -> (TestGateway, TlsConnector, std::path::PathBuf) {
    let folder = std::env::temp_dir().join(format!("gateway-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files =
        TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem"), certs_dir: None, client_ca: None };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let gateway = TestGateway::start_with(|config| {
        config.tls.public = Some(files);
        config.limits.handshakes = handshakes;
        config.timeouts.tls_handshake = timeout;
    })
    .await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (gateway, TlsConnector::from(Arc::new(config)), folder)
}

async fn tls_status(gateway: &TestGateway, connector: &TlsConnector) -> std::io::Result<String> {
    let stream = TcpStream::connect(gateway.addresses.public).await?;
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn stalled_handshakes_are_cut_and_stop_nobody() {
    let timeout = Duration::from_secs(3);
    let (gateway, connector, folder) = tls_gateway("stalled", 2, timeout).await;
    // Twice as many as may shake hands at once: silent ones, and ones that stop within their hello.
    let mut stalled = Vec::new();
    for first in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        for _ in 0..4 {
            let mut raw = Raw::connect(gateway.addresses.public).await;
            raw.send(first).await;
            stalled.push(raw);
        }
        let asked = tokio::time::timeout(PATIENCE, tls_status(&gateway, &connector)).await;
        let line = asked.expect("others are kept waiting").expect("others are cut");
        assert!(line.starts_with("HTTP/1.1 "), "{line}");
    }
    for mut raw in stalled {
        // A TLS alert may come first.
        tokio::time::timeout(PATIENCE, raw.read_rest()).await.expect("cut");
    }
    gateway.stop().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// What a client of TLS says first.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut client =
        rustls::ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn address_that_stops_within_its_handshakes_leaves_turns_to_others() {
    let limit = PATIENCE / 2;
    let (gateway, connector, folder) = tls_gateway("address", 66, limit).await;
    let hello = client_hello();
    let mut stalled = Vec::new();
    // All but two of the turns that there are; one address may have no more.
    for _ in 0..64 {
        let mut raw = Raw::connect_from([127, 0, 0, 2], gateway.addresses.public).await;
        raw.send(&hello).await;
        // It has been answered, and so has its turn.
        raw.exactly(5).await;
        stalled.push(raw);
    }
    for _ in 0..8 {
        let mut refused = Raw::connect_from([127, 0, 0, 2], gateway.addresses.public).await;
        refused.try_send(&hello).await.ok();
        let rest = tokio::time::timeout(limit / 2, refused.read_rest()).await.expect("cut at once");
        assert!(rest.is_empty(), "{rest:?}");
    }
    assert_eq!(gateway.reached("limits.handshakes_per_address").await, 8.0);
    let line = tokio::time::timeout(limit / 2, tls_status(&gateway, &connector)).await.expect("others wait");
    assert!(line.unwrap().starts_with("HTTP/1.1 "));
    drop(stalled);
    gateway.stop().await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_told_so_and_reaches_nothing() {
    let (gateway, connector, folder) = tls_gateway("plain", 8, Duration::from_secs(5)).await;
    let mut raw = Raw::connect(gateway.addresses.public).await;
    raw.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let rest = raw.read_rest().await;
    let said = String::from_utf8_lossy(&rest);
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("gateway-error: tls_required\r\n"), "{said}");
    assert!(tls_status(&gateway, &connector).await.unwrap().starts_with("HTTP/1.1 "));
    gateway.stop().await;
    std::fs::remove_dir_all(folder).unwrap();
}
