//! The program `gateway` as a user runs it: `forward` between a gateway and an agent in this process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gateway::app::App;
use gateway_config::{Config, StoreUrl};
use gateway_store::{Store, wall_clock};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workspace_agent::{Gateway, MEMORY_BUDGET_BYTES, Options, Ports, TokenSource, Transport};

/// The longest that anything here may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway, the agent of the workspace `one`, and a token of its owner in a file.
struct World {
    public: SocketAddr,
    store: Store,
    folder: PathBuf,
    _tasks: JoinSet<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl World {
    async fn start(test: &str) -> Self {
        Self::start_with(test, |_, _| {}).await
    }

    async fn start_with(test: &str, change: impl FnOnce(&mut Config, &Path)) -> Self {
        let folder = std::env::temp_dir().join(format!("gateway-forward-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = Config::default();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        (config.listen.public, config.listen.agents, config.listen.admin) = (any, any, None);
        config.public_url = config.public_url.with_port(0);
        config.store.url = StoreUrl::SqliteMemory;
        change(&mut config, &folder);
        let app = Box::pin(App::bind(config)).await.expect("the gateway starts");
        let (store, registry) = (app.store().clone(), app.registry().clone());
        let addresses = app.addresses().expect("bound");
        let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
        let agent_token = store.create_agent_token(&name, &owner, wall_clock()).await.expect("a token");
        let user_token = store.create_user_token(&owner, wall_clock()).await.expect("a token");
        std::fs::write(folder.join("token"), user_token.token.reveal()).unwrap();
        let options = Options {
            gateway: Gateway::parse(&format!("http://{}", addresses.agents), None).expect("a URL"),
            transport: Transport::default(),
            token: TokenSource::Value(agent_token.token.reveal().into()),
            ports: Arc::new(Ports::default()),
            lanes: 1,
            memory_budget: MEMORY_BUDGET_BYTES,
            terminal: None,
            ssh: None,
            inspector: None,
            logs: None,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            app.run(CancellationToken::new()).await;
        });
        tasks.spawn(async move {
            workspace_agent::run(options, CancellationToken::new()).await.ok();
        });
        let connected = async {
            while registry.current(&name).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(connected).await;
        Self { public: addresses.public, store, folder, _tasks: tasks }
    }

    /// Starts the program with the token's file, and no home to find anything else in.
    fn gateway(&self, words: &[&str]) -> Child {
        self.gateway_with(words, &[])
    }

    fn gateway_with(&self, words: &[&str], more: &[(&str, String)]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(words)
            .env_clear()
            .env("GATEWAY_URL", format!("http://localhost:{}", self.public.port()))
            .env("GATEWAY_TOKEN_FILE", self.folder.join("token"))
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts")
    }
}

/// An app that hears everything first, and then says it again, backwards. So only a half-close gets an answer.
async fn backwards() -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut heard = Vec::new();
            if stream.read_to_end(&mut heard).await.is_ok() {
                heard.reverse();
                stream.write_all(&heard).await.ok();
            }
        }
    });
    (port, tasks)
}

/// A port on which nothing listens, and which nobody else is given meanwhile.
fn closed_port() -> (u16, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    (socket.local_addr().unwrap().port(), socket)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not hang")
}

#[tokio::test]
async fn piped_stdio_carries_both_ways_and_ends_with_0() {
    let world = World::start("stdio").await;
    let (port, _app) = backwards().await;
    for length in [0, 1, 5_000_000] {
        let said: Vec<u8> = (0..length as u32).map(|position| (position ^ (position >> 8)).to_le_bytes()[0]).collect();
        let mut child = world.gateway(&["forward", "--stdio", "one.gateway", &port.to_string()]);
        let mut input = child.stdin.take().unwrap();
        let copy = said.clone();
        let mut writing = JoinSet::new();
        writing.spawn(async move { input.write_all(&copy).await.expect("it reads") });
        let output = soon(child.wait_with_output()).await.expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
        let mut heard = output.stdout;
        heard.reverse();
        assert!(heard == said, "{} of {length}", heard.len());
    }
}

