//! Persistence of browser sessions: rows for the store, and their restoration at the next start.
//!
//! Rows have the digests of ids only, and no ID token. A session that is used is written again only when its last use has
//! moved by a part of the time after which it would end, so a busy session costs a row each few minutes; after a restart it
//! ends up to that part earlier than it would have.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{
    BrowserSessions, HOST_SESSIONS_MAX, HostSession, LastUse, PUBLIC_SESSIONS_MAX, PublicSession, SignedIn, age,
    milliseconds,
};
use crate::journal::{Journal, NotedKey};
use crate::oidc::ProviderSession;
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{KeptParent, KeptSession, SessionChange};

/// The part of the idle time by which a last use has to move to be written.
const USE_PART: i64 = 16;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Both {
    /// The clock that sessions live by.
    pub now: Instant,
    /// The same moment as a date.
    pub wall: UnixSeconds,
}

impl BrowserSessions {
    /// Returns the journal of sessions that the store has yet to get.
    #[must_use]
    pub fn journal(&self) -> &Journal<Digest> {
        &self.journal
    }

    /// Forgets expired sessions, and notes used ones in the journal.
    pub fn note_uses(&self, now: Instant) {
        let mut state = self.state.write();
        state.sweep(self.epoch, now);
        self.settle(&mut state);
        drop(state);
        let least = i64::try_from(self.lifetimes.idle_max.as_millis()).unwrap_or(i64::MAX) / USE_PART;
        let state = self.state.read();
        let public = state.public.iter().map(|(id, session)| (id, &session.used));
        let hosts = state.hosts.iter().map(|(id, session)| (id, &session.used));
        for (id, used) in public.chain(hosts) {
            if used.since_epoch_ms().saturating_sub(used.kept_ms.load(Ordering::Relaxed)) >= least {
                self.journal.changed(*id);
            }
        }
    }

    /// Returns the changes for the store of a batch of the journal, parents before their children.
    #[must_use]
    pub fn changes(&self, batch: &[NotedKey<Digest>], at: Both) -> Vec<SessionChange> {
        let state = self.state.read();
        let mut changes: Vec<SessionChange> = batch
            .iter()
            .filter_map(|NotedKey { key, is_stored, is_removed }| {
                let (row, used) = if let Some(session) = state.public.get(key) {
                    (self.row(*key, &session.who, session.opened_ms, &session.used, session.peer, at), &session.used)
                } else if let Some(session) = state.hosts.get(key) {
                    let who = &session.parent_session.who;
                    let row = self.row(*key, who, session.opened_ms, &session.used, session.peer, at);
                    let of = Some(KeptParent { parent: session.parent, host: session.host.clone() });
                    (KeptSession { of, provider: None, ..row }, &session.used)
                } else {
                    // One that was only forgotten may be in use at another replica.
                    return (*is_removed || self.shared.is_none()).then_some(SessionChange::Ended(*key));
                };
                used.kept_ms.store(used.since_epoch_ms(), Ordering::Relaxed);
                Some(match is_stored {
                    true => SessionChange::Used(*key, row.used_at),
                    false => SessionChange::Begun(Box::new(row)),
                })
            })
            .collect();
        changes.sort_by_key(|change| matches!(change, SessionChange::Begun(row) if row.of.is_some()));
        changes
    }

    fn row(&self, id: Digest, who: &SignedIn, opened_ms: i64, used: &LastUse, peer: IpAddr, at: Both) -> KeptSession {
        let seconds = |ms| i64::try_from(age(self.epoch, at.now, ms).as_secs()).unwrap_or(i64::MAX);
        let date = |ms| UnixSeconds::new(at.wall.get().saturating_sub(seconds(ms)));
        let provider =
            who.provider.as_ref().map(|provider| (provider.subject().into(), provider.session().map(Into::into)));
        KeptSession {
            id,
            user: who.user.clone(),
            of: None,
            provider,
            peer,
            opened_at: date(opened_ms),
            used_at: date(used.since_epoch_ms()),
        }
    }

