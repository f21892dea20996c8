//! Maps workspaces and clusters to their live sessions. The newest wins, and only the session
//! that claimed an entry removes it.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::session::Session;
use tunnel_proto::hello::{AppProtocol, HostMode, Port as PortSettings};
use tunnel_proto::id::{Generation, REPLICA_SHIFT, SessionId};
use tunnel_proto::mux::{OpenError, Stats};
use tunnel_proto::reason::Reason;

use super::lanes::Lanes;
use super::relays::ExpectedLanes;
use gateway_auth::keys::ResumeKeys;
use gateway_store::{TokenId, WorkspaceId};
use gateway_types::{ClusterName, Port, UnixSeconds, UserName, WorkspaceName};

mod lease;
mod ports;
mod subject;

pub use self::lease::{Credential, LeaseAction, Review, SessionLease};
pub use self::ports::AgentPorts;
pub use self::subject::Subject;

use self::lease::HeldLease;

/// One agent's live session, and what the agent said about its ports.
pub struct LiveSession {
    /// Its id. Ids grow over restarts of this replica too, as generations do: a session id of an earlier run never
    /// names another agent's session of this one, and of two sessions the older can be told.
    pub id: SessionId,
    /// Its agent's rank among those of one token, of which the newest wins: the id of this session, or of an earlier
    /// one that the agent could not resume. 0 among replicas, whose ids are not compared: there the store's generations decide.
    pub rank: SessionId,
    /// Its place among the sessions of this subject.
    pub generation: Generation,
    /// Workspace or cluster of its agent.
    pub subject: Subject,
    /// The workspace that had the subject's name when the session came up; a later one of that name is another.
    pub workspace: Option<WorkspaceId>,
    /// The owner of that workspace at that time.
    pub owner: Option<UserName>,
    /// Credential that it lives on.
    lease: Mutex<HeldLease>,
    /// Tells its links to end, so that the agent comes back with a newer credential.
    renewal: Notify,
    /// The tunnel.
    pub tunnel: Session,
    /// Keys to resume it over another link.
    pub keys: ResumeKeys,
    /// More links beside the first.
    pub lanes: Lanes,
    /// Number of the agent's process.
    pub instance: u64,
    /// Whether it is a relay lane: see [`LiveSession::way`].
    is_relay: AtomicBool,
    /// Whether the agent adds relay lanes.
    pub takes_relay_lanes: bool,
    /// Whether the agent moves when it is asked to.
    pub moves: bool,
    /// Whether it was asked to move.
    is_moving: AtomicBool,
    /// Latest address of the agent.
    peer: Mutex<SocketAddr>,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// Time at which it came up.
    pub since: Instant,
    /// Requests in flight; the bound is `limits.requests_per_workspace`.
    pub requests: Arc<Semaphore>,
    requests_max: usize,
    /// Channels in use by users of other replicas.
    hopped: AtomicUsize,
    ports: AgentPorts,
}

/// Use of a session by a user of another replica.
#[derive(Debug)]
pub struct HoppedChannel(Arc<LiveSession>);

