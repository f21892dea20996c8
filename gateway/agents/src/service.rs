//! Admits agents: authenticate, shake hands, claim, serve, release.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::grpc::{self, Code, FrameReader, ReadError, Received, RpcRefused};
use tunnel_link::pace::{Pace, Paced};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::Hello;
use tunnel_proto::limit::RESUME_ANSWER_TIMEOUT;

use super::admission::{Admission, Admitted, Candidate, RETRY_AFTER, refused, shutting_down};
use super::identity::{AgentIdentities, AgentIdentity, Shown};
use super::pacer::{Busy, Pacer};
use super::registry::{Credential, Subject};
use super::resume::LinkRole;
use gateway_config::Timeouts;
use gateway_net::audit::{self, Audit, AuditEvent, AuditRecord, Text};
use gateway_net::limits::Guest;
use gateway_net::listen::Connection;
use gateway_types::PublicUrl;

mod begun;
mod body;
mod gate;
mod http1;
mod reflection;

use self::begun::PeekedStream;
use self::body::AgentBody;
use self::gate::Gate;
use self::reflection::Reflection;

/// The agents' side of the gateway.
#[derive(Debug)]
pub struct AgentService {
    identities: Arc<AgentIdentities>,
    admission: Admission,
    pacer: Pacer,
    timeouts: Timeouts,
    /// Cancelled once no session is left that an agent could resume.
    closed: CancellationToken,
    reflection: Reflection,
    audit: Audit,
    /// Public address for users.
    public_url: Arc<str>,
}

/// Longest wait of an agent for its turn; below its own wait for a Welcome, with a session to save or without.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// Time for the answer to a call without a Hello to get out.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Deadline for a Hello, and the gate that is told of it.
struct Greeting {
    until: Instant,
    gate: Option<Arc<Gate>>,
}

const _: () = assert!(TURN_PATIENCE.as_millis() < RESUME_ANSWER_TIMEOUT.as_millis());

impl AgentService {
    /// Makes the service. Connections without a session end with `closed`.
    #[must_use]
    pub fn new(
        identities: Arc<AgentIdentities>,
        admission: Admission,
        sessions_per_second: u32,
        timeouts: Timeouts,
        closed: CancellationToken,
        audit: Audit,
        public_url: &PublicUrl,
    ) -> Arc<Self> {
        let pacer = Pacer::new(sessions_per_second, TURN_PATIENCE);
        Arc::new(Self {
            identities,
            admission,
            pacer,
            timeouts,
            closed,
            reflection: Reflection::new(),
            audit,
            public_url: public_url.to_string().into(),
        })
    }

