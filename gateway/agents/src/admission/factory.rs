//! Provides an entitled agent with a session: a new one, or the one that it had.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tracing::{info, warn};
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{Code, FrameReader, RpcRefused, Via};
use tunnel_link::session::{LinkHold, Session};
use tunnel_proto::handshake::{self, Agreement, HelloRefusal};
use tunnel_proto::hello::{self, Hello, Join, Resume, Welcome};
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::limit::{PAYLOAD_BYTES_MAX, REPLAY_BYTES_MAX};
use tunnel_proto::mux::{ReplicaBudget, Settings, Side, replay_budget};
use tunnel_proto::reason::Reason;
use tunnel_proto::version::{FEATURE_LANES, FEATURE_MOVES, FEATURE_RELAY_LANES, FEATURE_RESUME, FEATURE_SEALS};

use super::claim::Claim;
use super::{Owners, RETRY_AFTER, displaced_by_newer, no_lane, refused, shutting_down};
use crate::lanes::{Lane, LaneMemory, Lanes};
use crate::peers::MaybePeers;
use crate::registry::{
    AgentPorts, Arrival, ClaimRefused, LiveSession, NewSession, Registry, SessionLease, SessionWay, Subject,
};
use crate::relays::ExpectedLane;
use crate::resume::{self, LinkRole, ResumeVerdict};
use gateway_auth::keys::ResumeKeys;
use gateway_config::Tunnel;
use gateway_store::WorkspaceId;
use gateway_types::UserName;

/// Provides agents with sessions.
#[derive(Debug)]
pub struct SessionFactory {
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// Memory of all sessions.
    pub budget: Arc<ReplicaBudget>,
    /// Share of it for each owner of workspaces.
    pub owners: Owners,
    /// Limits and settings of sessions.
    pub tunnel: Tunnel,
    /// Most requests in flight of one session.
    pub requests_max: usize,
    /// Address of a workspace for users, with `{name}` for its name.
    pub workspace_url: Arc<str>,
    /// Drain to which the sessions' tasks belong.
    pub drain: Drain,
    /// Other replicas.
    pub peers: MaybePeers,
}

/// An agent that is entitled to a session, and its Hello.
#[derive(Debug)]
pub struct Candidate {
    /// Workspace or cluster that its credential stands for.
    pub subject: Subject,
    /// The workspace and its owner; not needed to resume a session.
    pub owned: Option<(WorkspaceId, UserName)>,
    /// Its credential, and the time for which that counts.
    pub lease: SessionLease,
    /// Address that it dialed from.
    pub peer: SocketAddr,
    /// Transport of its link.
    pub via: Via,
    /// Its Hello.
    pub hello: Hello,
    /// Place that a new session has among those of all replicas; `None` to count those of this one.
    pub generation: Option<Generation>,
    /// The relay lane that its ticket is good for.
    pub lane: Option<ExpectedLane>,
}

/// An admitted agent.
#[derive(Debug)]
pub struct AdmittedAgent {
    /// Answer to its Hello.
    pub welcome: Welcome,
    /// Its claim on a session: released when no task serves it.
    pub claim: Claim,
}

/// A session that is resumed.
struct Resumed {
    claim: Claim,
    received: u64,
    secret: Bytes,
}

