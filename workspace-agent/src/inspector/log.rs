//! The last exchanges, within a bound on their number and one on their bytes.
//!
//! Each record has a lock of its own, which a reader holds for one copy, and the list has another, which is held for a copy of
//! pointers: the way of the bytes waits for no page that is made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::exchange::Exchange;

/// Most exchanges that are kept.
pub(crate) const EXCHANGES_MAX: usize = 500;

/// Most bytes that are kept.
pub(crate) const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most exchanges.
    pub(crate) exchanges: usize,
    /// Most bytes.
    pub(crate) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { exchanges: EXCHANGES_MAX, bytes: BYTES_MAX }
    }
}

/// The last exchanges.
#[derive(Debug)]
pub(crate) struct Log {
    bounds: Bounds,
    ring: Mutex<VecDeque<Arc<Record>>>,
    /// Bytes that all records count for. Claimed before they are taken, so that more are never held.
    bytes: AtomicUsize,
    made: AtomicU64,
    /// Number of the last change; readers wait for the next.
    changes: watch::Sender<u64>,
}

/// An exchange in the log.
#[derive(Debug)]
pub(crate) struct Record {
    /// Number of the exchange.
    pub(crate) id: u64,
    state: Mutex<RecordState>,
    /// Number of its last change that a list shows.
    changed: AtomicU64,
}

#[derive(Debug)]
struct RecordState {
    exchange: Exchange,
    bytes: usize,
    /// Whether the log has forgotten it: it takes nothing more.
    is_gone: bool,
}

impl Record {
    /// Returns a copy of the exchange.
    pub(crate) fn copy(&self) -> Exchange {
        self.state.lock().exchange.clone()
    }

    /// Reads something of the exchange, with its lock held: short work only.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Exchange) -> T) -> T {
        read(&self.state.lock().exchange)
    }

    /// Returns the number of its last change.
    pub(crate) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }
}

impl Log {
    /// Makes an empty log.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ring: Mutex::default(),
            bytes: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            changes: watch::Sender::new(0),
        }
    }

    /// Takes a new exchange, and gives it its number.
    pub(crate) fn add(&self, mut exchange: Exchange) -> Arc<Record> {
        let bytes = exchange.first_bytes();
        self.claim(bytes);
        let mut ring = self.ring.lock();
        // Under the lock, so that the list has them in the order of their numbers.
        let id = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        exchange.id = id;
        let state = Mutex::new(RecordState { exchange, bytes, is_gone: false });
        let record = Arc::new(Record { id, state, changed: AtomicU64::new(0) });
        ring.push_back(record.clone());
        let oldest = if ring.len() > self.bounds.exchanges { ring.pop_front() } else { None };
        drop(ring);
        if let Some(oldest) = oldest {
            self.forget(&oldest);
        }
        self.tell(&record);
        record
    }

    /// Changes an exchange that still counts. `grows` says how many bytes more it will count for, before the change.
    pub(crate) fn change(
        &self,
        record: &Record,
        grows: impl Fn(&Exchange) -> usize,
        change: impl FnOnce(&mut Exchange),
    ) {
        let grown = record.read(grows);
        self.claim(grown);
        let mut state = record.state.lock();
        if state.is_gone {
            drop(state);
            self.release(grown);
            return;
        }
        state.bytes += grown;
        change(&mut state.exchange);
    }

    /// Gives back bytes that an exchange does not count for any more.
    pub(crate) fn shrink(&self, record: &Record, shrunk: usize) {
        let mut state = record.state.lock();
        if !state.is_gone {
            state.bytes = state.bytes.saturating_sub(shrunk);
            drop(state);
            self.release(shrunk);
        }
    }

    /// Tells those that wait that a list shows something else of an exchange now.
    pub(crate) fn tell(&self, record: &Record) {
        self.changes.send_modify(|number| {
            *number += 1;
            record.changed.store(*number, Ordering::Release);
        });
    }

    /// Returns the exchanges, the oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Record>> {
        self.ring.lock().iter().cloned().collect()
    }

    /// Returns an exchange that is still kept.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Record>> {
        let ring = self.ring.lock();
        let found = ring.binary_search_by_key(&id, |record| record.id).ok()?;
        ring.get(found).cloned()
    }

    /// Forgets all exchanges.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.ring.lock());
        for record in &all {
            self.forget(record);
        }
        self.changes.send_modify(|number| *number += 1);
    }

    /// Returns the number of the last change.
    pub(crate) fn seen(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits for changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Claims bytes, and forgets the oldest exchanges until there is room for them.
    fn claim(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        while self.bytes() > self.bounds.bytes {
            let oldest = self.ring.lock().pop_front();
            let Some(oldest) = oldest else { return };
            self.forget(&oldest);
        }
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn forget(&self, record: &Record) {
        let mut state = record.state.lock();
        if !std::mem::replace(&mut state.is_gone, true) {
            state.exchange.empty();
            let bytes = std::mem::take(&mut state.bytes);
            drop(state);
            self.release(bytes);
        }
    }
}
