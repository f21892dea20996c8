//! Admissions by seal: while the store is away, or too slow to answer, an agent whose token this process never saw gets in by the
//! seal that a replica gave it, unless this process has read of a change of the token or of its workspace. The seal is an answer of
//! the store that the agent carries, so it counts for as long as one that this process remembers.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tunnel_proto::hello::Hello;

use super::AgentIdentity;
use super::refusal::CredentialRefusal;
use crate::registry::{Credential, SessionLease, Subject};
use gateway_net::availability::REMEMBERED_MAX;
use gateway_store::{AccessChange, ProvedAgent, SealedAdmission, SealedGeneration, Store, wall_clock};
use gateway_types::{UnixSeconds, WorkspaceName};

/// Difference between the clocks of two replicas that is allowed for. Where it is larger, seals of one are refused at the other.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// Most changes of one kind that are kept; with one more, seals from before count for nothing.
const CHANGES_MAX: usize = 64 * 1024;

/// The hash of an agent's token that could not be looked up.
#[derive(Clone, Debug)]
pub struct UncheckedToken(pub(super) Box<[u8; 32]>);

/// Checks seals.
#[derive(Debug)]
pub(super) struct Seals {
    store: Store,
    changes: Mutex<ReadChanges>,
}

impl Seals {
    pub(super) fn new(store: Store) -> Self {
        Self { store, changes: Mutex::default() }
    }

    /// Notes a change that the store reported.
    pub(super) fn note(&self, change: &AccessChange) {
        self.changes.lock().note(change, wall_clock(), CHANGES_MAX);
    }

    /// Identifies an agent whose token could not be looked up by its seal. `None` if the store has been away for too long, or the
    /// seal does not count.
    pub(super) fn identify(&self, proved: ProvedAgent<'_>, seal: &[u8]) -> Option<AgentIdentity> {
        let (clock, now) = (Instant::now().into_std(), wall_clock());
        let began = match self.store.availability().outage() {
            Some(outage) if outage.is_bridged(clock) => before(now, clock.saturating_duration_since(outage.since)),
            Some(_) => return None,
            // It answers others, and did not answer this question in time: a storm of agents at a slow store.
            None => now,
        };
        let (admission, sealed) = self.store.sealed_admission(proved, seal)?;
        let SealedGeneration { at, .. } = sealed;
        let SealedAdmission { workspace, name, owner, token: id, expires_at } = admission;
        let is_live = expires_at.is_none_or(|end| now < end);
        if !is_live || !is_of_time(at, began, now) || !self.changes.lock().allow(proved.token_hash, &name, at) {
            return None;
        }
        let proof = Some((*proved.token_hash).into());
        let lease = SessionLease { proof, ..SessionLease::renewable(Credential::Token(id), expires_at, now) };
        let sealed = Some(Box::new((workspace, owner)));
        Some(AgentIdentity { subject: Subject::Workspace(name), lease, once: None, sealed })
    }
}

/// Returns whether a seal of that time counts in an outage that began at `began`.
fn is_of_time(at: UnixSeconds, began: UnixSeconds, now: UnixSeconds) -> bool {
    at >= before(began, REMEMBERED_MAX) && at <= after(now, CLOCK_SLACK)
}

/// Changes of access that this process has read.
#[derive(Debug, Default)]
struct ReadChanges {
    /// Times at which changes of tokens were read.
    tokens: HashMap<[u8; 32], UnixSeconds>,
    /// Times at which the last changes of workspaces were read.
    workspaces: HashMap<WorkspaceName, UnixSeconds>,
    /// Time up to which anything may have changed.
    everything: Option<UnixSeconds>,
}

impl ReadChanges {
    fn note(&mut self, change: &AccessChange, now: UnixSeconds, most: usize) {
        let has_room = match change {
            AccessChange::Token(hash) => keep(&mut self.tokens, *hash, now, most),
            AccessChange::Workspace(name) => keep(&mut self.workspaces, name.clone(), now, most),
            AccessChange::User(_) | AccessChange::Session(_) => true,
            AccessChange::Everything => false,
        };
        if !has_room {
            self.everything = Some(now);
        }
    }

    /// Returns whether a seal of that time is not out of date. A token that has changed was revoked, or ends at another time:
    /// no seal of it counts, because the replica that made it may have read of that later.
    fn allow(&self, token_hash: &[u8; 32], name: &WorkspaceName, at: UnixSeconds) -> bool {
        let changed = self.workspaces.get(name).copied().max(self.everything);
        !self.tokens.contains_key(token_hash) && changed.is_none_or(|changed| at > after(changed, CLOCK_SLACK))
    }
}

/// Keeps the time of a change. Without room, those go that are older than any seal which counts; `false` if none is.
fn keep<K: Eq + Hash>(changes: &mut HashMap<K, UnixSeconds>, key: K, now: UnixSeconds, most: usize) -> bool {
    if changes.len() >= most && !changes.contains_key(&key) {
        let oldest = before(now, REMEMBERED_MAX + CLOCK_SLACK);
        changes.retain(|_, read| *read >= oldest);
        if changes.len() >= most {
            return false;
        }
    }
    changes.insert(key, now);
    true
}

