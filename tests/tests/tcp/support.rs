//! A gateway with one workspace behind a relay, and users who open raw streams into it.

use std::sync::Arc;

use bytes::Bytes;
use e2e::raw::{Message, Raw};
use e2e::relay::Relay;
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, TestAgent, TestGateway};
use gateway_agents::registry::LiveSession;
use gateway_config::Config;
use gateway_store::{TokenSubject, wall_clock};
use http::{Method, Request};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::protocol::Role;
use tunnel_link::raw::{
    self, CLOSE_TIMEOUT, CUT_TIMEOUT, CarriedBytes, Carrier, CarrierBroken, PING_INTERVAL, RawSocket, code,
};
use tunnel_link::switch::{SwitchAnswer, ask};
use tunnel_proto::hello::Port;
use workspace_agent::Transport;

/// What lies between a user and their end of the stream.
const LOCAL_BYTES: usize = 64 * 1024;

/// The fields that ask for raw TCP.
pub(crate) const HANDSHAKE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                                    sec-websocket-protocol: tcp.gateway.v1\r\n\
                                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A gateway, the agent of the workspace `one`, and the relay between them.
pub(crate) struct World {
    pub(crate) gateway: TestGateway,
    pub(crate) relay: Relay,
    _agent: TestAgent,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::configured(|_| {}, Vec::new()).await
    }

    pub(crate) async fn configured(change: impl FnOnce(&mut Config), ports: Vec<Port>) -> Self {
        let gateway = TestGateway::start_tidy(change).await;
        let relay = Relay::start(gateway.addresses.agents).await;
        let token = gateway.agent_token("one").await;
        let agent = gateway.start_eager_agent(relay.address, Transport::default(), &token, ports);
        gateway.until_connected("one").await;
        Self { gateway, relay, _agent: agent }
    }

    pub(crate) fn session(&self) -> Arc<LiveSession> {
        self.gateway.registry.current(&"one".parse().unwrap()).expect("connected")
    }

    pub(crate) async fn token_of(&self, user: &str) -> String {
        let made = self.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        made.token.reveal().to_owned()
    }

    pub(crate) async fn revoke_tokens_of(&self, user: &str) {
        for token in self.gateway.store.list_tokens().await.unwrap() {
            if matches!(&token.subject, TokenSubject::User { user: of } if of.as_str() == user) {
                assert!(self.gateway.store.revoke_token(token.id, wall_clock()).await.unwrap());
            }
        }
    }

    /// Asks as it stands here, and reads the answer's head and body.
    pub(crate) async fn ask(&self, workspace: &str, port: u16, start: &str, fields: &str) -> Message {
        let mut client = Raw::connect(self.gateway.addresses.public).await;
        let host = self.gateway.authority(workspace, port);
        client.send(format!("{start} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
        let mut head = client.head().await.expect("an answer");
        if let Some(length) = head.header("content-length") {
            head.body = client.exactly(length.parse().expect("a length")).await;
        }
        head
    }

    /// Asks for a raw stream with a token, and expects to be refused.
    pub(crate) async fn refusal(&self, token: &str, workspace: &str, port: u16) -> (u16, String) {
        let fields = format!("gateway-authorization: Bearer {token}\r\n{HANDSHAKE}");
        let answer = self.ask(workspace, port, &format!("GET {}", raw::PATH), &fields).await;
        (answer.status(), answer.header("gateway-error").unwrap_or_default().to_owned())
    }

    /// Switches a connection of HTTP/1.1.
    pub(crate) async fn switched(&self, token: &str, port: u16) -> TokioIo<Upgraded> {
        let stream = TcpStream::connect(self.gateway.addresses.public).await.expect("it listens");
        stream.set_nodelay(true).unwrap();
        let mut request = Request::get(raw::PATH).header("host", self.gateway.authority("one", port));
        request = request.header("gateway-authorization", format!("Bearer {token}"));
        for line in HANDSHAKE.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let answer = soon(ask(stream, request.body(Empty::<Bytes>::new()).unwrap())).await.expect("an answer");
        match answer {
            SwitchAnswer::Switched(head, stream) => {
                assert_eq!(head.headers["sec-websocket-protocol"], raw::PROTOCOL);
                assert_eq!(head.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                stream
            }
            SwitchAnswer::Refused(head) => panic!("refused: {head:?}"),
        }
    }

    /// Switches a stream of HTTP/2 (RFC 8441).
    pub(crate) async fn switched_over_http2(&self, token: &str, port: u16) -> (TokioIo<Upgraded>, JoinSet<()>) {
        let stream = TcpStream::connect(self.gateway.addresses.public).await.expect("it listens");
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.expect("HTTP/2");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            connection.await.ok();
        });
        let uri = format!("http://{}{}", self.gateway.authority("one", port), raw::PATH);
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(uri)
            .extension(hyper::ext::Protocol::from_static("websocket"))
            .header("gateway-authorization", format!("Bearer {token}"))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-protocol", raw::PROTOCOL)
            .body(Empty::<Bytes>::new())
            .unwrap();
        // With an answer the gateway's settings have come, which allow what follows.
        let zone = format!("http://localhost:{}/.gateway/zone", self.gateway.addresses.public.port());
        let asked = Request::get(zone).body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(soon(sender.send_request(asked)).await.expect("an answer").status(), 200);
        let response = soon(sender.send_request(request)).await.expect("an answer");
        assert_eq!(response.status(), 200, "{response:?}");
        assert_eq!(response.headers()["sec-websocket-protocol"], raw::PROTOCOL);
        (TokioIo::new(hyper::upgrade::on(response).await.expect("switched")), tasks)
    }

    /// Opens a raw stream as its owner.
    pub(crate) async fn open(&self, port: u16) -> User {
        let token = self.gateway.user_token.clone();
        self.open_as(&token, port).await
    }

    pub(crate) async fn open_as(&self, token: &str, port: u16) -> User {
        User::on(self.switched(token, port).await).await
    }
}

