//! Maps workspaces and clusters to their live sessions. The newest wins, and only the session
//! that claimed an entry removes it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;
use tunnel_proto::id::{REPLICA_SHIFT, SessionId};

use super::relays::ExpectedLanes;
use gateway_types::{ClusterName, UnixSeconds, WorkspaceName};

mod lease;
mod ports;
mod returns;
mod session;
mod subject;

pub use self::lease::{Credential, LeaseAction, Review, SessionLease};
pub use self::ports::{AgentPorts, AgentReport};
pub use self::returns::AgentReturns;
pub use self::session::{Arrival, HoppedChannel, LiveSession, NewSession, PortMode, SessionWay};
pub use self::subject::Subject;

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
    /// Agents that lost their link.
    pub returns: AgentReturns,
    /// Counts the relay lanes that came up.
    relays: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct SubjectMap {
    workspaces: HashMap<WorkspaceName, Arc<LiveSession>>,
    clusters: HashMap<ClusterName, Arc<LiveSession>>,
    /// Lanes of workspaces' agents that dialed other replicas.
    relays: HashMap<WorkspaceName, Arc<LiveSession>>,
    /// Former sessions of agents that moved while such a lane was there already: what users have open in them goes on.
    former: HashMap<WorkspaceName, Vec<Arc<LiveSession>>>,
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
            (Subject::Workspace(name), SessionWay::Relay) => {
                remove_if(&mut self.relays, name, is_it) || self.remove_former(name, session.id)
            }
            (Subject::Cluster(name), SessionWay::Direct) => remove_if(&mut self.clusters, name, is_it),
            (Subject::Cluster(name), SessionWay::Relay) => remove_if(&mut self.cluster_relays, name, is_it),
        }
    }

    fn remove_former(&mut self, name: &WorkspaceName, session: SessionId) -> bool {
        let Some(former) = self.former.get_mut(name) else { return false };
        let before = former.len();
        former.retain(|one| one.id != session);
        let is_removed = former.len() < before;
        if former.is_empty() {
            self.former.remove(name);
        }
        is_removed
    }

    /// Makes the session of an agent that has moved a relay lane.
    fn yield_place(&mut self, name: &WorkspaceName) {
        let Some(session) = self.workspaces.remove(name) else { return };
        session.become_relay();
        if self.relays.contains_key(name) {
            self.former.entry(name.clone()).or_default().push(session);
        } else {
            self.relays.insert(name.clone(), session);
        }
    }

    /// Returns the former sessions of a workspace's agent.
    fn former(&self, subject: &Subject) -> impl Iterator<Item = &Arc<LiveSession>> {
        subject.workspace().and_then(|name| self.former.get(name)).into_iter().flatten()
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
        self.relays.values().chain(self.former.values().flatten()).chain(self.cluster_relays.values())
    }

    fn relays_len(&self) -> usize {
        self.relays.len() + self.former.values().map(Vec::len).sum::<usize>() + self.cluster_relays.len()
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
            returns: AgentReturns::default(),
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

    /// Returns the workspaces' sessions whose turn it is, of so many turns in which each has one, in no order.
    #[must_use]
    pub fn in_turn(&self, turn: u64, turns: u64) -> Vec<Arc<LiveSession>> {
        let sessions = self.sessions.read();
        sessions.workspaces.values().filter(|session| session.id.get() % turns == turn).cloned().collect()
    }

    /// Returns the number of relay lanes that end here.
    #[must_use]
    pub fn relays_len(&self) -> usize {
        self.sessions.read().relays_len()
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

    /// Returns the session of a subject, or a relay lane to its agent, that `is_meant`.
    #[must_use]
    pub fn find(&self, subject: &Subject, is_meant: impl Fn(&LiveSession) -> bool) -> Option<Arc<LiveSession>> {
        let sessions = self.sessions.read();
        let lanes = sessions.relay(subject).into_iter().chain(sessions.former(subject));
        sessions.get(subject).into_iter().chain(lanes).find(|session| is_meant(session)).cloned()
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
        session.close_displaced();
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
        all.filter_map(|session| Some((session.clone(), session.due(now)?))).collect()
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
            Some(before) if new.generation.is_some_and(|generation| generation < before.generation()) => {
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
        let session = Arc::new(LiveSession::new(new, self.number()));
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
