//! Admits agents: authenticate, shake hands, claim, serve, release.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::git::is_git_request;
use tunnel_link::grpc::{self, Code, FrameReader, IncomingBody, PacedBody, ReadError, RpcRefused, Via};
use tunnel_link::lane_window::LaneTaking;
use tunnel_link::pace::{Pace, PacedStream};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Welcome};
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::Settings;

use super::admission::{
    Admission, Admitted, AdmittedAgent, Candidate, RETRY_AFTER, SessionRequest, refused, shutting_down,
};
use super::identity::{AgentIdentities, AgentIdentity, ShownCertificate, UncheckedToken};
use super::peers::CarriedLane;
use super::registry::{Credential, LiveSession, SessionLease, SessionWay, Subject};
use super::resume::LinkRole;
use gateway_config::{Config, Timeouts};
use gateway_git::credentials::GitCredentials;
use gateway_net::audit::{self, Audit, AuditEvent, AuditRecord, Text};
use gateway_net::limits::Guest;
use gateway_net::listen::Connection;
use gateway_store::WorkspaceId;
use gateway_types::UserName;

mod body;
mod carry;
mod data_frames;
mod detect;
mod git;
mod handshake_limit;
mod http1;
mod reflection;

pub use self::body::{AgentBody, RelayedHalf};
pub use self::carry::PassingBody;
use self::carry::{PassingLanes, REFUSED_TIME};
use self::detect::PeekedStream;
use self::handshake_limit::HandshakeLimit;
use self::reflection::Reflection;

/// The agents' side of the gateway.
#[derive(Debug)]
pub struct AgentService {
    identities: Arc<AgentIdentities>,
    admission: Admission,
    timeouts: Timeouts,
    /// Cancelled once no session is left that an agent could resume.
    closed: CancellationToken,
    reflection: Reflection,
    /// Relay lanes that end at other replicas.
    passing: Arc<PassingLanes>,
    audit: Audit,
    /// Owners' credentials for git servers.
    git: Arc<GitCredentials>,
    /// Public address for users.
    public_url: Arc<str>,
}

/// Time for the last frames of closed sessions, before their connections end.
const LAST_FRAMES_TIME: Duration = Duration::from_secs(1);

/// Time for the answer to a call without a Hello to get out.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The other end of a connection.
#[derive(Clone, Debug)]
struct Remote {
    peer: SocketAddr,
    certificate: ShownCertificate,
}

/// An agent of a relay lane that another replica carries here. That replica has authenticated it, and entitled it to a
/// session.
#[derive(Debug)]
pub struct CarriedLease {
    /// Its workspace or cluster.
    pub subject: Subject,
    /// Its credential, and the time for which that counts.
    pub lease: SessionLease,
    /// The workspace and its owner; `None` for a cluster.
    pub owned: Option<(WorkspaceId, UserName)>,
    /// Address that it dialed from.
    pub peer: SocketAddr,
}

/// An agent by what it has shown before its Hello.
#[expect(clippy::large_enum_variant, reason = "almost all are known, and one lives only until its Hello")]
enum ShownAgent {
    /// Authenticated.
    Known(AgentIdentity),
    /// With a token that cannot be looked up while the store is away; the Hello may have a seal.
    Unchecked(UncheckedToken),
}

/// A link of an agent, before its Hello.
struct NewLink {
    reader: FrameReader<IncomingBody>,
    peer: SocketAddr,
    pace: Arc<Pace>,
    greeting: Greeting,
}

/// Deadline for a Hello, and the gate that opens and closes with it.
struct Greeting {
    until: Instant,
    limit: Option<Arc<HandshakeLimit>>,
}

impl AgentService {
    /// Makes the service. Connections without a session end with `closed`.
    #[must_use]
    pub fn new(
        identities: Arc<AgentIdentities>,
        admission: Admission,
        config: &Config,
        closed: CancellationToken,
        audit: Audit,
        git: Arc<GitCredentials>,
    ) -> Arc<Self> {
        let lanes_max = usize::try_from(config.tunnel.relay_lanes_max).unwrap_or(usize::MAX);
        Arc::new(Self {
            identities,
            admission,
            timeouts: config.timeouts.clone(),
            closed,
            reflection: Reflection::new(),
            passing: Arc::new(PassingLanes::new(lanes_max)),
            audit,
            git,
            public_url: config.public_url.to_string().into(),
        })
    }

