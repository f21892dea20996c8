//! How agents get in: authenticate, shake hands, claim, serve, release.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tracing::{debug, info, warn};
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{self, Code, FrameReader, ReadError, Received, Refused};
use tunnel_link::session::Session;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::handshake;
use tunnel_proto::hello::{Hello, Role, Welcome};
use tunnel_proto::limit::PAYLOAD_BYTES_MAX;
use tunnel_proto::mux::{ReplicaBudget, Settings, Side};
use tunnel_proto::reason::Reason;

use super::registry::{Full, LiveSession, NewSession, Registry};
use crate::auth::token::{Token, TokenKind};
use crate::config::{Limits, Timeouts, Tunnel};
use crate::model::WorkspaceName;
use crate::net::listen::Connection;
use crate::store::{Store, TokenId, TokenSubject, wall_clock};

mod begun;
mod body;
mod http1;
mod reflection;

use self::begun::Begun;
use self::body::AgentBody;
use self::reflection::Reflection;

/// What a turned-away agent is told to wait before it dials again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How long a session that is over may take to say so before its link is cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The agents' side of the gateway.
#[derive(Debug)]
pub struct AgentService {
    store: Store,
    registry: Arc<Registry>,
    budget: Arc<ReplicaBudget>,
    tunnel: Tunnel,
    timeouts: Timeouts,
    limits: Limits,
    drain: Drain,
    reflection: Reflection,
}

/// Whom a credential stands for.
struct Identity {
    workspace: WorkspaceName,
    token: TokenId,
}

impl AgentService {
    /// Makes the service.
    #[must_use]
    pub fn new(
        store: Store,
        registry: Arc<Registry>,
        budget: Arc<ReplicaBudget>,
        tunnel: Tunnel,
        timeouts: Timeouts,
        limits: Limits,
        drain: Drain,
    ) -> Arc<Self> {
        let reflection = Reflection::new();
        Arc::new(Self { store, registry, budget, tunnel, timeouts, limits, drain, reflection })
    }

    /// Serves one connection of an agent until it ends.
    pub fn serve(self: &Arc<Self>, connection: Connection) -> impl Future<Output = ()> + Send + use<> {
        let service = self.clone();
        async move {
            let Connection { stream, peer, permit } = connection;
            let Some(stream) = Begun::look(stream, service.timeouts.agent_hello).await else {
                debug!(%peer, "nothing came on this connection");
                return;
            };
            if !stream.is_http2() {
                // Boxed: an idle link over HTTP/2 is not to be as large as this.
                return Box::pin(http1::serve(service, stream, peer, permit)).await;
            }
            let admitted = Arc::new(AtomicBool::new(false));
            let mut connection = std::pin::pin!(service.http2(stream, peer, admitted.clone()));
            // A connection without a session costs an agent's place, so it does not live for long.
            let result = match tokio::time::timeout(2 * service.timeouts.agent_hello, connection.as_mut()).await {
                Ok(result) => result,
                Err(_elapsed) if admitted.load(Ordering::Relaxed) => connection.await,
                Err(_elapsed) => {
                    debug!(%peer, "no session came up on this connection");
                    Ok(())
                }
            };
            debug!(%peer, ?result, "agent connection ended");
            drop(permit);
        }
    }