impl Drop for HoppedChannel {
    fn drop(&mut self) {
        self.0.hopped.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Way from this replica to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionWay {
    /// The agent dialed this replica for itself: this is its session.
    Direct,
    /// A relay lane, or a hop lane: it ends here because users are here, and its agent may be another replica's.
    Relay,
}

/// Protocol and host for requests to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMode {
    /// HTTP version.
    pub protocol: AppProtocol,
    /// Host that the app sees.
    pub host: HostMode,
}

/// Parts of a new session, from an authenticated agent that has sent its Hello.
#[derive(Debug)]
pub struct NewSession {
    /// Workspace or cluster that its credential stands for.
    pub subject: Subject,
    /// The workspace of that name; `None` for a cluster's agent.
    pub workspace: Option<WorkspaceId>,
    /// Its owner; `None` for a cluster's agent.
    pub owner: Option<UserName>,
    /// Credential that it lives on.
    pub lease: SessionLease,
    /// The tunnel.
    pub tunnel: Session,
    /// Keys to resume it over another link.
    pub keys: ResumeKeys,
    /// Room for more links.
    pub lanes: Lanes,
    /// The session that the agent had, as it said.
    pub had: Option<SessionId>,
    /// Its place among the sessions of all replicas; `None` to count those of this one.
    pub generation: Option<Generation>,
    /// Way to its agent.
    pub way: SessionWay,
    /// Whether the agent adds relay lanes.
    pub takes_relay_lanes: bool,
    /// Whether the agent moves when it is asked to.
    pub moves: bool,
    /// Number of the agent's process, as it said.
    pub instance: u64,
    /// Address of the agent.
    pub peer: SocketAddr,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// Its ports, as it said.
    pub ports: AgentPorts,
    /// Bound on requests in flight.
    pub requests_max: usize,
}

impl LiveSession {
    /// Returns the way to the agent. It changes once at most: of an agent that has moved, the session here goes on as a relay
    /// lane.
    #[must_use]
    pub fn way(&self) -> SessionWay {
        if self.is_relay.load(Ordering::Relaxed) { SessionWay::Relay } else { SessionWay::Direct }
    }

    /// Asks the agent to have a session elsewhere first, within some time, and to keep this one as a relay lane; `false` if
    /// it does not know how.
    pub fn ask_to_move(&self, deadline: Duration, within: Duration) -> bool {
        let is_asked = self.moves && self.way() == SessionWay::Direct;
        if is_asked {
            self.is_moving.store(true, Ordering::Relaxed);
            self.tunnel.ask_to_move(deadline, within);
        }
        is_asked
    }

    /// Returns whether the agent was asked to move, and has not yet.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Relaxed) && self.way() == SessionWay::Direct
    }

    /// Returns whether a newer session of an agent's process leaves this one as a relay lane.
    fn yields_to(&self, instance: u64) -> bool {
        self.is_moving() && self.instance == instance && !self.tunnel.is_ended()
    }