    /// Returns for how many relay lanes an agent is asked at a time: `tunnel.relay_lanes_max`.
    #[must_use]
    pub fn relay_lanes_max(&self) -> usize {
        self.passing.per_agent_max()
    }

    /// Returns the number of relay lanes that pass through here.
    #[must_use]
    pub fn lanes_carried(&self) -> usize {
        self.passing.count()
    }

    /// Serves one connection of an agent until it ends.
    pub fn serve(self: &Arc<Self>, connection: Connection) -> impl Future<Output = ()> + Send + use<> {
        let service = self.clone();
        async move {
            let Connection { stream, peer, guest, permit, .. } = connection;
            let Ok(guest) = guest else { return };
            let remote = Remote { peer, certificate: stream.certificate().transpose().map(Arc::new) };
            let look = PeekedStream::look(stream, service.timeouts.agent_hello);
            let looked = tokio::select! {
                biased;
                begun = service.closed.run_until_cancelled(look) => begun.flatten(),
                () = guest.sent_away() => None,
            };
            let Some(stream) = looked else {
                debug!(%peer, "nothing came on this connection");
                return;
            };
            if !stream.is_http2() {
                // Boxed: an idle link over HTTP/2 is not to be as large as this.
                return Box::pin(http1::serve(service, stream, remote, http1::Presence { guest, _permit: permit }))
                    .await;
            }
            let limit = Arc::new(HandshakeLimit::new(guest.clone()));
            let mut connection = std::pin::pin!(service.http2(stream, remote, limit.clone()));
            // A connection without a session costs an agent's place, so it does not live for long.
            let ended = tokio::select! {
                result = connection.as_mut() => Some(result),
                // Boxed for the same reason.
                () = Box::pin(service.patience_with(&limit, &guest)) => None,
            };
            let result = match ended {
                Some(result) => result,
                None if limit.is_open() => connection.await,
                None => {
                    debug!(%peer, "no session came up on this connection");
                    Ok(())
                }
            };
            debug!(%peer, ?result, "agent connection ended");
            drop(permit);
        }
    }

    /// Waits until a connection without a session has to go: its time is up, no session is left to resume, or others of
    /// its address need the room.
    async fn patience(&self, guest: &Guest) {
        tokio::select! {
            _ = tokio::time::timeout(2 * self.timeouts.agent_hello, self.closed.cancelled()) => {}
            () = guest.sent_away() => {}
        }
    }

    /// Waits likewise for a connection whose gate sees whether a Hello has come, and whose calls can be refused one
    /// after another.
    async fn patience_with(&self, limit: &HandshakeLimit, guest: &Guest) {
        tokio::select! {
            () = self.patience_for_hello(limit) => {}
            () = guest.sent_away() => {}
            () = limit.shut() => {}
        }
    }

    async fn patience_for_hello(&self, limit: &HandshakeLimit) {
        let hello = self.timeouts.agent_hello;
        let is_closed = async |time| tokio::time::timeout(time, self.closed.cancelled()).await.is_ok();
        if is_closed(hello).await {
            return;
        }
        // A call without a Hello is being told so; after that, the gate decides.
        if !limit.is_greeted() && (!limit.is_called() || is_closed(ANSWER_TIME).await) {
            return;
        }
        // An agent that has said Hello may have to wait for its turn.
        if limit.is_greeted() {
            is_closed(hello).await;
        }
    }

