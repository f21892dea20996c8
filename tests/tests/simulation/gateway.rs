//! The gateway's host: the agents' half of a gateway over simulated TCP. Admission and registry are the real ones;
//! around them is what `gateway_agents::service` does, with another authentication.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_agents::admission::{Candidate, Owners, SessionFactory, refused};
use gateway_agents::registry::{Credential, Registry, SessionLease, Subject};
use gateway_config::Tunnel;
use gateway_types::{UnixSeconds, WorkspaceName};
use http::header::AUTHORIZATION;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{self, Chunk, Code, FrameReader, Outgoing, RpcRefused, Via};
use tunnel_link::pace::{Pace, PacedStream};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::limit::{CHANNELS_MAX, WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX};
use tunnel_proto::mux::{ReplicaBudget, SessionError, Side};
use turmoil::net::{TcpListener, TcpStream};

pub(crate) use gateway_agents::admission::RETRY_AFTER;

use crate::net::{GATEWAY, INTERVAL, TIMEOUT};
use crate::shared::{Running, Shared, Witness, now};

/// Where agents dial.
pub(crate) const PORT: u16 = 8081;

/// How long an agent may take to say its Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// Memory of all sessions.
const BUDGET_BYTES: u64 = 1 << 30;

pub(crate) struct Gateway {
    pub(crate) registry: Arc<Registry>,
    pub(crate) drain: Drain,
    pub(crate) factory: SessionFactory,
    shared: Arc<Shared>,
    /// Those who write down how sessions end.
    watchers: TaskTracker,
}

type Answer = Response<Either<Outgoing, Empty<Chunk>>>;

/// The process: takes agents and what users want to do.
pub(crate) async fn run(shared: Arc<Shared>) -> turmoil::Result {
    let started_ms = u64::try_from(now().as_millis())?;
    let registry = Arc::new(Registry::new(1_000, started_ms));
    let drain = Drain::default();
    let budget = ReplicaBudget::new(BUDGET_BYTES);
    let factory = SessionFactory {
        registry: registry.clone(),
        budget: budget.clone(),
        owners: Owners::default(),
        tunnel: Tunnel {
            window_initial: WINDOW_BYTES_INITIAL.into(),
            window_max: WINDOW_BYTES_MAX.into(),
            session_budget: 64 << 20,
            owner_budget: BUDGET_BYTES,
            replica_budget: BUDGET_BYTES,
            channels_per_session: CHANNELS_MAX,
            keepalive_interval: INTERVAL,
            keepalive_timeout: TIMEOUT,
            resume_grace: shared.world.resume_grace,
            lanes_max: 1,
            relay_lanes_max: 8,
        },
        requests_max: 1_000,
        workspace_url: "".into(),
        drain: drain.clone(),
        peers: None,
    };
    let (sender, mut jobs) = mpsc::channel(1_024);
    shared.gateway_runs(Running { registry: registry.clone(), budget, jobs: sender });
    let gateway = Arc::new(Gateway { registry, drain, factory, shared, watchers: TaskTracker::new() });
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

/// What the session of an agent with a token that never ends lives on.
pub(crate) fn lease() -> SessionLease {
    SessionLease::renewable(Credential::Token("t-1".parse().expect("an id")), None, UnixSeconds::new(0))
}

impl Gateway {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let (stream, pace) = PacedStream::new(stream, |_stream, _bytes| None);
        let service = service_fn(|request| {
            let (gateway, pace) = (self.clone(), pace.clone());
            async move { Ok::<_, Infallible>(gateway.answer(request, peer, pace).await) }
        });
        let connection = grpc::server_builder(INTERVAL, TIMEOUT).serve_connection(TokioIo::new(stream), service);
        // How it ends is seen at the session.
        connection.await.ok();
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr, pace: Arc<Pace>) -> Answer {
        assert!(grpc::is_tunnel_request(&request));
        match self.connect(request, peer, pace).await {
            Ok(response) => response.map(Either::Left),
            Err(refused) => {
                self.shared.note(GATEWAY, format_args!("refused: {}", refused.message));
                grpc::refuse_response::<Empty<Chunk>>(&refused).map(Either::Right)
            }
        }
    }

    async fn connect(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        pace: Arc<Pace>,
    ) -> Result<Response<Outgoing>, RpcRefused> {
        let workspace = authenticate(&request)?;
        let mut reader = FrameReader::new(request.into_body());
        let hello = match tokio::time::timeout(HELLO_TIMEOUT, reader.next()).await {
            Ok(Ok(Some(Frame { body: Body::Hello(hello), .. }))) => *hello,
            Ok(_) => return Err(refused(Code::InvalidArgument, "the first frame is not a hello", None)),
            Err(_) => return Err(refused(Code::DeadlineExceeded, "no hello came in time", Some(RETRY_AFTER))),
        };
        let subject = Subject::Workspace(workspace);
        let candidate = Candidate {
            subject,
            owned: None,
            lease: lease(),
            peer,
            via: Via::Http2,
            hello,
            generation: None,
            lane: None,
        };
        let admitted = self.factory.provide(candidate)?;
        let session = &admitted.claim.session;
        if admitted.welcome.resumed.is_some() {
            self.shared.note(GATEWAY, format_args!("session of {} goes on", session.subject.name()));
        } else {
            let tunnel = session.tunnel.clone();
            let place = self.shared.session_up(Witness {
                host: GATEWAY.to_owned(),
                workspace: session.subject.name().to_owned(),
                side: Side::Gateway,
                generation: session.generation().get(),
                session: tunnel.clone(),
                end: None,
            });
            let shared = self.shared.clone();
            drop(self.watchers.spawn(async move {
                tunnel.ended().await;
                shared.session_ended(place, tunnel.end().unwrap_or(SessionError::Ended));
            }));
        }
        let response = grpc::accept_response(admitted.welcome.clone(), admitted.claim.link.clone(), pace);
        self.factory.serve(admitted, reader);
        Ok(response)
    }
}

fn authenticate<B>(request: &Request<B>) -> Result<WorkspaceName, RpcRefused> {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    bearer
        .and_then(|bearer| bearer.strip_prefix("Bearer "))
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| refused(Code::Unauthenticated, "the token is not a workspace's name", None))
}
