//! Which workspace has which session now. The newest wins, and only its owner removes an entry.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::session::Session;
use tunnel_proto::hello::{AppProtocol, HostMode, Port as PortSettings};
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::mux::{OpenError, Stats};
use tunnel_proto::reason::Reason;

use super::lanes::Lanes;
use crate::auth::keys::ResumeKeys;
use crate::model::{Port, UnixSeconds, WorkspaceName};
use crate::store::TokenId;

mod lease;

pub use self::lease::{Credential, Due, Lease, Review};

use self::lease::Held;

/// One agent's live session, and what the agent said about its ports.
pub struct LiveSession {
    /// Its id. Ids grow over restarts of this replica too, as generations do: an agent that names a session of an earlier
    /// run never names somebody else's of this one, and which of two is older can be told.
    pub id: SessionId,
    /// Its agent's place among those of one token, of which the newest wins: this session, or the one of before that the
    /// agent could not go on with.
    pub rank: SessionId,
    /// Its place among the sessions of this workspace.
    pub generation: Generation,
    /// The workspace.
    pub workspace: WorkspaceName,
    /// What it lives on.
    lease: Mutex<Held>,
    /// Tells its links to end, so that the agent comes back with a newer credential.
    renewal: Notify,
    /// The tunnel.
    pub tunnel: Session,
    /// What it takes to go on over another link.
    pub keys: ResumeKeys,
    /// More links beside the first.
    pub lanes: Lanes,
    /// The agent's process.
    pub instance: u64,
    /// Where the agent came from, last.
    peer: Mutex<SocketAddr>,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// When it came up.
    pub since: Instant,
    /// Requests in flight; the bound is `limits.requests_per_workspace`.
    pub requests: Arc<Semaphore>,
    requests_max: usize,
    ports: Vec<PortSettings>,
    default_port: Option<Port>,
}

/// How to speak to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMode {
    /// HTTP version.
    pub protocol: AppProtocol,
    /// Which host the app sees.
    pub host: HostMode,
}

/// What a new session is made from: an agent that proved who it is and said its Hello.
#[derive(Debug)]
pub struct NewSession {
    /// The workspace that its credential stands for.
    pub workspace: WorkspaceName,
    /// What it lives on.
    pub lease: Lease,
    /// The tunnel.
    pub tunnel: Session,
    /// What it takes to go on over another link.
    pub keys: ResumeKeys,
    /// Room for more links.
    pub lanes: Lanes,
    /// The session that the agent had, as it said.
    pub had: Option<SessionId>,
    /// The agent's process, as it said.
    pub instance: u64,
    /// Where the agent came from.
    pub peer: SocketAddr,
    /// Version of the agent, as it said.
    pub agent_version: String,
    /// The ports that it named; empty for every loopback port.
    pub ports: Vec<PortSettings>,
    /// The port of the address without a port, as it said.
    pub default_port: Option<u16>,
    /// Bound on requests in flight.
    pub requests_max: usize,
}

impl LiveSession {
    /// Returns how many requests and streams use the session now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests_max.saturating_sub(self.requests.available_permits())
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

    /// Returns where the agent came from, last.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        *self.peer.lock()
    }

    /// The session goes on over a link from another address.
    pub fn moved(&self, peer: SocketAddr) {
        *self.peer.lock() = peer;
    }

    /// Returns what the agent proved itself with, last.
    #[must_use]
    pub fn credential(&self) -> Credential {
        self.lease.lock().lease.credential.clone()
    }

    /// Returns the token of this gateway that the agent came with, last, if it was one.
    #[must_use]
    pub fn token(&self) -> Option<TokenId> {
        self.lease.lock().lease.credential.token()
    }

    /// The agent came back, and proved itself with this.
    pub fn renew(&self, lease: Lease) {
        self.lease.lock().renew(lease);
    }

    /// Returns whether this question is still the one that the session lives by: its agent may have come back with another
    /// token since it was asked.
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
        self.ports.is_empty() || self.ports.iter().any(|exposed| exposed.number == port.get())
    }

    /// Returns how to speak to a port.
    #[must_use]
    pub fn mode(&self, port: Port) -> PortMode {
        self.ports
            .iter()
            .find(|exposed| exposed.number == port.get())
            .map_or_else(PortMode::default, |exposed| PortMode { protocol: exposed.protocol, host: exposed.host })
    }

    /// Returns the port of the address without a port.
    #[must_use]
    pub fn default_port(&self) -> Option<Port> {
        self.default_port
    }

    /// Returns the ports that the agent named; empty for every loopback port.
    #[must_use]
    pub fn ports(&self) -> &[PortSettings] {
        &self.ports
    }
}

impl fmt::Debug for LiveSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LiveSession")
            .field("id", &self.id)
            .field("generation", &self.generation)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

/// The sessions of this replica, by workspace. The map never leaves this file, and its lock is never held across an
/// await.
#[derive(Debug)]
pub struct Registry {
    sessions: RwLock<HashMap<WorkspaceName, Arc<LiveSession>>>,
    sessions_max: usize,
    next: AtomicU64,
    /// Ids and generations of this replica start above those of any earlier run.
    base: u64,
}