    /// Drives a connection that speaks HTTP/2; opens the gate when a session came up on it.
    fn http2(
        self: &Arc<Self>,
        stream: PeekedStream,
        remote: Remote,
        limit: Arc<HandshakeLimit>,
    ) -> impl Future<Output = Result<(), hyper::Error>> + Send + use<> {
        let service = self.clone();
        let (stream, pace) = PacedStream::new(stream.behind(limit.clone()), PeekedStream::limit_queue);
        let until = Instant::now() + self.timeouts.agent_hello;
        let handler = service_fn(move |request| {
            let (service, limit, pace, remote) = (service.clone(), limit.clone(), pace.clone(), remote.clone());
            async move {
                let greeting = Greeting { until, limit: Some(limit.clone()) };
                let response = service.answer(request, &remote, pace, greeting).await;
                // A refusal is a head alone; an answer of reflection has a body.
                if response.headers().contains_key("grpc-status") {
                    limit.refuse();
                } else if matches!(response.body(), AgentBody::Tunnel(_) | AgentBody::Relay(_)) {
                    limit.open();
                }
                Ok::<_, Infallible>(response)
            }
        });
        let tunnel = &self.admission.factory().tunnel;
        let connection = grpc::server_builder(tunnel.keepalive_interval, tunnel.keepalive_timeout)
            .serve_connection(TokioIo::new(stream), handler);
        let (service, closed) = (self.clone(), self.closed.clone());
        // No session is left then: a drain does not wait for an agent that keeps its connection. Boxed, as it is idle.
        let mut over = Box::pin(async move {
            closed.cancelled().await;
            tokio::time::sleep(LAST_FRAMES_TIME).await;
        });
        async move {
            let (mut connection, mut is_awaited) = (std::pin::pin!(connection), false);
            std::future::poll_fn(|context| {
                if let Poll::Ready(result) = connection.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                // This runs for each frame. A task keeps its waker, so the end is waited for once, and polled again in a drain.
                if is_awaited && !service.admission.factory().drain.is_draining() {
                    return Poll::Pending;
                }
                is_awaited = true;
                over.as_mut().poll(context).map(Ok)
            })
            .await
        }
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: &Remote,
        pace: Arc<Pace>,
        greeting: Greeting,
    ) -> Response<AgentBody> {
        if is_git_request(&request) {
            return Box::pin(self.answer_git(request, remote, greeting.limit.as_deref())).await;
        }
        if !grpc::is_tunnel_request(&request) {
            return self.reflection.answer(request).await;
        }
        match self.connect(request, remote, pace, greeting).await {
            Ok(response) => response,
            Err(refused) => {
                log_refused(remote.peer, &refused);
                grpc::refuse_response(&refused)
            }
        }
    }

    /// Answers one call that came over a stream of a test's making.
    #[cfg(any(test, feature = "testing"))]
    pub async fn answer_on(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
        pace: Arc<Pace>,
    ) -> Response<AgentBody> {
        let greeting = Greeting { until: Instant::now() + self.timeouts.agent_hello, limit: None };
        self.answer(request, &Remote { peer, certificate: None }, pace, greeting).await
    }

    async fn connect(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: &Remote,
        pace: Arc<Pace>,
        greeting: Greeting,
    ) -> Result<Response<AgentBody>, RpcRefused> {
        if let Some(limit) = &greeting.limit {
            limit.call();
        }
        let shown = self.authenticate(request.headers(), remote).await?;
        let reader = FrameReader::new(request.into_body().into());
        // Boxed: the future of a call takes its room for as long as the link lives, and this is soon over.
        Box::pin(self.attach(shown, NewLink { reader, peer: remote.peer, pace, greeting })).await
    }

    /// Authenticates an agent before it has sent anything else, and records a refusal.
    async fn authenticate(&self, headers: &HeaderMap, remote: &Remote) -> Result<ShownAgent, RpcRefused> {
        // During a drain, agents may resume. Once no session is left, a crowd is refused at less cost.
        let shown = if self.admission.factory().is_closed() {
            Err(shutting_down())
        } else {
            let identity = self.identities.authenticate(headers, &remote.certificate).await;
            identity.map(ShownAgent::Known).or_else(|refusal| {
                // One gateway alone makes no seals.
                let has_peers = self.admission.factory().peers.is_some();
                let unchecked = self.identities.unchecked(headers, &remote.certificate, &refusal);
                unchecked.filter(|_| has_peers).map(ShownAgent::Unchecked).ok_or_else(|| refusal.into())
            })
        };
        shown.inspect_err(|refused| self.record_refused(refused, remote.peer))
    }

    /// Records the refusal of an agent that is not known.
    fn record_refused(&self, refused: &RpcRefused, peer: SocketAddr) {
        let reason = Text::new(&refused.message);
        let event = AuditEvent::AgentRefused { workspace: None, cluster: None, reason };
        self.audit.record(AuditRecord::new(event).at_peer(peer.ip()));
    }

