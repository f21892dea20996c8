//! Looks up agents' records in the store, and remembers the answers for outages: agents that were admitted get in
//! again.
//!
//! As long as the store answers, it is asked each time. An answer is forgotten as soon as the store reports a change of
//! it ([`AccessChange`]), and has no age otherwise: agents come when their link breaks, which may be hours later.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::refusal::CredentialRefusal;
use gateway_net::availability::{ANSWER_TIME_MAX, Availability};
use gateway_store::{
    AccessChange, AwaitedRuns, RunOwner, Store, StoreError, TokenRecord, TokenUse, TokenUseOutcome, UsedToken,
    Workspace,
};
use gateway_types::{ProviderName, UnixSeconds, UserName, WorkspaceName};

/// Most answers of one kind that are kept: more than there may be sessions. At the bound, the oldest eighth is dropped.
const ENTRIES_MAX: usize = 64 * 1024;

/// Desired state of an agent's workspace, as far as a CI system runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedRun {
    /// No CI system runs it.
    Unmanaged,
    /// It is desired to run in this one.
    In(ProviderName),
    /// It is not desired to run in this one.
    NotIn(ProviderName),
}

/// Asks the store, and remembers its answers.
#[derive(Debug)]
pub(super) struct Lookups {
    store: Store,
    tokens: Remembered<[u8; 32], TokenRecord>,
    workspaces: Remembered<WorkspaceName, Workspace>,
    running: Remembered<WorkspaceName, ExpectedRun>,
    used: Remembered<[u8; 32], UsedToken>,
    runs: Remembered<(ProviderName, Box<str>), RunOwner>,
    /// Time until which a process may come back with a token, by the hashes of both.
    spent: Remembered<([u8; 32], [u8; 32]), Use>,
    /// Forgotten values that are to be loaded again.
    again: Mutex<HashSet<Again>>,
}

/// A value to load again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Again {
    Token([u8; 32]),
    Workspace(WorkspaceName),
    Running(WorkspaceName),
    Run(ProviderName, Box<str>),
}

/// A use of a token by one process.
#[derive(Clone, Debug)]
struct Use {
    workspace: WorkspaceName,
    owner: UserName,
    until: UnixSeconds,
}

impl Lookups {
    pub(super) fn new(store: Store) -> Self {
        Self {
            tokens: Remembered::default(),
            workspaces: Remembered::default(),
            running: Remembered::default(),
            used: Remembered::default(),
            runs: Remembered::default(),
            spent: Remembered::default(),
            again: Mutex::default(),
            store,
        }
    }

    /// Forgets changed values. Returns whether any of them was remembered, and has to be loaded again
    /// ([`Lookups::refresh`]).
    ///
    /// The use of a token by a process changes only with the deletion of its workspace, which is looked up each time.
    pub(super) fn forget(&self, change: &AccessChange) -> bool {
        let again: Vec<Again> = match change {
            AccessChange::Token(hash) => self.tokens.forget(|key, _| key == hash).map(Again::Token).collect(),
            AccessChange::User(_) | AccessChange::Session(_) => Vec::new(),
            AccessChange::Workspace(name) => {
                let workspaces = self.workspaces.forget(|key, _| key == name).map(Again::Workspace);
                let running = self.running.forget(|key, _| key == name).map(Again::Running);
                let runs =
                    self.runs.forget(|_, run| run.workspace == *name).map(|(of, pipeline)| Again::Run(of, pipeline));
                workspaces.chain(running).chain(runs).collect()
            }
            AccessChange::Everything => {
                drop((self.tokens.forget(|_, _| true), self.workspaces.forget(|_, _| true)));
                drop((self.running.forget(|_, _| true), self.runs.forget(|_, _| true)));
                drop((self.used.forget(|_, _| true), self.spent.forget(|_, _| true)));
                Vec::new()
            }
        };
        let is_known = !again.is_empty();
        self.again.lock().extend(again);
        is_known
    }

    /// Loads forgotten values again, so that an outage finds them. A value that cannot be loaded stays forgotten.
    pub(super) async fn refresh(&self) {
        let again = std::mem::take(&mut *self.again.lock());
        for one in again {
            let asked = match &one {
                Again::Token(hash) => self.token(hash).await.map(drop),
                Again::Workspace(name) => self.workspace(name).await.map(drop),
                Again::Running(name) => self.running(name).await.map(drop),
                Again::Run(of, pipeline) => self.run(of, pipeline).await.map(drop),
            };
            if let Err(refusal) = asked {
                debug!(%refusal, "a changed entry was not looked up again");
            }
        }
    }

    pub(super) async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRecord>, CredentialRefusal> {
        self.ask(&self.tokens, *hash, self.store.token_by_hash(hash)).await
    }

    pub(super) async fn workspace(&self, name: &WorkspaceName) -> Result<Option<Workspace>, CredentialRefusal> {
        self.ask(&self.workspaces, name.clone(), self.store.workspace(name)).await
    }

    pub(super) async fn running(&self, name: &WorkspaceName) -> Result<ExpectedRun, CredentialRefusal> {
        let load = async {
            let found = self.store.managed(name).await?;
            let running = found.as_ref().and_then(|managed| {
                let ci = managed.ci()?;
                let is_stopping = ci.live().is_some_and(|run| run.stop_at.is_some());
                let runs = managed.lifecycle.desired == gateway_types::DesiredState::Running && !is_stopping;
                let of = ci.provider.clone();
                Some(if runs { ExpectedRun::In(of) } else { ExpectedRun::NotIn(of) })
            });
            if running.is_some() {
                return Ok(running);
            }
            // A deleted workspace is not remembered as one that may run.
            Ok(self.store.workspace(name).await?.map(|_| ExpectedRun::Unmanaged))
        };
        Ok(self.ask(&self.running, name.clone(), load).await?.unwrap_or(ExpectedRun::Unmanaged))
    }

