//! One replica: claims its agents' sessions, finds those of the others, and carries lanes to them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_agents::admission::{Candidate, RETRY_AFTER, displaced_by_newer, refused};
use gateway_agents::peers::{CarriedLane, FoundSession, PeerFuture, Peers};
use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_agents::relays::ExpectedLane;
use gateway_store::{ClaimResult, Incarnation, SessionClaim, SessionKey, Store, StoreError, WorkspaceId};
use gateway_types::WorkspaceName;
use gateway_types::failed_request::FailedRequest;
use http::Response;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use tunnel_link::grpc::{Code, RpcRefused};
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::reason::Reason;

use crate::away::Place;
use crate::carried::{CarriedAgent, names_of};
use crate::changes::sender::Addressee;
use crate::changes::set::ChangeSet;
use crate::claims::{Claimed, Claims};
use crate::connection::{PeerConnections, PeerError};
use crate::idle::IdleLanes;
use crate::lane_body::LaneBody;
use crate::late::LateClaims;
use crate::members::Members;
use crate::search::{SearchTurn, Searches};
use crate::wire::{Displaced, LaneWish, SessionQuery};

/// Longest wait for a relay lane or hop lane: as long as a request waits for an agent that has just lost its link.
const LANE_PATIENCE: Duration = Duration::from_secs(3);

/// Longest wait for an agent that was asked for a relay lane, before a hop lane is asked for: it may have as many as may be.
const ADDED_PATIENCE: Duration = Duration::from_millis(1_500);

/// Longest wait for a session whose place was claimed here a moment ago, and the interval at which it is checked for. One that has
/// ended has its place for about as long.
const ARRIVAL_PATIENCE: Duration = Duration::from_millis(500);
const ARRIVAL_POLL: Duration = Duration::from_millis(20);

/// Interval at which lanes without use are ended.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);

/// Longest wait for the replica of a session that its agent resumes elsewhere: a new session is better than users that wait.
const RESUME_PATIENCE: Duration = Duration::from_secs(1);

/// Longest wait for a replica whose lease has ended: it may be there, and more often is not.
const HINT_PATIENCE: Duration = Duration::from_secs(1);

/// Most displaced sessions that wait to be ended.
const DISPLACED_MAX: usize = 4_096;

/// A session of another replica whose agent has a newer one here.
#[derive(Debug)]
pub struct DisplacedSession {
    subject: Subject,
    owner: Incarnation,
    generation: u64,
    /// The agent's process that has the newer session.
    instance: u64,
}

/// This process among the replicas.
#[derive(Debug)]
pub struct Replica {
    pub(crate) incarnation: Incarnation,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) claims: Claims,
    /// Sessions whose places are still to be claimed.
    pub(crate) late: LateClaims,
    pub(crate) connections: Arc<PeerConnections>,
    pub(crate) members: Arc<Members>,
    pub(crate) searches: Arc<Searches>,
    displaced: mpsc::Sender<DisplacedSession>,
}

impl Replica {
    /// Makes it, and the queue of [`Replica::end_displaced`].
    #[must_use]
    pub fn new(
        incarnation: Incarnation,
        store: Store,
        registry: Arc<Registry>,
        claims: Claims,
        connections: PeerConnections,
    ) -> (Self, mpsc::Receiver<DisplacedSession>) {
        let (displaced, waiting) = mpsc::channel(DISPLACED_MAX);
        let (members, searches) = (Arc::new(Members::new(store.clone())), Searches::new());
        let (late, connections) = (LateClaims::default(), Arc::new(connections));
        (Self { incarnation, store, registry, claims, late, connections, members, searches, displaced }, waiting)
    }

    /// Returns the connections to other replicas.
    pub(crate) fn connections(&self) -> &PeerConnections {
        &self.connections
    }