impl SessionFactory {
    /// Makes the session of an agent, or finds the one that it had.
    ///
    /// # Errors
    /// [`RpcRefused`] with the text for the agent's log.
    pub fn provide(&self, candidate: Candidate) -> Result<AdmittedAgent, RpcRefused> {
        let hello = &candidate.hello;
        let agreement = handshake::agree(hello, candidate.subject.role())
            .map_err(|refusal| refused(Code::FailedPrecondition, &words(&refusal, &candidate.subject), None))?;
        let resumes = self.resumes(&agreement);
        if let Some(resume) = hello.resume.as_ref().filter(|_| resumes)
            && let Some(Resumed { claim, received, secret }) = self.resume(&candidate, resume)?
        {
            let welcome = self.welcome(&claim, agreement, secret, Some(received));
            return Ok(AdmittedAgent { welcome, claim });
        }
        self.takes_new()?;
        if hello.relay.is_some() {
            self.check_lane(&candidate)?;
        }
        if let Some(join) = &hello.join {
            return self.join(&candidate, join, agreement, resumes);
        }
        let keys = ResumeKeys::default();
        let secret = first_secret(&keys, resumes)?;
        let owner = candidate.owned.as_ref().map(|(_, owner)| owner);
        let (lanes, join_secret, memory) = self.lanes(hello, &agreement, self.budget_of(owner))?;
        let tunnel = Session::new(self.settings(hello, resumes, memory));
        let link = tunnel.link();
        let Candidate { subject, owned, mut lease, peer, via, hello, generation, lane } = candidate;
        if !resumes {
            // Without a resume, coming back would cost it the session.
            lease.renew_at = None;
        }
        let (workspace, owner) = owned.unzip();
        let claimed = self.registry.claim(NewSession {
            subject,
            workspace,
            owner,
            lease,
            tunnel,
            keys,
            lanes,
            had: hello.resume.as_ref().map(|resume| resume.session),
            generation: generation.or_else(|| lane.map(|lane| lane.generation)),
            way: way_of(&hello),
            instance: hello.instance,
            arrival: Arrival { peer, via },
            ports: AgentPorts::of(&hello, &agreement),
            takes_relay_lanes: agreement.has(FEATURE_RELAY_LANES),
            moves: agreement.has(FEATURE_MOVES),
            takes_seals: agreement.has(FEATURE_SEALS),
            agent_version: hello.agent_version,
            requests_max: self.requests_max,
        });
        let (session, displaced) = claimed.map_err(|why| match why {
            ClaimRefused::Full => refused(Code::ResourceExhausted, "limits.sessions is reached", Some(RETRY_AFTER)),
            ClaimRefused::Older => displaced_by_newer(),
        })?;
        let claim = self.claim(session.clone(), LinkRole::First, link);
        if let Some(displaced) = displaced {
            info!(agent = %displaced.subject, session = %displaced.id, by = %session.id, "session displaced");
            displaced.close_displaced();
        }
        info!(
            agent = %session.subject, session = %session.id, generation = %session.generation(), %peer,
            credential = %session.credential(), agent_version = %session.agent_version, %via, "session up"
        );
        let mut welcome = self.welcome(&claim, agreement, secret, None);
        if !join_secret.is_empty() {
            welcome.lanes = hello.lanes.min(self.tunnel.lanes_max);
            welcome.join_secret = join_secret;
        }
        Ok(AdmittedAgent { welcome, claim })
    }

    /// Makes room for the lanes that an agent wants: their number, the secret to join with, and the bounds to share.
    fn lanes(
        &self,
        hello: &Hello,
        agreement: &Agreement,
        outer: Arc<ReplicaBudget>,
    ) -> Result<(Lanes, Bytes, LaneMemory), RpcRefused> {
        let wanted = hello.lanes.min(self.tunnel.lanes_max);
        if wanted < 2 || !agreement.has(FEATURE_LANES) {
            return Ok((Lanes::default(), Bytes::new(), LaneMemory { budget: outer, replay: None }));
        }
        let budget = ReplicaBudget::within(self.tunnel.session_budget, Some(outer));
        let more = usize::try_from(wanted - 1).unwrap_or_default();
        let memory = LaneMemory { budget, replay: Some(replay_budget(self.replay_max())) };
        let (lanes, secret) = Lanes::new(more, memory.clone()).map_err(|_| no_randomness())?;
        Ok((lanes, secret, memory))
    }

    /// Returns the settings of the half of a hop lane that this replica has, towards the replica at which the lane ends. What
    /// waits in it counts in the budgets of the agent's owner and of this replica, as in the agent's session. It ends with
    /// its link: nothing is kept to be sent again.
    #[must_use]
    pub fn hop_settings(&self, session: &LiveSession, welcome: &Welcome) -> Settings {
        Settings {
            channels_max: welcome.channels_max,
            window_initial: window_of(self.tunnel.window_initial),
            window_max: window_of(self.tunnel.window_max),
            session_budget: self.tunnel.session_budget,
            replica_budget: Some(self.budget_of(session.owner.as_ref())),
            keepalive_interval: welcome.keepalive_interval,
            keepalive_timeout: welcome.keepalive_timeout,
            ..Settings::new(Side::Agent)
        }
    }

    /// Returns the budget that contains a new session's own.
    fn budget_of(&self, owner: Option<&UserName>) -> Arc<ReplicaBudget> {
        let of_owner = |owner| self.owners.budget(owner, self.tunnel.owner_budget, &self.budget);
        owner.map_or_else(|| self.budget.clone(), of_owner)
    }

    /// Adds a lane to a session.
    fn join(
        &self,
        candidate: &Candidate,
        join: &Join,
        agreement: Agreement,
        resumes: bool,
    ) -> Result<AdmittedAgent, RpcRefused> {
        let current = self.current(&candidate.subject, SessionWay::Direct, Some(join.session));
        let foreign = || refused(Code::PermissionDenied, "there is no session that this lane could join", None);
        let (session, memory) =
            resume::judge_join(current.as_ref(), candidate.hello.instance, join).ok_or_else(foreign)?;
        let tunnel = Session::new(self.settings(&candidate.hello, resumes, memory));
        let link = tunnel.link();
        let keys = ResumeKeys::default();
        let secret = first_secret(&keys, resumes)?;
        let lane = Arc::new(Lane { id: self.registry.lane_id(), tunnel, keys });
        if !session.lanes.add(lane.clone()) {
            return Err(foreign());
        }
        info!(agent = %session.subject, session = %session.id, peer = %candidate.peer, "lane added");
        session.renew(candidate.lease.clone());
        let claim = self.claim(session, LinkRole::Lane(lane), link);
        let welcome = self.welcome(&claim, agreement, secret, None);
        Ok(AdmittedAgent { welcome, claim })
    }

