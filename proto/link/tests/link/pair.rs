//! A gateway's end and an agent's end of one session, each as its program builds it.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Empty};
use hyper::body::Incoming as RequestBody;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tunnel_link::grpc::{Chunk, ConnectError, DialedLink, FrameReader, IncomingBody, Outgoing, RpcRefused};
use tunnel_link::grpc::{accept_response, dial, drive, is_tunnel_request, refuse_response, server_builder};
use tunnel_link::pace::{Pace, PacedStream};
use tunnel_link::session::{Incoming, Session};
use tunnel_link::splice::splice;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::{Hello, HostMode, Role, Welcome};
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::limit::{CHANNELS_MAX, OPEN_CREDIT_BYTES, PAYLOAD_BYTES_MAX};
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::version;

use crate::wire::{Stream, Switch, Switched, Wire};

/// Bound on every wait for something that is due to happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for what has to happen soon.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

/// Waits for a transfer, which takes what it takes for as long as it goes on.
pub(crate) async fn while_it_moves<F: Future>(session: &Session, transfer: F) -> F::Output {
    let (mut transfer, mut moved) = (std::pin::pin!(transfer), 0);
    loop {
        if let Ok(output) = tokio::time::timeout(PATIENCE, transfer.as_mut()).await {
            return output;
        }
        let stats = session.stats();
        assert!(stats.bytes_sent + stats.bytes_received > moved, "it stands still: {stats:?}");
        moved = stats.bytes_sent + stats.bytes_received;
    }
}

/// Looks again and again until something holds that nobody announces.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let looking = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    // On a paused clock, which does not move while somebody looks, the count is what bounds it.
    let counting = async {
        for _ in 0..2_000_000_u32 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = looking => {}
        () = counting => panic!("never happened: {what}"),
    }
}

/// Feeds a session that ends with its link. Returns why it ended.
pub(crate) async fn driven_to_end<B>(session: &Session, reader: FrameReader<B>) -> SessionError
where
    B: http_body::Body<Data = bytes::Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    drive(&session.link(), reader).await.over().expect("the session ends with its link")
}

/// Everything that was started on this runtime has ended.
pub(crate) async fn no_task_left() {
    until("no task is left", || tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0).await;
}

/// What the gateway answers with: a session or a refusal.
pub(crate) type Answer = Response<Either<Outgoing, Empty<Chunk>>>;

/// How a pair is built.
pub(crate) struct Plan {
    pub(crate) wire: Wire,
    pub(crate) gateway: Settings,
    pub(crate) agent: Settings,
    /// The agent connects channels to loopback ports; otherwise the test accepts them itself.
    pub(crate) serves: bool,
    /// The link is inside a WebSocket.
    pub(crate) websocket: bool,
}

impl Plan {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            gateway: Settings::new(Side::Gateway),
            agent: Settings::new(Side::Agent),
            serves: true,
            websocket: false,
        }
    }
}

pub(crate) struct Pair {
    pub(crate) gateway: Session,
    pub(crate) agent: Session,
    pub(crate) gateway_end: oneshot::Receiver<SessionError>,
    pub(crate) agent_end: oneshot::Receiver<SessionError>,
    pub(crate) switch: Switch,
    tasks: JoinSet<()>,
}

impl Pair {
    pub(crate) async fn new(wire: Wire) -> Self {
        Self::planned(Plan::new(wire)).await
    }

    pub(crate) async fn planned(plan: Plan) -> Self {
        let mut tasks = JoinSet::new();
        let switch = Switch::new();
        let (here, there) = plan.wire.connect().await;
        let stream = Switched { stream: here, switch: switch.clone() };
        let (mut attached, dialed) = if plan.websocket {
            let attached = crate::websocket::gateway(&mut tasks, there, plan.gateway);
            (attached, crate::websocket::dialed(&mut tasks, stream).await)
        } else {
            let attached = gateway(&mut tasks, there, plan.gateway);
            (attached, dialed(&mut tasks, stream).await)
        };
        let dialed = dialed.expect("welcome");
        let (gateway, reader) = soon(attached.recv()).await.expect("attached");
        let agent = Session::new(plan.agent);
        dialed.attach(agent.link());
        let gateway_end = driven(&mut tasks, &gateway, reader);
        let agent_end = driven(&mut tasks, &agent, dialed.reader);
        if plan.serves {
            let session = agent.clone();
            tasks.spawn(async move { serve(&session).await });
        }
        Self { gateway, agent, gateway_end, agent_end, switch, tasks }
    }

    /// Ends the session if it has not ended yet, and checks that nothing is left of it anywhere.
    pub(crate) async fn finish(mut self) {
        assert_eq!(self.gateway.broken_invariant(), None);
        assert_eq!(self.agent.broken_invariant(), None);
        self.gateway.close(Reason::Shutdown, "the test is over");
        soon(self.gateway.ended()).await;
        soon(self.agent.ended()).await;
        soon(async { while self.tasks.join_next().await.is_some() {} }).await;
        for session in [&self.gateway, &self.agent] {
            // Those that nobody took.
            while let Some(incoming) = soon(session.accept()).await {
                drop(incoming);
            }
            let stats = session.stats();
            assert_eq!((stats.channels_live, stats.window_bytes, stats.queued_bytes), (0, 0, 0));
            assert_eq!(session.broken_invariant(), None);
        }
        drop(self);
        no_task_left().await;
    }
}

