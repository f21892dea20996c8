//! How an agent that proved who it is gets a session: a new one, or the one that it had.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tracing::{info, warn};
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{self, Code, FrameReader, Refused};
use tunnel_link::session::{Link, LinkEnd, Session};
use tunnel_proto::handshake::{self, Agreement};
use tunnel_proto::hello::{self, Hello, Resume, Role, Welcome};
use tunnel_proto::limit::{PAYLOAD_BYTES_MAX, REPLAY_BYTES_MAX};
use tunnel_proto::mux::{ReplicaBudget, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::version::FEATURE_RESUME;

use super::keys::ResumeKeys;
use super::registry::{Full, LiveSession, NewSession, Registry};
use super::resume::{self, Verdict};
use crate::config::Tunnel;
use crate::model::WorkspaceName;
use crate::store::TokenId;

/// What a turned-away agent is told to wait before it dials again.
pub const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How long a session that is over may take to say so before its link is cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Gives sessions to agents.
#[derive(Debug)]
pub struct Admission {
    /// Who is connected.
    pub registry: Arc<Registry>,
    /// Memory of all sessions.
    pub budget: Arc<ReplicaBudget>,
    /// What sessions may use.
    pub tunnel: Tunnel,
    /// Requests in flight of one session.
    pub requests_max: usize,
    /// Whom the sessions' tasks belong to.
    pub drain: Drain,
}

/// An agent that proved who it is and said its Hello.
#[derive(Debug)]
pub struct Candidate {
    /// The workspace that its credential stands for.
    pub workspace: WorkspaceName,
    /// The token that it came with.
    pub token: TokenId,
    /// Where it came from.
    pub peer: SocketAddr,
    /// What it said.
    pub hello: Hello,
}

/// An agent that is in.
#[derive(Debug)]
pub struct Admitted {
    /// What it is told.
    pub welcome: Welcome,
    /// The link's hold on the session.
    pub link: Link,
    /// Its session.
    pub session: Arc<LiveSession>,
}

/// A session that goes on.
struct Resumed {
    session: Arc<LiveSession>,
    link: Link,
    received: u64,
    secret: Bytes,
}

impl Admission {
    /// Decides about an agent, and makes or finds its session.
    ///
    /// # Errors
    /// [`Refused`] with the words for the agent's log.
    pub fn admit(&self, candidate: Candidate) -> Result<Admitted, Refused> {
        let hello = &candidate.hello;
        let agreement = handshake::agree(hello, Role::Workspace)
            .map_err(|refusal| refused(Code::FailedPrecondition, &refusal.to_string(), None))?;
        let resumes = self.resumes(&agreement);
        if let Some(resume) = hello.resume.as_ref().filter(|_| resumes)
            && let Some(Resumed { session, link, received, secret }) = self.resume(&candidate, resume)?
        {
            let welcome = self.welcome(&session, agreement, secret, Some(received));
            return Ok(Admitted { welcome, link, session });
        }
        let keys = ResumeKeys::default();
        let secret = if resumes { keys.first().map_err(|_| no_randomness())? } else { Bytes::new() };
        let tunnel = Session::new(self.settings(hello, resumes));
        let link = tunnel.link();
        let Candidate { workspace, token, peer, hello } = candidate;
        let claimed = self.registry.claim(NewSession {
            workspace,
            token,
            tunnel,
            keys,
            instance: hello.instance,
            peer,
            agent_version: hello.agent_version,
            ports: hello.ports,
            default_port: hello.default_port,
            requests_max: self.requests_max,
        });
        let (session, displaced) = claimed
            .map_err(|Full| refused(Code::ResourceExhausted, "limits.sessions is reached", Some(RETRY_AFTER)))?;
        if let Some(displaced) = displaced {
            info!(workspace = %displaced.workspace, session = %displaced.id, by = %session.id, "session displaced");
            displaced.tunnel.close(Reason::Displaced, "a newer session of this agent took over");
        }
        info!(
            workspace = %session.workspace, session = %session.id, generation = %session.generation, %peer,
            agent_version = %session.agent_version, "session up"
        );
        let welcome = self.welcome(&session, agreement, secret, None);
        Ok(Admitted { welcome, link, session })
    }

    /// Feeds an agent's session with what `reader` brings, on a task of its own.
    pub fn serve<B>(&self, admitted: Admitted, reader: FrameReader<B>)
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let Admitted { link, session, .. } = admitted;
        self.drain.spawn(drive(self.registry.clone(), session, link, reader));
    }

    /// Returns whether a session may outlive its link.
    fn resumes(&self, agreement: &Agreement) -> bool {
        !self.tunnel.resume_grace.is_zero() && agreement.features.iter().any(|name| name == FEATURE_RESUME)
    }

    /// Lets a session go on over the link that asks for it. `None` when there is no such session any more, so that the
    /// agent gets a new one at once.
    fn resume(&self, candidate: &Candidate, resume: &Resume) -> Result<Option<Resumed>, Refused> {
        let peer = candidate.peer;
        let current = self.registry.current(&candidate.workspace);
        let session = match resume::judge(current.as_ref(), candidate.hello.instance, resume) {
            Verdict::Resume(session) => session,
            Verdict::New => return Ok(None),
            Verdict::Foreign => {
                warn!(%peer, workspace = %candidate.workspace, session = %resume.session, "resume with a wrong or old secret");
                return Err(refused(Code::PermissionDenied, "this session is not this agent's to resume", None));
            }
            Verdict::Displaced => {
                return Err(refused(Code::Aborted, "a newer agent with the same token took over", None));
            }
        };
        let secret = session.keys.next(&resume.secret).map_err(|_| no_randomness())?;
        let (link, received) = match session.tunnel.resume(resume.received) {
            Ok(resumed) => resumed,
            Err(error) => {
                info!(workspace = %session.workspace, session = %session.id, %error, "session cannot go on");
                return Ok(None);
            }
        };
        session.moved(peer);
        let stats = session.tunnel.stats();
        info!(
            workspace = %session.workspace, session = %session.id, %peer, link = stats.links,
            again = stats.replay_bytes, "session resumed"
        );
        Ok(Some(Resumed { session, link, received, secret }))
    }

    fn settings(&self, hello: &Hello, resumes: bool) -> Settings {
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
            resume_grace: resumes.then_some(self.tunnel.resume_grace),
            replay_max: REPLAY_BYTES_MAX.min(self.tunnel.session_budget / 2),
        }
    }

    fn welcome(
        &self,
        session: &LiveSession,
        agreement: Agreement,
        resume_secret: Bytes,
        received: Option<u64>,
    ) -> Welcome {
        let resume_grace = if resume_secret.is_empty() { Duration::ZERO } else { self.tunnel.resume_grace };
        Welcome {
            version: agreement.version,
            features: agreement.features,
            session: session.id,
            generation: session.generation,
            channels_max: self.tunnel.channels_per_session,
            payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u32::MAX),
            keepalive_interval: self.tunnel.keepalive_interval,
            keepalive_timeout: self.tunnel.keepalive_timeout,
            resume_secret,
            workspace: session.workspace.to_string(),
            resume_grace,
            resumed: received.map(|received| hello::Resumed { received }),
            lanes: 0,
            join_secret: Bytes::new(),
        }
    }
}