    /// Returns its view of the replicas that live.
    #[must_use]
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    async fn claim_for(&self, candidate: &Candidate) -> Result<Generation, RpcRefused> {
        let later = |message: &str| refused(Code::Unavailable, message, Some(RETRY_AFTER));
        let key = self.key_of(candidate).await.map_err(|_| later("the store is away"))?;
        let Some(key) = key else { return Err(later("there is no such workspace")) };
        let proved = self.proved(candidate, key);
        let known = proved.map(|sealed| sealed.generation);
        let claim = SessionClaim { key, instance: candidate.hello.instance, known, is_late: false };
        match self.claims.claim(claim).await {
            Claimed::Answered(ClaimResult::Owned { generation, previous }) => {
                self.end_previous(&candidate.subject, previous, candidate.hello.instance);
                Ok(Generation::new(generation))
            }
            Claimed::Answered(ClaimResult::Displaced { .. }) => Err(displaced_by_newer()),
            // What is written for a cluster is fenced by the place of its agent's session.
            Claimed::NoLease | Claimed::Away if matches!(key, SessionKey::Cluster(_)) => {
                Err(later("the store is away"))
            }
            // Soon renewed, unless others ended this replica.
            Claimed::NoLease => self.admit_late(candidate, key, proved),
            Claimed::Away if self.store.availability().outage().is_some() => self.admit_late(candidate, key, proved),
            Claimed::Away => Err(later("the store is away")),
        }
    }

    /// Has the session ended that had a place before, if it is another replica's. The one that has the place now is of process
    /// `instance`.
    pub(crate) fn end_previous(&self, subject: &Subject, previous: Option<(Incarnation, u64)>, instance: u64) {
        if let Some((owner, generation)) = previous.filter(|(owner, _)| *owner != self.incarnation) {
            let displaced = DisplacedSession { subject: subject.clone(), owner, generation, instance };
            if self.displaced.try_send(displaced).is_err() {
                debug!(agent = %subject, replica = %owner, "too many displaced sessions to end");
            }
        }
    }

    async fn key_of(&self, candidate: &Candidate) -> Result<Option<SessionKey>, StoreError> {
        match (&candidate.subject, &candidate.owned) {
            (Subject::Workspace(_), Some((workspace, _))) => Ok(Some(SessionKey::Workspace(*workspace))),
            (Subject::Workspace(name), None) => Ok(self.workspace(name).await?.map(SessionKey::Workspace)),
            (Subject::Cluster(name), _) => {
                Ok(self.store.cluster(name).await?.map(|found| SessionKey::Cluster(found.id)))
            }
        }
    }

    async fn workspace(&self, name: &WorkspaceName) -> Result<Option<WorkspaceId>, StoreError> {
        Ok(self.store.workspace_ids(&[name]).await?.into_iter().next().map(|(_, id)| id))
    }

    /// Ends displaced sessions at their replicas, until `stop`. No agent waits for that: a replica that is gone, or cannot be
    /// reached, has no agent either.
    pub async fn end_displaced(
        self: Arc<Self>,
        mut displaced: mpsc::Receiver<DisplacedSession>,
        stop: CancellationToken,
    ) {
        while let Some(Some(session)) = stop.run_until_cancelled(displaced.recv()).await {
            self.displace(session).await;
        }
    }

    /// Tells a replica that its session is over.
    async fn displace(&self, session: DisplacedSession) {
        let DisplacedSession { subject, owner, generation, instance } = session;
        let (workspace, cluster) = names_of(&subject);
        let displaced = Displaced { workspace, cluster, generation, instance };
        let told = async {
            let Some(url) = self.url_of(owner.get()).await? else { return Ok(()) };
            let peer = self.connections.to(owner.get(), &url);
            self.connections.displace(&peer, displaced).await.map_err(FindError::Peer)
        };
        if let Err(error) = told.await {
            debug!(agent = %subject, replica = %owner, %error, "a displaced session was not ended");
        }
    }

    /// Returns the other replicas that live.
    pub(crate) fn others(&self) -> Vec<Addressee> {
        let living = self.members.living().into_iter();
        let others = living.filter(|(replica, _)| *replica != self.incarnation.get());
        others.map(|(replica, url)| Addressee { replica, url }).collect()
    }