    /// Returns the milliseconds from the epoch to a date, or back to it. A date in the future means a clock that was set back.
    pub(super) fn since(&self, time: UnixSeconds, at: Both) -> i64 {
        let ago = at.wall.get().saturating_sub(time.get()).max(0);
        milliseconds(self.epoch, at.now).saturating_sub(ago.saturating_mul(1_000))
    }

    /// Makes the session of the public host that a row is about.
    pub(super) fn public_of(&self, row: &KeptSession, used: LastUse, at: Both) -> PublicSession {
        let restored = |(subject, session): &(Box<str>, Option<Box<str>>)| {
            Arc::new(ProviderSession::restored(subject, session.as_deref()))
        };
        let who = SignedIn { user: row.user.clone(), provider: row.provider.as_ref().map(restored) };
        let opened_ms = self.since(row.opened_at, at);
        PublicSession { who, lifetimes: self.lifetimes, opened_ms, used, peer: row.peer }
    }

    /// Makes the session of a workspace host that a row is about.
    pub(super) fn host_of(
        &self,
        row: &KeptSession,
        of: &KeptParent,
        parent_session: Arc<PublicSession>,
        used: LastUse,
        at: Both,
    ) -> HostSession {
        let (host, parent, opened_ms) = (of.host.clone(), of.parent, self.since(row.opened_at, at));
        HostSession { host, parent, parent_session, opened_ms, used, peer: row.peer }
    }

