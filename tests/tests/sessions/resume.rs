//! Streams outlive links: whatever breaks between agent and gateway, for a while, is not seen by users.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use e2e::raw::{Raw, RawApp};
use e2e::relay::{CUTS, Cut, Relay};
use e2e::{PATIENCE, TestAgent, until};
use futures_util::{SinkExt as _, StreamExt as _};
use gateway::config::Config;
use gateway::sessions::registry::LiveSession;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};
use workspace_agent::Ended;

use crate::raw_agent::Stage;

const MIB: usize = 1024 * 1024;

/// What a request waits for a link (`LINK_PATIENCE` of the edge).
const LINK_PATIENCE: Duration = Duration::from_secs(3);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not hang")
}

/// The byte at a position of every long body.
fn at(position: usize) -> u8 {
    (position.wrapping_mul(31) ^ (position >> 8)) as u8
}

fn pattern(from: usize, to: usize) -> Vec<u8> {
    (from..to).map(at).collect()
}

/// The apps of one workspace, one for each kind of stream.
struct Apps {
    websocket: RawApp,
    upgrade: RawApp,
    events: RawApp,
    upload: RawApp,
    download: RawApp,
    grpc: RawApp,
    mirror: RawApp,
}

const DOWNLOAD: usize = 12 * MIB;

impl Apps {
    async fn start() -> Self {
        Self {
            websocket: RawApp::start(websocket_echo).await,
            upgrade: RawApp::start(upgrade_echo).await,
            events: RawApp::start(events).await,
            upload: RawApp::start(upload).await,
            download: RawApp::start(download).await,
            grpc: RawApp::start(grpc).await,
            mirror: RawApp::mirror().await,
        }
    }

    fn ports(&self) -> Vec<Port> {
        [&self.websocket, &self.upgrade, &self.events, &self.upload, &self.download, &self.grpc, &self.mirror]
            .into_iter()
            .map(|app| {
                let protocol = if app.port == self.grpc.port { AppProtocol::Http2 } else { AppProtocol::Http1 };
                Port { number: app.port, protocol, host: HostMode::Original }
            })
            .collect()
    }
}

async fn websocket_echo(mut raw: Raw) {
    let mut socket = accept_async(raw.socket()).await.expect("a handshake");
    while let Some(Ok(frame)) = socket.next().await {
        if (frame.is_text() || frame.is_binary()) && socket.send(frame).await.is_err() {
            return;
        }
    }
}

async fn upgrade_echo(mut raw: Raw) {
    raw.head().await;
    raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
    loop {
        let bytes = raw.some().await;
        if bytes.is_empty() || raw.try_send(bytes).await.is_err() {
            return;
        }
    }
}

/// Says a number every few milliseconds, for ever.
async fn events(mut raw: Raw) {
    raw.head().await;
    raw.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
    for number in 0_u64.. {
        if raw.try_send(format!("data: {number}\n\n")).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Checks what it is sent, and says how much that was.
async fn upload(mut raw: Raw) {
    let Some(request) = raw.message().await else { return };
    let good = request.body.iter().enumerate().all(|(position, byte)| *byte == at(position));
    let text = format!("{} {good}", request.body.len());
    raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())).await;
    raw.read_rest().await;
}

async fn download(mut raw: Raw) {
    raw.head().await;
    raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {DOWNLOAD}\r\n\r\n")).await;
    raw.try_send(pattern(0, DOWNLOAD)).await.ok();
    raw.read_rest().await;
}

/// Sends back what it gets, message by message, and ends with a status.
async fn grpc(mut raw: Raw) {
    let mut connection = h2::server::handshake(raw.socket()).await.expect("a handshake");
    let mut calls = JoinSet::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        calls.spawn(async move {
            let mut body = request.into_body();
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut send = respond.send_response(head, false).expect("sent");
            while let Some(Ok(data)) = body.data().await {
                body.flow_control().release_capacity(data.len()).expect("capacity");
                send.send_data(data, false).expect("sent");
            }
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            send.send_trailers(trailers).expect("sent");
        });
    }
    calls.join_all().await;
}

/// A gateway, the workspace `one`, and the relay between them.
struct Flaky {
    stage: Stage,
    apps: Apps,
    relay: Relay,
    agent: TestAgent,
    session: Arc<LiveSession>,
}