    /// Checks that a relay lane is one that this replica asked for, from the agent that was asked.
    fn check_lane(&self, candidate: &Candidate) -> Result<(), RpcRefused> {
        let workspace = candidate.owned.as_ref().map(|(workspace, _)| *workspace);
        let is_its = |lane: &ExpectedLane| {
            (&lane.subject, lane.workspace, lane.instance) == (&candidate.subject, workspace, candidate.hello.instance)
        };
        match &candidate.lane {
            Some(lane) if is_its(lane) => Ok(()),
            Some(_) | None => Err(no_lane()),
        }
    }

    /// Returns the session of an agent that ends here: the one that it names, which may have become a relay lane meanwhile,
    /// else its own, or its relay lane.
    fn current(&self, subject: &Subject, way: SessionWay, named: Option<SessionId>) -> Option<Arc<LiveSession>> {
        let is_named = |session: &LiveSession| named.is_some_and(|id| resume::role(session, id).is_some());
        self.registry.find(subject, is_named).or_else(|| match way {
            SessionWay::Direct => self.registry.of(subject),
            SessionWay::Relay => self.registry.relay(subject),
        })
    }

    /// Agrees to a new session or lane, unless this gateway drains: then the agent does better to dial elsewhere, or
    /// here a little later.
    ///
    /// # Errors
    /// [`RpcRefused`] during a drain.
    pub fn takes_new(&self) -> Result<(), RpcRefused> {
        if self.drain.is_draining() { Err(shutting_down()) } else { Ok(()) }
    }

