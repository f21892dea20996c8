//! What a replica does while the store is away, and when it is back: agents get sessions whose places are claimed later, other
//! replicas are asked instead of the store, and seals are renewed in time for the next outage.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_agents::admission::{Candidate, RETRY_AFTER, displaced_by_newer, refused};
use gateway_agents::registry::LiveSession;
use gateway_store::{
    CLAIMS_MAX, ClaimResult, DifferingPlace, Incarnation, ProvedAgent, SealedAdmission, SealedAgent, SealedGeneration,
    SessionClaim, SessionKey, SessionOwner, wall_clock,
};
use gateway_types::failed_request::FailedRequest;
use gateway_types::{UnixSeconds, WorkspaceName};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::grpc::{Code, RpcRefused};
use tunnel_proto::id::Generation;
use tunnel_proto::limit::SEAL_BYTES_MAX;
use tunnel_proto::reason::Reason;

use crate::claims::Claimed;
use crate::late::{LateClaim, LateSession};
use crate::replica::{FindError, Replica};
use crate::wire::{SessionPlace, WorkspaceQuery};

/// Longest wait for the answers of the other replicas.
const QUESTION_TIME: Duration = Duration::from_secs(1);

/// Wait for more answers after the first one: an agent that moved may have left a session behind.
const MORE_ANSWERS_TIME: Duration = Duration::from_millis(50);

/// Interval at which claims that wait are tried.
const CLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which some sessions are checked and their seals renewed, and after how many all have had their turn.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECK_TURNS: u64 = 60;

/// The place of a session.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) key: SessionKey,
    pub(crate) replica: u64,
    pub(crate) url: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) instance: u64,
    /// Whether it counts without an answer of the replica.
    pub(crate) is_sure: bool,
}

impl Place {
    /// Returns whether the agent came here after it was at another place.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.key, self.generation) > (other.key, other.generation)
    }
}

impl From<SessionOwner> for Place {
    fn from(owner: SessionOwner) -> Self {
        Self {
            key: owner.key,
            replica: owner.incarnation.get(),
            url: owner.peer_url.into(),
            generation: owner.generation,
            instance: owner.instance,
            is_sure: owner.is_live,
        }
    }
}

impl Replica {
    /// Returns the generation that an agent's seal proves, and the time of the seal.
    pub(crate) fn proved(&self, candidate: &Candidate, key: SessionKey) -> Option<SealedGeneration> {
        let (seal, instance) = (&candidate.hello.seal, candidate.hello.instance);
        let credential = &candidate.lease.credential;
        if let Some(token_hash) = candidate.lease.proof.as_deref()
            && let Some((of, sealed)) = self.store.sealed_admission(ProvedAgent { token_hash, instance }, seal)
        {
            let is_its = SessionKey::Workspace(of.workspace) == key && credential.token() == Some(of.token);
            return is_its.then_some(sealed);
        }
        let credential = credential.to_string();
        self.store.sealed_generation(&SealedAgent { key, credential: &credential, instance }, seal)
    }

    /// Seals a session's generation, and what its admission has to know, if that needs no one to be asked.
    pub(crate) fn seal_of(&self, session: &LiveSession) -> Bytes {
        let Some(workspace) = session.workspace else { return Bytes::new() };
        let (key, instance) = (SessionKey::Workspace(workspace), session.instance);
        let sealed = SealedGeneration { generation: session.generation().get(), at: self.confirmed_at(key) };
        let facts = (session.subject.workspace().cloned(), session.owner.clone(), session.token(), session.proof());
        if let (Some(name), Some(owner), Some(token), Some(proof)) = facts {
            let of = SealedAdmission { workspace, name, owner, token, expires_at: session.expires_at() };
            let seal = self.store.seal_admission(&of, ProvedAgent { token_hash: &proof, instance }, sealed);
            if seal.len() <= SEAL_BYTES_MAX {
                return seal.into();
            }
        }
        let credential = session.credential().to_string();
        self.store.seal_generation(&SealedAgent { key, credential: &credential, instance }, sealed).into()
    }

    /// Returns the time at which the store last stood behind a session: a seal is not made younger by replicas that have lost
    /// the store.
    fn confirmed_at(&self, key: SessionKey) -> UnixSeconds {
        let now = wall_clock();
        let Some(outage) = self.store.availability().outage() else { return now };
        let lasted = Instant::now().into_std().saturating_duration_since(outage.since).as_secs();
        let began = now.get().saturating_sub(i64::try_from(lasted).unwrap_or(i64::MAX));
        self.late.sealed_at(key).unwrap_or(UnixSeconds::new(began))
    }

