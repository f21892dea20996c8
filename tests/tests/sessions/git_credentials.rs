//! The call for credentials of git servers, from git's helper to the answer, over each transport.

use std::sync::Arc;

use e2e::TestGateway;
use gateway_config::{AuditLog, GitServer};
use gateway_store::{GitCredentialKind, NewGitCredential, SecretText, Terms, wall_clock};
use gateway_types::UserName;
use http::Request;
use http::uri::Scheme;
use http_body_util::{BodyExt, Full};
use tunnel_link::git::{AcceptedCredential, AskError, ask, try_credential};
use tunnel_link::grpc::{Code, ConnectError};
use tunnel_proto::git::{GIT_CREDENTIALS_PATH, GitCredential, GitCredentialRequest, GitProtocol};
use workspace_agent::git_credential::{HelperAction, HelperOptions, help};
use workspace_agent::{Gateway, TokenSource, Transport};

const HOST: &str = "git.example.com";
const PASSWORD: &str = "hunter2-of-dev";

async fn store(gateway: &TestGateway, owner: &str, host: &str, password: &str) {
    let (owner, host): (UserName, _) = (owner.parse().unwrap(), host.parse().unwrap());
    let secret = SecretText::new(password.to_owned());
    let new = NewGitCredential { kind: GitCredentialKind::Basic, user: "me", secret: &secret };
    assert!(gateway.store.put_git_credential(&owner, &host, new, wall_clock()).await.unwrap());
}

fn options(gateway: &TestGateway, token: &str, transport: Transport) -> HelperOptions {
    let url = format!("http://{}", gateway.addresses.agents);
    HelperOptions { gateway: Gateway::parse(&url, None).unwrap(), transport, token: TokenSource::Value(token.into()) }
}

/// Asks as git does: what the helper prints, and its words for a person.
async fn helped(options: &HelperOptions, url: &str) -> (String, String) {
    let (protocol, host) = url.split_once("://").unwrap();
    let input = format!("protocol={protocol}\nhost={host}\n\n");
    let mut output = Vec::new();
    let words = match help(HelperAction::Get, options, input.as_bytes(), &mut output).await {
        Ok(words) => words.unwrap_or_default(),
        Err(error) => error.to_string(),
    };
    (String::from_utf8(output).unwrap(), words)
}

