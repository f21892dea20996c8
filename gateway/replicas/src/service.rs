//! The answering half of what replicas say to each other. A caller of another role gets nothing: its connection does not
//! come up. A hop never hops again: only sessions of this process are found here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_agents::service::{AgentBody, AgentService};
use gateway_net::telemetry::{ChangeWay, Metrics};
use gateway_types::failed_request::FailedRequest;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::timeout;
use tonic::{Code, Status};
use tower_service::Service;
use tracing::{debug, info};
use tunnel_link::grpc::{self, FrameReader, RpcRefused};
use tunnel_link::pace::Pace;
use tunnel_proto::hello::RelayTicket;
use tunnel_proto::id::SessionId;
use tunnel_proto::limit::TICKET_BYTES_MAX;

use crate::carried::{BadLane, CarriedAgent, subject_in};
use crate::changes::ChangeSink;
use crate::changes::set::ChangeSet;
use crate::connection::CALL_TIMEOUT;
use crate::hop::Hops;
use crate::lane_body::WindowedBody;
use crate::wire::peers_server::{Peers, PeersServer};
use crate::wire::{
    Announcement, Displaced, Done, ExplainedRequest, FailedRequestQuery, Introduction, LaneWish, SessionPlace,
    SessionQuery, WantedLane, WorkspaceQuery,
};

/// Longest wait for an agent that has just lost its link: the caller has time left to ask elsewhere.
const LINK_PATIENCE: Duration = Duration::from_secs(2);

/// Path of the call that carries a lane.
pub(crate) const CARRY_LANE: &str = "/peers.v1.Peers/CarryLane";

/// Answers other replicas.
#[derive(Debug)]
pub struct PeerService {
    /// Number of this process start.
    pub incarnation: u64,
    /// Sessions of this process.
    pub registry: Arc<Registry>,
    /// The agents' side of the gateway.
    pub agents: Arc<AgentService>,
    /// Learns of changes at other replicas.
    pub changes: Arc<dyn ChangeSink>,
    /// Failed requests of this process.
    pub failed: Arc<dyn FailedSource>,
    /// Counters.
    pub metrics: Metrics,
    /// Hop lanes from here.
    pub hops: Arc<Hops>,
}

/// Failed requests of a process, by their trace ids.
pub trait FailedSource: fmt::Debug + Send + Sync + 'static {
    /// Finds one.
    fn find(&self, trace: &str) -> Option<FailedRequest>;
}

/// One connection of another replica. The number of its process start is 0 until it has introduced itself.
#[derive(Clone, Debug)]
pub(crate) struct PeerCalls {
    service: Arc<PeerService>,
    peer: Arc<AtomicU64>,
}

impl PeerCalls {
    pub(crate) fn new(service: Arc<PeerService>) -> Self {
        Self { service, peer: Arc::default() }
    }

    /// Returns the number of the other replica's process start.
    pub(crate) fn peer(&self) -> Arc<AtomicU64> {
        self.peer.clone()
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<AgentBody> {
        if request.uri().path() == CARRY_LANE {
            return match self.carry(request.into_body()).await {
                Ok(response) => response,
                Err(refused) => grpc::refuse_response(&refused),
            };
        }
        // The generated server never fails: refusals are answers.
        match PeersServer::new(self.clone()).call(request).await {
            Ok(response) => response.map(AgentBody::Tonic),
            Err(never) => match never {},
        }
    }

    fn introduced(&self) -> Result<u64, Status> {
        match self.peer.load(Ordering::Relaxed) {
            0 => Err(Status::failed_precondition("say who you are first")),
            peer => Ok(peer),
        }
    }

    async fn carry(&self, body: Incoming) -> Result<Response<AgentBody>, RpcRefused> {
        let refused = |message: &str| RpcRefused {
            code: grpc::Code::FailedPrecondition,
            message: message.to_owned(),
            retry_after: None,
        };
        let peer = self.introduced().map_err(|status| refused(status.message()))?;
        let read = timeout(CALL_TIMEOUT, CarriedAgent::read(body)).await.unwrap_or(Err(BadLane::Late));
        let (agent, rest) = read.map_err(|error| {
            debug!(peer, %error, "a lane that a replica carries is not one");
            refused("the lane cannot be read")
        })?;
        let (is_windowed, lease) = (agent.is_windowed, agent.into_lease());
        if is_windowed {
            let pace = Pace::of_carried();
            let reader = FrameReader::new(WindowedBody::new(rest, pace.clone()));
            return self.service.agents.attach_carried(lease, reader, pace).await;
        }
        self.service.agents.attach_carried(lease, FrameReader::new(rest), Pace::unbounded()).await
    }
}

#[tonic::async_trait]
impl Peers for PeerCalls {
    async fn meet(&self, request: tonic::Request<Introduction>) -> Result<tonic::Response<Introduction>, Status> {
        let theirs = request.into_inner();
        if theirs.replica == 0 || theirs.replica == self.service.incarnation {
            return Err(Status::invalid_argument("a replica has a number of its own"));
        }
        self.peer.store(theirs.replica, Ordering::Relaxed);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(tonic::Response::new(Introduction { replica: self.service.incarnation, version }))
    }

