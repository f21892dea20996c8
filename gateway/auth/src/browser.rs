//! Browser sessions, kept here and known to the browser only by an opaque id.
//!
//! A *public* session belongs to the public host and stands for a sign-in. A *host* session belongs to exactly one
//! workspace host, port label included, and is the child of a public one: when the parent ends, so do its children.
//! Both kinds end after an idle timeout and at a maximum age, whichever comes first. They outlive the process: [`persistence`]
//! writes them to the store and restores them at the next start. No request waits for the store.

mod list;
pub mod persistence;
mod shared;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use thiserror::Error;
use tokio::time::Instant;

use self::shared::{Endings, SharedSessions};
use crate::journal::Journal;
use crate::oidc::ProviderSession;
use gateway_types::UserName;
use gateway_types::opaque::{Digest, Opaque};

/// Public sessions at once. Full: the one idle longest ends.
pub const PUBLIC_SESSIONS_MAX: usize = 8 * 1024;
/// Public sessions of one user, so that one user cannot push out the others. Full: the user's session idle longest
/// ends.
pub const PUBLIC_SESSIONS_PER_USER_MAX: usize = 32;
/// Host sessions at once. Full: the one idle longest ends.
pub const HOST_SESSIONS_MAX: usize = 32 * 1024;
/// Host sessions of one public session. Full: its own idle longest ends.
pub const HOST_SESSIONS_PER_PARENT_MAX: usize = 256;

const _: () = assert!(PUBLIC_SESSIONS_PER_USER_MAX < PUBLIC_SESSIONS_MAX);
const _: () = assert!(HOST_SESSIONS_PER_PARENT_MAX < HOST_SESSIONS_MAX);

pub use list::{HostSignIn, SessionName, SessionRow, session_name};
/// Idle timeout and maximum age of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// A session unused for this long has ended. Using a host session also uses its parent.
    pub idle_max: Duration,
    /// A session this old has ended. A host session never outlives its parent.
    pub age_max: Duration,
}

impl Default for Lifetimes {
    /// Two hours without use, a working day in all.
    fn default() -> Self {
        Self { idle_max: Duration::from_secs(2 * 60 * 60), age_max: Duration::from_secs(12 * 60 * 60) }
    }
}

/// User and way of a sign-in.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// The user who signed in.
    pub user: UserName,
    /// The identity provider's session behind the sign-in; `None` for dev mode's link.
    pub provider: Option<Arc<ProviderSession>>,
}

impl From<UserName> for SignedIn {
    fn from(user: UserName) -> Self {
        Self { user, provider: None }
    }
}

/// All browser sessions of this gateway; with several replicas, those that were used at this one. A look-up is one hash, one map
/// read under a shared lock, and no allocation.
#[derive(Debug)]
pub struct BrowserSessions {
    lifetimes: Lifetimes,
    /// Instants become numbers relative to this one, so that noting a use takes only a shared lock.
    epoch: Instant,
    state: RwLock<SessionTable>,
    journal: Journal<Digest>,
    shared: Option<SharedSessions>,
}

#[derive(Debug, Default)]
struct SessionTable {
    public: HashMap<Digest, Arc<PublicSession>>,
    hosts: HashMap<Digest, HostSession>,
    /// Sessions that ended under the lock that is held, for the journal.
    ended: Vec<Digest>,
    /// Sessions that this replica forgot under the lock that is held, and that may be in use at others.
    forgotten: Vec<Digest>,
    /// Sessions that ended last; `None` for the only gateway, which has all sessions in memory.
    endings: Option<Endings>,
}

#[derive(Debug)]
struct PublicSession {
    who: SignedIn,
    lifetimes: Lifetimes,
    /// In milliseconds since the epoch, or before it.
    opened_ms: i64,
    used: LastUse,
    /// The address of the sign-in.
    peer: IpAddr,
}

#[derive(Debug)]
struct HostSession {
    host: Box<str>,
    parent: Digest,
    parent_session: Arc<PublicSession>,
    opened_ms: i64,
    used: LastUse,
    /// Address of the browser that redeemed the one-time code.
    peer: IpAddr,
}

/// The public session has ended, so nothing can be opened under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the public session has ended")]
pub struct ParentEnded;