    /// Returns the number of requests and streams that use the session now, those of other replicas' users among them.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let own = self.requests_max.saturating_sub(self.requests.available_permits());
        own.saturating_add(self.hopped.load(Ordering::Relaxed))
    }

    /// Returns whether it is a hop lane: another replica speaks for the agent, which adds no lane. It ends with that replica.
    #[must_use]
    pub fn is_hop(&self) -> bool {
        // An agent that adds a relay lane says that it does.
        self.way() == SessionWay::Relay && !self.takes_relay_lanes
    }

    /// Counts a channel of another replica's user until the result is dropped: a drain waits for it. The bound on such
    /// channels is the other replica's.
    #[must_use]
    pub fn hop(self: &Arc<Self>) -> HoppedChannel {
        self.hopped.fetch_add(1, Ordering::Relaxed);
        HoppedChannel(self.clone())
    }

    /// Makes a channel to a port, on the lane whose turn it is. See [`Session::channel`].
    #[must_use]
    pub fn channel(&self, port: Port) -> (ChannelIo, oneshot::Receiver<Result<(), Reason>>) {
        self.lanes.pick(&self.tunnel).channel(port.get())
    }

    /// Opens a channel to a port at once, for apps that speak first, on the lane whose turn it is. See [`Session::open`].
    ///
    /// # Errors
    /// [`OpenError`] when a bound is reached or the session is over.
    pub fn open(&self, port: Port) -> Result<(ChannelIo, oneshot::Receiver<Result<(), Reason>>), OpenError> {
        self.lanes.pick(&self.tunnel).open(port.get())
    }

    /// Returns the counters of all its lanes together; the round trip is the first one's.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lanes.all().iter().fold(self.tunnel.stats(), |sum, lane| sum.and(lane.tunnel.stats()))
    }

    /// Returns the latest address of the agent.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        *self.peer.lock()
    }

    /// Notes the address of a link over which the session goes on.
    pub fn moved(&self, peer: SocketAddr) {
        *self.peer.lock() = peer;
    }

    /// Returns the latest credential of the agent.
    #[must_use]
    pub fn credential(&self) -> Credential {
        self.lease.lock().lease.credential.clone()
    }

    /// Returns the token of this gateway that the agent came with, last, if its credential is one.
    #[must_use]
    pub fn token(&self) -> Option<TokenId> {
        self.lease.lock().lease.credential.token()
    }

    /// Takes the credential with which the agent came back.
    pub fn renew(&self, lease: SessionLease) {
        self.lease.lock().renew(lease);
    }

    /// Returns whether the session still lives by this review: its agent may have come back with another token since it
    /// was asked.
    #[must_use]
    pub fn lives_by(&self, review: &Review) -> bool {
        let held = self.lease.lock();
        held.lease.review.as_ref().is_some_and(|current| Arc::ptr_eq(&current.token, &review.token))
    }

    /// Ends the session's links, but not the session: its agent comes back with a newer credential.
    pub fn ask_to_renew(&self) {
        self.renewal.notify_waiters();
    }

    /// Completes when the agent is to come back.
    ///
    /// Cancel safety: safe.
    pub async fn renewal(&self) {
        self.renewal.notified().await;
    }

    /// Returns whether the agent exposes a port.
    #[must_use]
    pub fn exposes(&self, port: Port) -> bool {
        self.ports.expose(port)
    }

    /// Returns the protocol and host for a port.
    #[must_use]
    pub fn mode(&self, port: Port) -> PortMode {
        self.ports.mode(port)
    }

    /// Returns the port of the address without a port.
    #[must_use]
    pub fn default_port(&self) -> Option<Port> {
        self.ports.default.and_then(Port::new)
    }

    /// Returns everything that the agent said about its ports.
    pub(crate) fn agent_ports(&self) -> &AgentPorts {
        &self.ports
    }

    /// Returns the ports that the agent named; empty for every loopback port.
    #[must_use]
    pub fn ports(&self) -> &[PortSettings] {
        &self.ports.exposed
    }
}

impl fmt::Debug for LiveSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LiveSession")
            .field("id", &self.id)
            .field("generation", &self.generation)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// The sessions of this replica, by workspace and by cluster. The maps never leave this file, and their lock is never
/// held across an await.
///
/// Invariants: workspaces and clusters have maps of their own. Every request of a user goes through
/// [`Registry::current`], which takes the name of a workspace and looks into the map of workspaces, so no request
/// reaches a cluster's session.
#[derive(Debug)]
pub struct Registry {
    sessions: RwLock<SubjectMap>,
    sessions_max: usize,
    /// Counts the sessions of clusters that came up.
    arrivals: watch::Sender<u64>,
    next: AtomicU64,
    /// Payload of sessions that ended: sent, received.
    ended_bytes: [AtomicU64; 2],
    /// Highest result of [`Registry::bytes`] so far.
    most_bytes: [AtomicU64; 2],
    /// Ids and generations of this replica start above those of any earlier run.
    base: u64,
    /// Relay lanes that agents were asked for.
    pub expected: ExpectedLanes,
    /// Counts the relay lanes that came up.
    relays: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct SubjectMap {
    workspaces: HashMap<WorkspaceName, Arc<LiveSession>>,
    clusters: HashMap<ClusterName, Arc<LiveSession>>,
    /// Lanes of workspaces' agents that dialed other replicas.
    relays: HashMap<WorkspaceName, Arc<LiveSession>>,
    /// The same of clusters' agents. In a map of their own, for the same reason as sessions.
    cluster_relays: HashMap<ClusterName, Arc<LiveSession>>,
}

impl SubjectMap {
    fn get(&self, subject: &Subject) -> Option<&Arc<LiveSession>> {
        match subject {
            Subject::Workspace(name) => self.workspaces.get(name),
            Subject::Cluster(name) => self.clusters.get(name),
        }
    }

