//! One stream of each kind through a gateway, and the apps at their other ends.

use std::time::Duration;

use bytes::Bytes;
use e2e::PATIENCE;
use e2e::raw::{Raw, RawApp};
use futures_util::{SinkExt as _, StreamExt as _};
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use crate::resume::Flaky;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not hang")
}

/// The byte at a position of every long body.
fn at(position: usize) -> u8 {
    (position.wrapping_mul(31) ^ (position >> 8)).to_le_bytes()[0]
}

fn pattern(from: usize, to: usize) -> Vec<u8> {
    (from..to).map(at).collect()
}

/// The apps of one workspace, one for each kind of stream.
pub(crate) struct Apps {
    pub(crate) websocket: RawApp,
    pub(crate) upgrade: RawApp,
    pub(crate) events: RawApp,
    pub(crate) upload: RawApp,
    pub(crate) download: RawApp,
    pub(crate) grpc: RawApp,
    pub(crate) mirror: RawApp,
}

const DOWNLOAD: usize = 12 * 1024 * 1024;

impl Apps {
    pub(crate) async fn start() -> Self {
        Self {
            websocket: RawApp::start(websocket_echo).await,
            upgrade: RawApp::echo().await,
            events: RawApp::start(events).await,
            upload: RawApp::start(upload).await,
            download: RawApp::start(download).await,
            grpc: RawApp::start(grpc).await,
            mirror: RawApp::mirror().await,
        }
    }

    pub(crate) fn ports(&self) -> Vec<Port> {
        [&self.websocket, &self.upgrade, &self.events, &self.upload, &self.download, &self.grpc, &self.mirror]
            .into_iter()
            .map(|app| {
                let protocol = if app.port == self.grpc.port { AppProtocol::Http2 } else { AppProtocol::Http1 };
                Port { number: app.port, protocol, host: HostMode::Original, tls: false }
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

/// One open stream of each kind, and how far each has come.
pub(crate) struct Streams {
    websocket: WebSocketStream<TcpStream>,
    upgrade: Raw,
    events: Raw,
    event: u64,
    /// Beginning of an event.
    unparsed: String,
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
    pub(crate) async fn open(flaky: &Flaky, rounds: usize) -> Self {
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
        Self {
            websocket,
            upgrade,
            events,
            event: 0,
            unparsed: String::new(),
            upload,
            uploaded: 0,
            download,
            downloaded: 0,
            grpc,
            round: 0,
        }
    }

    /// Everything that can be said on the streams before the answers are read.
    pub(crate) async fn say(&mut self) {
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
    pub(crate) async fn hear(&mut self) {
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
            // A chunk may begin and end within an event.
            let length = self.events.line().await;
            let length = usize::from_str_radix(&length, 16).expect("the length of a chunk");
            let chunk = self.events.exactly(length).await;
            assert_eq!(self.events.line().await, "", "a chunk ends with a line end");
            self.unparsed += &String::from_utf8(chunk).expect("text");
            while let Some((event, rest)) = self.unparsed.split_once("\n\n") {
                assert_eq!(event, format!("data: {}", self.event));
                self.event += 1;
                self.unparsed = rest.to_owned();
            }
        }
    }

    /// The ends come through as well.
    pub(crate) async fn close(mut self) {
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