impl BrowserSessions {
    /// Creates an empty set. `epoch` is any instant not later than those given to the other methods.
    #[must_use]
    pub fn new(epoch: Instant, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, epoch, state: RwLock::default(), journal: Journal::default(), shared: None }
    }

    /// Opens a public session under the fresh `id`, for a browser at `peer`.
    pub fn open_public(&self, id: &Opaque, who: impl Into<SignedIn>, peer: IpAddr, now: Instant) {
        let who = who.into();
        let mut state = self.state.write();
        state.sweep(self.epoch, now);
        state.make_public_room(&who.user);
        let (opened_ms, used) = (milliseconds(self.epoch, now), LastUse::new(self.epoch, now));
        let session = PublicSession { who, lifetimes: self.lifetimes, opened_ms, used, peer };
        state.public.insert(id.digest(), Arc::new(session));
        self.journal.changed(id.digest());
        self.settle(&mut state);
    }

    /// Tells the journal what has ended.
    fn settle(&self, state: &mut SessionTable) {
        let SessionTable { ended, forgotten, endings, .. } = state;
        for id in ended.drain(..) {
            if let Some(endings) = endings {
                endings.note(id);
            }
            self.journal.removed(id);
        }
        forgotten.drain(..).for_each(|id| self.journal.forgotten(&id));
    }

    /// Returns the user of a live public session, and notes the use.
    #[must_use]
    pub fn public(&self, id: &Digest, now: Instant) -> Option<UserName> {
        let state = self.state.read();
        let session = state.public.get(id).filter(|session| session.is_live(self.epoch, now))?;
        session.used.note(self.epoch, now);
        Some(session.who.user.clone())
    }

    /// Opens a session for exactly `host` under the fresh `id`, as a child of the public session `parent`, for a browser at
    /// `peer`.
    ///
    /// # Errors
    ///
    /// [`ParentEnded`] when the parent is gone or has expired.
    pub fn open_host(
        &self,
        id: &Opaque,
        parent: Digest,
        host: &str,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(), ParentEnded> {
        let mut state = self.state.write();
        state.sweep(self.epoch, now);
        self.settle(&mut state);
        let parent_session = state.public.get(&parent).cloned().ok_or(ParentEnded)?;
        state.make_host_room(&parent);
        let (opened_ms, used) = (milliseconds(self.epoch, now), LastUse::new(self.epoch, now));
        let session = HostSession { host: host.into(), parent, parent_session, opened_ms, used, peer };
        state.hosts.insert(id.digest(), session);
        self.journal.changed(id.digest());
        self.settle(&mut state);
        Ok(())
    }

    /// Returns the user of a live session of exactly `host`, and notes the use for it and its parent.
    #[must_use]
    pub fn host(&self, id: &Digest, host: &str, now: Instant) -> Option<UserName> {
        let state = self.state.read();
        let session = state.hosts.get(id).filter(|session| *session.host == *host)?;
        if !session.is_live(self.epoch, now) {
            return None;
        }
        session.used.note(self.epoch, now);
        session.parent_session.used.note(self.epoch, now);
        Some(session.parent_session.who.user.clone())
    }

    /// Ends a public session and all its children at once; returns its user and sign-in, if there was one.
    pub fn sign_out(&self, id: &Digest) -> Option<SignedIn> {
        let mut state = self.state.write();
        let ended = state.end_public(id);
        self.settle(&mut state);
        ended
    }

    /// Ends all sessions of a user in all browsers at once; returns the number of public ones.
    pub fn sign_out_everywhere(&self, user: &UserName) -> usize {
        self.end_where(|who| who.user == *user).len()
    }

    /// Ends at once all public sessions for which `ended` is true, with their children; returns their sign-ins. Looks
    /// at every session: there are few enough, and providers do not send such messages often.
    pub fn end_where(&self, ended: impl Fn(&SignedIn) -> bool) -> Vec<SignedIn> {
        self.end_with_ids(ended).into_iter().map(|(_, who)| who).collect()
    }

    fn end_with_ids(&self, ended: impl Fn(&SignedIn) -> bool) -> Vec<(Digest, SignedIn)> {
        let mut state = self.state.write();
        let found = state.public.iter().filter(|(_, session)| ended(&session.who)).map(|(id, _)| *id);
        let found: HashSet<Digest> = found.collect();
        if found.is_empty() {
            return Vec::new();
        }
        let mut who = Vec::with_capacity(found.len());
        for id in &found {
            who.extend(state.public.remove(id).map(|session| (*id, session.who.clone())));
        }
        state.end_hosts(|session| found.contains(&session.parent));
        state.ended.extend(found);
        self.settle(&mut state);
        who
    }
}

impl PublicSession {
    fn is_live(&self, epoch: Instant, now: Instant) -> bool {
        let Lifetimes { idle_max, age_max } = self.lifetimes;
        age(epoch, now, self.opened_ms) < age_max && self.used.age(epoch, now) < idle_max
    }
}

impl HostSession {
    fn is_live(&self, epoch: Instant, now: Instant) -> bool {
        let idle_max = self.parent_session.lifetimes.idle_max;
        self.parent_session.is_live(epoch, now) && self.used.age(epoch, now) < idle_max
    }
}