    fn put(&mut self, session: Arc<LiveSession>) -> Option<Arc<LiveSession>> {
        match &session.subject {
            Subject::Workspace(name) if session.way() == SessionWay::Relay => self.relays.insert(name.clone(), session),
            Subject::Workspace(name) => self.workspaces.insert(name.clone(), session),
            Subject::Cluster(name) if session.way() == SessionWay::Relay => {
                self.cluster_relays.insert(name.clone(), session)
            }
            Subject::Cluster(name) => self.clusters.insert(name.clone(), session),
        }
    }

    /// Removes the entry of a session, if it is still there.
    fn remove(&mut self, session: &LiveSession) -> bool {
        let is_it = |current: &Arc<LiveSession>| current.id == session.id;
        match (&session.subject, session.way()) {
            (Subject::Workspace(name), SessionWay::Direct) => remove_if(&mut self.workspaces, name, is_it),
            (Subject::Workspace(name), SessionWay::Relay) => remove_if(&mut self.relays, name, is_it),
            (Subject::Cluster(name), SessionWay::Direct) => remove_if(&mut self.clusters, name, is_it),
            (Subject::Cluster(name), SessionWay::Relay) => remove_if(&mut self.cluster_relays, name, is_it),
        }
    }

    /// Makes the session of an agent that has moved a relay lane, if there is none yet.
    fn yield_place(&mut self, name: &WorkspaceName) {
        if self.relays.contains_key(name) {
            return;
        }
        if let Some(session) = self.workspaces.remove(name) {
            session.is_relay.store(true, Ordering::Relaxed);
            self.relays.insert(name.clone(), session);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<LiveSession>> {
        self.workspaces.values().chain(self.clusters.values())
    }

    fn relay(&self, subject: &Subject) -> Option<&Arc<LiveSession>> {
        match subject {
            Subject::Workspace(name) => self.relays.get(name),
            Subject::Cluster(name) => self.cluster_relays.get(name),
        }
    }

    fn all_relays(&self) -> impl Iterator<Item = &Arc<LiveSession>> {
        self.relays.values().chain(self.cluster_relays.values())
    }

    fn relays_len(&self) -> usize {
        self.relays.len() + self.cluster_relays.len()
    }

    fn len(&self) -> usize {
        self.workspaces.len() + self.clusters.len()
    }
}

/// Reason why a session does not get a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRefused {
    /// The bound `limits.sessions` on live sessions is reached.
    Full,
    /// A newer session of the same agent was faster.
    Older,
}

impl Registry {
    /// Makes an empty registry. `started_ms` is the wall clock in milliseconds: it makes ids and generations grow over
    /// restarts.
    #[must_use]
    pub fn new(sessions_max: usize, started_ms: u64) -> Self {
        Self {
            sessions: RwLock::default(),
            sessions_max,
            arrivals: watch::Sender::new(0),
            next: AtomicU64::new(1),
            ended_bytes: Default::default(),
            most_bytes: Default::default(),
            // 2^20 sessions a millisecond are out of reach, so two runs never share a number.
            base: started_ms << 20,
            expected: ExpectedLanes::default(),
            relays: watch::Sender::new(0),
        }
    }

    /// Makes an empty registry of one of several replicas. The number of its process start is the beginning of all its
    /// ids, so that they name it, and never another's.
    #[must_use]
    pub fn of_replica(sessions_max: usize, incarnation: u64) -> Self {
        // 2^40 sessions and lanes of one process are out of reach, and so are 2^24 process starts.
        Self { base: incarnation << REPLICA_SHIFT, ..Self::new(sessions_max, 0) }
    }

    /// Returns the session of a workspace: its agent's own, or a relay lane.
    #[must_use]
    pub fn current(&self, workspace: &WorkspaceName) -> Option<Arc<LiveSession>> {
        let sessions = self.sessions.read();
        sessions.workspaces.get(workspace).or_else(|| sessions.relays.get(workspace)).cloned()
    }

