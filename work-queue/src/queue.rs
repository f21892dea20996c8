//! The queue: which key is due, which is in flight, and how often each has failed. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Instruction for a key whose reconcile has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue<T> {
    /// Another reconcile at this instant, or before if the key is added.
    At(T),
    /// No reconcile until the key is added.
    AwaitAdd,
}

/// Keys `K` that are to be reconciled, at instants `T` of the controller's clock.
///
/// Invariants: `order` has the pairs of `due` whose key is not in flight.
#[derive(Debug)]
pub struct WorkQueue<K, T> {
    due: BTreeMap<K, T>,
    order: BTreeSet<(T, K)>,
    in_flight: BTreeSet<K>,
    /// Failures in a row, for keys with any.
    failures: BTreeMap<K, u32>,
}

impl<K, T> Default for WorkQueue<K, T> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new(), in_flight: BTreeSet::new(), failures: BTreeMap::new() }
    }
}

impl<K: Clone + Ord, T: Copy + Ord> WorkQueue<K, T> {
    /// Adds a key that is due at an instant; of several, the earliest counts. A key in flight is reconciled once more:
    /// what was added may have come after that reconcile read its state.
    pub fn add(&mut self, key: K, at: T) {
        match self.due.get(&key) {
            Some(before) if *before <= at => return,
            Some(before) => drop(self.order.remove(&(*before, key.clone()))),
            None => {}
        }
        self.due.insert(key.clone(), at);
        if !self.in_flight.contains(&key) {
            self.order.insert((at, key));
        }
    }

    /// Takes the key that is due the longest, which then is in flight, unless `in_flight_max` are.
    pub fn start(&mut self, now: T, in_flight_max: usize) -> Option<K> {
        if self.next_due(in_flight_max)? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        self.in_flight.insert(key.clone());
        Some(key)
    }

    /// Notes that the reconcile of a key has ended. Failures before it are remembered.
    pub fn finish(&mut self, key: K, requeue: Requeue<T>) {
        if !self.in_flight.remove(&key) {
            return;
        }
        if let Some(at) = self.due.get(&key) {
            self.order.insert((*at, key.clone()));
        }
        match requeue {
            Requeue::At(at) => self.add(key, at),
            Requeue::AwaitAdd => {}
        }
    }

    /// Notes that the reconcile of a key has failed. `due` makes the instant of the next try from the number of
    /// failures in a row, which is at least 1.
    pub fn retry(&mut self, key: K, due: impl FnOnce(u32) -> T) {
        if !self.in_flight.contains(&key) {
            return;
        }
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let at = due(*failures);
        self.finish(key, Requeue::At(at));
    }

    /// Forgets the failures of a key.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Removes a key and forgets its failures. A reconcile in flight stays so until it is finished.
    pub fn remove(&mut self, key: &K) {
        self.forget(key);
        if let Some(at) = self.due.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// Returns the instant from which [`start`](Self::start) returns a key; `None` if no key waits or as many are in
    /// flight as may be.
    #[must_use]
    pub fn next_due(&self, in_flight_max: usize) -> Option<T> {
        let (at, _) = self.order.first()?;
        (self.in_flight.len() < in_flight_max).then_some(*at)
    }

    /// Returns whether a key waits or is in flight.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.due.contains_key(key) || self.is_in_flight(key)
    }

    /// Returns whether a key is in flight.
    #[must_use]
    pub fn is_in_flight(&self, key: &K) -> bool {
        self.in_flight.contains(key)
    }

    /// Returns the keys that wait or are in flight; those that do both, twice.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.due.keys().chain(&self.in_flight)
    }

    /// Returns the number of keys in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the number of keys that wait, those in flight that were added again among them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests;