    /// Announces changes to another replica.
    pub(crate) async fn announce(&self, addressee: &Addressee, changes: &ChangeSet) -> Result<(), PeerError> {
        let peer = self.connections.to(addressee.replica, &addressee.url);
        self.connections.announce(&peer, changes.to_wire()).await
    }

    /// Returns how many other replicas serve.
    fn others_serving(&self) -> usize {
        self.members.agents_of_others(self.incarnation.get()).len()
    }

    /// Returns the address of a replica that lives, or may.
    pub(crate) async fn url_of(&self, replica: u64) -> Result<Option<Arc<str>>, FindError> {
        self.members.url_of(replica).await.map_err(FindError::Store)
    }

    /// Returns the session of an agent that is here, or the lane to it.
    fn current(&self, subject: &Subject) -> Option<Arc<LiveSession>> {
        self.registry.of(subject).or_else(|| self.registry.relay(subject))
    }

    /// Finds the session of a workspace or cluster, once for all that ask at the same time.
    async fn find_session(&self, subject: &Subject) -> FoundSession {
        let until = Instant::now() + LANE_PATIENCE;
        loop {
            match self.searches.begin(subject, Instant::now().into_std()) {
                SearchTurn::Settled(found) => return found,
                SearchTurn::UnderWay(mut search) => {
                    // It never changes: it closes, also when the request that searched is dropped.
                    if timeout_at(until, search.changed()).await.is_err() {
                        return FoundSession::Unreachable;
                    }
                    if let Some(session) = self.current(subject) {
                        return FoundSession::Lane(session);
                    }
                }
                SearchTurn::First(search) => {
                    let opened = timeout_at(until, self.search(subject)).await;
                    let found = match opened.unwrap_or(Err(FindError::NoLane)) {
                        Ok(Some(session)) => FoundSession::Lane(session),
                        Ok(None) => FoundSession::Absent,
                        Err(error) => {
                            warn!(agent = %subject, %error, "the session of another replica cannot be reached");
                            FoundSession::Unreachable
                        }
                    };
                    search.settle(&found, Instant::now().into_std());
                    return found;
                }
            }
        }
    }

    /// Returns the place of the session of a workspace or cluster. While the store is away, the other replicas are asked for that of
    /// a workspace.
    async fn place_of(&self, subject: &Subject) -> Result<Option<Place>, FindError> {
        let owner = match subject {
            Subject::Workspace(name) => match self.store.workspace_session(name).await {
                Err(error) if error.is_unanswered() => return self.ask_all(name).await,
                owner => owner,
            },
            Subject::Cluster(name) => self.store.cluster_session(name).await,
        };
        Ok(owner.map_err(FindError::Store)?.map(Place::from))
    }

    /// Has a lane to the agent of a workspace or cluster end here, and waits for it. `None` if no other replica has its session.
    ///
    /// A replica that has not, or cannot be reached, may be one from which the agent has just gone. Then the store is asked once
    /// more, and what it says is followed if it is news.
    async fn search(&self, subject: &Subject) -> Result<Option<Arc<LiveSession>>, FindError> {
        let place = match self.place_of(subject).await? {
            Some(place) if place.replica == self.incarnation.get() => return Ok(self.arriving(subject).await),
            Some(place) => place,
            None => return Ok(None),
        };
        self.end_older(subject, &place);
        let opened = self.open_lane(subject, &place).await;
        if let Ok(Some(_)) = opened {
            return opened;
        }
        if let Some(session) = self.current(subject) {
            return Ok(Some(session));
        }
        match self.other_place_of(subject).await? {
            Some(now) if now.is_newer_than(&place) => self.open_lane(subject, &now).await,
            Some(_) | None => opened,
        }
    }

    /// Waits for a session whose place this replica has claimed: it is here a moment later.
    async fn arriving(&self, subject: &Subject) -> Option<Arc<LiveSession>> {
        let until = Instant::now() + ARRIVAL_PATIENCE;
        loop {
            let session = self.current(subject).filter(|session| !session.tunnel.is_ended());
            if session.is_some() || Instant::now() >= until {
                return session;
            }
            tokio::time::sleep(ARRIVAL_POLL).await;
        }
    }

