//! Journal of the keys of an in-memory table that are still to be written to the store.
//!
//! A change notes its key, and one writer updates the store: it takes a batch of keys, writes the current value of
//! each, and reports success or failure. A failed batch comes again, so an outage of the store costs one key per
//! changed entry, however often it changed. An answer that promises durability waits until the change is written, but
//! not for a store that is away.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Longest wait for a change to be written.
const WRITTEN_TIME_MAX: Duration = Duration::from_secs(2);

/// Keys of a table whose current value the store does not have yet.
#[derive(Debug)]
pub struct Journal<K> {
    books: Mutex<JournalBooks<K>>,
    changed: Notify,
    progress: watch::Sender<JournalProgress>,
}

#[derive(Debug)]
struct JournalBooks<K> {
    dirty: HashSet<K>,
    /// The batch that the writer has.
    under_way: Vec<NotedKey<K>>,
    /// Keys that may have a row.
    stored: HashSet<K>,
    /// Removed keys whose rows may still be there.
    removed: HashSet<K>,
    /// Counts changes.
    changes: u64,
    /// The changes that are in the store once the batch is.
    covered: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct JournalProgress {
    through: u64,
    /// There is a writer, and its last batch went well.
    is_writing: bool,
}

/// A key to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedKey<K> {
    /// The key.
    pub key: K,
    /// The store may have had a row of it before this batch.
    pub is_stored: bool,
    /// It was removed, and not only forgotten here.
    pub is_removed: bool,
}

impl<K> Default for Journal<K> {
    fn default() -> Self {
        let books = JournalBooks {
            dirty: HashSet::new(),
            under_way: Vec::new(),
            stored: HashSet::new(),
            removed: HashSet::new(),
            changes: 0,
            covered: 0,
        };
        Self {
            books: Mutex::new(books),
            changed: Notify::new(),
            progress: watch::Sender::new(JournalProgress::default()),
        }
    }
}

impl<K: Copy + Eq + Hash> Journal<K> {
    /// Notes that an entry was added or has changed.
    pub fn changed(&self, key: K) {
        let mut books = self.books.lock();
        books.changes += 1;
        books.dirty.insert(key);
        drop(books);
        self.changed.notify_one();
    }

    /// Notes that an entry is gone. An entry that the store never had needs no deletion.
    pub fn removed(&self, key: K) {
        let mut books = self.books.lock();
        books.changes += 1;
        if books.stored.contains(&key) {
            books.dirty.insert(key);
            books.removed.insert(key);
        } else {
            books.dirty.remove(&key);
        }
        drop(books);
        self.changed.notify_one();
    }

    /// Notes that an entry is no longer in memory and stays in the store.
    pub fn forgotten(&self, key: &K) {
        let mut books = self.books.lock();
        books.dirty.remove(key);
        books.stored.remove(key);
    }

    /// Notes that an entry is gone, and that another process has deleted its row. A row that is being written at the moment is
    /// deleted again.
    pub fn deleted(&self, key: K) {
        let is_under_way = self.books.lock().under_way.iter().any(|noted| noted.key == key);
        if is_under_way { self.removed(key) } else { self.forgotten(&key) }
    }

    /// Returns whether the store may still have a row of an entry that was removed.
    pub fn is_removed(&self, key: &K) -> bool {
        self.books.lock().removed.contains(key)
    }

    /// Returns whether the store does not have the current value of an entry.
    pub fn is_unwritten(&self, key: &K) -> bool {
        let books = self.books.lock();
        books.dirty.contains(key) || books.under_way.iter().any(|noted| noted.key == *key)
    }

    /// Notes that an entry was read from the store.
    pub fn restored(&self, key: K) {
        self.books.lock().stored.insert(key);
    }

