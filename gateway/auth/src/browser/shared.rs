//! Sessions that replicas share: read from the store when a browser first comes here, and forgotten when they end elsewhere.
//!
//! A session that is idle here may be in use at another replica, so a replica ends none for that: it forgets it, and the row
//! decides when its cookie comes again. A session that has ended is never taken up again, although a look-up that began before its
//! end may still bring its row.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::persistence::Both;
use super::{
    BrowserSessions, HOST_SESSIONS_MAX, LastUse, Lifetimes, PUBLIC_SESSIONS_MAX, SessionName, SessionRow, SessionTable,
    SignedIn, longest_idle, session_name,
};
use crate::cache::{Cache, Unavailable};
use crate::oidc::logout::Notice;
use crate::shared::{QuestionRate, READS_PER_SECOND_MAX, Shared, SharedFailure};
use gateway_net::availability::Availability;
use gateway_types::UserName;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{EndedSession, KeptParent, KeptSession, SessionsOf};

/// Ended sessions that are remembered as such. A look-up takes less time than so many sessions to end.
const ENDINGS_MAX: usize = 8 * 1024;

/// Access to the sessions of all replicas.
#[derive(Debug)]
pub(super) struct SharedSessions {
    store: Shared,
    /// Look-ups under way, and ids that are unknown. A session that was found is in the table and not here.
    lookups: Cache<Digest, Arc<[KeptSession]>>,
    rate: QuestionRate,
}

/// The sessions that ended last.
#[derive(Debug, Default)]
pub(super) struct Endings {
    ids: HashSet<Digest>,
    /// The same ids, the oldest first.
    order: VecDeque<Digest>,
}

impl Endings {
    pub(super) fn note(&mut self, id: Digest) {
        if !self.ids.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > ENDINGS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    fn include(&self, id: &Digest) -> bool {
        self.ids.contains(id)
    }
}

impl BrowserSessions {
    /// Creates an empty set that shares its sessions with other replicas.
    #[must_use]
    pub fn shared(epoch: Instant, lifetimes: Lifetimes, store: Shared, availability: Availability) -> Self {
        let shared = SharedSessions {
            store,
            lookups: Cache::bridging(availability),
            rate: QuestionRate::new(READS_PER_SECOND_MAX),
        };
        let sessions = Self { shared: Some(shared), ..Self::new(epoch, lifetimes) };
        sessions.state.write().endings = Some(Endings::default());
        sessions
    }

    /// Returns whether a session is live, as far as this replica knows. Without other replicas that is all there is.
    #[must_use]
    pub fn knows(&self, id: &Digest, now: Instant) -> bool {
        if self.shared.is_none() {
            return true;
        }
        let state = self.state.read();
        let is_public = state.public.get(id).is_some_and(|session| session.is_live(self.epoch, now));
        is_public || state.hosts.get(id).is_some_and(|session| session.is_live(self.epoch, now))
    }

    /// Asks the store for a session that this replica does not know, so that the next look-up finds it if it is live at any.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer, or was asked too often.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn find(&self, id: &Digest, now: Instant) -> Result<(), Unavailable> {
        match &self.shared {
            Some(shared) if !self.knows(id, now) => Box::pin(self.bring(shared, id, now)).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn bring(&self, shared: &SharedSessions, id: &Digest, now: Instant) -> Result<(), Unavailable> {
        if !shared.lookups.answers(id, now) && !shared.rate.take(now) {
            return Err(Unavailable);
        }
        let load = async || {
            let rows = shared.store.session(*id).await?;
            Ok::<_, SharedFailure>((!rows.is_empty()).then(|| rows.into()))
        };
        let Some(rows) = shared.lookups.get(id, now, load).await? else { return Ok(()) };
        if self.take_up(&rows, Both { now, wall: shared.store.now() }) {
            shared.lookups.forget(id, now);
        }
        Ok(())
    }

    /// Takes up the sessions of rows, unless they have ended. Returns whether one of them is live.
    fn take_up(&self, rows: &[KeptSession], at: Both) -> bool {
        let mut state = self.state.write();
        let state = &mut *state;
        let is_over = |state: &SessionTable, id: &Digest| {
            state.endings.as_ref().is_some_and(|endings| endings.include(id)) || self.journal.is_removed(id)
        };
        let mut is_live = false;
        let (public, hosts): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.of.is_none());
        for row in public.into_iter().chain(hosts) {
            let used = LastUse::at(self.since(row.used_at, at));
            let parent = row.of.as_ref().map(|of| of.parent);
            if is_over(state, &row.id) || parent.is_some_and(|parent| is_over(state, &parent)) {
                continue;
            }
            is_live |= match &row.of {
                None => self.take_up_public(state, row, used, at),
                Some(of) => self.take_up_host(state, row, of, used, at),
            };
        }
        self.settle(state);
        is_live
    }

    fn take_up_public(&self, state: &mut SessionTable, row: &KeptSession, used: LastUse, at: Both) -> bool {
        if let Some(known) = state.public.get(&row.id) {
            known.used.raise(&used);
            return known.is_live(self.epoch, at.now);
        }
        let session = self.public_of(row, used, at);
        let is_live = session.is_live(self.epoch, at.now);
        if is_live {
            if state.public.len() >= PUBLIC_SESSIONS_MAX
                && let Some(id) = longest_idle(state.public.iter().map(|(id, session)| (id, &session.used)))
            {
                state.forget_public(&id);
            }
            state.public.insert(row.id, Arc::new(session));
            self.journal.restored(row.id);
        }
        is_live
    }