fn driven(
    tasks: &mut JoinSet<()>,
    session: &Session,
    reader: FrameReader<IncomingBody>,
) -> oneshot::Receiver<SessionError> {
    let (sender, receiver) = oneshot::channel();
    let session = session.clone();
    tasks.spawn(async move {
        // Not every test asks why.
        sender.send(driven_to_end(&session, reader).await).ok();
        session.said().await;
    });
    receiver
}

/// The gateway's end: gives out each agent that attached.
pub(crate) fn gateway(
    tasks: &mut JoinSet<()>,
    stream: impl Stream + 'static,
    settings: Settings,
) -> mpsc::Receiver<(Session, FrameReader<IncomingBody>)> {
    let (sender, receiver) = mpsc::channel(1);
    serve_rpc(tasks, stream, move |mut reader, pace| {
        let (sender, settings) = (sender.clone(), settings.clone());
        async move {
            let hello = reader.next().await.expect("readable").expect("a frame");
            assert!(matches!(hello.body, Body::Hello(_)), "{hello:?}");
            let session = Session::new(settings);
            sender.send((session.clone(), reader)).await.expect("somebody waits");
            accept_response(welcome(), session.link(), pace).map(Either::Left)
        }
    });
    receiver
}

/// A gateway that turns everybody away.
pub(crate) fn refusing_gateway(tasks: &mut JoinSet<()>, stream: impl Stream + 'static, refused: RpcRefused) {
    serve_rpc(tasks, stream, move |_reader, _pace| {
        let answer: Answer = refuse_response::<Empty<Chunk>>(&refused).map(Either::Right);
        async move { answer }
    });
}

/// Answers the RPC on a stream.
pub(crate) fn serve_rpc<F>(
    tasks: &mut JoinSet<()>,
    stream: impl Stream + 'static,
    answer: impl Fn(FrameReader<IncomingBody>, Arc<Pace>) -> F + Send + 'static,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let (stream, pace) = PacedStream::new(stream, |_, _| None);
    let service = service_fn(move |request: Request<RequestBody>| {
        assert!(is_tunnel_request(&request));
        assert_eq!(request.headers().get("authorization").unwrap(), "Bearer a-token");
        let answer = answer(FrameReader::new(request.into_body().into()), pace.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let minute = Duration::from_secs(60);
    let connection = server_builder(minute, minute).serve_connection(TokioIo::new(stream), service);
    tasks.spawn(async move {
        // How it ends is seen at the sessions.
        connection.await.ok();
    });
}

/// The agent's end, up to the welcome.
pub(crate) async fn dialed(tasks: &mut JoinSet<()>, stream: impl Stream + 'static) -> Result<DialedLink, ConnectError> {
    let authority = "gateway.example:8081".parse().expect("authority");
    let (stream, pace) = PacedStream::new(stream, |_, _| None);
    let dialing = dial(stream, pace, authority, http::uri::Scheme::HTTP, Some("a-token"), hello());
    let (connection, answer) = soon(dialing).await?;
    tasks.spawn(async move {
        // How it ends is seen at the sessions.
        connection.await.ok();
    });
    soon(answer).await
}

/// The agent's end of every channel: a loopback port.
pub(crate) async fn serve(session: &Session) {
    let mut channels = JoinSet::new();
    while let Some(incoming) = session.accept().await {
        channels.spawn(serve_channel(incoming));
    }
    channels.shutdown().await;
}

async fn serve_channel(incoming: Incoming) {
    let connected = tokio::select! {
        () = incoming.abandoned() => return,
        connected = TcpStream::connect(("127.0.0.1", incoming.port)) => connected,
    };
    match connected {
        Err(_) => incoming.refuse(Reason::PortClosed),
        Ok(socket) => {
            tunnel_link::socket::tune(&socket).expect("tuned");
            // How it ends is seen at the other end.
            splice(incoming.accept(), socket).await.ok();
        }
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        versions: version::OURS,
        features: Vec::new(),
        agent_version: "1.0.0".into(),
        role: Role::Workspace,
        instance: 7,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
        join: None,
        lanes: 1,
        apps: Vec::new(),
        host: HostMode::Auto,
        relay: None,
        seal: bytes::Bytes::new(),
    }
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        version: version::VERSION_MAX,
        features: Vec::new(),
        session: SessionId::new(1),
        generation: Generation::new(1),
        channels_max: CHANNELS_MAX,
        payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).expect("small"),
        keepalive_interval: Duration::from_secs(20),
        keepalive_timeout: Duration::from_secs(10),
        resume_secret: bytes::Bytes::new(),
        workspace: "well".into(),
        resume_grace: Duration::ZERO,
        resumed: None,
        lanes: 0,
        join_secret: bytes::Bytes::new(),
        workspace_url: String::new(),
        seal: bytes::Bytes::new(),
    }
}