    /// Shakes hands on a link, whatever carries it, records the result, and begins to serve the link.
    async fn attach(&self, shown: ShownAgent, mut link: NewLink) -> Result<Response<AgentBody>, RpcRefused> {
        let hello = read_hello(&mut link.reader, &link.greeting).await;
        let agent = match shown {
            ShownAgent::Known(agent) => agent,
            ShownAgent::Unchecked(token) => {
                let refused = |refused: &RpcRefused| self.record_refused(refused, link.peer);
                let hello = hello.inspect_err(refused)?;
                let agent = self.identities.by_seal(&token, &hello).map_err(RpcRefused::from).inspect_err(refused)?;
                return self.attach_greeted(agent, Ok(hello), link).await;
            }
        };
        self.attach_greeted(agent, hello, link).await
    }

    async fn attach_greeted(
        &self,
        agent: AgentIdentity,
        hello: Result<Hello, RpcRefused>,
        link: NewLink,
    ) -> Result<Response<AgentBody>, RpcRefused> {
        let NewLink { reader, peer, pace, greeting } = link;
        let admitted = match hello {
            Ok(hello) => self.admission.admit(agent.clone(), SessionRequest { hello, peer, via: reader.via() }).await,
            Err(refused) => Err(refused),
        };
        let admitted = match admitted {
            Ok(Admitted::Elsewhere { replica, candidate }) => {
                let link = NewLink { reader, peer, pace, greeting };
                // Boxed, as all that few links need: the future of a call takes its room for as long as the link lives.
                return Box::pin(self.carry(replica, candidate, link)).await;
            }
            Ok(Admitted::Here(admitted)) => Ok(*admitted),
            Err(refused) => Err(refused),
        };
        let event = match &admitted {
            Ok(admitted) => connected(admitted),
            Err(refused) => {
                let (workspace, cluster) = named(&agent.subject);
                AuditEvent::AgentRefused { workspace, cluster, reason: Text::new(&refused.message) }
            }
        };
        self.audit.record(did(&agent, event, peer));
        Ok(self.accept(agent, admitted?, reader, peer, pace))
    }

    /// Returns whether a session, or one of its lanes, is here and may be resumed, also while this gateway drains: it lives until
    /// its streams have ended.
    #[must_use]
    pub fn has_session(&self, subject: &Subject, session: SessionId) -> bool {
        self.admission.factory().has(subject, session, SessionWay::Direct)
    }

    /// Returns the settings of the half of a hop lane that this replica has. See [`SessionFactory::hop_settings`](
    /// crate::admission::SessionFactory::hop_settings).
    #[must_use]
    pub fn hop_settings(&self, session: &LiveSession, welcome: &Welcome) -> Settings {
        self.admission.factory().hop_settings(session, welcome)
    }

    /// Serves a link that another replica carries here, whose agent that replica has entitled: a relay lane, or a link of a
    /// session that was dialed here. What is sent keeps to the pace.
    ///
    /// # Errors
    /// [`RpcRefused`] with the text for the agent's log.
    ///
    /// # Cancel safety
    /// Safe; a ticket stays used.
    pub async fn attach_carried<B>(
        &self,
        agent: CarriedLease,
        mut reader: FrameReader<B>,
        pace: Arc<Pace>,
    ) -> Result<Response<AgentBody>, RpcRefused>
    where
        B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let CarriedLease { subject, lease, owned, peer } = agent;
        let greeting = Greeting { until: Instant::now() + self.timeouts.agent_hello, limit: None };
        let hello = read_hello(&mut reader, &greeting).await?;
        let identity = AgentIdentity::relayed(subject.clone(), lease.clone());
        let via = Via::Http2;
        let candidate = Candidate { subject, owned, lease, peer, via, hello, generation: None, lane: None };
        let admitted = self.admission.provide_lane(candidate).await?;
        self.audit.record(did(&identity, connected(&admitted), peer));
        Ok(self.accept(identity, admitted, reader, peer, pace))
    }

    /// Answers an admitted agent, and begins to serve its link.
    fn accept<B>(
        &self,
        agent: AgentIdentity,
        admitted: AdmittedAgent,
        reader: FrameReader<B>,
        peer: SocketAddr,
        pace: Arc<Pace>,
    ) -> Response<AgentBody>
    where
        B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let response = grpc::accept_response(admitted.welcome.clone(), admitted.claim.link.clone(), pace);
        let (audit, session) = (self.audit.clone(), admitted.claim.session.clone());
        self.admission.factory().serve_then(admitted, reader, move |reason| {
            let (workspace, cluster) = named(&session.subject);
            let event =
                AuditEvent::AgentEnded { workspace, cluster, session: Text::of(session.id), reason: Text::of(reason) };
            audit.record(did(&agent, event, peer));
        });
        response.map(AgentBody::Tunnel)
    }

    /// Carries a relay lane to the replica at which it ends, and that replica's answer back.
    async fn carry(
        &self,
        replica: u64,
        candidate: Box<Candidate>,
        link: NewLink,
    ) -> Result<Response<AgentBody>, RpcRefused> {
        let NewLink { reader, pace, greeting, .. } = link;
        let many = || refused(Code::ResourceExhausted, "too many relay lanes of this agent", Some(RETRY_AFTER));
        let permit =
            candidate.subject.workspace().and_then(|workspace| self.passing.permit(workspace)).ok_or_else(many)?;
        let lost = || refused(Code::Unavailable, "the replica of this lane cannot be reached", Some(RETRY_AFTER));
        let peers = self.admission.factory().peers.clone().ok_or_else(lost)?;
        let hello = grpc::hello_message(&candidate.hello);
        let body =
            PassingBody::new(reader.into_body(), greeting.limit.as_deref().map(HandshakeLimit::pass), permit.clone());
        let taking = LaneTaking::new(pace.clone());
        let answer = peers.carry(CarriedLane { replica, candidate, hello, body, taking: taking.clone() }).await;
        let is_refused = match &answer {
            // A refusal is a head alone.
            Ok(response) => response.headers().contains_key("grpc-status"),
            Err(refused) => refused.code == Code::PermissionDenied,
        };
        if is_refused {
            tokio::time::sleep(REFUSED_TIME).await;
        }
        drop(permit);
        let draining = self.admission.factory().drain.draining();
        let half = |body| PacedBody::new(RelayedHalf::new(body, draining.clone(), taking), pace);
        Ok(answer?.map(|body| AgentBody::Relay(half(body))))
    }
}