impl Flaky {
    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let stage = Stage::new(|config| {
            config.tunnel.keepalive_interval = Duration::from_millis(250);
            config.tunnel.keepalive_timeout = Duration::from_millis(500);
            change(config);
        })
        .await;
        let apps = Apps::start().await;
        let relay = Relay::start(stage.gateway.addresses.agents).await;
        let token = stage.gateway.agent_token("one").await;
        let agent = stage.gateway.start_eager_agent(relay.address, &token, apps.ports());
        stage.gateway.until_connected("one").await;
        let session = stage.gateway.registry.current(&"one".parse().unwrap()).expect("connected");
        Self { stage, apps, relay, agent, session }
    }

    fn links(&self) -> u64 {
        self.session.tunnel.stats().links
    }

    /// Breaks the link and waits until the session goes on over another one.
    async fn break_link(&self, how: Cut) {
        let before = self.links();
        self.relay.cut(how);
        until("the session goes on", || self.links() > before && !self.session.tunnel.is_detached()).await;
    }

    /// Breaks the link for good, until the relay is up again.
    async fn lose_link(&self) {
        self.relay.down();
        self.relay.cut(Cut::Reset);
        until("the link is missed", || self.session.tunnel.is_detached()).await;
    }

    fn head(&self, app: &RawApp, start: &str, fields: &str) -> String {
        let (host, token) = (self.stage.gateway.authority("one", app.port), &self.stage.gateway.user_token);
        format!("{start} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n")
    }

    async fn ask(&self, app: &RawApp, start: &str, fields: &str) -> Raw {
        let mut raw = Raw::connect(self.stage.gateway.addresses.public).await;
        raw.send(self.head(app, start, fields)).await;
        raw
    }

    async fn finish(self) {
        assert_eq!(self.session.tunnel.broken_invariant(), None);
        self.agent.stop().await;
        until("the session is gone", || self.session.tunnel.is_ended()).await;
        self.stage.finish().await;
    }
}

/// One open stream of each kind, and how far each has come.
struct Streams {
    websocket: WebSocketStream<TcpStream>,
    upgrade: Raw,
    events: Raw,
    event: u64,
    upload: Raw,
    uploaded: usize,
    download: Raw,
    downloaded: usize,
    grpc: Grpc,
    round: u64,
}

struct Grpc {
    send: h2::SendStream<Bytes>,
    body: RecvStream,
    _connection: JoinSet<()>,
}

const PIECE: usize = 200_000;