    /// Serves one connection of an agent until it ends.
    pub fn serve(self: &Arc<Self>, connection: Connection) -> impl Future<Output = ()> + Send + use<> {
        let service = self.clone();
        async move {
            let Connection { stream, peer, guest, permit, .. } = connection;
            let Ok(guest) = guest else { return };
            let shown: Shown = stream.certificate().transpose().map(Arc::new);
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
                return Box::pin(http1::serve(service, stream, (peer, shown), (permit, guest))).await;
            }
            let gate = Arc::new(Gate::new(guest.clone()));
            let mut connection = std::pin::pin!(service.http2(stream, (peer, shown), gate.clone()));
            // A connection without a session costs an agent's place, so it does not live for long.
            let ended = tokio::select! {
                result = connection.as_mut() => Some(result),
                // Boxed for the same reason.
                () = Box::pin(service.patience_with(&gate, &guest)) => None,
            };
            let result = match ended {
                Some(result) => result,
                None if gate.is_open() => connection.await,
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
    async fn patience_with(&self, gate: &Gate, guest: &Guest) {
        tokio::select! {
            () = self.patience_for_hello(gate) => {}
            () = guest.sent_away() => {}
            () = gate.shut() => {}
        }
    }

    async fn patience_for_hello(&self, gate: &Gate) {
        let hello = self.timeouts.agent_hello;
        let is_closed = async |time| tokio::time::timeout(time, self.closed.cancelled()).await.is_ok();
        if is_closed(hello).await {
            return;
        }
        // A call without a Hello is being told so; after that, the gate decides.
        if !gate.is_greeted() && (!gate.is_called() || is_closed(ANSWER_TIME).await) {
            return;
        }
        // An agent that has said Hello may have to wait for its turn.
        if gate.is_greeted() {
            is_closed(hello).await;
        }
    }

    /// Drives a connection that speaks HTTP/2; opens the gate when a session came up on it.
    fn http2(
        self: &Arc<Self>,
        stream: PeekedStream,
        (peer, shown): (SocketAddr, Shown),
        gate: Arc<Gate>,
    ) -> impl Future<Output = Result<(), hyper::Error>> + Send + use<> {
        let service = self.clone();
        let (stream, pace) = Paced::new(stream.behind(gate.clone()), PeekedStream::limit_queue);
        let until = Instant::now() + self.timeouts.agent_hello;
        let handler = service_fn(move |request| {
            let (service, gate, pace) = (service.clone(), gate.clone(), pace.clone());
            let shown = shown.clone();
            async move {
                let greeting = Greeting { until, gate: Some(gate.clone()) };
                let response = service.answer(request, (peer, shown), pace, greeting).await;
                // A refusal is a head alone; an answer of reflection has a body.
                if response.headers().contains_key("grpc-status") {
                    gate.refuse();
                } else if matches!(response.body(), AgentBody::Tunnel(_)) {
                    gate.open();
                }
                Ok::<_, Infallible>(response)
            }
        });
        let tunnel = &self.admission.tunnel;
        grpc::server_builder(tunnel.keepalive_interval, tunnel.keepalive_timeout)
            .serve_connection(TokioIo::new(stream), handler)
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        (peer, shown): (SocketAddr, Shown),
        pace: Arc<Pace>,
        greeting: Greeting,
    ) -> Response<AgentBody> {
        if !grpc::is_tunnel_request(&request) {
            return self.reflection.answer(request).await;
        }
        match self.connect(request, (peer, shown), pace, greeting).await {
            Ok(response) => response.map(AgentBody::Tunnel),
            Err(refused) => {
                log_refused(peer, &refused);
                grpc::refuse_response(&refused)
            }
        }
    }

    async fn connect(
        self: &Arc<Self>,
        request: Request<Incoming>,
        (peer, shown): (SocketAddr, Shown),
        pace: Arc<Pace>,
        greeting: Greeting,
    ) -> Result<Response<grpc::Outgoing>, RpcRefused> {
        if let Some(gate) = &greeting.gate {
            gate.call();
        }
        let identity = self.admit(request.headers(), peer, &shown).await?;
        self.attach(identity, FrameReader::new(request.into_body().into()), (peer, pace), greeting).await
    }

    /// Authenticates an agent before it has said anything else, and records a refusal.
    async fn admit(&self, headers: &HeaderMap, peer: SocketAddr, shown: &Shown) -> Result<AgentIdentity, RpcRefused> {
        let admitted = self.identify(headers, shown).await;
        if let Err(refused) = &admitted {
            let reason = Text::new(&refused.message);
            let event = AuditEvent::AgentRefused { workspace: None, cluster: None, reason };
            self.audit.record(AuditRecord::new(event).at_peer(peer.ip()));
        }
        admitted
    }

    async fn identify(&self, headers: &HeaderMap, shown: &Shown) -> Result<AgentIdentity, RpcRefused> {
        // During a drain, agents may resume. Once no session is left, a crowd is refused at less cost.
        if self.admission.drain.is_draining() && self.admission.registry.is_empty() {
            return Err(shutting_down());
        }
        Ok(self.identities.identify(headers, shown).await?)
    }

    /// Shakes hands on a link, whatever carries it, and begins to serve it.
    async fn attach(
        &self,
        identity: AgentIdentity,
        reader: FrameReader<Received>,
        (peer, pace): (SocketAddr, Arc<Pace>),
        greeting: Greeting,
    ) -> Result<Response<grpc::Outgoing>, RpcRefused> {
        let attached = self.attach_as(identity.clone(), reader, (peer, pace), greeting).await;
        if let Err(refused) = &attached {
            let reason = Text::new(&refused.message);
            let (workspace, cluster) = named(&identity.subject);
            let event = AuditEvent::AgentRefused { workspace, cluster, reason };
            self.audit.record(did(&identity, event, peer));
        }
        attached
    }

    async fn attach_as(
        &self,
        mut identity: AgentIdentity,
        mut reader: FrameReader<Received>,
        (peer, pace): (SocketAddr, Arc<Pace>),
        greeting: Greeting,
    ) -> Result<Response<grpc::Outgoing>, RpcRefused> {
        let hello = read_hello(&mut reader, &greeting).await?;
        // A resuming agent has users that wait, and costs less. After a restart no agent resumes, whatever it asks for.
        let is_new = !hello.resume.as_ref().is_some_and(|resume| self.admission.knows(&identity.subject, resume));
        if is_new {
            self.admission.takes_new()?;
            self.turn().await?;
        }
        // Also for resuming agents: a session closed a moment ago may still be there.
        self.identities.may_run(&identity.subject).await?;
        self.identities.spend(&mut identity, hello.instance).await?;
        // A resuming agent counts in the budget that it has.
        let owned = if is_new { self.identities.owned(&identity.subject).await? } else { None };
        let AgentIdentity { subject, lease, .. } = identity.clone();
        let admitted = self.admission.admit(Candidate { subject, owned, lease, peer, via: reader.via(), hello })?;
        let response = grpc::accept_response(admitted.welcome.clone(), admitted.claim.link.clone(), pace);
        self.audit.record(did(&identity, connected(&admitted), peer));
        let (audit, session) = (self.audit.clone(), admitted.claim.session.clone());
        self.admission.serve_then(admitted, reader, move |reason| {
            let (workspace, cluster) = named(&session.subject);
            let event =
                AuditEvent::AgentEnded { workspace, cluster, session: Text::of(session.id), reason: Text::of(reason) };
            audit.record(did(&identity, event, peer));
        });
        Ok(response)
    }

    /// Waits for a turn, so that a crowd does not take the processor from connected agents.
    async fn turn(&self) -> Result<(), RpcRefused> {
        match self.pacer.turn(Instant::now().into_std()) {
            Ok(Duration::ZERO) => Ok(()),
            Ok(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Err(Busy { retry_after }) => {
                Err(refused(Code::ResourceExhausted, "limits.sessions_per_second is reached", Some(retry_after)))
            }
        }
    }
}

async fn read_hello(reader: &mut FrameReader<Received>, greeting: &Greeting) -> Result<Hello, RpcRefused> {
    let first = tokio::time::timeout_at(greeting.until, reader.next()).await;
    match (&first, &greeting.gate) {
        (Err(_elapsed), Some(gate)) => gate.close(),
        (Ok(_), Some(gate)) => gate.greet(),
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
        other @ (Credential::Certificate { .. } | Credential::Pod { .. } | Credential::Job { .. }) => {
            audit::Credential::Other { what: Text::new(other.kind()), id: Text::of(other.id()) }
        }
    };
    AuditRecord::new(event).at_peer(peer.ip()).with(shown)
}

fn connected(admitted: &Admitted) -> AuditEvent {
    let session = &admitted.claim.session;
    let (workspace, cluster) = named(&session.subject);
    AuditEvent::AgentConnected {
        workspace,
        cluster,
        session: Text::of(session.id),
        how: match (admitted.claim.place(), &admitted.welcome.resumed) {
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
