use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// A server that answers every connection with the same bytes and shows what it was sent.
struct Server {
    at: Endpoint,
    tasks: JoinSet<Vec<String>>,
}

impl Server {
    async fn answering(answer: Vec<u8>, requests: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}/a", listener.local_addr().unwrap()).parse().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                seen.push(String::from_utf8_lossy(&head[..length]).into_owned());
                // A client that has read enough hangs up.
                drop(stream.write_all(&answer).await);
                drop(stream.shutdown().await);
            }
            seen
        });
        Self { at, tasks }
    }

    async fn seen(mut self) -> String {
        self.tasks.join_next().await.unwrap().unwrap().join("\n")
    }
}

fn fetch() -> Fetch {
    Fetch::new(&Trust::System).unwrap()
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn json_is_read_and_credentials_are_sent() {
    let server = Server::answering(ok("{\"a\":1}"), 3).await;
    let (fetch, secret) = (fetch(), Secret::new("hunter2".to_owned()));
    let answer = fetch.get(&server.at, Credentials::Bearer(&secret)).await.unwrap();
    assert_eq!(answer.json::<serde_json::Value>().unwrap()["a"], 1);
    let form = [("grant_type", "authorization_code"), ("code", "a b&c")];
    fetch.post_form(&server.at, &form, Credentials::Basic("me", &secret)).await.unwrap();
    fetch.post_json(&server.at, &serde_json::json!({"k": "v"}), Credentials::Nothing).await.unwrap();
    let seen = server.seen().await.to_ascii_lowercase();
    assert!(seen.contains("authorization: bearer hunter2\r\n"), "{seen}");
    assert!(seen.contains("authorization: basic bwu6ahvudgvymg==\r\n"), "{seen}");
    assert!(seen.contains("grant_type=authorization_code&code=a+b%26c") && seen.contains("{\"k\":\"v\"}"), "{seen}");
}

#[tokio::test]
async fn redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let head = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        elsewhere.local_addr().unwrap()
    );
    let server = Server::answering(head.into_bytes(), 1).await;
    let answer = fetch().get(&server.at, Credentials::Nothing).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FOUND);
    let status = FetchError::Status { server: server.at.origin(), status: 302 };
    assert_eq!(answer.json::<serde_json::Value>().unwrap_err(), status);
}

#[tokio::test]
async fn answer_without_end_is_given_up_at_the_bound_and_claimed_lengths_reserve_nothing() {
    let mut endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
    endless.resize(ANSWER_BYTES_MAX + 4096, b' ');
    let server = Server::answering(endless, 1).await;
    let error = fetch().get(&server.at, Credentials::Nothing).await.unwrap_err();
    assert_eq!(error, FetchError::TooLong { server: server.at.origin() });
}

#[tokio::test]
async fn what_failed_is_named_without_repeating_what_was_sent() {
    let server = Server::answering(ok("{\"token\": \"hunter2\"}"), 1).await;
    let at: Endpoint = format!("{}?secret=hunter2", server.at).parse().unwrap();
    let answer = fetch().get(&at, Credentials::Nothing).await.unwrap();
    let shape = answer.json::<Vec<u8>>().unwrap_err();
    assert!(matches!(shape, FetchError::Shape { line: 1, .. }), "{shape:?}");
    assert!(!format!("{shape} {shape:?} {answer:?}").contains("hunter2"));

    // It is held and does not listen, so nobody else has it, not even the connection that is tried.
    let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let closed = held.local_addr().unwrap().as_socket().unwrap();
    let at: Endpoint = format!("http://{closed}/?secret=hunter2").parse().unwrap();
    let error = fetch().get(&at, Credentials::Nothing).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("http://{closed} cannot be reached: ")), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn file_without_authorities_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, "no certificate").unwrap();
    for trust in
        [Trust::Only(path.clone()), Trust::SystemAnd(path.clone()), Trust::Only(folder.path().join("absent.pem"))]
    {
        assert!(Fetch::new(&trust).unwrap_err().to_string().contains(".pem"), "{trust:?}");
    }
}

/// Serves one answer over TLS with a made-up certificate for `localhost`, to as many as come.
async fn tls_server(folder: &Path) -> (Endpoint, JoinSet<()>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("ca.pem"), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("https://localhost:{}/", listener.local_addr().unwrap().port()).parse().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Who does not trust the certificate hangs up in the middle.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            drop(stream.read(&mut head).await);
            drop(stream.write_all(&ok("{}")).await);
            drop(stream.shutdown().await);
        }
    });
    (at, tasks)
}

#[tokio::test]
async fn server_counts_if_an_authority_that_was_named_vouches_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (at, _tasks) = tls_server(folder.path()).await;
    let file = folder.path().join("ca.pem");
    for (trust, is_trusted) in
        [(Trust::System, false), (Trust::SystemAnd(file.clone()), true), (Trust::Only(file.clone()), true)]
    {
        let answer = Fetch::new(&trust).unwrap().get(&at, Credentials::Nothing).await;
        assert_eq!(answer.is_ok(), is_trusted, "{trust:?}: {answer:?}");
    }
    let by_address: Endpoint = at.as_str().replace("localhost", "127.0.0.1").parse().unwrap();
    let answer = Fetch::new(&Trust::Only(file)).unwrap().get(&by_address, Credentials::Nothing).await;
    assert!(answer.unwrap_err().to_string().contains("certificate"), "it is for another name");
}
