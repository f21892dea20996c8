//! The gateway's host: the agents' half of a gateway over simulated TCP. See `gateway::sessions::service` for what it
//! stands for; the registry is the real one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::model::WorkspaceName;
use gateway::sessions::registry::{LiveSession, NewSession, Registry};
use http::header::AUTHORIZATION;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{self, Chunk, Code, FrameReader, Outgoing, Refused};
use tunnel_link::session::Session;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::handshake::{self, Agreement};
use tunnel_proto::hello::{Hello, Role, Welcome};
use tunnel_proto::limit::{CHANNELS_MAX, PAYLOAD_BYTES_MAX};
use tunnel_proto::mux::{ReplicaBudget, Settings, Side};
use tunnel_proto::reason::Reason;
use turmoil::net::{TcpListener, TcpStream};

use crate::net::{GATEWAY, INTERVAL, TIMEOUT};
use crate::shared::{Running, Shared, Witness, now};

/// Where agents dial.
pub(crate) const PORT: u16 = 8081;

/// What a turned-away agent is told to wait.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How long a session that is over may take to say so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Gateway {
    pub(crate) registry: Arc<Registry>,
    pub(crate) drain: Drain,
    budget: Arc<ReplicaBudget>,
    shared: Arc<Shared>,
}

type Answer = Response<Either<Outgoing, Empty<Chunk>>>;

/// The process: takes agents and what users want to do.
pub(crate) async fn run(shared: Arc<Shared>) -> turmoil::Result {
    let started_ms = u64::try_from(now().as_millis())?;
    let gateway = Arc::new(Gateway {
        registry: Arc::new(Registry::new(1_000, started_ms)),
        drain: Drain::default(),
        budget: ReplicaBudget::new(1 << 30),
        shared,
    });
    let (sender, mut jobs) = mpsc::channel(256);
    gateway.shared.gateway_runs(Running {
        registry: gateway.registry.clone(),
        budget: gateway.budget.clone(),
        jobs: sender,
    });
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // A failed expectation in a task fails the host, and with it the test.
            Some(done) = tasks.join_next(), if !tasks.is_empty() => done?,
            Some(job) = jobs.recv() => { tasks.spawn(job(gateway.clone())); }
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                tasks.spawn(gateway.clone().serve(stream, peer));
            }
        }
    }
}

impl Gateway {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let service = service_fn(|request| {
            let gateway = self.clone();
            async move { Ok::<_, Infallible>(gateway.answer(request, peer).await) }
        });
        let connection = grpc::server_builder(INTERVAL, TIMEOUT).serve_connection(TokioIo::new(stream), service);
        // How it ends is seen at the session.
        connection.await.ok();
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        assert!(grpc::is_tunnel_request(&request));
        match self.connect(request, peer).await {
            Ok(response) => response.map(Either::Left),
            Err(refused) => {
                self.shared.note(GATEWAY, format_args!("refused: {}", refused.message));
                grpc::refuse_response::<Empty<Chunk>>(&refused).map(Either::Right)
            }
        }
    }

    async fn connect(&self, request: Request<Incoming>, peer: SocketAddr) -> Result<Response<Outgoing>, Refused> {
        if self.drain.is_draining() {
            return Err(refused(Code::Unavailable, "this gateway is shutting down", Some(RETRY_AFTER)));
        }
        let workspace = authenticate(&request)?;
        let mut reader = FrameReader::new(request.into_body());
        let hello = match tokio::time::timeout(CLOSE_TIMEOUT, reader.next()).await {
            Ok(Ok(Some(Frame { body: Body::Hello(hello), .. }))) => *hello,
            Ok(_) => return Err(refused(Code::InvalidArgument, "the first frame is not a hello", None)),
            Err(_) => return Err(refused(Code::DeadlineExceeded, "no hello came in time", Some(RETRY_AFTER))),
        };
        let agreement = handshake::agree(&hello, Role::Workspace)
            .map_err(|refusal| refused(Code::FailedPrecondition, &refusal.to_string(), None))?;
        let tunnel = Session::new(self.settings(&hello));
        let (session, displaced) = self
            .registry
            .claim(NewSession {
                workspace,
                token: "t-1".parse().expect("an id"),
                tunnel: tunnel.clone(),
                peer,
                agent_version: hello.agent_version,
                ports: hello.ports,
                default_port: hello.default_port,
                requests_max: 1_000,
            })
            .map_err(|_full| refused(Code::ResourceExhausted, "limits.sessions is reached", Some(RETRY_AFTER)))?;
        if let Some(displaced) = displaced {
            self.shared.note(GATEWAY, format_args!("session of {} is displaced", displaced.workspace));
            displaced.tunnel.close(Reason::Displaced, "a newer session of this agent took over");
        }
        let place = self.shared.session_up(Witness {
            host: GATEWAY.to_owned(),
            workspace: session.workspace.to_string(),
            side: Side::Gateway,
            generation: session.generation.get(),
            session: tunnel.clone(),
            end: None,
        });
        let welcome = welcome(&session, agreement);
        let claim = Claim { registry: self.registry.clone(), session };
        self.drain.spawn(drive(self.shared.clone(), place, claim, reader));
        Ok(grpc::accept_response(welcome, tunnel))
    }

    fn settings(&self, hello: &Hello) -> Settings {
        Settings {
            open_credit: hello.open_credit_bytes,
            replica_budget: Some(self.budget.clone()),
            keepalive_interval: INTERVAL,
            keepalive_timeout: TIMEOUT,
            ..Settings::new(Side::Gateway)
        }
    }
}

/// Releases a session's place in the registry, also when its task is cut.
struct Claim {
    registry: Arc<Registry>,
    session: Arc<LiveSession>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.release(&self.session);
        self.session.tunnel.link_lost();
    }
}

async fn drive(shared: Arc<Shared>, place: usize, claim: Claim, reader: FrameReader<Incoming>) {
    let session = &claim.session;
    let end = grpc::drive(&session.tunnel, reader).await;
    shared.session_ended(place, end);
    let was_current = claim.registry.release(session);
    shared.note(GATEWAY, format_args!("released {}: it was current: {was_current}", session.workspace));
    drop(tokio::time::timeout(CLOSE_TIMEOUT, session.tunnel.said()).await);
}

fn authenticate<B>(request: &Request<B>) -> Result<WorkspaceName, Refused> {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    bearer
        .and_then(|bearer| bearer.strip_prefix("Bearer "))
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| refused(Code::Unauthenticated, "the token is not a workspace's name", None))
}

fn welcome(session: &LiveSession, agreement: Agreement) -> Welcome {
    Welcome {
        version: agreement.version,
        features: agreement.features,
        session: session.id,
        generation: session.generation,
        channels_max: CHANNELS_MAX,
        payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).expect("small"),
        keepalive_interval: INTERVAL,
        keepalive_timeout: TIMEOUT,
        resume_secret: bytes::Bytes::new(),
        workspace: session.workspace.to_string(),
    }
}

fn refused(code: Code, message: &str, retry_after: Option<Duration>) -> Refused {
    Refused { code, message: message.to_owned(), retry_after }
}
