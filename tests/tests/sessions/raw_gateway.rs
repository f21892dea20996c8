//! A gateway made of bytes: it takes links of agents, and says on them what a test says.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use e2e::PATIENCE;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::raw_agent::{WINDOW, next_message, send_all};

/// Listens for agents.
pub(crate) struct RawGateway {
    listener: TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// One agent's stream, at the gateway's end. Cut when it is dropped.
pub(crate) struct RawLink {
    /// Value of the agent's `authorization`.
    pub(crate) authorization: String,
    respond: SendResponse<Bytes>,
    stream: Option<SendStream<Bytes>>,
    body: RecvStream,
    unread: BytesMut,
    connection: JoinSet<()>,
}

impl RawGateway {
    /// Listens on a free port.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        Self { listener, address }
    }

    /// Waits for the next link of an agent.
    pub(crate) async fn accept(&self) -> RawLink {
        loop {
            if let Some(link) = tokio::time::timeout(PATIENCE, self.accept_one()).await.expect("an agent dials") {
                return link;
            }
        }
    }

    /// Waits for a connection; `None` if the agent gave it up.
    async fn accept_one(&self) -> Option<RawLink> {
        let (stream, _) = self.listener.accept().await.expect("it listens");
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let mut server = builder.handshake(stream).await.ok()?;
        let (request, respond) = server.accept().await?.ok()?;
        assert_eq!(request.uri().path(), tunnel_link::grpc::PATH);
        let mut connection = JoinSet::new();
        connection.spawn(async move { while server.accept().await.is_some() {} });
        let authorization = request.headers()["authorization"].to_str().expect("text").to_owned();
        let body = request.into_body();
        Some(RawLink { authorization, respond, stream: None, body, unread: BytesMut::new(), connection })
    }
}

impl RawLink {
    /// Waits for the next gRPC message for as long as it takes; `None` at the end of the stream.
    ///
    /// Cancel safety: safe.
    pub(crate) async fn arrived(&mut self) -> Option<Bytes> {
        next_message(&mut self.body, &mut self.unread).await
    }

    /// Sends bytes; the agent may have had enough.
    pub(crate) async fn send(&mut self, bytes: Bytes) {
        if self.stream.is_none() {
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            self.stream = self.respond.send_response(head, false).ok();
        }
        if let Some(stream) = &mut self.stream {
            send_all(stream, bytes).await;
        }
    }

    /// Turns the agent away with a status and message of gRPC.
    pub(crate) async fn refuse(mut self, status: u16, message: &str) {
        let head = Response::builder().header("content-type", "application/grpc");
        let head = head.header("grpc-status", status).header("grpc-message", message).body(()).unwrap();
        self.respond.send_response(head, true).ok();
        self.ended().await;
    }

    /// Ends the stream, and waits until the agent is gone.
    pub(crate) async fn finish(mut self) {
        if let Some(stream) = &mut self.stream {
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            stream.send_trailers(trailers).ok();
        }
        self.ended().await;
    }

    async fn ended(mut self) {
        let Self { connection, .. } = &mut self;
        tokio::time::timeout(PATIENCE, connection.join_next()).await.expect("the agent hangs up");
    }
}