    /// Restores the sessions that an earlier process left in the store. Rows that have expired, have no parent or
    /// exceed the limits are left to the journal to be deleted.
    pub fn restore(&self, rows: Vec<KeptSession>, at: Both) {
        let mut state = self.state.write();
        let (public, hosts): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.of.is_none());
        for row in public.iter().chain(&hosts) {
            let id = row.id;
            self.journal.restored(id);
            let used = LastUse::at(self.since(row.used_at, at));
            let is_kept = match &row.of {
                None => {
                    let session = self.public_of(row, used, at);
                    let is_kept = session.is_live(self.epoch, at.now) && state.public.len() < PUBLIC_SESSIONS_MAX;
                    if is_kept {
                        state.public.insert(id, Arc::new(session));
                    }
                    is_kept
                }
                Some(of) => {
                    let parent_session = state.public.get(&of.parent).cloned();
                    let session = parent_session.map(|parent_session| self.host_of(row, of, parent_session, used, at));
                    let live = session.filter(|session| session.is_live(self.epoch, at.now));
                    match live.filter(|_| state.hosts.len() < HOST_SESSIONS_MAX) {
                        Some(session) => state.hosts.insert(id, session).is_none(),
                        None => false,
                    }
                }
            };
            if !is_kept {
                self.journal.removed(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::browser::Lifetimes;
    use gateway_types::UserName;
    use gateway_types::opaque::Opaque;

    const HOST: &str = "8080-app.zone";
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const WALL: i64 = 1_800_000_000;

    fn both(now: Instant, seconds: u64) -> Both {
        let wall = UnixSeconds::new(WALL + i64::try_from(seconds).unwrap());
        Both { now: now + Duration::from_secs(seconds), wall }
    }

    /// Writes all that is noted into `rows`, as a store would have it.
    fn write(sessions: &BrowserSessions, rows: &mut Vec<KeptSession>, at: Both) {
        while sessions.journal().has_more() {
            let mut gone = Vec::new();
            for change in sessions.changes(&sessions.journal().begin(2), at) {
                match change {
                    SessionChange::Begun(row) => rows.push(*row),
                    SessionChange::Used(id, used_at) => {
                        rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.used_at = used_at);
                    }
                    SessionChange::Ended(id) => {
                        rows.retain(|row| row.id != id);
                        gone.push(id);
                    }
                }
            }
            sessions.journal().end(Some(&gone));
        }
    }

    fn again(rows: &[KeptSession], at: Both) -> BrowserSessions {
        let sessions = BrowserSessions::new(at.now, Lifetimes::default());
        sessions.restore(rows.to_vec(), at);
        sessions
    }

    #[test]
    fn sessions_outlive_the_process_with_their_age_use_and_provider() {
        let start = Instant::now();
        let sessions = BrowserSessions::new(start, Lifetimes::default());
        let (id, host) = (Opaque::random().unwrap(), Opaque::random().unwrap());
        let provider = Some(Arc::new(ProviderSession::new("subject", Some("sid"), "token")));
        let ann: UserName = "ann".parse().unwrap();
        sessions.open_public(&id, SignedIn { user: ann.clone(), provider }, PEER, start);
        sessions.open_host(&host, id.digest(), HOST, PEER, start).unwrap();
        let mut rows = Vec::new();
        write(&sessions, &mut rows, both(start, 0));
        assert!(!format!("{rows:?}").contains(&id.reveal()));
        // Used an hour later.
        let hour = both(start, 3_600);
        assert!(sessions.host(&host.digest(), HOST, hour.now).is_some());
        sessions.note_uses(hour.now);
        write(&sessions, &mut rows, hour);
        // A process that starts half an hour later, on a clock of its own.
        let at = both(start, 5_400);
        let sessions = again(&rows, at);
        assert_eq!(sessions.host(&host.digest(), HOST, at.now), Some(ann.clone()));
        assert_eq!(sessions.host(&host.digest(), "other.zone", at.now), None);
        let listed = sessions.list(&ann, at.now);
        assert_eq!((listed[0].age.as_secs(), listed[0].hosts[0].age.as_secs()), (5_400, 5_400));
        let is_about = |who: &SignedIn| who.provider.as_ref().is_some_and(|provider| provider.session() == Some("sid"));
        assert_eq!(sessions.end_where(is_about).len(), 1);
        write(&sessions, &mut rows, at);
        assert_eq!(rows, [], "what ended is gone from the store too");
        assert_eq!(again(&rows, at).public(&id.digest(), at.now), None);
    }

    #[test]
    fn session_that_is_over_stays_over() {
        let start = Instant::now();
        let sessions = BrowserSessions::new(start, Lifetimes::default());
        let ids: Vec<Opaque> = (0..3).map(|_| Opaque::random().unwrap()).collect();
        for id in &ids {
            sessions.open_public(id, "ann".parse::<UserName>().unwrap(), PEER, start);
        }
        let mut rows = Vec::new();
        write(&sessions, &mut rows, both(start, 0));
        sessions.sign_out(&ids[0].digest());
        write(&sessions, &mut rows, both(start, 0));
        assert_eq!(rows.len(), 2);
        let idle = both(start, Lifetimes::default().idle_max.as_secs());
        let sessions = again(&rows, idle);
        assert!(ids.iter().all(|id| sessions.public(&id.digest(), idle.now).is_none()));
        write(&sessions, &mut rows, idle);
        assert_eq!(rows, []);
    }

    #[test]
    fn host_session_without_its_parent_is_nobodys() {
        let start = Instant::now();
        let sessions = BrowserSessions::new(start, Lifetimes::default());
        let (id, host) = (Opaque::random().unwrap(), Opaque::random().unwrap());
        sessions.open_public(&id, "ann".parse::<UserName>().unwrap(), PEER, start);
        sessions.open_host(&host, id.digest(), HOST, PEER, start).unwrap();
        let mut rows = Vec::new();
        write(&sessions, &mut rows, both(start, 0));
        rows.retain(|row| row.of.is_some());
        let sessions = again(&rows, both(start, 1));
        assert_eq!(sessions.host(&host.digest(), HOST, start + Duration::from_secs(1)), None);
        write(&sessions, &mut rows, both(start, 1));
        assert_eq!(rows, []);
    }
}