    /// Gives an agent a session without a place, which is claimed when the store is back.
    pub(crate) fn admit_late(
        &self,
        candidate: &Candidate,
        key: SessionKey,
        proved: Option<SealedGeneration>,
    ) -> Result<Generation, RpcRefused> {
        let current = self.registry.of(&candidate.subject);
        let known = proved.map(|sealed| sealed.generation);
        let is_newer = |current: &Arc<LiveSession>| {
            current.instance != candidate.hello.instance
                && known.is_some_and(|known| current.generation().get() > known)
        };
        if current.as_ref().is_some_and(is_newer) {
            return Err(displaced_by_newer());
        }
        let highest = known.max(current.map(|session| session.generation().get())).unwrap_or_default();
        let generation = highest.saturating_add(1);
        let (subject, since) = (candidate.subject.clone(), Instant::now().into_std());
        let sealed_at = proved.map(|sealed| sealed.at);
        if !self.late.add(key, LateClaim { subject, generation, sealed_at, since }) {
            return Err(refused(Code::Unavailable, "too many sessions wait for the store", Some(RETRY_AFTER)));
        }
        info!(agent = %candidate.subject, generation, "session to be claimed when the store is back");
        Ok(Generation::new(generation))
    }

    /// Has all sessions claimed again, after a time in which others may have taken them.
    pub async fn claim_anew(&self) {
        let since = Instant::now().into_std();
        for session in self.registry.all() {
            let key = match (session.workspace, session.subject.cluster()) {
                (Some(workspace), _) => Some(SessionKey::Workspace(workspace)),
                (None, Some(cluster)) => match self.store.cluster(cluster).await {
                    Ok(found) => found.map(|cluster| SessionKey::Cluster(cluster.id)),
                    Err(_) => None,
                },
                (None, None) => None,
            };
            let (subject, generation) = (session.subject.clone(), session.generation().get());
            let claim = LateClaim { subject, generation, sealed_at: None, since };
            if !key.is_some_and(|key| self.late.add(key, claim)) {
                debug!(agent = %session.subject, "the session is not claimed anew");
            }
        }
    }

    /// Claims places for sessions that have none as soon as the store can be asked, until `stop`.
    pub async fn claim_late(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(CLAIM_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            while self.store.availability().outage().is_none() {
                match stop.run_until_cancelled(self.claim_some()).await {
                    Some(true) => {}
                    Some(false) => break,
                    None => return,
                }
            }
        }
    }