    /// Returns whether no agent can get a session any more: this gateway drains, and none is left to resume.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.drain.is_draining() && self.registry.is_empty()
    }

    /// Returns whether the session or lane that an agent wants to resume is here.
    #[must_use]
    pub fn knows(&self, subject: &Subject, hello: &Hello) -> bool {
        hello.resume.as_ref().is_some_and(|resume| self.has(subject, resume.session, way_of(hello)))
    }

    /// Returns whether a session or lane is here.
    #[must_use]
    pub fn has(&self, subject: &Subject, session: SessionId, way: SessionWay) -> bool {
        self.current(subject, way, Some(session)).is_some_and(|current| resume::role(&current, session).is_some())
    }

    /// Feeds an agent's session with the frames of `reader`, on a task of its own.
    pub fn serve<B>(&self, admitted: AdmittedAgent, reader: FrameReader<B>)
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        self.serve_then(admitted, reader, |_| {});
    }

    /// Like [`SessionFactory::serve`], and calls `over` with the reason once the session or lane is over; not when another link
    /// took it over.
    pub fn serve_then<B>(
        &self,
        admitted: AdmittedAgent,
        reader: FrameReader<B>,
        over: impl FnOnce(Reason) + Send + 'static,
    ) where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let served = admitted.claim.serve(reader);
        self.drain.spawn(async move {
            if let Some(reason) = served.await {
                over(reason);
            }
        });
    }

    /// Returns whether a session may outlive its link.
    fn resumes(&self, agreement: &Agreement) -> bool {
        !self.tunnel.resume_grace.is_zero() && agreement.has(FEATURE_RESUME)
    }

    /// Resumes a session over the link that asks for it. `None` when there is no such session any more, so that the
    /// agent gets a new one at once.
    fn resume(&self, candidate: &Candidate, resume: &Resume) -> Result<Option<Resumed>, RpcRefused> {
        let peer = candidate.peer;
        let current = self.current(&candidate.subject, way_of(&candidate.hello), Some(resume.session));
        let (session, role) = match resume::judge(current.as_ref(), candidate.hello.instance, resume) {
            ResumeVerdict::Resume(session, role) => (session, role),
            ResumeVerdict::New => return Ok(None),
            ResumeVerdict::Displaced => {
                return Err(displaced_by_newer());
            }
        };
        let Some(goes_on) = role.go_on(&session, resume).map_err(|_| no_randomness())? else {
            warn!(%peer, agent = %candidate.subject, session = %resume.session, "resume with a wrong or old secret");
            return Err(refused(Code::PermissionDenied, "this session is not this agent's to resume", None));
        };
        let (link, received, secret) = match goes_on {
            Ok(goes_on) => goes_on,
            Err(error) => {
                info!(agent = %session.subject, session = %session.id, %error, "session cannot go on");
                return Ok(None);
            }
        };
        session.moved(Arrival { peer, via: candidate.via });
        session.renew(candidate.lease.clone());
        let stats = role.tunnel(&session).stats();
        info!(
            agent = %session.subject, session = %session.id, %peer, link = stats.links,
            again = stats.replay_bytes, via = %candidate.via, credential = %candidate.lease.credential, "session resumed"
        );
        let claim = self.claim(session, role, link);
        Ok(Some(Resumed { claim, received, secret }))
    }

    fn claim(&self, session: Arc<LiveSession>, role: LinkRole, link: LinkHold) -> Claim {
        Claim::new(self.registry.clone(), self.peers.clone(), session, role, link)
    }

    /// Returns the bound on the payload that a session keeps for a resume, in bytes.
    fn replay_max(&self) -> u64 {
        REPLAY_BYTES_MAX.min(self.tunnel.session_budget / 2)
    }

    fn settings(&self, hello: &Hello, resumes: bool, memory: LaneMemory) -> Settings {
        Settings {
            side: Side::Gateway,
            channels_max: self.tunnel.channels_per_session,
            window_initial: window_of(self.tunnel.window_initial),
            window_max: window_of(self.tunnel.window_max),
            session_budget: self.tunnel.session_budget,
            replica_budget: Some(memory.budget),
            open_credit: hello.open_credit_bytes,
            keepalive_interval: self.tunnel.keepalive_interval,
            keepalive_timeout: self.tunnel.keepalive_timeout,
            resume_grace: resumes.then_some(self.tunnel.resume_grace),
            replay_max: self.replay_max(),
            replay_budget: memory.replay,
        }
    }

    fn welcome(&self, claim: &Claim, agreement: Agreement, resume_secret: Bytes, received: Option<u64>) -> Welcome {
        let session = &claim.session;
        let resume_grace = if resume_secret.is_empty() { Duration::ZERO } else { self.tunnel.resume_grace };
        Welcome {
            version: agreement.version,
            features: agreement.features,
            session: match claim.role() {
                LinkRole::First => session.id,
                LinkRole::Lane(lane) => lane.id,
            },
            generation: session.generation(),
            channels_max: self.tunnel.channels_per_session,
            payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u32::MAX),
            keepalive_interval: self.tunnel.keepalive_interval,
            keepalive_timeout: self.tunnel.keepalive_timeout,
            resume_secret,
            workspace: session.subject.name().to_owned(),
            resume_grace,
            resumed: received.map(|received| hello::Resumed { received }),
            lanes: 0,
            join_secret: Bytes::new(),
            workspace_url: match &session.subject {
                Subject::Workspace(name) => self.workspace_url.replace("{name}", name.as_str()),
                Subject::Cluster(_) => String::new(),
            },
            // The generation of a relay lane is that of the agent's own session.
            seal: match (&self.peers, claim.role(), session.way()) {
                (Some(peers), LinkRole::First, SessionWay::Direct) => peers.seal(session),
                (_, LinkRole::First | LinkRole::Lane(_), _) => Bytes::new(),
            },
        }
    }
}

/// Returns a window as the protocol has it.
fn window_of(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the way of a session that a Hello asks for.
fn way_of(hello: &Hello) -> SessionWay {
    if hello.relay.is_some() { SessionWay::Relay } else { SessionWay::Direct }
}

/// Explains why there is no agreement, so that a user who started the wrong program with a token learns the right one.
fn words(refusal: &HelloRefusal, subject: &Subject) -> String {
    match (refusal, subject) {
        (HelloRefusal::Role, Subject::Workspace(_)) => {
            "this credential is for the agent in a workspace, and not for a cluster agent: use it with workspace-agent run"
                .to_owned()
        }
        (HelloRefusal::Role, Subject::Cluster(_)) => {
            "this credential is for a cluster agent, and not for the agent in a workspace: use it with workspace-agent cluster"
                .to_owned()
        }
        (HelloRefusal::Version { .. } | HelloRefusal::CannotReconcile, _) => refusal.to_string(),
    }
}

/// Makes the secret of a first welcome; empty for a session that ends with its link.
fn first_secret(keys: &ResumeKeys, resumes: bool) -> Result<Bytes, RpcRefused> {
    if resumes { keys.first().map_err(|_| no_randomness()) } else { Ok(Bytes::new()) }
}

fn no_randomness() -> RpcRefused {
    refused(Code::Unavailable, "the system's random generator failed", Some(RETRY_AFTER))
}