#[tokio::test]
async fn end_of_the_app_closes_standard_output_while_standard_input_is_open() {
    let world = World::start("half").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut child = world.gateway(&["forward", "--stdio", "one", &port]);
    let (mut at_app, _) = soon(listener.accept()).await.unwrap();
    at_app.write_all(b"that was all").await.unwrap();
    at_app.shutdown().await.unwrap();
    let mut output = Vec::new();
    soon(child.stdout.take().unwrap().read_to_end(&mut output)).await.unwrap();
    assert_eq!(output, b"that was all");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"still here").await.unwrap();
    drop(input);
    let mut heard = Vec::new();
    soon(at_app.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"still here");
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn refusals_end_with_1_and_one_line_that_has_the_code() {
    let world = World::start("refused").await;
    let (closed, _kept) = closed_port();
    let closed = closed.to_string();
    let cases = [
        (["one", closed.as_str()], format!("nothing listens on port {closed} of one (port_closed)\n")),
        (["none", "22"], "there is no workspace none, or it is not yours (no_such_host)\n".to_owned()),
    ];
    for (words, expected) in cases {
        let child = world.gateway(&[&["forward", "--stdio"][..], &words].concat());
        let output = soon(child.wait_with_output()).await.unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(1), expected.as_str())
        );
        assert!(output.stdout.is_empty());
    }
    let child = world.gateway(&["forward", "--stdio", "one", "22", "23"]);
    assert_eq!(soon(child.wait_with_output()).await.unwrap().status.code(), Some(2));
}