    /// Ends the session that is here if the agent has had a newer one elsewhere since. The replica of that one has said so too, but
    /// this one may have stood still.
    fn end_older(&self, subject: &Subject, place: &Place) {
        if let Some(session) = self.registry.of(subject)
            && session.generation().get() < place.generation
        {
            info!(agent = %subject, session = %session.id, replica = place.replica, "session displaced by one of another replica");
            self.end_older_than(&session, place.instance);
        }
    }

    /// Returns the place of the session of a workspace or cluster, if another replica has it.
    async fn other_place_of(&self, subject: &Subject) -> Result<Option<Place>, FindError> {
        Ok(self.place_of(subject).await?.filter(|place| place.replica != self.incarnation.get()))
    }

    /// Has a lane to the agent at a place end here, and waits for it: one that the agent adds, or a hop lane. `None` if its replica
    /// has no such session.
    async fn open_lane(&self, subject: &Subject, place: &Place) -> Result<Option<Arc<LiveSession>>, FindError> {
        let is_its = |session: &Arc<LiveSession>| {
            // A hop lane of an earlier session leads to a replica from which the agent has gone.
            let is_stale = session.is_hop() && session.generation().get() != place.generation;
            session.instance == place.instance && !session.tunnel.is_ended() && !is_stale
        };
        let relay = || self.registry.relay(subject).filter(is_its);
        if let Some(session) = relay() {
            // Without a link for the moment: its agent dials again.
            return Ok(Some(session));
        }
        let now = Instant::now();
        let ticket = self.registry.expected.announce(now).map_err(|_| FindError::Randomness)?;
        let Some(ticket) = ticket else { return Err(FindError::TooMany) };
        let peer = self.connections.to(place.replica, &place.url);
        let (workspace, cluster) = names_of(subject);
        let wish = LaneWish {
            workspace,
            cluster,
            generation: place.generation,
            replica: self.incarnation.get(),
            ticket: ticket.shown.clone(),
            hop: false,
        };
        let mut arrivals = self.registry.relay_arrivals();
        let wanted = self.connections.want_lane(&peer, wish.clone());
        let wanted = if place.is_sure {
            wanted.await
        } else {
            // Its lease has ended: without an answer it is gone.
            timeout(HINT_PATIENCE, wanted).await.ok().and_then(Result::ok).map_or(Ok(None), Ok)
        };
        let wanted = match wanted {
            Ok(Some(wanted)) => wanted,
            other => {
                self.registry.expected.forget(&ticket);
                return other.map(|_| None).map_err(FindError::Peer);
            }
        };
        let workspace = match place.key {
            SessionKey::Workspace(id) => Some(id),
            SessionKey::Cluster(_) => None,
        };
        let (instance, generation) = (wanted.instance, Generation::new(place.generation));
        self.registry
            .expected
            .settle(&ticket, ExpectedLane { subject: subject.clone(), workspace, instance, generation });
        let mut hops = pin!(tokio::time::sleep_until(now + ADDED_PATIENCE));
        let mut is_hop = wanted.hop;
        loop {
            if let Some(session) = relay() {
                let is_hop = session.is_hop();
                info!(agent = %subject, replica = place.replica, is_hop, took = ?now.elapsed(), "relay lane up");
                return Ok(Some(session));
            }
            tokio::select! {
                // The registry outlives this.
                _ = arrivals.changed() => {}
                () = hops.as_mut(), if !is_hop => {
                    is_hop = true;
                    let hop = LaneWish { hop: true, ..wish.clone() };
                    self.connections.want_lane(&peer, hop).await.map_err(FindError::Peer)?;
                }
            }
        }
    }

