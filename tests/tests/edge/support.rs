//! What the suites share: a gateway with one workspace, apps that remember what reached them, an HTTP/2 client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use e2e::raw::{Message, Raw, RawApp};
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, TestAgent, TestGateway, until};
use gateway_config::Config;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tunnel_proto::hello::Port;

/// The fields of a page that is opened in a tab, by a bookmark or the address bar.
pub(crate) const VISIT: &str =
    "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";

/// A gateway and the agent of the workspace `one`.
pub(crate) struct World {
    pub(crate) gateway: TestGateway,
    _agent: TestAgent,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::exposing(Vec::new()).await
    }

    pub(crate) async fn exposing(ports: Vec<Port>) -> Self {
        Self::configured(|_| {}, ports).await
    }

    pub(crate) async fn configured(change: impl FnOnce(&mut Config), ports: Vec<Port>) -> Self {
        let gateway = TestGateway::start_with(change).await;
        let agent = gateway.agent_with("one", ports).await;
        Self { gateway, _agent: agent }
    }

    pub(crate) fn authority(&self, port: u16) -> String {
        self.gateway.authority("one", port)
    }

    pub(crate) async fn client(&self) -> Raw {
        Raw::connect(self.gateway.addresses.public).await
    }

    /// Writes a request head with host and token; `fields` are whole lines.
    pub(crate) fn head(&self, port: u16, start: &str, fields: &str) -> String {
        let token = &self.gateway.user_token;
        let host = self.authority(port);
        format!("{start} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n")
    }

    /// Asks without a body on a connection of its own.
    pub(crate) async fn ask(&self, port: u16, start: &str, fields: &str) -> Message {
        let mut client = self.client().await;
        client.send(self.head(port, start, fields)).await;
        client.message().await.expect("an answer")
    }

    pub(crate) async fn http2(&self) -> Http2 {
        Http2::over(TcpStream::connect(self.gateway.addresses.public).await.expect("it listens")).await
    }

    pub(crate) fn http2_request(&self, port: u16, method: &str, target: &str) -> Request<()> {
        let bearer = format!("Bearer {}", self.gateway.user_token);
        let uri = format!("http://{}{target}", self.authority(port));
        let request = Request::builder().method(method).uri(uri).header("gateway-authorization", bearer);
        request.body(()).expect("a request")
    }

    /// Channels of the one session that are open now.
    pub(crate) fn channels(&self) -> usize {
        self.gateway.registry.all().iter().map(|session| session.tunnel.stats().channels_live).sum()
    }

    pub(crate) async fn until_no_channel(&self) {
        until("no channel is open", || self.channels() == 0).await;
    }
}

/// What an app does with one request.
pub(crate) enum Reply {
    /// Answers and waits for the next one.
    Keep(String),
    /// Answers and closes.
    Close(String),
}

/// Answers 200 with a body.
pub(crate) fn ok(body: &str) -> Reply {
    Reply::Keep(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// What reached an app.
#[derive(Default)]
pub(crate) struct Seen {
    requests: Mutex<Vec<Message>>,
    connections: AtomicUsize,
    gone: AtomicUsize,
}

impl Seen {
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) async fn until_gone(&self, connections: usize) {
        until("the app's connection ends", || self.gone.load(Ordering::SeqCst) == connections).await;
    }
}

/// An app that remembers.
pub(crate) struct App {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Seen>,
    _app: RawApp,
}

/// Starts an app that answers each request by what `answer` says for the number of the connection and of the request on
/// it, both from 0.
pub(crate) async fn app<F>(answer: F) -> App
where
    F: Fn(usize, usize, &Message) -> Reply + Send + Sync + 'static,
{
    let seen = Arc::new(Seen::default());
    let answer = Arc::new(answer);
    let served = seen.clone();
    let app = RawApp::start(move |mut raw| {
        let (seen, answer) = (served.clone(), answer.clone());
        let connection = seen.connections.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut number = 0;
            while let Some(request) = raw.message().await {
                let reply = answer(connection, number, &request);
                number += 1;
                seen.requests.lock().unwrap().push(request);
                match reply {
                    Reply::Keep(bytes) => {
                        if raw.try_send(bytes).await.is_err() {
                            break;
                        }
                    }
                    Reply::Close(bytes) => {
                        raw.try_send(bytes).await.ok();
                        break;
                    }
                }
            }
            seen.gone.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    App { port: app.port, seen, _app: app }
}

/// Starts an app that answers each request with these bytes and closes.
pub(crate) async fn app_saying(bytes: &'static str) -> App {
    app(move |_, _, _| Reply::Close(bytes.into())).await
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

/// A user's HTTP/2 connection.
pub(crate) struct Http2 {
    send: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

/// A whole HTTP/2 answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http2 {
    pub(crate) async fn over<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
        let (send, connection) = soon(builder.handshake::<_, Bytes>(stream)).await.expect("a handshake");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            connection.await.ok();
        });
        let send = soon(send.ready()).await.expect("a connection");
        Self { send, _connection: tasks }
    }

    /// Waits for the peer's first settings.
    pub(crate) async fn until_extended_connect(&self) {
        until("extended CONNECT is announced", || self.announces_extended_connect()).await;
    }

    /// Returns whether the peer's settings so far announce extended CONNECT.
    pub(crate) fn announces_extended_connect(&self) -> bool {
        self.send.is_extended_connect_protocol_enabled()
    }

    pub(crate) fn start(&mut self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        self.send.send_request(request, false).expect("a stream")
    }

    /// Asks without a body.
    pub(crate) async fn ask(&mut self, request: Request<()>) -> Answer {
        let (response, _) = self.send.send_request(request, true).expect("a stream");
        whole(response).await
    }
}

/// Reads a whole answer.
pub(crate) async fn whole(response: ResponseFuture) -> Answer {
    let (head, mut body) = soon(response).await.expect("an answer").into_parts();
    let mut bytes = Vec::new();
    while let Some(chunk) = some(&mut body).await {
        bytes.extend_from_slice(&chunk);
    }
    let trailers = soon(body.trailers()).await.expect("an end");
    Answer { status: head.status, headers: head.headers, body: bytes, trailers }
}

/// Reads the next bytes of a body.
pub(crate) async fn some(body: &mut RecvStream) -> Option<Bytes> {
    let chunk = soon(body.data()).await?.expect("data");
    body.flow_control().release_capacity(chunk.len()).expect("capacity");
    Some(chunk)
}
