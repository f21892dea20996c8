//! One agent's live session: what it runs on, which way it leads, and what the agent said about its ports.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::grpc::Via;
use tunnel_link::session::Session;
use tunnel_proto::hello::{AppProtocol, HostMode, Port as PortSettings};
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::mux::{OpenError, Stats};
use tunnel_proto::reason::Reason;
use tunnel_proto::target::{AppTls, Target};

use super::lease::{Credential, HeldLease, LeaseAction, Review, SessionLease};
use super::{AgentPorts, Subject};
use crate::lanes::Lanes;
use gateway_auth::keys::ResumeKeys;
use gateway_store::{TokenId, WorkspaceId};
use gateway_types::{Port, UnixSeconds, UserName};

/// Address of an agent's link, and its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The address.
    pub peer: SocketAddr,
    /// The transport.
    pub via: Via,
}

/// One agent's live session, and what the agent said about its ports.
pub struct LiveSession {
    /// Its id. Ids grow over restarts of this replica too, as generations do: a session id of an earlier run never
    /// names another agent's session of this one, and of two sessions the older can be told.
    pub id: SessionId,
    /// Its agent's rank among those of one token, of which the newest wins: the id of this session, or of an earlier
    /// one that the agent could not resume. 0 among replicas, whose ids are not compared: there the store's generations decide.
    pub rank: SessionId,
    /// Its place among the sessions of this subject.
    generation: AtomicU64,
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
    /// Whether the agent takes newer seals of its generation.
    pub takes_seals: bool,
    /// Latest address of the agent, and how it got out to here.
    arrival: Mutex<Arrival>,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// Time at which it came up.
    pub since: Instant,
    /// Requests in flight; the bound is `limits.requests_per_workspace`.
    pub requests: Arc<Semaphore>,
    requests_max: usize,
    /// Channels in use by users of other replicas.
    hopped: AtomicUsize,
    pub(super) ports: AgentPorts,
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
    /// Whether the app speaks it inside TLS.
    pub tls: bool,
}

impl PortMode {
    /// Returns the protocol as one word, as it is said where ports are named.
    #[must_use]
    pub fn protocol_word(self) -> &'static str {
        match (self.protocol, self.tls) {
            (AppProtocol::Http1, false) => "http1",
            (AppProtocol::Http1, true) => "https",
            (AppProtocol::Http2, false) => "h2",
            (AppProtocol::Http2, true) => "h2s",
        }
    }

    /// Returns the TLS that the agent is to speak to the app, for a protocol inside.
    fn app_tls(self, protocol: AppProtocol) -> AppTls {
        match (self.tls, protocol) {
            (false, AppProtocol::Http1 | AppProtocol::Http2) => AppTls::None,
            (true, AppProtocol::Http1) => AppTls::Http1,
            (true, AppProtocol::Http2) => AppTls::Http2,
        }
    }
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
    /// Whether the agent takes newer seals of its generation.
    pub takes_seals: bool,
    /// Number of the agent's process, as it said.
    pub instance: u64,
    /// Address of the agent, and its transport.
    pub arrival: Arrival,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// Its ports, as it said.
    pub ports: AgentPorts,
    /// Bound on requests in flight.
    pub requests_max: usize,
}

impl LiveSession {
    /// Makes it with a number that no other session of this replica has.
    pub(super) fn new(new: NewSession, number: u64) -> Self {
        let id = SessionId::new(number);
        Self {
            id,
            // An agent cannot claim to outrank those that come after it.
            rank: new.generation.map_or(new.had.map_or(id, |had| had.min(id)), |_| SessionId::new(0)),
            generation: new.generation.map_or(number, Generation::get).into(),
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
            takes_seals: new.takes_seals,
            arrival: Mutex::new(new.arrival),
            agent_version: new.agent_version,
            since: Instant::now(),
            requests: Arc::new(Semaphore::new(new.requests_max)),
            requests_max: new.requests_max,
            hopped: AtomicUsize::new(0),
            ports: new.ports,
        }
    }

