//! An agent made of bytes: gRPC messages on an HTTP/2 stream, with nothing that keeps it within the rules.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use e2e::raw::{Raw, RawApp};
use e2e::scripted::hello;
use e2e::{PATIENCE, TestAgent, TestGateway};
use gateway_config::Config;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Welcome};
use tunnel_proto::id::ChannelId;

/// What the gateway may send that the test does not read.
pub(crate) const WINDOW: u32 = 16 * 1024 * 1024;

/// One agent's stream.
pub(crate) struct RawAgent {
    stream: SendStream<Bytes>,
    answer: Option<ResponseFuture>,
    body: Option<RecvStream>,
    unread: BytesMut,
    /// Number of the last numbered frame.
    pub(crate) sequence: u64,
    /// Number of the last numbered frame of the gateway.
    pub(crate) received: u64,
    _tasks: JoinSet<()>,
}

impl RawAgent {
    /// Opens the stream, with an `authorization` of this text.
    pub(crate) async fn open(gateway: &TestGateway, authorization: Option<&str>) -> Self {
        Self::open_with_window(gateway, authorization, WINDOW).await
    }

    /// Opens the stream; the gateway may send so many bytes that the test does not read.
    pub(crate) async fn open_with_window(gateway: &TestGateway, authorization: Option<&str>, window: u32) -> Self {
        Self::open_at(gateway.addresses.agents, authorization, window).await
    }

    async fn open_at(address: SocketAddr, authorization: Option<&str>, window: u32) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        Self::open_over(stream, authorization.as_slice(), window).await.expect("HTTP/2")
    }

    /// Opens the stream on a connection, with these `authorization`s. `None` when the connection was cut.
    pub(crate) async fn open_over<S>(stream: S, authorizations: &[&str], window: u32) -> Option<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(window);
        let (mut client, connection) = builder.handshake(stream).await.ok()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            connection.await.ok();
        });
        let uri = format!("http://localhost{}", tunnel_link::grpc::PATH);
        let mut request = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        for authorization in authorizations {
            request = request.header("authorization", *authorization);
        }
        poll_fn(|context| client.poll_ready(context)).await.ok()?;
        let (answer, stream) = client.send_request(request.body(()).unwrap(), false).ok()?;
        Some(Self {
            stream,
            answer: Some(answer),
            body: None,
            unread: BytesMut::new(),
            sequence: 0,
            received: 0,
            _tasks: tasks,
        })
    }

    /// Opens the stream with a token and says a Hello.
    pub(crate) async fn dial(gateway: &TestGateway, token: &str, hello: Hello) -> Self {
        Self::dial_at(gateway.addresses.agents, token, hello).await
    }

    /// Opens the stream at an address with a token and says a Hello.
    pub(crate) async fn dial_at(address: SocketAddr, token: &str, hello: Hello) -> Self {
        let mut agent = Self::open_at(address, Some(&format!("Bearer {token}")), WINDOW).await;
        agent.say(Body::Hello(Box::new(hello))).await;
        agent
    }

    /// Attaches as the agent of a workspace of `dev`.
    pub(crate) async fn attach(gateway: &TestGateway, workspace: &str) -> Self {
        let token = gateway.agent_token(workspace).await;
        let mut agent = Self::dial(gateway, &token, hello()).await;
        agent.welcome().await;
        gateway.until_connected(workspace).await;
        agent
    }

    /// Waits for the welcome.
    pub(crate) async fn welcome(&mut self) -> Welcome {
        match self.next().await.expect("a welcome").body {
            Body::Welcome(welcome) => *welcome,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a frame with the number that is due.
    pub(crate) async fn say(&mut self, body: Body) {
        self.sequence += u64::from(body.is_numbered());
        let sequence = if body.is_numbered() { self.sequence } else { 0 };
        self.send_frame(Frame { sequence, acknowledged: 0, body }).await;
    }

    /// Sends a frame with its own numbers.
    pub(crate) async fn send_frame(&mut self, frame: Frame) {
        self.send(message(frame)).await;
    }

    /// Sends bytes; the gateway may have had enough.
    pub(crate) async fn send(&mut self, bytes: Bytes) {
        send_all(&mut self.stream, bytes).await;
    }

    /// Ends the sending direction.
    pub(crate) fn finish(&mut self) {
        self.stream.send_data(Bytes::new(), true).ok();
    }

    /// Waits for the next frame; `None` at the end of the stream, however it ends.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let frame = Frame::decode(self.next_message().await?).expect("the gateway's frames are good");
        if frame.sequence > 0 {
            assert_eq!(frame.sequence, self.received + 1, "a frame is missing, or came twice");
            self.received = frame.sequence;
        }
        Some(frame)
    }

    /// Waits for the next gRPC message, as it came; `None` at the end of the stream, however it ends.
    pub(crate) async fn next_message(&mut self) -> Option<Bytes> {
        tokio::time::timeout(PATIENCE, self.arrived()).await.expect("a frame")
    }

    /// Waits for the next gRPC message for as long as it takes.
    ///
    /// Cancel safety: safe.
    pub(crate) async fn arrived(&mut self) -> Option<Bytes> {
        assert_eq!(self.refused().await, None);
        next_message(self.body.as_mut()?, &mut self.unread).await
    }

    /// Waits for a frame that says something, and not only that the other side is there.
    pub(crate) async fn heard(&mut self) -> Option<Body> {
        loop {
            let body = self.next().await?.body;
            if let Body::Ping { token } = body {
                self.say(Body::Pong { token }).await;
            } else if !matches!(body, Body::Acknowledge | Body::Pong { .. }) {
                return Some(body);
            }
        }
    }

    /// Waits for the next channel that the gateway opens.
    pub(crate) async fn opened(&mut self) -> ChannelId {
        loop {
            match self.heard().await {
                Some(Body::Open(open)) => return open.channel,
                Some(Body::Close { reason, .. }) => panic!("the session ended: {reason}"),
                None => panic!("the session ended"),
                Some(_) => {}
            }
        }
    }

    /// Returns the gRPC status and message of a refusal.
    pub(crate) async fn refusal(self) -> (u16, String) {
        self.refusal_if_any().await.expect("an answer")
    }

    /// Returns the gRPC status and message of a refusal; `None` when the connection was cut instead.
    pub(crate) async fn refusal_if_any(mut self) -> Option<(u16, String)> {
        let refused = tokio::time::timeout(PATIENCE, self.refused()).await.expect("an answer");
        assert!(self.body.is_none(), "not refused");
        refused
    }

    /// Waits for the head of the answer, if that has not come before. Returns the gRPC status and message of a refusal.
    ///
    /// Cancel safety: safe.
    pub(crate) async fn refused(&mut self) -> Option<(u16, String)> {
        let answer = self.answer.as_mut()?.await;
        self.answer = None;
        let answer = answer.ok()?;
        let text = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let Some(status) = text("grpc-status") else {
            self.body = Some(answer.into_body());
            return None;
        };
        Some((status.parse().unwrap(), text("grpc-message").unwrap_or_default()))
    }
}