    /// Returns the lane to the agent of a workspace or cluster that dialed another replica.
    #[must_use]
    pub fn relay(&self, subject: &Subject) -> Option<Arc<LiveSession>> {
        self.sessions.read().relay(subject).cloned()
    }

    /// Returns the relay lanes that end here, in no order.
    #[must_use]
    pub fn relays(&self) -> Vec<Arc<LiveSession>> {
        self.sessions.read().all_relays().cloned().collect()
    }

    /// Returns all sessions, and the relay lanes that end here, in no order.
    #[must_use]
    pub fn with_relays(&self) -> Vec<Arc<LiveSession>> {
        let sessions = self.sessions.read();
        sessions.all().chain(sessions.all_relays()).cloned().collect()
    }

    /// Returns a receiver that is notified when a relay lane comes up.
    #[must_use]
    pub fn relay_arrivals(&self) -> watch::Receiver<u64> {
        self.relays.subscribe()
    }

    /// Returns the session of a cluster's agent.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Option<Arc<LiveSession>> {
        self.sessions.read().clusters.get(cluster).cloned()
    }

    /// Returns the session of a workspace or cluster.
    #[must_use]
    pub fn of(&self, subject: &Subject) -> Option<Arc<LiveSession>> {
        self.sessions.read().get(subject).cloned()
    }

    /// Returns all sessions, those of workspaces first, ordered by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LiveSession>> {
        let mut all: Vec<_> = self.sessions.read().all().cloned().collect();
        all.sort_by(|left, right| left.subject.cmp(&right.subject));
        all
    }

    /// Returns the sessions of clusters, in no order.
    #[must_use]
    pub fn clusters(&self) -> Vec<Arc<LiveSession>> {
        self.sessions.read().clusters.values().cloned().collect()
    }

    /// Returns the session of a subject, or its relay lane, that `is_meant`.
    #[must_use]
    pub fn find(&self, subject: &Subject, is_meant: impl Fn(&LiveSession) -> bool) -> Option<Arc<LiveSession>> {
        let sessions = self.sessions.read();
        sessions.get(subject).into_iter().chain(sessions.relay(subject)).find(|session| is_meant(session)).cloned()
    }

    /// Ends a session whose agent has a newer one at another replica; if it is the same process, which was asked to move,
    /// the session goes on as a relay lane.
    pub fn displace(&self, session: &Arc<LiveSession>, instance: u64) {
        if let Some(name) = session.subject.workspace().filter(|_| session.yields_to(instance)) {
            let mut sessions = self.sessions.write();
            if sessions.workspaces.get(name).is_some_and(|current| current.id == session.id) {
                sessions.yield_place(name);
                return;
            }
        }
        session.tunnel.close(Reason::Displaced, "a newer session of this agent took over");
    }

    /// Returns a receiver that is notified when a cluster's session comes up.
    #[must_use]
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// Returns the actions that are due for sessions because of their credentials.
    #[must_use]
    pub fn due(&self, now: UnixSeconds) -> Vec<(Arc<LiveSession>, LeaseAction)> {
        let sessions = self.sessions.read();
        let all = sessions.all().chain(sessions.all_relays());
        all.filter_map(|session| Some((session.clone(), session.lease.lock().due(now)?))).collect()
    }