    fn take_up_host(
        &self,
        state: &mut SessionTable,
        row: &KeptSession,
        of: &KeptParent,
        used: LastUse,
        at: Both,
    ) -> bool {
        let Some(parent_session) = state.public.get(&of.parent).cloned() else { return false };
        if let Some(known) = state.hosts.get_mut(&row.id) {
            known.used.raise(&used);
            known.parent_session = parent_session;
            return known.is_live(self.epoch, at.now);
        }
        let session = self.host_of(row, of, parent_session, used, at);
        let is_live = session.is_live(self.epoch, at.now);
        if is_live {
            if state.hosts.len() >= HOST_SESSIONS_MAX
                && let Some(id) = longest_idle(state.hosts.iter().map(|(id, session)| (id, &session.used)))
            {
                state.hosts.remove(&id);
                state.forgotten.push(id);
            }
            state.hosts.insert(row.id, session);
            self.journal.restored(row.id);
        }
        is_live
    }

    /// Ends a session whose row was deleted, with its children; returns whether it was known here.
    pub fn ended_elsewhere(&self, id: &Digest, now: Instant) -> bool {
        let Some(shared) = &self.shared else { return false };
        let mut state = self.state.write();
        let is_known = state.public.remove(id).is_some() | state.hosts.remove(id).is_some();
        if let Some(endings) = &mut state.endings {
            endings.note(*id);
        }
        self.journal.deleted(*id);
        state.end_hosts(|session| session.parent == *id);
        self.settle(&mut state);
        drop(state);
        shared.lookups.forget(id, now);
        is_known
    }

    /// Forgets all sessions that the store has, because some of them may have ended. Those in use are looked up again.
    pub fn forget_all(&self) {
        let Some(shared) = &self.shared else { return };
        let mut state = self.state.write();
        let SessionTable { public, hosts, forgotten, .. } = &mut *state;
        let mut is_kept = |id: &Digest| {
            let is_unwritten = self.journal.is_unwritten(id);
            if !is_unwritten {
                forgotten.push(*id);
            }
            is_unwritten
        };
        public.retain(|id, _| is_kept(id));
        hosts.retain(|id, _| is_kept(id));
        self.settle(&mut state);
        drop(state);
        shared.lookups.forget_all();
    }

    /// Reads all sessions of a user.
    async fn bring_all(&self, user: &UserName, now: Instant) -> Result<(), Unavailable> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let rows = shared.store.sessions_of(user).await.map_err(unavailable)?;
        self.take_up(&rows, Both { now, wall: shared.store.now() });
        Ok(())
    }

    /// Returns the live public sessions of a user at all replicas, the newest first.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer.
    pub async fn list_all(&self, user: &UserName, now: Instant) -> Result<Vec<SessionRow>, Unavailable> {
        self.bring_all(user, now).await?;
        Ok(self.list(user, now))
    }

    /// Ends the session of a user that has this name, at all replicas, and returns whether there was one. Returns when that is
    /// written.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer.
    pub async fn end_one(&self, user: &UserName, name: &SessionName, now: Instant) -> Result<bool, Unavailable> {
        self.bring_all(user, now).await?;
        let is_ended = self.end_named(user, name);
        self.journal.written().await;
        Ok(is_ended)
    }

    /// Ends all sessions of a user at all replicas, and returns their names. Returns when that is written.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer: then those that this replica knows have ended.
    pub async fn end_every(&self, user: &UserName, now: Instant) -> Result<Vec<SessionName>, Unavailable> {
        let mut names = self.end_all(user);
        for EndedSession { id, .. } in self.end_stored(SessionsOf::User(user.clone()), now).await? {
            let name = session_name(&id);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.journal.written().await;
        Ok(names)
    }

    /// Ends the sessions that a provider's message is about, at all replicas; returns their sign-ins.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer: then those that this replica knows have ended.
    pub async fn end_noticed(&self, notice: &Notice, now: Instant) -> Result<Vec<SignedIn>, Unavailable> {
        let is_about = |who: &SignedIn| who.provider.as_ref().is_some_and(|session| notice.is_about(session));
        let here = self.end_with_ids(is_about);
        let ids: HashSet<Digest> = here.iter().map(|(id, _)| *id).collect();
        let of = SessionsOf::Provider { subject: notice.subject.clone(), session: notice.session.clone() };
        let stored = self.end_stored(of, now).await?;
        let elsewhere = stored.into_iter().filter(|ended| !ids.contains(&ended.id)).map(|ended| ended.user.into());
        Ok(here.into_iter().map(|(_, who)| who).chain(elsewhere).collect())
    }

    async fn end_stored(&self, of: SessionsOf, now: Instant) -> Result<Vec<EndedSession>, Unavailable> {
        let Some(shared) = &self.shared else { return Ok(Vec::new()) };
        let ended = shared.store.end_sessions(of).await.map_err(unavailable)?;
        for EndedSession { id, .. } in &ended {
            self.ended_elsewhere(id, now);
        }
        Ok(ended)
    }
}

impl LastUse {
    /// Takes over a use that is stored.
    fn raise(&self, stored: &Self) {
        let stored = stored.since_epoch_ms();
        self.at_ms.fetch_max(stored, Ordering::Relaxed);
        self.kept_ms.fetch_max(stored, Ordering::Relaxed);
    }
}

fn unavailable(error: SharedFailure) -> Unavailable {
    tracing::warn!(%error, "the store did not answer about sign-ins");
    Unavailable
}

#[cfg(test)]
mod tests;