#[tokio::test]
async fn stream_that_is_cut_ends_with_1_and_says_why() {
    let world = World::start("cut").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let child = world.gateway(&["forward", "--stdio", "one", &port]);
    let (_at_app, _) = soon(listener.accept()).await.unwrap();
    for token in world.store.list_tokens().await.unwrap() {
        if token.subject.kind() == gateway_types::token::TokenKind::User {
            world.store.revoke_token(token.id, wall_clock()).await.unwrap();
        }
    }
    let output = soon(child.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("access to port {port} of one has ended (sign_in_required)\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[tokio::test]
async fn listeners_take_connections_until_a_signal_and_end_with_0() {
    let world = World::start("listen").await;
    let (port, _app) = backwards().await;
    let specs = [format!("0:{port}"), format!("127.0.0.1:0:{port}")];
    let mut child = world.gateway(&["forward", "one", &specs[0], &specs[1], "--output", "json", "-v"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    while !text.ends_with("\n]\n") {
        text.push_str(&soon(out.next_line()).await.unwrap().expect("a whole document"));
        text.push('\n');
    }
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 2);
    for row in shown.as_array().unwrap() {
        assert_eq!((row["workspace"].as_str(), row["port"].as_u64()), (Some("one"), Some(u64::from(port))));
        let local = row["local"].as_str().unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(local).await.unwrap();
            stream.write_all(b"abc").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut heard = String::new();
            soon(stream.read_to_string(&mut heard)).await.unwrap();
            assert_eq!(heard, "cba");
        }
    }
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut done = 0;
    while done < 4 {
        let line = soon(said.next_line()).await.unwrap().expect("a line for each connection");
        assert!(line.contains(&format!("port {port} of one")), "{line}");
        done += usize::from(line.contains("3 bytes sent, 3 received"));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn local_program_sees_a_reset_when_there_is_no_stream() {
    let world = World::start("reset").await;
    let (closed, _kept) = closed_port();
    let mut child = world.gateway(&["forward", "one", &format!("0:{closed}")]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = soon(out.next_line()).await.unwrap().expect("a line");
    let local = line.split(' ').next().unwrap().to_owned();
    assert_eq!(line, format!("{local} is port {closed} of one"));
    let mut stream = TcpStream::connect(&local).await.unwrap();
    let error = soon(stream.read(&mut [0; 1])).await.expect_err("no good end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = soon(said.next_line()).await.unwrap().expect("a line");
    assert!(line.ends_with(&format!("nothing listens on port {closed} of one (port_closed)")), "{line}");
    // Wildcard addresses are warned of.
    drop(child);
    let mut child = world.gateway(&["forward", "one", &format!("0.0.0.0:0:{closed}")]);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = soon(said.next_line()).await.unwrap().expect("a line");
    assert!(line.starts_with("warning: every client that reaches 0.0.0.0:"), "{line}");
}

/// Runs `forward --stdio` against the app that says everything backwards; returns its status, output and errors.
async fn backwards_through(world: &World, port: u16, more: &[(&str, String)]) -> (Option<i32>, String, String) {
    let mut child = world.gateway_with(&["forward", "--stdio", "one", &port.to_string()], more);
    child.stdin.take().unwrap().write_all(b"abc").await.ok();
    let output = soon(child.wait_with_output()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn over_tls_the_certificate_of_the_workspaces_host_is_checked() {
    let (port, _app) = backwards().await;
    let (other_port, _other) = backwards().await;
    let world = World::start_with("tls", |config, folder| {
        let names = vec!["localhost".to_owned(), format!("{port}-one.localhost")];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let variables = BTreeMap::from([
            ("GATEWAY_TLS__PUBLIC__CERT".to_owned(), cert.display().to_string()),
            ("GATEWAY_TLS__PUBLIC__KEY".to_owned(), key.display().to_string()),
        ]);
        let loaded = Config::load(None, &variables).expect("a configuration");
        (config.tls, config.public_url) = (loaded.tls, loaded.public_url.with_port(0));
    })
    .await;
    let url = ("GATEWAY_URL", format!("https://localhost:{}", world.public.port()));
    let trust = ("GATEWAY_CA_FILE", world.folder.join("cert.pem").display().to_string());
    let done = backwards_through(&world, port, &[url.clone(), trust.clone()]).await;
    assert_eq!(done, (Some(0), "cba".to_owned(), String::new()));
    // The public host's own certificate is not enough for another host.
    let (status, _, said) = backwards_through(&world, other_port, &[url.clone(), trust]).await;
    assert_eq!(status, Some(1));
    assert!(said.contains(&format!("the TLS handshake for {other_port}-one.localhost failed")), "{said}");
    let (status, _, said) = backwards_through(&world, port, &[url]).await;
    assert_eq!(status, Some(1));
    assert!(said.starts_with("the gateway cannot be reached: the TLS handshake for localhost failed: "), "{said}");
}

#[tokio::test]
async fn proxy_of_the_environment_leads_to_the_gateway() {
    let (port, _app) = backwards().await;
    let world = World::start("proxy").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let asked = format!("CONNECT localhost:{} HTTP/1.1\r\n", world.public.port());
    let gateway = world.public;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for _ in 0..2 {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(near.read_u8().await.unwrap());
            }
            assert!(head.starts_with(asked.as_bytes()), "{}", String::from_utf8_lossy(&head));
            near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut far = TcpStream::connect(gateway).await.unwrap();
            tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
        }
    });
    let through = [("HTTP_PROXY", format!("http://{proxy}"))];
    assert_eq!(backwards_through(&world, port, &through).await, (Some(0), "cba".to_owned(), String::new()));
    soon(tasks.join_next()).await.expect("a task").expect("both connections went through it");
    let nowhere = [("HTTP_PROXY", "http://127.0.0.1:1".to_owned())];
    let (status, _, said) = backwards_through(&world, port, &nowhere).await;
    assert_eq!(status, Some(1));
    assert!(
        said.starts_with("the gateway cannot be reached: the proxy http://127.0.0.1:1: cannot be reached"),
        "{said}"
    );
}