async fn read_hello<B>(reader: &mut FrameReader<B>, greeting: &Greeting) -> Result<Hello, RpcRefused>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let first = tokio::time::timeout_at(greeting.until, reader.next()).await;
    match (&first, &greeting.limit) {
        (Err(_elapsed), Some(limit)) => limit.close(),
        (Ok(_), Some(limit)) => limit.greet(),
        (_, None) => {}
    }
    match first {
        Err(_elapsed) => Err(refused(Code::DeadlineExceeded, "no hello came in time", Some(RETRY_AFTER))),
        Ok(Ok(Some(Frame { body: Body::Hello(hello), .. }))) => Ok(*hello),
        Ok(Ok(_) | Err(ReadError::Body(_))) => {
            Err(refused(Code::InvalidArgument, "the first frame is not a hello", None))
        }
        Ok(Err(ReadError::Frame(error))) => Err(refused(Code::InvalidArgument, &error.to_string(), None)),
    }
}

/// Makes a record of an agent's event.
fn did(identity: &AgentIdentity, event: AuditEvent, peer: SocketAddr) -> AuditRecord {
    let shown = match &identity.lease.credential {
        Credential::Token(id) => audit::Credential::Token { id: Some(Text::of(id)) },
        other @ (Credential::Certificate { .. }
        | Credential::Pod { .. }
        | Credential::Job { .. }
        | Credential::Relayed { .. }) => {
            audit::Credential::Other { what: Text::new(other.kind()), id: Text::of(other.id()) }
        }
    };
    AuditRecord::new(event).at_peer(peer.ip()).with(shown)
}

fn connected(admitted: &AdmittedAgent) -> AuditEvent {
    let session = &admitted.claim.session;
    let (workspace, cluster) = named(&session.subject);
    AuditEvent::AgentConnected {
        workspace,
        cluster,
        session: Text::of(session.id),
        how: match (admitted.claim.role(), &admitted.welcome.resumed) {
            (LinkRole::First | LinkRole::Lane(_), Some(_)) => "resumed",
            (LinkRole::First, None) => "new",
            (LinkRole::Lane(_), None) => "lane",
        },
        agent_version: Text::new(&session.agent_version),
    }
}

/// Returns the workspace and the cluster of a record, of which one is there.
fn named(subject: &Subject) -> (Option<Text>, Option<Text>) {
    (subject.workspace().map(Text::of), subject.cluster().map(Text::of))
}

fn log_refused(peer: SocketAddr, refused: &RpcRefused) {
    info!(%peer, code = ?refused.code, reason = %refused.message, "agent refused");
}