impl SessionTable {
    /// Takes sessions out that are over. With replicas they are only forgotten: another one may have seen a later use.
    fn sweep(&mut self, epoch: Instant, now: Instant) {
        let Self { public, ended, forgotten, endings, .. } = self;
        let ended = if endings.is_some() { forgotten } else { ended };
        public.retain(|id, session| {
            let is_live = session.is_live(epoch, now);
            if !is_live {
                ended.push(*id);
            }
            is_live
        });
        if self.endings.is_some() {
            self.forget_hosts(|session| !session.is_live(epoch, now));
        } else {
            self.end_hosts(|session| !session.is_live(epoch, now));
        }
    }

    fn end_hosts(&mut self, is_over: impl Fn(&HostSession) -> bool) {
        let Self { hosts, ended, .. } = self;
        take_out(hosts, ended, is_over);
    }

    fn forget_hosts(&mut self, is_over: impl Fn(&HostSession) -> bool) {
        let Self { hosts, forgotten, .. } = self;
        take_out(hosts, forgotten, is_over);
    }

    fn end_public(&mut self, id: &Digest) -> Option<SignedIn> {
        let session = self.public.remove(id)?;
        self.ended.push(*id);
        self.end_hosts(|session| session.parent == *id);
        Some(session.who.clone())
    }

    fn make_public_room(&mut self, user: &UserName) {
        let theirs = self.public.values().filter(|session| session.who.user == *user).count();
        let victim = if theirs >= PUBLIC_SESSIONS_PER_USER_MAX {
            let own = self.public.iter().filter(|(_, session)| session.who.user == *user);
            longest_idle(own.map(|(id, session)| (id, &session.used)))
        } else if self.public.len() >= PUBLIC_SESSIONS_MAX {
            longest_idle(self.public.iter().map(|(id, session)| (id, &session.used)))
        } else {
            None
        };
        let Some(id) = victim else { return };
        // A replica that has no room for a session leaves it to the others.
        if theirs < PUBLIC_SESSIONS_PER_USER_MAX && self.endings.is_some() {
            self.forget_public(&id);
        } else {
            self.end_public(&id);
        }
    }

    fn forget_public(&mut self, id: &Digest) {
        self.forgotten.extend(self.public.remove(id).map(|_| *id));
        self.forget_hosts(|session| session.parent == *id);
    }

    fn make_host_room(&mut self, parent: &Digest) {
        let own = || self.hosts.iter().filter(|(_, session)| session.parent == *parent);
        let is_own_full = own().count() >= HOST_SESSIONS_PER_PARENT_MAX;
        let victim = if is_own_full {
            longest_idle(own().map(|(id, session)| (id, &session.used)))
        } else if self.hosts.len() >= HOST_SESSIONS_MAX {
            longest_idle(self.hosts.iter().map(|(id, session)| (id, &session.used)))
        } else {
            None
        };
        if let Some(id) = victim {
            self.hosts.remove(&id);
            if is_own_full || self.endings.is_none() { self.ended.push(id) } else { self.forgotten.push(id) }
        }
    }
}

/// Moves the ids of sessions that are over to a list.
fn take_out(hosts: &mut HashMap<Digest, HostSession>, to: &mut Vec<Digest>, is_over: impl Fn(&HostSession) -> bool) {
    hosts.retain(|id, session| {
        let is_over = is_over(session);
        if is_over {
            to.push(*id);
        }
        !is_over
    });
}

fn longest_idle<'a>(sessions: impl Iterator<Item = (&'a Digest, &'a LastUse)>) -> Option<Digest> {
    sessions.min_by_key(|(_, used)| used.since_epoch_ms()).map(|(id, _)| *id)
}

/// Time of the last use, in whole milliseconds since an epoch, or before it (negative).
#[derive(Debug)]
struct LastUse {
    at_ms: AtomicI64,
    /// The last use that the store has.
    kept_ms: AtomicI64,
}

impl LastUse {
    fn new(epoch: Instant, now: Instant) -> Self {
        Self::at(milliseconds(epoch, now))
    }

    fn at(at_ms: i64) -> Self {
        Self { at_ms: AtomicI64::new(at_ms), kept_ms: AtomicI64::new(at_ms) }
    }

    fn note(&self, epoch: Instant, now: Instant) {
        self.at_ms.fetch_max(milliseconds(epoch, now), Ordering::Relaxed);
    }

    fn age(&self, epoch: Instant, now: Instant) -> Duration {
        age(epoch, now, self.since_epoch_ms())
    }

    fn since_epoch_ms(&self) -> i64 {
        self.at_ms.load(Ordering::Relaxed)
    }
}

fn milliseconds(epoch: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(epoch).as_millis()).unwrap_or(i64::MAX)
}

/// Returns the age of an event that happened `at_ms` milliseconds after the epoch.
fn age(epoch: Instant, now: Instant, at_ms: i64) -> Duration {
    let age = milliseconds(epoch, now).saturating_sub(at_ms);
    Duration::from_millis(u64::try_from(age).unwrap_or_default())
}

#[cfg(test)]
mod tests;