fn after(time: UnixSeconds, duration: Duration) -> UnixSeconds {
    super::after(time, duration.as_secs())
}

fn before(time: UnixSeconds, duration: Duration) -> UnixSeconds {
    UnixSeconds::new(time.get().saturating_sub(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)))
}

impl super::AgentIdentities {
    /// Returns the token of an agent that could not be looked up, and that a seal may stand for.
    #[must_use]
    pub fn unchecked(
        &self,
        headers: &http::HeaderMap,
        shown: &super::ShownCertificate,
        refusal: &CredentialRefusal,
    ) -> Option<UncheckedToken> {
        use gateway_types::token::{Token, TokenKind};
        // A certificate beside it would have to be compared with it.
        if !matches!(refusal, CredentialRefusal::Unavailable(_)) || shown.is_some() {
            return None;
        }
        let Ok(Some(super::Bearer::Own(text))) = super::bearer(headers) else { return None };
        let token = Token::parse(text).ok().filter(|token| token.kind() == TokenKind::Agent)?;
        Some(UncheckedToken(Box::new(token.hash())))
    }

    /// Identifies an agent whose token could not be looked up by the seal in its Hello.
    ///
    /// # Errors
    /// [`CredentialRefusal::Unavailable`] if that does not count.
    pub fn by_seal(&self, token: &UncheckedToken, hello: &Hello) -> Result<AgentIdentity, CredentialRefusal> {
        let proved = ProvedAgent { token_hash: &token.0, instance: hello.instance };
        self.seals.identify(proved, &hello.seal).ok_or(CredentialRefusal::Unavailable("the store"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    fn name(text: &str) -> WorkspaceName {
        text.parse().expect("a name")
    }

    /// A storm of agents at a slow store: it answers others, so that there is no outage.
    #[tokio::test]
    async fn seal_counts_where_the_store_was_too_slow_for_the_agents_own_question() {
        let store = Store::open("sqlite::memory:").await.expect("a store");
        let seals = Seals::new(store.clone());
        let proved = ProvedAgent { token_hash: &[1; 32], instance: 7 };
        let (workspace, owner) = ("w-7".parse().expect("an id"), "ann".parse().expect("a name"));
        let token = "t-3".parse().expect("an id");
        let of = SealedAdmission { workspace, name: name("one"), owner, token, expires_at: None };
        let seal = store.seal_admission(&of, proved, SealedGeneration { generation: 4, at: wall_clock() });
        assert!(store.availability().outage().is_none());
        let identity = seals.identify(proved, &seal).expect("it counts");
        assert_eq!(identity.lease.credential, Credential::Token(token));
        assert!(seals.identify(ProvedAgent { instance: 8, ..proved }, &seal).is_none());
        seals.note(&AccessChange::Token([1; 32]));
        assert!(seals.identify(proved, &seal).is_none(), "a revocation that was read counts");
    }

    #[test]
    fn seal_counts_from_ten_minutes_before_the_outage_and_not_from_the_future() {
        let (began, now) = (at(10_000), at(12_000));
        for (sealed, counts) in
            [(10_000 - 600, true), (10_000 - 601, false), (10_500, true), (12_000 + 60, true), (12_000 + 61, false)]
        {
            assert_eq!(is_of_time(at(sealed), began, now), counts, "{sealed}");
        }
    }

    #[test]
    fn seal_of_a_token_that_has_changed_counts_for_nothing_and_one_of_a_workspace_counts_once_it_is_newer() {
        let mut changes = ReadChanges::default();
        let allow = |changes: &ReadChanges, token: u8, of: &str, time| changes.allow(&[token; 32], &name(of), at(time));
        assert!(allow(&changes, 1, "one", 0));
        changes.note(&AccessChange::Token([1; 32]), at(1_000), 10);
        changes.note(&AccessChange::Workspace(name("two")), at(1_000), 10);
        assert!(!allow(&changes, 1, "one", 999) && !allow(&changes, 1, "one", 5_000), "revoked is revoked");
        assert!(allow(&changes, 2, "one", 999));
        assert!(!allow(&changes, 2, "two", 1_060) && allow(&changes, 2, "two", 1_061));
        changes.note(&AccessChange::Everything, at(2_000), 10);
        assert!(!allow(&changes, 2, "one", 2_060) && allow(&changes, 2, "one", 2_061));
    }

    #[test]
    fn changes_are_bounded_and_none_is_forgotten_that_a_seal_could_be_older_than() {
        let mut changes = ReadChanges::default();
        let token = |number: u8| AccessChange::Token([number; 32]);
        for number in 0..10 {
            changes.note(&token(number), at(1_000), 10);
        }
        changes.note(&token(10), at(1_660), 10);
        assert_eq!((changes.tokens.len(), changes.everything), (10, Some(at(1_660))), "no room: nothing older counts");
        assert!(!changes.allow(&[10; 32], &name("one"), at(1_660)));
        changes.note(&token(11), at(1_661), 10);
        assert_eq!(changes.tokens.len(), 1, "no seal is as old as the others");
        assert!(!changes.allow(&[11; 32], &name("one"), at(9_000)));
    }
}