    /// Returns the number of live sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.read().len()
    }

    /// Returns whether no session lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a new session in place. Returns it, and the one that it displaces.
    ///
    /// # Errors
    /// [`ClaimRefused`]; nothing is displaced then.
    pub fn claim(&self, new: NewSession) -> Result<(Arc<LiveSession>, Option<Arc<LiveSession>>), ClaimRefused> {
        let mut sessions = self.sessions.write();
        let before = match new.way {
            SessionWay::Direct => sessions.get(&new.subject),
            SessionWay::Relay => sessions.relay(&new.subject),
        };
        match before {
            None if sessions.len() + sessions.relays_len() >= self.sessions_max => return Err(ClaimRefused::Full),
            Some(before) if new.generation.is_some_and(|generation| generation < before.generation) => {
                return Err(ClaimRefused::Older);
            }
            Some(_) | None => {}
        }
        if let (SessionWay::Direct, Some(name)) = (new.way, new.subject.workspace())
            && before.is_some_and(|before| before.yields_to(new.instance))
        {
            // It was asked to move, and a balancer led it here again.
            sessions.yield_place(name);
        }
        // Given out under the lock: of two claims at once, the one that stays has the higher generation.
        let number = self.number();
        let id = SessionId::new(number);
        let session = Arc::new(LiveSession {
            id,
            // An agent cannot claim to outrank those that come after it.
            rank: new.generation.map_or(new.had.map_or(id, |had| had.min(id)), |_| SessionId::new(0)),
            generation: new.generation.unwrap_or(Generation::new(number)),
            subject: new.subject,
            workspace: new.workspace,
            owner: new.owner,
            lease: Mutex::new(HeldLease::new(new.lease)),
            renewal: Notify::new(),
            tunnel: new.tunnel,
            keys: new.keys,
            lanes: new.lanes,
            instance: new.instance,
            is_relay: AtomicBool::new(new.way == SessionWay::Relay),
            takes_relay_lanes: new.takes_relay_lanes,
            moves: new.moves,
            is_moving: AtomicBool::new(false),
            peer: Mutex::new(new.peer),
            agent_version: new.agent_version,
            since: Instant::now(),
            requests: Arc::new(Semaphore::new(new.requests_max)),
            requests_max: new.requests_max,
            hopped: AtomicUsize::new(0),
            ports: new.ports,
        });
        let displaced = sessions.put(session.clone());
        drop(sessions);
        if session.way() == SessionWay::Relay {
            self.relays.send_modify(|count| *count = count.wrapping_add(1));
        }
        if let Some(displaced) = &displaced {
            self.keep_bytes(displaced);
        }
        if session.subject.cluster().is_some() && session.way() == SessionWay::Direct {
            self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok((session, displaced))
    }

    /// Returns the id of a new lane.
    #[must_use]
    pub fn lane_id(&self) -> SessionId {
        SessionId::new(self.number())
    }

    fn number(&self) -> u64 {
        self.base + self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes a session's entry if it is still the one in place.
    pub fn release(&self, session: &LiveSession) -> bool {
        let is_current = self.sessions.write().remove(session);
        if is_current {
            self.keep_bytes(session);
        }
        is_current
    }

    /// Counts the payload of a session that is no longer in place.
    fn keep_bytes(&self, session: &LiveSession) {
        let (stats, [sent, received]) = (session.stats(), &self.ended_bytes);
        sent.fetch_add(stats.bytes_sent, Ordering::Relaxed);
        received.fetch_add(stats.bytes_received, Ordering::Relaxed);
    }

    /// Returns the payload of all sessions since the start: sent to agents, and received from them. It never falls,
    /// although bytes that a session carries after another took its place are not in it.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let [ended_sent, ended_received] = &self.ended_bytes;
        let mut sent = ended_sent.load(Ordering::Relaxed);
        let mut received = ended_received.load(Ordering::Relaxed);
        for session in self.all() {
            let stats = session.stats();
            sent = sent.saturating_add(stats.bytes_sent);
            received = received.saturating_add(stats.bytes_received);
        }
        let [most_sent, most_received] = &self.most_bytes;
        let raised = |most: &AtomicU64, now: u64| most.fetch_max(now, Ordering::Relaxed).max(now);
        (raised(most_sent, sent), raised(most_received, received))
    }
}

/// Removes an entry if it is the one that is meant.
fn remove_if<K: Eq + Hash>(
    map: &mut HashMap<K, Arc<LiveSession>>,
    key: &K,
    is_it: impl FnOnce(&Arc<LiveSession>) -> bool,
) -> bool {
    map.get(key).is_some_and(is_it) && map.remove(key).is_some()
}

#[cfg(test)]
mod tests;