/// Encodes a frame as a gRPC message.
pub(crate) fn message(frame: Frame) -> Bytes {
    let mut encoded = BytesMut::new();
    let payload = frame.encode(&mut encoded);
    encoded.extend_from_slice(&payload);
    prefixed(&encoded)
}

/// Puts the prefix of a gRPC message before bytes.
pub(crate) fn prefixed(bytes: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(bytes.len() + 5);
    message.put_u8(0);
    message.put_u32(u32::try_from(bytes.len()).unwrap());
    message.extend_from_slice(bytes);
    message.freeze()
}

/// Sends bytes on a stream; the other side may have had enough.
pub(crate) async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = tokio::time::timeout(PATIENCE, poll_fn(|context| stream.poll_capacity(context)));
        let Some(Ok(room)) = room.await.expect("the other side reads") else { return };
        if stream.send_data(bytes.split_to(room.min(bytes.len())), false).is_err() {
            return;
        }
    }
}

/// Waits for the next gRPC message of a stream, of which `unread` came already; `None` at its end.
///
/// Cancel safety: safe.
pub(crate) async fn next_message(body: &mut RecvStream, unread: &mut BytesMut) -> Option<Bytes> {
    loop {
        if let Some(length) = unread.get(1..5).map(|length| u32::from_be_bytes(length.try_into().unwrap()) as usize)
            && unread.len() >= 5 + length
        {
            unread.advance(5);
            return Some(unread.split_to(length).freeze());
        }
        let piece = body.data().await?.ok()?;
        body.flow_control().release_capacity(piece.len()).ok();
        unread.extend_from_slice(&piece);
    }
}

/// A gateway, and another workspace on it that has to go on working whatever happens.
pub(crate) struct Stage {
    pub(crate) gateway: TestGateway,
    pub(crate) app: RawApp,
    bystander: TestAgent,
}

impl Stage {
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let gateway = TestGateway::start_tidy(change).await;
        let bystander = gateway.agent("bystander").await;
        let app = RawApp::mirror().await;
        Self { gateway, app, bystander }
    }

    pub(crate) fn get(&self, workspace: &str, port: u16) -> String {
        let authority = self.gateway.authority(workspace, port);
        format!(
            "GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {}\r\n\r\n",
            self.gateway.user_token
        )
    }

    /// Asks and does not wait.
    pub(crate) async fn asking(&self, workspace: &str, port: u16) -> Raw {
        let mut raw = Raw::connect(self.gateway.addresses.public).await;
        raw.send(self.get(workspace, port)).await;
        raw
    }

    pub(crate) async fn assert_serves(&self, workspace: &str) {
        let answer = self.asking(workspace, self.app.port).await.message().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{workspace}: {answer:?}");
    }

    /// The bystander noticed nothing, and nothing is left.
    pub(crate) async fn finish(self) {
        self.assert_serves("bystander").await;
        self.gateway.assert_empty().await;
        self.bystander.stop().await;
    }
}