/// Feeds a session over one link. When the link is lost, waits for the next one, which is served by a task of its own;
/// when the session is over, gives its place back.
async fn drive<B>(registry: Arc<Registry>, session: Arc<LiveSession>, link: Link, reader: FrameReader<B>)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut claim = Claim { registry, session, link, passed_on: false };
    let end = match grpc::drive(&claim.link, reader).await {
        LinkEnd::Lost => {
            info!(workspace = %claim.session.workspace, session = %claim.session.id, "link lost, waiting for the next");
            claim.link.await_next().await
        }
        end @ (LinkEnd::Replaced | LinkEnd::Over(_)) => end,
    };
    let Some(end) = end.over() else {
        claim.passed_on = true;
        return;
    };
    let session = &claim.session;
    // Not current any more from here on, but the frame that says why is still to be sent.
    claim.registry.release(session);
    drop(tokio::time::timeout(CLOSE_TIMEOUT, session.tunnel.said()).await);
    let stats = session.tunnel.stats();
    let uptime = session.since.elapsed();
    info!(
        workspace = %session.workspace, session = %session.id, reason = %end, ?uptime, links = stats.links,
        sent = stats.bytes_sent, received = stats.bytes_received, "session ended"
    );
}

/// Releases a session also when its task is cut, unless another link has it.
struct Claim {
    registry: Arc<Registry>,
    session: Arc<LiveSession>,
    link: Link,
    passed_on: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.passed_on && self.link.lost() != LinkEnd::Replaced {
            self.registry.release(&self.session);
            // Nobody is left who would wait for another link.
            self.session.tunnel.close(Reason::SessionLost, Reason::SessionLost.text());
        }
    }
}

fn no_randomness() -> Refused {
    refused(Code::Unavailable, "the system's random generator failed", Some(RETRY_AFTER))
}

fn refused(code: Code, message: &str, retry_after: Option<Duration>) -> Refused {
    Refused { code, message: message.to_owned(), retry_after }
}