impl Streams {
    async fn open(flaky: &Flaky, rounds: usize) -> Self {
        let apps = &flaky.apps;
        let gateway = &flaky.stage.gateway;
        let mut request =
            format!("ws://{}/", gateway.authority("one", apps.websocket.port)).into_client_request().unwrap();
        let token = format!("Bearer {}", gateway.user_token);
        request.headers_mut().insert("gateway-authorization", token.parse().unwrap());
        let stream = TcpStream::connect(gateway.addresses.public).await.expect("it listens");
        let (websocket, _) = soon(client_async(request, stream)).await.expect("a handshake");
        let mut upgrade = flaky.ask(&apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
        assert_eq!(upgrade.head().await.expect("a head").status(), 101);
        let mut events = flaky.ask(&apps.events, "GET /", "").await;
        assert_eq!(events.head().await.expect("a head").status(), 200);
        let length = format!("content-length: {}\r\n", rounds * PIECE);
        let upload = flaky.ask(&apps.upload, "POST /", &length).await;
        let mut download = flaky.ask(&apps.download, "GET /", "").await;
        assert_eq!(download.head().await.expect("a head").status(), 200);
        let grpc = Grpc::open(flaky).await;
        Self { websocket, upgrade, events, event: 0, upload, uploaded: 0, download, downloaded: 0, grpc, round: 0 }
    }

    /// Everything that can be said on the streams before the answers are read.
    async fn say(&mut self) {
        self.round += 1;
        let text = format!("round {}", self.round);
        self.websocket.send(Message::Text(text.clone().into())).await.expect("sent");
        self.websocket.send(Message::Binary(vec![7; 70_000].into())).await.expect("sent");
        self.upgrade.send(&text).await;
        self.grpc.send.send_data(text.into(), false).expect("sent");
        self.upload.send(pattern(self.uploaded, self.uploaded + PIECE)).await;
        self.uploaded += PIECE;
    }

    /// What was said comes back, and what comes by itself goes on where it was.
    async fn hear(&mut self) {
        let text = format!("round {}", self.round);
        let heard = soon(self.websocket.next()).await.expect("a message").expect("a message");
        assert_eq!(heard, Message::Text(text.clone().into()));
        let heard = soon(self.websocket.next()).await.expect("a message").expect("a message");
        assert_eq!(heard, Message::Binary(vec![7; 70_000].into()));
        assert_eq!(self.upgrade.exactly(text.len()).await, text.as_bytes());
        let data = soon(self.grpc.body.data()).await.expect("a message").expect("a message");
        self.grpc.body.flow_control().release_capacity(data.len()).expect("capacity");
        assert_eq!(data, text);
        let bytes = self.download.exactly(PIECE).await;
        assert!(bytes == pattern(self.downloaded, self.downloaded + PIECE), "other bytes after {}", self.downloaded);
        self.downloaded += PIECE;
        self.hear_events(20).await;
    }

    async fn hear_events(&mut self, count: u64) {
        let end = self.event + count;
        while self.event < end {
            // The lines of chunks are between the lines of events.
            let line = self.events.line().await;
            if let Some(data) = line.strip_prefix("data: ") {
                let mut numbers = data.split("\n\n").filter(|number| !number.is_empty());
                for number in numbers.by_ref() {
                    let number = number.trim_start_matches("data: ");
                    assert_eq!(number.parse(), Ok(self.event), "{line}");
                    self.event += 1;
                }
            }
        }
    }

    /// The ends come through as well.
    async fn close(mut self) {
        self.websocket.close(None).await.expect("closed");
        assert!(soon(self.websocket.next()).await.expect("an answer").expect("an answer").is_close());
        let answer = self.upload.message().await.expect("an answer");
        assert_eq!(answer.text(), format!("{} true", self.uploaded));
        let rest = self.download.exactly(DOWNLOAD - self.downloaded).await;
        assert!(rest == pattern(self.downloaded, DOWNLOAD));
        self.grpc.send.send_data(Bytes::new(), true).expect("sent");
        assert!(soon(self.grpc.body.data()).await.is_none());
        let trailers = soon(self.grpc.body.trailers()).await.expect("an end").expect("trailers");
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
    }
}

impl Grpc {
    async fn open(flaky: &Flaky) -> Self {
        let gateway = &flaky.stage.gateway;
        let stream = TcpStream::connect(gateway.addresses.public).await.expect("it listens");
        let (mut client, connection) = soon(h2::client::handshake(stream)).await.expect("a handshake");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            connection.await.ok();
        });
        let uri = format!("http://{}/echo.Echo/Stream", gateway.authority("one", flaky.apps.grpc.port));
        let request = Request::post(uri)
            .header("gateway-authorization", format!("Bearer {}", gateway.user_token))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (answer, send) = client.send_request(request, false).expect("sent");
        let body = soon(answer).await.expect("an answer").into_body();
        Self { send, body, _connection: tasks }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_survive_cuts_of_every_kind() {
    let flaky = Flaky::new(|_| {}).await;
    let cuts: Vec<_> = CUTS.into_iter().cycle().take(9).collect();
    let mut streams = Streams::open(&flaky, 2 * cuts.len()).await;
    for how in cuts {
        streams.say().await;
        flaky.break_link(how).await;
        streams.hear().await;
        // Said while nobody may have noticed yet.
        flaky.relay.cut(how);
        streams.say().await;
        streams.hear().await;
    }
    streams.close().await;
    assert!(flaky.links() > 9);
    flaky.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_links_that_break_in_the_middle_of_anything() {
    let flaky = Flaky::new(|_| {}).await;
    let fuses = [1, 30, 100, 300, 500, 800, 1_000, 2_000, 5_000, 20_000, 70_001, 150_003, 400_009, 1_000_003];
    let mut streams = Streams::open(&flaky, fuses.len()).await;
    for fuse in fuses {
        let before = flaky.relay.connections();
        flaky.relay.break_next_after(fuse);
        flaky.relay.cut(Cut::Reset);
        streams.say().await;
        streams.hear().await;
        until("it was dialed again", || flaky.relay.connections() > before).await;
    }
    streams.close().await;
    flaky.finish().await;
}

#[tokio::test]
async fn request_that_comes_without_a_link_is_answered_when_there_is_one_again() {
    let flaky = Flaky::new(|_| {}).await;
    flaky.lose_link().await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(flaky.ask(&flaky.apps.mirror, "GET /", "").await);
    }
    for raw in &mut waiting {
        let early = tokio::time::timeout(Duration::from_millis(50), raw.some()).await;
        assert!(early.is_err(), "{early:?}");
    }
    flaky.relay.up();
    for mut raw in waiting {
        assert_eq!(raw.message().await.expect("an answer").status(), 200);
    }
    assert_eq!(flaky.links(), 2);
    flaky.finish().await;
}

#[tokio::test]
async fn request_that_comes_without_a_link_waits_no_longer_than_its_patience_and_harms_no_stream() {
    let flaky = Flaky::new(|_| {}).await;
    let mut stream = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(stream.head().await.expect("a head").status(), 101);
    flaky.lose_link().await;
    stream.send("meanwhile").await;
    let asked = Instant::now();
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    let took = asked.elapsed();
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")));
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert!(took >= LINK_PATIENCE && took < 2 * LINK_PATIENCE, "{took:?}");
    assert!(flaky.session.tunnel.is_detached());
    flaky.relay.up();
    assert_eq!(stream.exactly(9).await, b"meanwhile");
    flaky.stage.assert_serves("bystander").await;
    drop(stream);
    flaky.finish().await;
}

#[tokio::test]
async fn stream_without_a_link_ends_by_its_name_after_the_grace() {
    let grace = Duration::from_millis(700);
    let flaky = Flaky::new(|config| config.tunnel.resume_grace = grace).await;
    let name = "one".parse().unwrap();
    let mut upgrade = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(upgrade.head().await.expect("a head").status(), 101);
    let mut events = flaky.ask(&flaky.apps.events, "GET /", "").await;
    assert_eq!(events.head().await.expect("a head").status(), 200);
    let mut upload = flaky.ask(&flaky.apps.upload, "POST /", "content-length: 10\r\n").await;
    upload.send("hello").await;
    until("all are under way", || flaky.session.in_flight() == 3).await;
    let cut = Instant::now();
    flaky.lose_link().await;
    let answer = upload.message().await.expect("an answer");
    assert!(cut.elapsed() >= grace, "{:?}", cut.elapsed());
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
    assert!(!events.read_rest().await.ends_with(b"0\r\n\r\n"), "it broke off, and did not end");
    assert!(upgrade.read_rest().await.is_empty());
    until("the session is gone", || flaky.stage.gateway.registry.current(&name).is_none()).await;
    assert!(flaky.session.tunnel.is_ended());
    assert_eq!(flaky.session.in_flight(), 0);
    // The agent comes back with a session of its own.
    flaky.relay.up();
    flaky.stage.gateway.until_connected("one").await;
    let new = flaky.stage.gateway.registry.current(&name).expect("connected");
    assert!(new.id > flaky.session.id && new.tunnel.stats().links == 1);
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    flaky.finish().await;
}

#[tokio::test]
async fn agent_that_was_replaced_while_it_was_away_is_told_so_and_stops() {
    let mut flaky = Flaky::new(|_| {}).await;
    let mut stream = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(stream.head().await.expect("a head").status(), 101);
    flaky.lose_link().await;
    let token = flaky.stage.gateway.agent_token("one").await;
    let second = flaky.stage.gateway.start_agent(&token, flaky.apps.ports());
    flaky.stage.gateway.until_connected("one").await;
    assert!(stream.read_rest().await.is_empty(), "its session is over");
    flaky.relay.up();
    let ended = flaky.agent.ended().await;
    assert!(matches!(ended, Err(Ended::Displaced)), "{ended:?}");
    let current = flaky.stage.gateway.registry.current(&"one".parse().unwrap()).expect("the newer one stays");
    assert!(current.id > flaky.session.id && current.tunnel.stats().links == 1);
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    second.stop().await;
    flaky.stage.finish().await;
}

#[tokio::test]
async fn agent_that_comes_back_after_the_gateway_restarted_gets_a_new_session() {
    let flaky = Flaky::new(|_| {}).await;
    flaky.lose_link().await;
    // The gateway has forgotten it, as after a restart.
    assert!(flaky.stage.gateway.registry.release(&flaky.session));
    flaky.relay.up();
    flaky.stage.gateway.until_connected("one").await;
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    flaky.session.tunnel.close(tunnel_proto::reason::Reason::Shutdown, "the test is over");
    flaky.finish().await;
}
