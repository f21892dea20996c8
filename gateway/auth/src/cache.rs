//! Caches answers of the store, so that no request waits for it.
//!
//! One type serves verified tokens and workspace records. Each answer lives [`KNOWN_AGE_MAX`], which also bounds how
//! long a revoked token or a changed owner goes unnoticed. Only an outage extends it: while the store is away
//! ([`Availability`]), its answers of the ten minutes before stay valid for as long as the operator configured, except
//! those invalidated since ([`Cache::forget`]).

use std::collections::HashMap;
use std::collections::hash_map;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::expiring::Expiring;
use gateway_net::availability::{ANSWER_TIME_MAX, Availability, REMEMBERED_MAX};

/// Longest use of a found value, counted from the start of its look-up. Revoked access ends within this.
pub const KNOWN_AGE_MAX: Duration = Duration::from_secs(5);
/// From this age on, the first caller to see a value looks it up anew; the others go on using it.
/// Between two and three of the looks that everything open has each second: the same look finds it due each time.
pub const REFRESH_AFTER: Duration = Duration::from_millis(1500);
/// Longest use of a "there is none". Short, because something just created should work at once.
pub const UNKNOWN_AGE_MAX: Duration = Duration::from_secs(1);
/// The longest a look-up may take. One that takes longer says that the store is away.
pub const LOAD_TIME_MAX: Duration = ANSWER_TIME_MAX;
/// Found values kept. Full: the oldest goes.
pub const KNOWN_ENTRIES_MAX: usize = 16 * 1024;
/// Misses kept, apart from the found values because any client can cause misses. Full: the oldest goes.
pub const UNKNOWN_ENTRIES_MAX: usize = 4 * 1024;
/// Look-ups under way at once. Full: [`Unavailable`].
pub const LOADS_MAX: usize = 1024;

/// Retention of a found value, for outages: the longest configurable bridging time, and the time before the outage.
const KEPT_MAX: Duration = Duration::from_secs(24 * 60 * 60).saturating_add(REMEMBERED_MAX);

// A refresh that begins as soon as it is due ends, either way, before the value does.
const _: () = assert!(REFRESH_AFTER.as_millis() + LOAD_TIME_MAX.as_millis() <= KNOWN_AGE_MAX.as_millis());

/// The store did not answer, or too many look-ups are under way. The cause is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the look-up failed")]
pub struct Unavailable;

/// A cache of look-ups by key.
#[derive(Debug)]
pub struct Cache<K, V> {
    known: RwLock<Expiring<K, V>>,
    unknown: RwLock<Expiring<K, ()>>,
    /// Look-ups under way. Lock order: this one before the others.
    loads: Mutex<HashMap<K, Arc<Load<V>>>>,
    availability: Availability,
}

/// One look-up and its waiters. The caller that runs it holds the lock; if that caller gives up (a client that hung
/// up), the next waiter takes over.
#[derive(Debug)]
struct Load<V> {
    outcome: tokio::sync::Mutex<Option<LookupOutcome<V>>>,
}

type LookupOutcome<V> = Result<Option<V>, Unavailable>;

enum LookupNext<'a, K: Clone + Eq + Hash, V> {
    Answer(LookupOutcome<V>),
    /// Run the look-up or wait for the caller that runs it. `fallback` is a value due for refresh, and its age.
    Load {
        waiter: LookupWaiter<'a, K, V>,
        fallback: Option<(V, Duration)>,
    },
}