    pub(super) async fn used(
        &self,
        token_hash: &[u8; 32],
        now: UnixSeconds,
    ) -> Result<Option<UsedToken>, CredentialRefusal> {
        let found = self.ask(&self.used, *token_hash, self.store.used_token(token_hash, now)).await?;
        Ok(found.filter(|used| now < used.until))
    }

    pub(super) async fn run(&self, of: &ProviderName, pipeline: &str) -> Result<Option<RunOwner>, CredentialRefusal> {
        self.ask(&self.runs, (of.clone(), pipeline.into()), self.store.run_of_pipeline(of, pipeline)).await
    }

    /// Returns whether an unknown pipeline of a CI system may become known soon.
    pub(super) async fn awaited(&self, of: &ProviderName) -> Result<AwaitedRuns, CredentialRefusal> {
        self.store.awaited(of).await.map_err(|error| failed(&error))
    }

    /// Records the use of a token. While the store is away, a process that used it before may come back.
    pub(super) async fn spend(
        &self,
        token: &TokenUse<'_>,
        now: UnixSeconds,
    ) -> Result<TokenUseOutcome, CredentialRefusal> {
        let key = (*token.token_hash, *token.process_hash);
        // A write takes longer than a read when many come at once, and reports by itself that the store is away.
        let generation = self.spent.generation();
        match self.store.use_token(token, now).await {
            Ok(spent) => {
                let until = match spent {
                    TokenUseOutcome::First => Some(token.until),
                    TokenUseOutcome::Again(until) => Some(until),
                    TokenUseOutcome::ByAnother | TokenUseOutcome::NoWorkspace => None,
                };
                let (workspace, owner) = (token.workspace.clone(), token.owner.clone());
                self.spent.keep(key, until.map(|until| Use { workspace, owner, until }), generation);
                Ok(spent)
            }
            Err(StoreError::OtherOwner(_) | StoreError::NameHeld { .. }) => Err(CredentialRefusal::OtherOwner),
            Err(error) => {
                let is_same = |used: &Use| used.workspace == *token.workspace && used.owner == *token.owner;
                let known = self.spent.recall(&key).filter(is_same);
                match known.filter(|_| self.may_recall() || self.store.availability().unwritable_since().is_some()) {
                    Some(used) => Ok(TokenUseOutcome::Again(used.until)),
                    None => Err(failed(&error)),
                }
            }
        }
    }

    fn may_recall(&self) -> bool {
        may_recall(self.store.availability())
    }

    async fn ask<K: Clone + Eq + Hash, V: Clone>(
        &self,
        remembered: &Remembered<K, V>,
        key: K,
        load: impl Future<Output = Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, CredentialRefusal> {
        let availability = self.store.availability();
        if availability.outage().is_none() {
            let (generation, began) = (remembered.generation(), Instant::now());
            match timeout(ANSWER_TIME_MAX, load).await {
                Ok(Ok(found)) => {
                    remembered.keep(key, found.clone(), generation);
                    return Ok(found);
                }
                Ok(Err(error)) if !error.is_unanswered() => return Err(failed(&error)),
                Ok(Err(_away)) => {}
                Err(_elapsed) => {
                    availability.failed(began);
                }
            }
        }
        let known = remembered.recall(&key).filter(|_| may_recall(availability));
        known.map(Some).ok_or(CredentialRefusal::Unavailable("the store"))
    }
}

fn may_recall(availability: &Availability) -> bool {
    availability.outage().is_some_and(|outage| outage.is_bridged(Instant::now().into_std()))
}

pub(super) fn failed(error: &StoreError) -> CredentialRefusal {
    // An outage is reported once, elsewhere.
    if !error.is_unanswered() {
        warn!(%error, "the store did not answer");
    }
    CredentialRefusal::Unavailable("the store")
}

/// Answers of the store, by key.
#[derive(Debug)]
struct Remembered<K, V> {
    state: Mutex<LookupState<K, V>>,
}

#[derive(Debug)]
struct LookupState<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// Numbers the entries in their order.
    next: u64,
    /// Counts the calls that forget: an answer that was under way meanwhile may be older than the change.
    generation: u64,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { state: Mutex::new(LookupState { entries: HashMap::new(), next: 0, generation: 0 }) }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Remembered<K, V> {
    fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    fn recall(&self, key: &K) -> Option<V> {
        self.state.lock().entries.get(key).map(|(_, value)| value.clone())
    }

    /// Keeps an answer that was asked for in `generation`, unless something was forgotten since.
    fn keep(&self, key: K, found: Option<V>, generation: u64) {
        let mut state = self.state.lock();
        let Some(value) = found.filter(|_| state.generation == generation) else {
            state.entries.remove(&key);
            return;
        };
        if state.entries.len() >= ENTRIES_MAX && !state.entries.contains_key(&key) {
            let mut numbers: Vec<u64> = state.entries.values().map(|(number, _)| *number).collect();
            let (_, middle, _) = numbers.select_nth_unstable(ENTRIES_MAX / 8);
            let oldest = *middle;
            state.entries.retain(|_, (number, _)| *number > oldest);
        }
        state.next += 1;
        let number = state.next;
        state.entries.insert(key, (number, value));
    }

    /// Forgets changed entries; returns their keys.
    fn forget(&self, is_changed: impl Fn(&K, &V) -> bool) -> std::vec::IntoIter<K> {
        let mut state = self.state.lock();
        state.generation += 1;
        let changed: Vec<K> = state
            .entries
            .iter()
            .filter(|(key, (_, value))| is_changed(key, value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &changed {
            state.entries.remove(key);
        }
        changed.into_iter()
    }
}

#[cfg(test)]
mod tests;