    /// Returns the way to the agent. It changes once at most: of an agent that has moved, the session here goes on as a relay
    /// lane.
    #[must_use]
    pub fn way(&self) -> SessionWay {
        if self.is_relay.load(Ordering::Relaxed) { SessionWay::Relay } else { SessionWay::Direct }
    }

    /// Makes it a relay lane: its agent has moved.
    pub(super) fn become_relay(&self) {
        self.is_relay.store(true, Ordering::Relaxed);
    }

    /// Asks the agent to have a session elsewhere first, within some time, and to keep this one as a relay lane; `false` if
    /// it does not know how.
    pub fn ask_to_move(&self, deadline: Duration, within: Duration) -> bool {
        let is_asked = self.can_move();
        if is_asked {
            self.is_moving.store(true, Ordering::Relaxed);
            self.tunnel.ask_to_move(deadline, within);
        }
        is_asked
    }

    /// Returns whether the agent can be asked to move.
    #[must_use]
    pub fn can_move(&self) -> bool {
        self.moves && self.way() == SessionWay::Direct
    }

    /// Returns whether the agent was asked to move, and has not yet.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Relaxed) && self.way() == SessionWay::Direct
    }

    /// Returns whether a newer session of an agent's process leaves this one as a relay lane.
    pub(super) fn yields_to(&self, instance: u64) -> bool {
        self.is_moving() && self.instance == instance && !self.tunnel.is_ended()
    }

    /// Ends it because its agent has a newer session.
    pub(crate) fn close_displaced(&self) {
        self.tunnel.close(Reason::Displaced, "a newer session of this agent took over");
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

    /// Makes a channel to the app on a port, on the lane whose turn it is. See [`Session::channel`]. If the app speaks TLS, the agent
    /// does so, and the channel has what is inside: `protocol`.
    #[must_use]
    pub fn channel(&self, port: Port, protocol: AppProtocol) -> (ChannelIo, oneshot::Receiver<Result<(), Reason>>) {
        let target = Target { port: port.get(), tls: self.mode(port).app_tls(protocol) };
        self.lanes.pick(&self.tunnel).channel(target)
    }

    /// Returns whether the agent can speak to the app on a port as it is to be: it may be too old to speak TLS.
    #[must_use]
    pub fn can_speak_to(&self, mode: PortMode) -> bool {
        !mode.tls || self.ports.speaks_tls
    }

    /// Opens a channel to a port at once, for the bytes of an app as they are: it may speak first, on the lane whose turn it is. See [`Session::open`].
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
        self.arrival.lock().peer
    }

    /// Returns the transport of its latest link.
    #[must_use]
    pub fn via(&self) -> Via {
        self.arrival.lock().via
    }

    /// Notes the arrival of a link over which the session goes on.
    pub fn moved(&self, arrival: Arrival) {
        *self.arrival.lock() = arrival;
    }

    /// Returns its place among the sessions of this subject. Rises once, if the session came up while that could not be
    /// claimed.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::Acquire))
    }

    /// Takes the place that the session got after it came up.
    pub fn raise(&self, generation: Generation) {
        self.generation.fetch_max(generation.get(), Ordering::AcqRel);
    }

    /// Returns the SHA-256 of the token that its agent proved to have, if that is one of this gateway.
    #[must_use]
    pub fn proof(&self) -> Option<Arc<[u8; 32]>> {
        self.lease.lock().lease.proof.clone()
    }

    /// Returns the time from which the agent's credential is worth nothing.
    #[must_use]
    pub fn expires_at(&self) -> Option<UnixSeconds> {
        self.lease.lock().lease.expires_at
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

    /// Returns the action that is due because of its credential.
    pub(super) fn due(&self, now: UnixSeconds) -> Option<LeaseAction> {
        self.lease.lock().due(now)
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