/// As many sessions live as `limits.sessions` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Registry {
    /// Makes an empty registry. `started_ms` is the wall clock in milliseconds: it makes ids and generations grow over
    /// restarts.
    #[must_use]
    pub fn new(sessions_max: usize, started_ms: u64) -> Self {
        Self {
            sessions: RwLock::default(),
            sessions_max,
            next: AtomicU64::new(1),
            // 2^20 sessions a millisecond are out of reach, so two runs never share a number.
            base: started_ms << 20,
        }
    }

    /// Returns the session of a workspace.
    #[must_use]
    pub fn current(&self, workspace: &WorkspaceName) -> Option<Arc<LiveSession>> {
        self.sessions.read().get(workspace).cloned()
    }

    /// Returns all sessions, ordered by workspace.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LiveSession>> {
        let mut all: Vec<_> = self.sessions.read().values().cloned().collect();
        all.sort_by(|left, right| left.workspace.cmp(&right.workspace));
        all
    }

    /// Returns what is due for sessions because of what their agents proved themselves with.
    #[must_use]
    pub fn due(&self, now: UnixSeconds) -> Vec<(Arc<LiveSession>, Due)> {
        let sessions = self.sessions.read();
        sessions.values().filter_map(|session| Some((session.clone(), session.lease.lock().due(now)?))).collect()
    }

    /// Returns how many sessions live.
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
    /// [`Full`] when the bound is reached and nothing would be displaced.
    pub fn claim(&self, new: NewSession) -> Result<(Arc<LiveSession>, Option<Arc<LiveSession>>), Full> {
        let mut sessions = self.sessions.write();
        if sessions.len() >= self.sessions_max && !sessions.contains_key(&new.workspace) {
            return Err(Full);
        }
        // Given out under the lock: of two claims at once, the one that stays has the higher generation.
        let number = self.number();
        let id = SessionId::new(number);
        let session = Arc::new(LiveSession {
            id,
            // Whatever an agent says, it cannot outrank those who come after it.
            rank: new.had.map_or(id, |had| had.min(id)),
            generation: Generation::new(number),
            workspace: new.workspace.clone(),
            lease: Mutex::new(Held::new(new.lease)),
            renewal: Notify::new(),
            tunnel: new.tunnel,
            keys: new.keys,
            lanes: new.lanes,
            instance: new.instance,
            peer: Mutex::new(new.peer),
            agent_version: new.agent_version,
            since: Instant::now(),
            requests: Arc::new(Semaphore::new(new.requests_max)),
            requests_max: new.requests_max,
            ports: new.ports,
            default_port: new.default_port.and_then(Port::new),
        });
        let displaced = sessions.insert(new.workspace, session.clone());
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
        let mut sessions = self.sessions.write();
        let is_current = sessions.get(&session.workspace).is_some_and(|current| current.id == session.id);
        if is_current {
            sessions.remove(&session.workspace);
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::mux::{Settings, Side};

    use super::*;

    fn new(workspace: &str) -> NewSession {
        NewSession {
            workspace: workspace.parse().expect("a name"),
            lease: Lease::renewable(Credential::Token("t-1".parse().expect("an id")), None, UnixSeconds::new(0)),
            tunnel: Session::new(Settings::new(Side::Gateway)),
            keys: ResumeKeys::default(),
            lanes: Lanes::default(),
            had: None,
            instance: 1,
            peer: ([127, 0, 0, 1], 1).into(),
            agent_version: "0".into(),
            ports: Vec::new(),
            default_port: None,
            requests_max: 1,
        }
    }

    #[test]
    fn release_by_displaced_session_keeps_the_newer_one() {
        let registry = Registry::new(10, 1);
        let (first, none) = registry.claim(new("a")).expect("room");
        assert!(none.is_none());
        let (second, displaced) = registry.claim(new("a")).expect("room");
        assert_eq!(displaced.map(|session| session.id), Some(first.id));
        assert!(second.generation > first.generation);
        assert!(!registry.release(&first));
        assert_eq!(registry.current(&first.workspace).map(|session| session.id), Some(second.id));
        assert!(registry.release(&second));
        assert!(registry.is_empty());
    }

    #[test]
    fn full_registry_still_lets_an_agent_replace_its_own_session() {
        let registry = Registry::new(1, 1);
        assert!(registry.claim(new("a")).is_ok());
        assert_eq!(registry.claim(new("b")).err(), Some(Full));
        assert!(registry.claim(new("a")).is_ok());
    }

    #[test]
    fn ids_and_generations_grow_over_restarts() {
        let before = Registry::new(1, 1_000).claim(new("a")).expect("room").0;
        let registry = Registry::new(1, 1_001);
        let after = registry.claim(new("a")).expect("room").0;
        assert!(after.generation > before.generation && after.id > before.id);
        assert!(registry.lane_id() > after.id);
    }

    #[test]
    fn unnamed_ports_are_exposed_only_while_none_is_named() {
        let port = |number| Port::new(number).expect("a port");
        let registry = Registry::new(2, 1);
        let (open, _) = registry.claim(new("a")).expect("room");
        assert!(open.exposes(port(1)));
        let named = PortSettings { number: 5173, protocol: AppProtocol::Http2, host: HostMode::Localhost };
        let (closed, _) = registry.claim(NewSession { ports: vec![named], ..new("b") }).expect("room");
        assert!(closed.exposes(port(5173)) && !closed.exposes(port(1)));
        assert_eq!(closed.mode(port(5173)).protocol, AppProtocol::Http2);
        assert_eq!(closed.mode(port(1)), PortMode::default());
    }
}