    /// Drives a connection that speaks HTTP/2; tells when a session came up on it.
    fn http2(
        self: &Arc<Self>,
        stream: Begun,
        peer: SocketAddr,
        admitted: Arc<AtomicBool>,
    ) -> impl Future<Output = Result<(), hyper::Error>> + Send + use<> {
        let service = self.clone();
        let handler = service_fn(move |request| {
            let (service, admitted) = (service.clone(), admitted.clone());
            async move {
                let response = service.answer(request, peer).await;
                if matches!(response.body(), AgentBody::Tunnel(_)) {
                    admitted.store(true, Ordering::Relaxed);
                }
                Ok::<_, Infallible>(response)
            }
        });
        grpc::server_builder(self.tunnel.keepalive_interval, self.tunnel.keepalive_timeout)
            .serve_connection(TokioIo::new(stream), handler)
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Response<AgentBody> {
        if !grpc::is_tunnel_request(&request) {
            return self.reflection.answer(request).await;
        }
        match self.connect(request, peer).await {
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
        peer: SocketAddr,
    ) -> Result<Response<grpc::Outgoing>, Refused> {
        let identity = self.admit(request.headers()).await?;
        self.attach(identity, FrameReader::new(request.into_body().into()), peer).await
    }

    /// Lets an agent in or turns it away, before it said anything but who it is.
    async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        if self.drain.is_draining() {
            return Err(refused(Code::Unavailable, "this gateway is shutting down", Some(RETRY_AFTER)));
        }
        self.authenticate(headers).await
    }

    /// Shakes hands on a link, whatever carries it, and begins to serve it.
    async fn attach(
        &self,
        identity: Identity,
        mut reader: FrameReader<Received>,
        peer: SocketAddr,
    ) -> Result<Response<grpc::Outgoing>, Refused> {
        let hello = self.read_hello(&mut reader).await?;
        let agreement = handshake::agree(&hello, Role::Workspace)
            .map_err(|refusal| refused(Code::FailedPrecondition, &refusal.to_string(), None))?;
        let tunnel = Session::new(self.settings(&hello));
        let claimed = self.registry.claim(NewSession {
            workspace: identity.workspace,
            token: identity.token,
            tunnel: tunnel.clone(),
            peer,
            agent_version: hello.agent_version,
            ports: hello.ports,
            default_port: hello.default_port,
            requests_max: self.limits.requests_per_workspace,
        });
        let (session, displaced) = claimed
            .map_err(|Full| refused(Code::ResourceExhausted, "limits.sessions is reached", Some(RETRY_AFTER)))?;
        if let Some(displaced) = displaced {
            info!(workspace = %displaced.workspace, session = %displaced.id, by = %session.id, "session displaced");
            displaced.tunnel.close(Reason::Displaced, "a newer session of this agent took over");
        }
        info!(
            workspace = %session.workspace, session = %session.id, generation = %session.generation, %peer,
            agent_version = %session.agent_version, via = %reader.via(), "session up"
        );
        let welcome = self.welcome(&session, agreement);
        self.drain.spawn(drive(self.registry.clone(), session, reader));
        Ok(grpc::accept_response(welcome, tunnel))
    }

    async fn authenticate(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        let unauthenticated = |message| refused(Code::Unauthenticated, message, None);
        let text = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .ok_or_else(|| unauthenticated("no bearer token was sent"))?;
        let token = Token::parse(text)
            .map_err(|_| unauthenticated("the token is damaged: copy it again, or make a new one"))?;
        if token.kind() != TokenKind::Agent {
            return Err(unauthenticated(
                "this token is not an agent's: make one with gateway token create --workspace",
            ));
        }
        let record = self.store.token_by_hash(&token.hash()).await.map_err(|error| {
            warn!(%error, "the store did not answer");
            refused(Code::Unavailable, "the gateway cannot check tokens now", Some(RETRY_AFTER))
        })?;
        let record =
            record.ok_or_else(|| unauthenticated("the token is not known here: was it made for this gateway?"))?;
        if !record.is_live(wall_clock()) {
            return Err(unauthenticated("the token was revoked or has expired: make a new one"));
        }
        match record.subject {
            TokenSubject::Agent { workspace, .. } => Ok(Identity { workspace, token: record.id }),
            TokenSubject::User { .. } => Err(unauthenticated("this token is not an agent's")),
        }
    }

    async fn read_hello(&self, reader: &mut FrameReader<Received>) -> Result<Hello, Refused> {
        let first = tokio::time::timeout(self.timeouts.agent_hello, reader.next());
        match first.await {
            Err(_elapsed) => Err(refused(Code::DeadlineExceeded, "no hello came in time", Some(RETRY_AFTER))),
            Ok(Ok(Some(Frame { body: Body::Hello(hello), .. }))) => Ok(*hello),
            Ok(Ok(_) | Err(ReadError::Body(_))) => {
                Err(refused(Code::InvalidArgument, "the first frame is not a hello", None))
            }
            Ok(Err(ReadError::Frame(error))) => Err(refused(Code::InvalidArgument, &error.to_string(), None)),
        }
    }

    fn settings(&self, hello: &Hello) -> Settings {
        let window = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Settings {
            side: Side::Gateway,
            channels_max: self.tunnel.channels_per_session,
            window_initial: window(self.tunnel.window_initial),
            window_max: window(self.tunnel.window_max),
            session_budget: self.tunnel.session_budget,
            replica_budget: Some(self.budget.clone()),
            open_credit: hello.open_credit_bytes,
            keepalive_interval: self.tunnel.keepalive_interval,
            keepalive_timeout: self.tunnel.keepalive_timeout,
        }
    }

    fn welcome(&self, session: &LiveSession, agreement: handshake::Agreement) -> Welcome {
        Welcome {
            version: agreement.version,
            features: agreement.features,
            session: session.id,
            generation: session.generation,
            channels_max: self.tunnel.channels_per_session,
            payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u32::MAX),
            keepalive_interval: self.tunnel.keepalive_interval,
            keepalive_timeout: self.tunnel.keepalive_timeout,
            resume_secret: Bytes::new(),
            workspace: session.workspace.to_string(),
        }
    }
}

/// Feeds a session until its link or the session ends, then gives its place back.
async fn drive(registry: Arc<Registry>, session: Arc<LiveSession>, reader: FrameReader<Received>) {
    /// Releases also when the task is cut.
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
    let claim = Claim { registry, session };
    let session = &claim.session;
    let end = grpc::drive(&session.tunnel, reader).await;
    // Not current any more from here on, but the frame that says why is still to be sent.
    claim.registry.release(session);
    drop(tokio::time::timeout(CLOSE_TIMEOUT, session.tunnel.said()).await);
    let stats = session.tunnel.stats();
    let uptime = session.since.elapsed();
    info!(
        workspace = %session.workspace, session = %session.id, reason = %end, ?uptime,
        sent = stats.bytes_sent, received = stats.bytes_received, "session ended"
    );
}

fn log_refused(peer: SocketAddr, refused: &Refused) {
    info!(%peer, code = ?refused.code, reason = %refused.message, "agent refused");
}

fn refused(code: Code, message: &str, retry_after: Option<Duration>) -> Refused {
    Refused { code, message: message.to_owned(), retry_after }
}
