//! What counts as use of a workspace and what does not, and the stop that follows from it.

use std::time::Duration;

use e2e::fleet::Fleet;
use e2e::raw::{Raw, RawApp};
use e2e::{TestAgent, TestGateway};
use gateway_config::Config;
use gateway_store::{ManagedWorkspace, Needs, NewManaged, Quotas, wall_clock};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{Activity, ActivityKind, ActualState, DesiredState};
use gateway_workspaces::changes::ChangeNotice;
use tunnel_link::raw::PATH;
use tunnel_proto::version::FEATURE_RELAY_LANES;
use workspace_agent::Transport;

use super::support::{VISIT, ok, soon};

const TERMINAL: u16 = 60_002;

/// Longer than it takes until use is in the store.
const RECORDED: Duration = Duration::from_millis(2_500);

const WEBSOCKET: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A gateway that records use each second, and the agent of a workspace of `dev` in a cluster that no agent reconciles.
struct World {
    gateway: TestGateway,
    agent: Option<TestAgent>,
}

impl World {
    async fn start() -> Self {
        let gateway = Self::gateway(|_| {}).await;
        Self::make_workspace(&gateway).await;
        let agent = gateway.agent_with_terminals("one", Vec::new()).await;
        Self { gateway, agent: Some(agent) }
    }

    /// The same at a replica whose agent has dialed another one, without some features.
    async fn start_away(fleet: &Fleet, without: &'static [&'static str]) -> (Self, TestGateway) {
        let gateway = Self::gateway(|config| fleet.join(config)).await;
        let dialed = Self::gateway(|config| fleet.join(config)).await;
        Self::make_workspace(&gateway).await;
        let token = gateway.agent_token("one").await;
        let address = dialed.addresses.agents;
        let agent = gateway.start_older_agent(address, Transport::default(), &token, Vec::new(), without);
        dialed.until_connected("one").await;
        (Self { gateway, agent: Some(agent) }, dialed)
    }

    /// Starts a gateway that records use each second.
    async fn gateway(change: impl FnOnce(&mut Config)) -> TestGateway {
        TestGateway::start_with(|config| {
            config.idle.record_interval = Duration::from_secs(1);
            change(config);
        })
        .await
    }

    async fn make_workspace(gateway: &TestGateway) {
        let (store, now) = (&gateway.store, wall_clock());
        let cluster = store.ensure_cluster(&"prod".parse().unwrap(), now).await.unwrap();
        let config_version = store.put_cluster_config(cluster.id, "{}", now).await.unwrap();
        let new = NewManaged {
            name: &"one".parse().unwrap(),
            owner: &"dev".parse().unwrap(),
            cluster: cluster.id,
            config_version,
            namespace: "ws-one",
            template: None,
            devfile: "",
            frozen: "[]",
            variables: &[],
            agent_token: &Token::generate(TokenKind::Agent).unwrap(),
            needs: Needs::default(),
            ports: &[],
            quotas: Quotas::default(),
        };
        let made = store.create_managed(&new, now).await.unwrap();
        let life = made.lifecycle.observe(ActualState::Running, None, now);
        assert!(store.swap_lifecycle(made.workspace.id, made.lifecycle.revision, &life).await.unwrap());
    }

    async fn read(&self) -> ManagedWorkspace {
        self.gateway.store.managed(&"one".parse().unwrap()).await.unwrap().unwrap()
    }

    async fn last(&self) -> Option<Activity> {
        self.read().await.idle.last
    }

    /// Waits until this is what counted last, and whose it was.
    #[track_caller]
    fn counts(&self, kind: ActivityKind) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let counted = async {
                loop {
                    if let Some(last) = self.last().await.filter(|last| last.kind == kind) {
                        assert_eq!(last.user.unwrap().as_str(), "dev");
                        // What follows within the same second is not told apart.
                        tokio::time::sleep(Duration::from_millis(1_100)).await;
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            let found = tokio::time::timeout(Duration::from_secs(10), counted).await;
            assert!(found.is_ok(), "{kind:?} does not count ({caller}): {:?}", self.last().await);
        }
    }

    /// Waits until nothing is on its way to the store, and forgets what counted so far.
    async fn forget(&self) -> Option<Activity> {
        tokio::time::sleep(RECORDED).await;
        self.last().await
    }

    fn head(&self, port: u16, start: &str, fields: &str) -> String {
        let (token, host) = (&self.gateway.user_token, self.gateway.authority("one", port));
        format!("{start} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n")
    }

    async fn open(&self, port: u16, start: &str, fields: &str) -> Raw {
        let mut client = Raw::connect(self.gateway.addresses.public).await;
        client.send(self.head(port, start, fields)).await;
        client
    }

    async fn ask(&self, port: u16, start: &str, fields: &str) -> u16 {
        let mut client = self.open(port, start, fields).await;
        soon(client.message()).await.expect("an answer").status()
    }

    /// Opens a WebSocket and returns it behind its head.
    async fn websocket(&self, port: u16, target: &str, fields: &str) -> Raw {
        let mut client = self.open(port, &format!("GET {target}"), &format!("{WEBSOCKET}{fields}")).await;
        assert_eq!(soon(client.head()).await.expect("an answer").status(), 101);
        client
    }
}

