//! The shell: one task for each key in flight.

use std::collections::HashMap;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::queue::WorkQueue;

/// End of one reconcile. Its key is in flight until it is settled with [`WorkQueue::finish`] or [`WorkQueue::retry`].
#[derive(Debug)]
#[must_use]
pub struct Completion<K, V> {
    /// The key that was reconciled.
    pub key: K,
    /// Result of its reconcile; an error if it panicked, which is a failure of this key and of no other.
    pub result: Result<V, JoinError>,
}

/// A queue, and the tasks that reconcile its keys. Dropping it aborts the tasks.
#[derive(Debug)]
pub struct Runner<K, T, V> {
    /// The queue of keys with their due times. They are taken by [`start`](Runner::start).
    pub queue: WorkQueue<K, T>,
    tasks: JoinSet<V>,
    keys: HashMap<Id, K>,
}

impl<K, T, V: 'static> Default for Runner<K, T, V> {
    fn default() -> Self {
        Self { queue: WorkQueue::default(), tasks: JoinSet::new(), keys: HashMap::new() }
    }
}

impl<K: Clone + Ord, T: Copy + Ord, V: Send + 'static> Runner<K, T, V> {
    /// Starts a task for each key that is due, longest due first, while less than `in_flight_max` are in flight.
    pub fn start<F>(&mut self, now: T, in_flight_max: usize, mut reconcile: impl FnMut(K) -> F)
    where
        F: Future<Output = V> + Send + 'static,
    {
        while let Some(key) = self.queue.start(now, in_flight_max) {
            let task = self.tasks.spawn(reconcile(key.clone()));
            self.keys.insert(task.id(), key);
        }
    }

    /// Waits for the end of a reconcile; `None` if none is in flight.
    ///
    /// Cancel safety: safe.
    pub async fn next(&mut self) -> Option<Completion<K, V>> {
        loop {
            let (id, result) = match self.tasks.join_next_with_id().await? {
                Ok((id, value)) => (id, Ok(value)),
                Err(error) => (error.id(), Err(error)),
            };
            if let Some(key) = self.keys.remove(&id) {
                return Some(Completion { key, result });
            }
        }
    }

    /// Waits until all reconciles in flight have ended, whatever they return, and starts no other.
    ///
    /// Cancel safety: safe.
    pub async fn drain(&mut self) {
        while let Some(Completion { key, .. }) = self.next().await {
            self.queue.remove(&key);
            self.queue.finish(key, super::Requeue::AwaitAdd);
        }
    }

    /// Aborts all reconciles in flight, and waits until they have ended.
    pub async fn abort(&mut self) {
        self.tasks.abort_all();
        self.drain().await;
    }
}

/// Waits until an instant, such as [`WorkQueue::next_due`]; `None` never comes.
///
/// Cancel safety: safe.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
