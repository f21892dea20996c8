//! An app that counts what reaches it, a user who only wants an answer, and frames of HTTP/2 as bytes.

use std::sync::{Arc, Mutex};

use e2e::raw::{Message, Raw, RawApp};
use e2e::{PATIENCE, TestAgent, TestGateway};
use gateway_config::Config;
use tokio::sync::{Semaphore, SemaphorePermit};

/// More than there are tests.
const PLACES: u32 = 1000;

/// Where tests run beside each other in this process: who weighs it takes every place, anybody else one.
static PROCESS: Semaphore = Semaphore::const_new(PLACES as usize);

/// A gateway, an agent and an app that records each request line that reaches it.
pub(crate) struct Stage {
    pub(crate) gateway: TestGateway,
    pub(crate) app: RawApp,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    pub(crate) agent: TestAgent,
    _places: SemaphorePermit<'static>,
}

impl Stage {
    /// Starts one, beside those of other tests. A test has one at a time: the next waits for whoever wants to be alone.
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(change, 1).await
    }

    /// Starts one while there is no other: what the process then takes, and how fast it is, is the test's own doing.
    pub(crate) async fn alone(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(change, PLACES).await
    }

    async fn start(change: impl FnOnce(&mut Config), places: u32) -> Self {
        let places = PROCESS.acquire_many(places).await.unwrap();
        let gateway = TestGateway::start_tidy(change).await;
        let agent = gateway.agent("one").await;
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = lines.clone();
        let app = RawApp::start(move |mut raw| {
            let recorded = recorded.clone();
            async move {
                while let Some(head) = raw.head().await {
                    recorded.lock().unwrap().push(head.start.clone());
                    // The body by its framing, as an app that trusts its proxy reads it.
                    if head.header("transfer-encoding").is_some() {
                        while raw.line().await != "0" {}
                        while !raw.line().await.is_empty() {}
                    } else if let Some(length) = head.header("content-length") {
                        raw.exactly(length.parse().unwrap()).await;
                    }
                    if raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        Self { gateway, app, lines, agent, _places: places }
    }

    pub(crate) fn authority(&self) -> String {
        self.gateway.authority("one", self.app.port)
    }

    /// The fields that every good request has.
    pub(crate) fn fields(&self) -> String {
        fields(&self.gateway, self.app.port)
    }

    pub(crate) fn get(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\n{}\r\n", self.fields())
    }

    pub(crate) async fn connect(&self) -> Raw {
        Raw::connect(self.gateway.addresses.public).await
    }

    pub(crate) async fn connect_from(&self, host: u8) -> Raw {
        Raw::connect_from([127, 0, 0, host], self.gateway.addresses.public).await
    }

    /// Takes the request lines that reached the app since the last call.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// Another user, who only wants an answer. What must not hold them up lasts longer than [`PATIENCE`], or is short on purpose.
    pub(crate) async fn assert_serves(&self) {
        let ask = async {
            let mut raw = self.connect().await;
            raw.send(self.get("/other")).await;
            raw.message().await.expect("an answer").status()
        };
        let status = tokio::time::timeout(PATIENCE, ask).await.expect("another user waits");
        assert_eq!(status, 200);
    }

    /// Nothing is left: no request, no channel, no promised byte.
    pub(crate) async fn finish(self) {
        self.gateway.assert_empty().await;
        self.agent.stop().await;
    }
}

pub(crate) fn fields(gateway: &TestGateway, port: u16) -> String {
    let authority = gateway.authority("one", port);
    format!("host: {authority}\r\ngateway-authorization: Bearer {}\r\n", gateway.user_token)
}

/// Memory of this process, in bytes: gateway, agent, app and test together.
pub(crate) fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A connection that writes frames of HTTP/2 as a test says.
pub(crate) struct H2 {
    pub(crate) raw: Raw,
}

/// One frame as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Encodes a frame (RFC 9113, section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes fields literally, without tables or Huffman codes (RFC 7541, section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            // Lengths of seven bits and a continuation (RFC 7541, section 5.1).
            let mut length = text.len();
            if length < 127 {
                bytes.push(length as u8);
            } else {
                bytes.push(127);
                length -= 127;
                while length >= 128 {
                    bytes.push((length % 128) as u8 | 128);
                    length /= 128;
                }
                bytes.push(length as u8);
            }
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

impl H2 {
    /// Connects and says hello; `settings` as (id, value).
    pub(crate) async fn connect(stage: &Stage, settings: &[(u16, u32)]) -> Self {
        Self::connect_to(stage.gateway.addresses.public, settings).await
    }

    /// The same, at an address.
    pub(crate) async fn connect_to(address: std::net::SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut raw = Raw::connect(address).await;
        let payload: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.send(frame(SETTINGS, 0, 0, &payload)).await;
        Self { raw }
    }

    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let head = self.exactly(9).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = self.exactly(length).await?;
        Some(Frame { kind: head[3], stream, payload })
    }

    /// Reads until a frame of this kind comes for this stream; `None` when the connection ends first.
    pub(crate) async fn until(&mut self, kinds: &[u8], stream: u32) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if kinds.contains(&frame.kind) && frame.stream == stream {
                return Some(frame);
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        use tokio::io::AsyncReadExt as _;
        let mut bytes = vec![0; length];
        let read =
            tokio::time::timeout(PATIENCE, self.raw.socket().read_exact(&mut bytes)).await.expect("something comes");
        read.ok().map(|_| bytes)
    }
}

/// The pseudo fields and the token of a good request over HTTP/2.
pub(crate) fn h2_get<'a>(authority: &'a str, bearer: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", authority),
        (":path", path),
        ("gateway-authorization", bearer),
    ]
}

/// An answer that refuses by the name of a limit, and says when to come back.
pub(crate) fn assert_refused(answer: &Message, limit: &str) {
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("overloaded")), "{limit}: {answer:?}");
    assert!(answer.header("retry-after").is_some(), "{limit}: {answer:?}");
    assert_eq!(problem(answer)["limit"], limit);
}

/// An app that takes requests and never answers.
pub(crate) async fn silent_app() -> RawApp {
    RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await
}

pub(crate) fn problem(answer: &Message) -> serde_json::Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("no problem document: {answer:?}"))
}