/// A user's end of a raw stream: what a local program has of it.
pub(crate) struct User {
    pub(crate) stream: DuplexStream,
    ended: JoinSet<Result<CarriedBytes, CarrierBroken>>,
}

impl User {
    pub(crate) async fn on(stream: TokioIo<Upgraded>) -> Self {
        let (user, local) = duplex(LOCAL_BYTES);
        let mut carrier = Carrier::new(stream, Role::Client, RawSocket::new(local), PING_INTERVAL).await;
        let mut ended = JoinSet::new();
        ended.spawn(async move {
            let result = carrier.run().await;
            let (goodbye, local) = carrier.part();
            drop(local);
            match &result {
                Ok(_) => goodbye.say(code::FINISHED, "", CLOSE_TIMEOUT).await,
                Err(_) => goodbye.say(code::RESET, "user_reset", CUT_TIMEOUT).await,
            }
            result
        });
        Self { stream: user, ended }
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.stream.write_all(bytes.as_ref())).await.expect("the stream lives");
    }

    pub(crate) async fn hear(&mut self, length: usize) -> Vec<u8> {
        let mut heard = vec![0; length];
        soon(self.stream.read_exact(&mut heard)).await.expect("the stream lives");
        heard
    }

    pub(crate) async fn hear_rest(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        soon(self.stream.read_to_end(&mut heard)).await.expect("an end");
        heard
    }

    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.expect("it is open");
    }

    /// Waits until the stream is over; returns how.
    pub(crate) async fn ended(&mut self) -> Result<CarriedBytes, CarrierBroken> {
        soon(self.ended.join_next()).await.expect("once").expect("no panic")
    }

    /// Waits until the gateway closed it, and returns the code and reason.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.ended().await {
            Err(CarrierBroken::There { code, reason }) => (code, reason),
            other => panic!("{other:?}"),
        }
    }

    /// Closes the local program's socket, both halves at once; returns what waits for how the stream ends.
    pub(crate) fn abandon(self) -> impl Future<Output = Result<CarriedBytes, CarrierBroken>> {
        let Self { stream, mut ended } = self;
        drop(stream);
        async move { ended.join_next().await.expect("once").expect("no panic") }
    }

    /// Breaks off, as a program that is killed does.
    pub(crate) fn kill(mut self) {
        self.ended.abort_all();
    }
}

/// Waits no longer than a test may take.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not hang")
}

/// Waits no longer than the second that a disconnect may take to reach the other end.
pub(crate) async fn within_a_second<T>(what: impl Future<Output = T>) -> T {
    let watch = Stopwatch::start();
    let done = soon(what).await;
    assert!(watch.elapsed().as_secs() < 1, "it takes {:?}", watch.elapsed());
    done
}