    async fn want_lane(&self, request: tonic::Request<LaneWish>) -> Result<tonic::Response<WantedLane>, Status> {
        let peer = self.introduced()?;
        let LaneWish { workspace, cluster, generation, replica, ticket, hop } = request.into_inner();
        if replica != peer || ticket.len() > TICKET_BYTES_MAX {
            return Err(Status::invalid_argument("a lane is for the replica that asks"));
        }
        let subject = subject_in(&workspace, &cluster).map_err(|_| Status::invalid_argument("no name"))?;
        let session = self.session(&subject, generation)?;
        let (away, instance) = (|| Status::unavailable("the agent's link is away"), session.instance);
        // As a request here does. An agent that goes elsewhere meanwhile ends the wait: its session here is displaced.
        if !session.tunnel.attached(LINK_PATIENCE).await {
            return Err(away());
        }
        let ticket = RelayTicket { replica, ticket };
        let hop = hop || !self.service.hops.asks_agent(&session, replica);
        if hop {
            self.service.hops.begin(session, ticket);
        } else if !session.tunnel.want_lane(ticket) {
            return Err(away());
        }
        Ok(tonic::Response::new(WantedLane { instance, hop }))
    }

    async fn has_session(&self, request: tonic::Request<SessionQuery>) -> Result<tonic::Response<Done>, Status> {
        self.introduced()?;
        let SessionQuery { workspace, session } = request.into_inner();
        let name = workspace.parse().map_err(|_| Status::invalid_argument("no workspace's name"))?;
        match self.service.agents.has_session(&Subject::Workspace(name), SessionId::new(session)) {
            true => Ok(tonic::Response::new(Done {})),
            false => Err(Status::not_found("the session is not here")),
        }
    }

    async fn find_session(
        &self,
        request: tonic::Request<WorkspaceQuery>,
    ) -> Result<tonic::Response<SessionPlace>, Status> {
        self.introduced()?;
        let name = request.into_inner().workspace.parse();
        let name = name.map_err(|_| Status::invalid_argument("no workspace's name"))?;
        let session = self.service.registry.of(&Subject::Workspace(name));
        // Without a link, its agent may be elsewhere by now.
        let session = session.filter(|session| !session.tunnel.is_ended() && !session.tunnel.is_detached());
        let found = session.and_then(|session| Some((session.workspace?, session)));
        let (workspace, session) = found.ok_or_else(|| Status::not_found("no session with a link is here"))?;
        let (generation, instance) = (session.generation().get(), session.instance);
        Ok(tonic::Response::new(SessionPlace { workspace_id: workspace.to_string(), generation, instance }))
    }

    async fn displace(&self, request: tonic::Request<Displaced>) -> Result<tonic::Response<Done>, Status> {
        let peer = self.introduced()?;
        let Displaced { workspace, cluster, generation, instance } = request.into_inner();
        let subject = subject_in(&workspace, &cluster).map_err(|_| Status::invalid_argument("no name"))?;
        if let Ok(session) = self.session(&subject, generation) {
            info!(agent = %subject, session = %session.id, peer, "session displaced by one of another replica");
            self.service.registry.displace(&session, instance);
        }
        Ok(tonic::Response::new(Done {}))
    }

    async fn announce(&self, request: tonic::Request<Announcement>) -> Result<tonic::Response<Done>, Status> {
        self.introduced()?;
        let changes = ChangeSet::from_wire(request.into_inner());
        self.service.metrics.changes(ChangeWay::Received, changes.len());
        if changes.is_everything() {
            self.service.metrics.changes(ChangeWay::Everything, 1);
        }
        changes.changes().for_each(|change| self.service.changes.announced(change));
        Ok(tonic::Response::new(Done {}))
    }

    async fn explain(
        &self,
        request: tonic::Request<FailedRequestQuery>,
    ) -> Result<tonic::Response<ExplainedRequest>, Status> {
        self.introduced()?;
        let found = self.service.failed.find(&request.into_inner().trace_id);
        let found = found.ok_or_else(|| Status::not_found("no failed request of this trace id is here"))?;
        let failed = serde_json::to_vec(&found).map_err(|_| Status::internal("it cannot be written"))?;
        Ok(tonic::Response::new(ExplainedRequest { failed: failed.into() }))
    }
}

impl PeerCalls {
    /// Returns a session of this process.
    fn session(&self, subject: &Subject, generation: u64) -> Result<Arc<LiveSession>, Status> {
        let session = self.service.registry.of(subject).filter(|session| session.generation().get() == generation);
        session.ok_or_else(|| Status::new(Code::NotFound, "the session is not here"))
    }
}