impl<K: Clone + Eq + Hash, V: Clone> Default for Cache<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// Creates an empty cache for a store that is never away.
    #[must_use]
    pub fn new() -> Self {
        Self::bridging(Availability::default())
    }

    /// Creates an empty cache that bridges the outages of a store.
    #[must_use]
    pub fn bridging(availability: Availability) -> Self {
        Self {
            known: RwLock::new(Expiring::new(KEPT_MAX, KNOWN_ENTRIES_MAX)),
            unknown: RwLock::new(Expiring::new(UNKNOWN_AGE_MAX, UNKNOWN_ENTRIES_MAX)),
            loads: Mutex::default(),
            availability,
        }
    }

    /// Returns the cached value of `key`, or asks `load`. At most one look-up per key runs at a time.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when the look-up failed or took longer than [`LOAD_TIME_MAX`] and no value is young enough.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next waiter repeats a look-up that is dropped.
    pub async fn get<L, F, E>(&self, key: &K, now: Instant, load: L) -> Result<Option<V>, Unavailable>
    where
        L: FnOnce() -> F,
        F: Future<Output = Result<Option<V>, E>>,
        E: Display,
    {
        let (waiter, fallback) = match self.next(key, now) {
            LookupNext::Answer(outcome) => return outcome,
            LookupNext::Load { waiter, fallback } => (waiter, fallback),
        };
        let began = Instant::now();
        let mut shared = waiter.load.outcome.lock().await;
        let outcome = match &*shared {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome = self.bounded(load()).await;
                self.finish(&waiter, &outcome, now);
                *shared = Some(outcome.clone());
                outcome
            }
        };
        drop(shared);
        if outcome.is_err()
            && let Some(remembered) = self.remembered(key, now)
        {
            return Ok(Some(remembered));
        }
        // A failed refresh costs nothing while the old value is still young enough.
        match (outcome, fallback) {
            (Err(Unavailable), Some((value, age))) if age + began.elapsed() < KNOWN_AGE_MAX => Ok(Some(value)),
            (outcome, _) => outcome,
        }
    }

    /// Returns whether `key` is found without a look-up.
    pub fn holds(&self, key: &K, now: Instant) -> bool {
        let is_young = self.known.read().get(key, now).is_some_and(|(_, age)| age < KNOWN_AGE_MAX);
        is_young || self.remembered(key, now).is_some()
    }

    /// Returns whether `key` is answered without a look-up of its own: it is held, known to be unknown, or being looked up.
    pub fn answers(&self, key: &K, now: Instant) -> bool {
        self.holds(key, now) || self.unknown.read().get(key, now).is_some() || self.loads.lock().contains_key(key)
    }

    /// Returns the value of `key` that stays valid while the store is away.
    fn remembered(&self, key: &K, now: Instant) -> Option<V> {
        let outage = self.availability.outage()?;
        let known = self.known.read();
        let (value, age) = known.get(key, now)?;
        let found = now.checked_sub(age)?;
        outage.bridges(found.into_std(), now.into_std()).then(|| value.clone())
    }

    /// Forgets all, as [`Cache::forget`] does one.
    pub fn forget_all(&self) {
        let mut loads = self.loads.lock();
        loads.clear();
        self.known.write().clear();
        self.unknown.write().clear();
    }

    /// Forgets `key`, so that the next caller asks the store. A look-up under way answers those who wait for it already and
    /// is not remembered. Returns whether it was found before.
    pub fn forget(&self, key: &K, now: Instant) -> bool {
        let mut loads = self.loads.lock();
        loads.remove(key);
        self.unknown.write().remove(key, now);
        self.known.write().remove(key, now).is_some()
    }

    fn next(&self, key: &K, now: Instant) -> LookupNext<'_, K, V> {
        let held = self.known.read().get(key, now).map(|(value, age)| (value.clone(), age));
        match held {
            Some((value, age)) if age < REFRESH_AFTER => return LookupNext::Answer(Ok(Some(value))),
            _ if self.availability.outage().is_some() => return LookupNext::Answer(self.while_away(key, now)),
            Some((value, age)) if age < KNOWN_AGE_MAX => return self.refresh(key, value, age, now),
            Some(_) | None => {}
        }
        if self.unknown.read().get(key, now).is_some() {
            return LookupNext::Answer(Ok(None));
        }
        self.join(key, now)
    }

    /// Answers without a look-up, and without waiting for one.
    fn while_away(&self, key: &K, now: Instant) -> LookupOutcome<V> {
        if let Some(value) = self.remembered(key, now) {
            return Ok(Some(value));
        }
        if self.unknown.read().get(key, now).is_some() { Ok(None) } else { Err(Unavailable) }
    }

    /// Takes the look-up of a value that is due, unless another caller has it already.
    fn refresh(&self, key: &K, value: V, age: Duration, now: Instant) -> LookupNext<'_, K, V> {
        let mut loads = self.loads.lock();
        let full = loads.len() >= LOADS_MAX;
        // A refresh that ended between our look and this lock has left a younger value.
        let young = self.known.read().get(key, now).is_some_and(|(_, age)| age < REFRESH_AFTER);
        match loads.entry(key.clone()) {
            hash_map::Entry::Vacant(vacant) if !full && !young => {
                let load = Arc::clone(vacant.insert(Arc::new(Load { outcome: tokio::sync::Mutex::new(None) })));
                LookupNext::Load {
                    waiter: LookupWaiter { cache: self, key: key.clone(), load },
                    fallback: Some((value, age)),
                }
            }
            hash_map::Entry::Vacant(_) | hash_map::Entry::Occupied(_) => LookupNext::Answer(Ok(Some(value))),
        }
    }

    /// Starts the look-up of something that is not held, or joins the one under way.
    fn join(&self, key: &K, now: Instant) -> LookupNext<'_, K, V> {
        let mut loads = self.loads.lock();
        if let Some(load) = loads.get(key) {
            let waiter = LookupWaiter { cache: self, key: key.clone(), load: Arc::clone(load) };
            return LookupNext::Load { waiter, fallback: None };
        }
        // One may have ended between our look and this lock.
        if let Some((value, age)) = self.known.read().get(key, now)
            && age < KNOWN_AGE_MAX
        {
            return LookupNext::Answer(Ok(Some(value.clone())));
        }
        if self.unknown.read().get(key, now).is_some() {
            return LookupNext::Answer(Ok(None));
        }
        if loads.len() >= LOADS_MAX {
            return LookupNext::Answer(Err(Unavailable));
        }
        let load = Arc::new(Load { outcome: tokio::sync::Mutex::new(None) });
        loads.insert(key.clone(), Arc::clone(&load));
        LookupNext::Load { waiter: LookupWaiter { cache: self, key: key.clone(), load }, fallback: None }
    }

    /// Runs one look-up to its end or its deadline, and logs the failure, because no caller can do more about it.
    async fn bounded<E: Display>(&self, load: impl Future<Output = Result<Option<V>, E>>) -> LookupOutcome<V> {
        let began = Instant::now();
        match timeout(LOAD_TIME_MAX, load).await {
            Ok(Ok(found)) => return Ok(found),
            // An outage is logged once, elsewhere.
            Ok(Err(_)) if self.availability.outage().is_some() => {}
            Ok(Err(error)) => tracing::warn!(%error, "a look-up in the store failed"),
            Err(_) => {
                self.availability.failed(began);
                tracing::warn!(after = ?LOAD_TIME_MAX, "a look-up in the store took too long");
            }
        }
        Err(Unavailable)
    }

    /// Remembers an outcome, unless the key was forgotten meanwhile. `now` is the start of the look-up.
    fn finish(&self, waiter: &LookupWaiter<'_, K, V>, outcome: &LookupOutcome<V>, now: Instant) {
        let mut loads = self.loads.lock();
        if !loads.get(&waiter.key).is_some_and(|load| Arc::ptr_eq(load, &waiter.load)) {
            return;
        }
        loads.remove(&waiter.key);
        match outcome {
            Ok(Some(value)) => {
                self.unknown.write().remove(&waiter.key, now);
                self.known.write().insert(waiter.key.clone(), value.clone(), now);
            }
            Ok(None) => {
                self.known.write().remove(&waiter.key, now);
                self.unknown.write().insert(waiter.key.clone(), (), now);
            }
            Err(Unavailable) => {}
        }
    }
}

/// A caller's part in a look-up. The last to leave one that never ended takes it off the list.
#[derive(Debug)]
struct LookupWaiter<'a, K: Clone + Eq + Hash, V> {
    cache: &'a Cache<K, V>,
    key: K,
    load: Arc<Load<V>>,
}

impl<K: Clone + Eq + Hash, V> Drop for LookupWaiter<'_, K, V> {
    fn drop(&mut self) {
        let mut loads = self.cache.loads.lock();
        let listed = loads.get(&self.key).is_some_and(|load| Arc::ptr_eq(load, &self.load));
        // Two: the list's and ours. No caller can join while we hold the lock.
        if listed && Arc::strong_count(&self.load) == 2 {
            loads.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