    /// Claims places for some sessions. Returns whether there may be more.
    async fn claim_some(&self) -> bool {
        let now = Instant::now().into_std();
        let batch = self.late.take(CLAIMS_MAX, now, |key, claim| self.late_session(key, claim));
        let claims = batch.iter().map(|(key, _, session)| SessionClaim {
            key: *key,
            instance: session.instance,
            known: Some(session.generation().get()),
            is_late: true,
        });
        let claims: Vec<_> = claims.collect();
        let outcomes = self.claims.claim_all(claims).await;
        let mut is_done = !batch.is_empty();
        for ((key, claim, session), outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                Claimed::Answered(ClaimResult::Owned { generation, previous }) => {
                    self.claimed_late(&session, generation, previous);
                }
                Claimed::Answered(ClaimResult::Displaced { instance }) => {
                    info!(agent = %session.subject, session = %session.id, "session displaced: a newer one was claimed");
                    self.end_older_than(&session, instance);
                }
                Claimed::NoLease | Claimed::Away => {
                    self.late.put_back(key, claim);
                    is_done = false;
                }
            }
        }
        is_done
    }

    fn late_session(&self, key: SessionKey, claim: &LateClaim) -> LateSession<Arc<LiveSession>> {
        let is_its = |session: &Arc<LiveSession>| {
            session.generation().get() >= claim.generation
                && !session.tunnel.is_ended()
                && session.workspace.is_none_or(|workspace| SessionKey::Workspace(workspace) == key)
        };
        match self.registry.of(&claim.subject).filter(is_its) {
            None => LateSession::None,
            Some(session) if session.tunnel.is_detached() => LateSession::Detached,
            Some(session) => LateSession::Up(session),
        }
    }

    fn claimed_late(&self, session: &Arc<LiveSession>, generation: u64, previous: Option<(Incarnation, u64)>) {
        debug!(agent = %session.subject, session = %session.id, generation, "session claimed");
        if session.subject.cluster().is_some() && session.generation().get() != generation {
            // What is written for a cluster is fenced by the generation with which its session began.
            session.tunnel.close(Reason::SessionLost, "the session lost its place");
        }
        session.raise(Generation::new(generation));
        self.end_previous(&session.subject, previous, session.instance);
        self.renew_seal(session);
    }

    fn renew_seal(&self, session: &LiveSession) {
        if session.takes_seals {
            session.tunnel.renew_seal(self.seal_of(session));
        }
    }

    /// Compares some sessions with their places in the store. Ends those whose agents have newer ones elsewhere: the replicas of these
    /// have said so, but may not have been able to reach this one. Claims those anew of which the store knows nothing: it may have
    /// gone back in time, without this replica's lease being over.
    async fn check_places(&self, sessions: &[Arc<LiveSession>]) {
        let place =
            |session: &LiveSession| Some((SessionKey::Workspace(session.workspace?), session.generation().get()));
        let known: Vec<_> = sessions.iter().filter_map(|session| place(session)).collect();
        if known.is_empty() {
            return;
        }
        let differing = match self.store.differing_places(self.incarnation, &known).await {
            Ok(differing) => differing,
            Err(error) => return debug!(%error, "the places of sessions cannot be read"),
        };
        let since = Instant::now().into_std();
        for DifferingPlace { key, newer } in differing {
            let is_of = |session: &&Arc<LiveSession>| place(session).is_some_and(|(of, _)| of == key);
            let Some(session) = sessions.iter().find(is_of).filter(|session| !session.tunnel.is_ended()) else {
                continue;
            };
            let generation = session.generation().get();
            match newer {
                Some(newer) if newer.generation > generation => {
                    info!(agent = %session.subject, session = %session.id, "session displaced by one of another replica, as the store says");
                    self.end_older_than(session, newer.instance);
                }
                Some(_) => {}
                None => {
                    debug!(agent = %session.subject, session = %session.id, "the store does not know the session, which is claimed anew");
                    let subject = session.subject.clone();
                    self.late.put_back(key, LateClaim { subject, generation, sealed_at: None, since });
                }
            }
        }
    }

    /// Ends a session because the store has a newer one of process `instance`. If that is the same process, it may never have
    /// learned of the newer one, whose welcome was lost: it must not stop as one whose place another process has, but
    /// come again. One that was asked to move keeps its session as a relay lane. Process 0 has drawn no number.
    pub(crate) fn end_older_than(&self, session: &Arc<LiveSession>, instance: u64) {
        if instance == session.instance && instance != 0 && !session.is_moving() {
            session.tunnel.close(Reason::SessionLost, "this agent has claimed a newer session");
        } else {
            self.registry.displace(session, instance);
        }
    }

    /// Renews the seals of all sessions within a minute, ends those that have been displaced, and claims those that the store has
    /// forgotten, until `stop`. While the store is away they stay as they are.
    pub async fn check_sessions(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in (0..CHECK_TURNS).cycle() {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if self.store.availability().outage().is_none() {
                let sessions = self.registry.in_turn(turn, CHECK_TURNS);
                sessions.iter().for_each(|session| self.renew_seal(session));
                self.check_places(&sessions).await;
            }
        }
    }

    /// Asks all other replicas for a failed request. One that does not answer in time may have it.
    pub(crate) async fn ask_for_failed(&self, trace: &str) -> Option<FailedRequest> {
        if !self.searches.may_question() {
            return None;
        }
        let until = Instant::now() + QUESTION_TIME;
        let mut questions = JoinSet::new();
        for (replica, url) in self.members.living() {
            if replica == self.incarnation.get() {
                continue;
            }
            let (connections, trace) = (self.connections.clone(), trace.to_owned());
            drop(questions.spawn(async move {
                let peer = connections.to(replica, &url);
                connections.explain(&peer, trace).await.ok().flatten()
            }));
        }
        while let Ok(Some(answer)) = timeout_at(until, questions.join_next()).await {
            if let Ok(Some(found)) = answer {
                return Some(found);
            }
        }
        None
    }

    /// Asks all other replicas where the session of a workspace is. `None` if all say that it is not there.
    pub(crate) async fn ask_all(&self, name: &WorkspaceName) -> Result<Option<Place>, FindError> {
        if !self.searches.may_question() {
            return Err(FindError::TooMany);
        }
        let until = Instant::now() + QUESTION_TIME;
        let mut questions = JoinSet::new();
        for (replica, url) in self.members.living() {
            if replica == self.incarnation.get() {
                continue;
            }
            let (connections, query) = (self.connections.clone(), WorkspaceQuery { workspace: name.to_string() });
            drop(questions.spawn(async move {
                let peer = connections.to(replica, &url);
                let answer = timeout(QUESTION_TIME, connections.find_session(&peer, query)).await;
                let found = answer.ok()?.ok()?;
                Some(found.and_then(|found| place(found, replica, url)))
            }));
        }
        let (mut best, mut is_sure, mut until) = (None::<Place>, true, until);
        while let Ok(Some(answer)) = timeout_at(until, questions.join_next()).await {
            match answer.ok().flatten() {
                None => is_sure = false,
                Some(None) => {}
                Some(Some(found)) => {
                    until = until.min(Instant::now() + MORE_ANSWERS_TIME);
                    if best.as_ref().is_none_or(|best| best.generation < found.generation) {
                        best = Some(found);
                    }
                }
            }
        }
        match best {
            Some(best) => Ok(Some(best)),
            None if is_sure && questions.is_empty() => Ok(None),
            None => Err(FindError::NoAnswer),
        }
    }
}

fn place(found: SessionPlace, replica: u64, url: Arc<str>) -> Option<Place> {
    let SessionPlace { workspace_id, generation, instance } = found;
    let key = SessionKey::Workspace(workspace_id.parse().ok()?);
    Some(Place { key, replica, url, generation, instance, is_sure: true })
}