    /// Waits until there is something to write.
    ///
    /// Cancel safety: safe.
    pub async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            if self.books.lock().has_more() {
                return;
            }
            changed.await;
        }
    }

    /// Takes up to `max` keys to be written; the same ones again until [`Journal::end`] confirms them.
    pub fn begin(&self, max: usize) -> Vec<NotedKey<K>> {
        let mut books = self.books.lock();
        if books.under_way.is_empty() {
            let keys: Vec<K> = books.dirty.iter().take(max).copied().collect();
            for key in keys {
                books.dirty.remove(&key);
                // From now on there may be a row, whatever becomes of the batch.
                let is_stored = !books.stored.insert(key);
                books.under_way.push(NotedKey { key, is_stored, is_removed: false });
            }
            if books.dirty.is_empty() {
                books.covered = books.changes;
            }
        }
        let JournalBooks { under_way, removed, .. } = &*books;
        under_way.iter().map(|noted| NotedKey { is_removed: removed.contains(&noted.key), ..*noted }).collect()
    }

    /// Ends a batch: `gone` lists its keys that have no row any more; `None` if the batch could not be written.
    pub fn end(&self, gone: Option<&[K]>) {
        let mut books = self.books.lock();
        if let Some(gone) = gone {
            books.under_way.clear();
            for key in gone {
                books.stored.remove(key);
                books.removed.remove(key);
            }
        }
        let (through, is_writing) = (books.covered, gone.is_some());
        drop(books);
        self.progress.send_modify(|progress| {
            progress.is_writing = is_writing;
            if is_writing {
                progress.through = through;
            }
        });
    }

    /// Returns whether anything is to be written.
    pub fn has_more(&self) -> bool {
        self.books.lock().has_more()
    }

    /// Waits until all changes so far are written. Does not wait without a writer, nor for a store that is away.
    ///
    /// Cancel safety: safe.
    pub async fn written(&self) {
        let changes = self.books.lock().changes;
        let mut progress = self.progress.subscribe();
        let done = progress.wait_for(|progress| progress.through >= changes || !progress.is_writing);
        drop(timeout(WRITTEN_TIME_MAX, done).await);
    }

    /// Says that there is a writer from now on.
    pub fn open(&self) {
        self.progress.send_modify(|progress| progress.is_writing = true);
    }
}

impl<K> JournalBooks<K> {
    fn has_more(&self) -> bool {
        !self.dirty.is_empty() || !self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(noted: &[NotedKey<u8>]) -> Vec<(u8, bool)> {
        let mut keys: Vec<_> = noted.iter().map(|noted| (noted.key, noted.is_stored)).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn batch_comes_again_until_it_is_written() {
        let journal = Journal::default();
        (1..=3).for_each(|key| journal.changed(key));
        let first = journal.begin(2);
        assert_eq!(first.len(), 2);
        journal.end(None);
        assert_eq!(journal.begin(2), first);
        journal.end(Some(&[]));
        assert_eq!(journal.begin(2).len(), 1);
        journal.end(Some(&[]));
        assert!(journal.begin(2).is_empty() && !journal.has_more());
    }

    #[test]
    fn what_the_store_never_had_needs_no_word_when_it_goes() {
        let journal = Journal::default();
        journal.changed(1);
        journal.removed(1);
        assert!(!journal.has_more());
        journal.changed(2);
        assert_eq!(keys(&journal.begin(9)), [(2, false)]);
        journal.end(None);
        // It may be there: a write that was not confirmed may have been made.
        journal.removed(2);
        assert_eq!(keys(&journal.begin(9)), [(2, false)], "the same batch");
        journal.end(Some(&[]));
        assert_eq!(keys(&journal.begin(9)), [(2, true)], "and that it is gone");
        journal.end(Some(&[2]));
        assert!(!journal.has_more());
        journal.restored(3);
        journal.removed(3);
        assert_eq!(keys(&journal.begin(9)), [(3, true)]);
    }

    #[tokio::test]
    async fn promise_waits_for_the_writer_and_for_no_store_that_is_away() {
        let journal = Journal::default();
        journal.changed(1);
        journal.written().await;
        journal.open();
        let mut waiting = Box::pin(journal.written());
        journal.begin(9);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        journal.end(Some(&[]));
        waiting.await;
        journal.changed(2);
        journal.begin(9);
        journal.end(None);
        journal.written().await;
    }
}