#[tokio::test]
async fn helper_gets_its_workspaces_owners_credential_over_each_transport() {
    let gateway = TestGateway::start().await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    store(&gateway, "bob", "bob.example.com", "hunter3").await;
    let token = gateway.agent_token("one").await;
    let expected = format!("username=me\npassword={PASSWORD}\n");
    for transport in [Transport::Auto, Transport::Http2, Transport::Websocket] {
        let options = options(&gateway, &token, transport);
        assert_eq!(
            helped(&options, "https://git.example.com").await,
            (expected.clone(), String::new()),
            "{transport:?}"
        );
        // Of another host, and of another owner: nothing, and what to do.
        for host in ["other.example.com", "bob.example.com"] {
            let (output, words) = helped(&options, &format!("https://{host}")).await;
            assert_eq!(output, "", "{transport:?}");
            assert!(words.contains(&format!("gateway git-credential set {host}")), "{transport:?}: {words}");
            assert!(!words.contains("hunter"), "{words}");
        }
        let (output, words) = helped(&options, "http://git.example.com").await;
        assert!(output.is_empty() && words.contains("plain_http"), "{transport:?}: {words}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn user_in_the_url_has_to_be_the_stored_one() {
    let gateway = TestGateway::start().await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    let options = options(&gateway, &gateway.agent_token("one").await, Transport::Auto);
    for (user, is_given) in [("me", true), ("other", false)] {
        let input = format!("protocol=https\nhost={HOST}\nusername={user}\n\n");
        let mut output = Vec::new();
        let words = help(HelperAction::Get, &options, input.as_bytes(), &mut output).await.unwrap();
        assert_eq!((!output.is_empty(), words.is_none()), (is_given, is_given), "{user}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn only_the_agent_of_a_live_workspace_is_answered() {
    let gateway = TestGateway::start().await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let revoked = gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    assert!(gateway.store.revoke_token(revoked.id, wall_clock()).await.unwrap());
    let cluster = gateway
        .store
        .create_cluster_token_with(&"prod".parse().unwrap(), &Terms::default(), wall_clock())
        .await
        .unwrap();
    for (token, told) in [
        // HTTP/1.1 takes the space behind `Bearer` for none: there it is missing, else damaged.
        ("", "credential_"),
        ("gwa_nonsense", "damaged"),
        (gateway.user_token.as_str(), "not an agent's"),
        (revoked.token.reveal(), "revoked"),
        (cluster.token.reveal(), "only the agent of a workspace"),
    ] {
        for transport in [Transport::Http2, Transport::Websocket] {
            let (output, words) = helped(&options(&gateway, token, transport), "https://git.example.com").await;
            assert!(output.is_empty() && words.contains(told), "{told}: {words}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn workspace_that_asks_too_often_is_told_and_each_answer_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = path.clone();
    let gateway =
        TestGateway::start_with(|config| config.audit = AuditLog { path: Some(audit), ..config.audit.clone() }).await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    let options = Arc::new(options(&gateway, &gateway.agent_token("one").await, Transport::Http2));
    let mut refused = 0;
    for _ in 0..80 {
        let (output, words) = helped(&options, "https://git.example.com").await;
        refused += usize::from(output.is_empty() && words.contains("too often"));
    }
    assert!(refused > 0, "none was refused");
    let other = gateway.agent_token("two").await;
    let other = self::options(&gateway, &other, Transport::Http2);
    assert!(!helped(&other, "https://git.example.com").await.0.is_empty(), "another workspace");
    gateway.stop().await;
    let log = std::fs::read_to_string(&path).unwrap();
    let asked: Vec<&str> = log.lines().filter(|line| line.contains("git_credential_asked")).collect();
    assert_eq!(asked.len(), 81, "{log}");
    let given =
        asked.iter().filter(|line| line.contains("\"given\"") && line.contains(HOST) && line.contains("\"dev\""));
    assert_eq!(given.count(), 81 - refused);
    assert!(!log.contains(PASSWORD));
}

#[tokio::test]
async fn plain_http_is_answered_where_the_operator_allows_it() {
    let gateway = TestGateway::start_with(|config| {
        let name = "intern".parse().unwrap();
        let host = HOST.parse().unwrap();
        config.git = vec![GitServer { host, plain_http: true, ca_file: None, name, oauth: None }];
    })
    .await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    let options = options(&gateway, &gateway.agent_token("one").await, Transport::Auto);
    assert!(helped(&options, "http://git.example.com").await.0.contains(PASSWORD));
    gateway.stop().await;
}

#[tokio::test]
async fn hostile_questions_are_refused_and_the_listener_lives_on() {
    let gateway = TestGateway::start().await;
    store(&gateway, "dev", HOST, PASSWORD).await;
    let token = gateway.agent_token("one").await;
    for body in [
        vec![],
        vec![0; 3],
        vec![1, 0, 0, 0, 0],
        vec![0, 0xff, 0xff, 0xff, 0xff],
        vec![0; 200_000],
        vec![0, 0, 0, 0, 1, 0xff],
    ] {
        let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
        let driven = tokio::spawn(connection);
        let request = Request::post(format!("http://{}{GIT_CREDENTIALS_PATH}", gateway.addresses.agents))
            .header("content-type", "application/grpc")
            .header("authorization", format!("Bearer {token}"))
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        if let Ok(response) = sender.send_request(request).await {
            assert_eq!(response.headers().get("grpc-status").map(|status| status.to_str().unwrap()), Some("3"));
            assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
        }
        driven.abort();
    }
    let options = options(&gateway, &token, Transport::Auto);
    assert!(!helped(&options, "https://git.example.com").await.0.is_empty());
    gateway.stop().await;
}

/// What an older gateway answers to a call that it does not know.
#[tokio::test]
async fn gateway_without_the_call_is_told_as_too_old() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(|_request| async {
            let answer =
                http::Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
            Ok::<_, std::convert::Infallible>(answer.body(Full::new(bytes::Bytes::new())).unwrap())
        });
        let server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
        drop(server.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await);
    });
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let asked = GitCredentialRequest { protocol: GitProtocol::Https, host: HOST.to_owned(), is_refused: false };
    let authority = address.to_string().parse().unwrap();
    let answer: Result<GitCredential, AskError> = ask(stream, false, authority, Scheme::HTTP, Some("x"), &asked).await;
    assert!(matches!(answer, Err(AskError::TooOld)), "{answer:?}");
    serving.abort();

    // Over HTTP/1.1 it says that this is not a user's listener.
    let gateway = TestGateway::start().await;
    let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.unwrap();
    let authority = gateway.addresses.agents.to_string().parse().unwrap();
    let answer = ask(stream, true, authority, Scheme::HTTP, Some("x"), &asked).await;
    let refused = matches!(&answer, Err(AskError::Connect(ConnectError::Refused(refused))) if refused.code == Code::Unauthenticated);
    assert!(refused, "{answer:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn credential_is_tried_without_a_session_and_without_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = AuditLog { path: Some(path.clone()), ..gateway_config::Config::default().audit };
    let gateway = TestGateway::start_with(|config| config.audit = audit).await;
    let token = gateway.agent_token("one").await;
    let authority: http::uri::Authority = gateway.addresses.agents.to_string().parse().unwrap();
    for is_http1 in [false, true] {
        let tried = async |token: &str| {
            let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.unwrap();
            try_credential(stream, is_http1, authority.clone(), Scheme::HTTP, Some(token)).await
        };
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        assert_eq!(tried(&token).await.unwrap(), AcceptedCredential { version }, "{is_http1}");
        match tried("gwa_of-no-one").await {
            Err(AskError::Connect(ConnectError::Refused(refused))) => assert_eq!(refused.code, Code::Unauthenticated),
            other => panic!("{other:?}"),
        }
    }
    assert!(gateway.registry.all().is_empty(), "a session began");
    // The log is written whole by then.
    gateway.stop().await;
    let records = std::fs::read_to_string(path).unwrap();
    assert!(records.contains("agent_refused") && !records.contains("git_credential"), "{records}");
}