    /// Ends relay lanes and connections that are of no use any more, until `stop`.
    pub async fn tidy(self: Arc<Self>, stop: CancellationToken) {
        let (mut idle, mut ticks) = (IdleLanes::default(), tokio::time::interval(TIDY_INTERVAL));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.connections.keep_only(|replica| self.members.is_known(replica));
            let relays = self.registry.relays();
            let is_busy = |session: &LiveSession| session.in_flight() > 0 || session.tunnel.stats().channels_live > 0;
            let lanes = relays.iter().map(|session| (session.id, is_busy(session)));
            let over = idle.note(lanes, Instant::now().into_std());
            for session in relays.iter().filter(|session| over.contains(&session.id)) {
                debug!(agent = %session.subject, session = %session.id, "relay lane ended: it carries nothing");
                session.tunnel.close(Reason::Shutdown, "the lane is not used");
            }
        }
    }

    async fn carry_lane(&self, lane: CarriedLane) -> Result<Response<Incoming>, RpcRefused> {
        let CarriedLane { replica, candidate, hello, body, taking } = lane;
        let gone = || refused(Code::PermissionDenied, "the replica of this lane is gone", None);
        let later = || refused(Code::Unavailable, "the replica of this lane cannot be reached", Some(RETRY_AFTER));
        let agent = CarriedAgent::of(&candidate).ok_or_else(gone)?;
        let url = self.url_of(replica).await.map_err(|_| later())?.ok_or_else(gone)?;
        let peer = self.connections.to(replica, &url);
        self.connections.carry(&peer, LaneBody::new(&agent, hello, body, taking)).await.map_err(|error| {
            warn!(agent = %candidate.subject, replica, %error, "a relay lane cannot be carried");
            later()
        })
    }
}

impl Peers for Replica {
    fn incarnation(&self) -> u64 {
        self.incarnation.get()
    }

    fn have_room(&self) -> PeerFuture<'_, bool> {
        Box::pin(async {
            // Others may have come or gone since the last renewal; while the store is away, the view stays.
            self.members.refresh().await.ok();
            self.others_serving() > 0
        })
    }

    fn others(&self) -> usize {
        self.others_serving()
    }

    fn claim<'a>(&'a self, candidate: &'a Candidate) -> PeerFuture<'a, Result<Generation, RpcRefused>> {
        Box::pin(self.claim_for(candidate))
    }

    fn provisional(&self) -> usize {
        self.late.len()
    }

    fn seal(&self, session: &LiveSession) -> Bytes {
        self.seal_of(session)
    }

    fn released(&self, session: &LiveSession) {
        let Some(workspace) = session.workspace else { return };
        self.claims.release(SessionKey::Workspace(workspace), session.generation().get());
    }

    fn has_session<'a>(
        &'a self,
        replica: u64,
        workspace: &'a WorkspaceName,
        session: SessionId,
    ) -> PeerFuture<'a, bool> {
        Box::pin(async move {
            let query = SessionQuery { workspace: workspace.to_string(), session: session.get() };
            let asked = async {
                let Some(url) = self.url_of(replica).await? else { return Ok(false) };
                let peer = self.connections.to(replica, &url);
                self.connections.has_session(&peer, query).await.map_err(FindError::Peer)
            };
            match timeout(RESUME_PATIENCE, asked).await {
                Ok(Ok(has)) => has,
                Ok(Err(error)) => {
                    debug!(%workspace, replica, %error, "a session of another replica cannot be resumed");
                    false
                }
                Err(_elapsed) => false,
            }
        })
    }

    fn explain<'a>(&'a self, trace: &'a str) -> PeerFuture<'a, Option<FailedRequest>> {
        Box::pin(self.ask_for_failed(trace))
    }

    fn find<'a>(&'a self, subject: &'a Subject) -> PeerFuture<'a, FoundSession> {
        Box::pin(self.find_session(subject))
    }

    fn carry(&self, lane: CarriedLane) -> PeerFuture<'_, Result<Response<Incoming>, RpcRefused>> {
        Box::pin(self.carry_lane(lane))
    }
}

/// Reason why a session was not found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Peer(PeerError),
    #[error("the system's random generator failed")]
    Randomness,
    #[error("too many lanes are waited for")]
    TooMany,
    #[error("the agent added no lane in time")]
    NoLane,
    #[error("the store is away, and not all other replicas answered")]
    NoAnswer,
}