/// Writes a frame as a client does, masked with zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

/// An app that answers every request, switches to a WebSocket if it is asked to, sends a frame each tenth of a second there, and
/// streams events at `/events`.
async fn app() -> RawApp {
    RawApp::start(|mut raw| async move {
        while let Some(request) = raw.message().await {
            if request.header("upgrade").is_some() {
                let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                            sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
                raw.send(head).await;
                while raw.try_send(vec![0x82, 3, 1, 2, 3]).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                return;
            }
            if request.start.contains("/events") {
                raw.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
                while raw.try_send("data: x\n\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                return;
            }
            let super::support::Reply::Keep(answer) = ok("hello") else { return };
            raw.send(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn what_people_do_counts_and_is_told_with_its_kind_and_user() {
    let (world, app) = (World::start().await, app().await);
    assert_eq!(world.ask(app.port, "GET /", VISIT).await, 200);
    world.counts(ActivityKind::Visit).await;
    assert_eq!(world.ask(app.port, "DELETE /thing", "").await, 200);
    world.counts(ActivityKind::Change).await;
    // The request counts, and then each of its bytes does.
    let mut upload = world.open(app.port, "PUT /file", "content-length: 4\r\n").await;
    for byte in ["a", "b", "c"] {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        upload.send(byte).await;
    }
    world.counts(ActivityKind::Upload).await;
    upload.send("d").await;
    assert_eq!(soon(upload.message()).await.expect("an answer").status(), 200);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut socket = world.websocket(app.port, "/socket", "").await;
    socket.send(frame(0x1, b"x")).await;
    world.counts(ActivityKind::WebSocket).await;
    let mut stream = world.websocket(app.port, PATH, "sec-websocket-protocol: tcp.gateway.v1\r\n").await;
    stream.send(frame(0x2, b"GET /")).await;
    world.counts(ActivityKind::Stream).await;
}

#[tokio::test]
async fn keys_in_a_terminal_count_and_its_output_and_the_pages_notices_do_not() {
    let world = World::start().await;
    let mut made = world.open(TERMINAL, "POST /terminals", "content-length: 24\r\n").await;
    made.send(r#"{"columns":80,"rows":24}"#).await;
    let made = soon(made.message()).await.expect("an answer");
    let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    // What follows within the same second would not be told apart.
    world.counts(ActivityKind::Change).await;
    let stream = format!("/terminals/{}/stream?page={:032x}", made["id"].as_str().unwrap(), 1);
    let mut page = world.websocket(TERMINAL, &stream, "sec-websocket-protocol: terminal.gateway.v1\r\n").await;
    let command = b"while sleep 0.1; do echo x; done\n";
    page.send(frame(0x2, &[&[0; 9][..], command].concat())).await;
    world.counts(ActivityKind::Terminal).await;
    let before = world.forget().await;
    // Output comes, and the page says its size and how much it has shown.
    for shown in 1..20_u64 {
        page.send(frame(0x2, &[1, 0, 80, 0, 24])).await;
        page.send(frame(0x2, &[&[2][..], &shown.to_be_bytes()].concat())).await;
        page.send(frame(0x9, b"ping")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!page.some().await.is_empty(), "output");
    assert_eq!(world.forget().await, before);
    let typed = (command.len() as u64).to_be_bytes();
    page.send(frame(0x2, &[&[0][..], &typed, b"x"].concat())).await;
    tokio::time::sleep(RECORDED).await;
    assert!(world.last().await.unwrap().at > before.unwrap().at, "one key");
}

#[tokio::test]
async fn what_programs_do_does_not_count() {
    let (world, app) = (World::start().await, app().await);
    let agent = world.gateway.registry.current(&"one".parse().unwrap()).unwrap();
    let mut events = world.open(app.port, "GET /events", "accept: text/event-stream\r\n").await;
    assert_eq!(soon(events.head()).await.expect("an answer").status(), 200);
    let mut socket = world.websocket(app.port, "/socket", "").await;
    let mut stream = world.websocket(app.port, PATH, "sec-websocket-protocol: tcp.gateway.v1\r\n").await;
    let poll = "sec-fetch-mode: cors\r\nsec-fetch-dest: empty\r\nsec-fetch-site: same-origin\r\n";
    let reload =
        "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: same-origin\r\n";
    for _ in 0..20 {
        assert_eq!(world.ask(app.port, "GET /poll", poll).await, 200);
        assert_eq!(world.ask(app.port, "GET /", reload).await, 200);
        let mut head = world.open(app.port, "HEAD /", "").await;
        assert_eq!(soon(head.head()).await.expect("an answer").status(), 200);
        for opcode in [0x9, 0xa] {
            socket.send(frame(opcode, b"still here")).await;
            stream.send(frame(opcode, b"still here")).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The dashboard, the API and the operator's health checks.
    let (token, public) = (&world.gateway.user_token, world.gateway.addresses.public);
    for (start, body) in
        [("GET /api/v1/workspaces/one", ""), ("GET /", ""), ("PATCH /api/v1/workspaces/one", r#"{"idle_minutes":30}"#)]
    {
        let mut raw = Raw::connect(public).await;
        let (port, length) = (public.port(), body.len());
        raw.send(format!(
            "{start} HTTP/1.1\r\nhost: localhost:{port}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
        .await;
        soon(raw.message()).await.expect("an answer");
    }
    world.gateway.metrics().await;
    assert!(agent.report().await.is_some(), "what the gateway itself asks");
    socket.send(frame(0x8, &[0x03, 0xe8])).await;
    assert_eq!(world.forget().await, None);
}

#[tokio::test]
async fn anonymous_visitor_of_a_public_port_does_not_count() {
    let (world, app) = (World::start().await, app().await);
    world.gateway.publish("one", app.port).await;
    let mut raw = Raw::connect(world.gateway.addresses.public).await;
    let host = world.gateway.authority("one", app.port);
    raw.send(format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\n\r\nx")).await;
    assert_eq!(soon(raw.message()).await.expect("an answer").status(), 200);
    assert_eq!(world.forget().await, None);
}

#[tokio::test]
async fn workspace_without_use_is_stopped_and_one_in_use_is_not() {
    let (mut world, app) = (World::start().await, app().await);
    let id = world.read().await.workspace.id;
    world.gateway.store.want_idle_limit(id, "0.1".parse().unwrap()).await.unwrap();
    let notice = ChangeNotice { workspace: id, cluster: world.read().await.cluster() };
    world.gateway.changes.publish(notice);
    for _ in 0..10 {
        assert_eq!(world.ask(app.port, "POST /", "content-length: 0\r\n").await, 200);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let used = world.read().await;
    assert_eq!(used.lifecycle.desired, DesiredState::Running);
    assert_eq!(used.idle.limit, Some(Duration::from_secs(6)));
    let stopped = async {
        while world.read().await.lifecycle.desired != DesiredState::Stopped {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(stopped).await;
    let found = world.read().await;
    let (last, reason) = (found.idle.last.clone().unwrap(), found.idle.stop_reason(&found.lifecycle).unwrap());
    assert!(reason.contains("a changing request by dev"), "{reason}");
    assert!(found.lifecycle.desired_at.get() - last.at.get() >= 6, "not too early: {found:?}");
    // From now on, programs hear that it is stopped and when to come again.
    world.agent.take().expect("an agent").stop().await;
    world.gateway.until_gone("one").await;
    let mut raw = world.open(app.port, "GET /", "").await;
    let answer = soon(raw.message()).await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("workspace_stopped")));
    assert_eq!(answer.header("retry-after"), Some("10"));
}

/// With a lane of the user's replica to the agent, and with one that ends at the agent's replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn use_counts_once_at_the_replica_of_the_user_and_what_is_relayed_does_not() {
    for without in [&[][..], &[FEATURE_RELAY_LANES]] {
        let (fleet, app) = (Fleet::default(), app().await);
        let (world, dialed) = World::start_away(&fleet, without).await;
        // Reads, what the app sends and what the replicas say to each other.
        assert_eq!(world.ask(app.port, "GET /", "").await, 200);
        let mut socket = world.websocket(app.port, "/socket", "").await;
        let _events = world.open(app.port, "GET /events", "").await;
        assert_eq!(world.forget().await, None, "{without:?}");
        let is_hop = world.gateway.registry.current(&"one".parse().unwrap()).expect("a lane").is_hop();
        assert_eq!(is_hop, !without.is_empty());
        socket.send(frame(0x1, b"x")).await;
        world.counts(ActivityKind::WebSocket).await;
        let counted = world.last().await;
        assert_eq!(world.forget().await, counted, "the other replica adds nothing: {without:?}");
        assert_eq!(world.ask(app.port, "POST /", "content-length: 0\r\n").await, 200);
        world.counts(ActivityKind::Change).await;
        drop(dialed);
    }
}
