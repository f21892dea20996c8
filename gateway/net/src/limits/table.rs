//! Table of entries by key, bounded whatever keys arrive.
//!
//! A held entry stays, so its counts are shared by all its holders. An entry that no connection holds only remembers
//! rates: it is dropped once these are idle, and earlier when the table is full. A stranger who comes under a new key
//! each time so displaces strangers, and no connected client.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

/// Shards with a lock each. Look-ups are made once per connection, so this is plenty.
const SHARDS: usize = 16;

/// Shortest time between two sweeps of a whole full shard, in nanoseconds.
const SWEEP_INTERVAL: u64 = 1_000_000_000;

/// Value of a table.
pub(super) trait TableEntry: Default {
    /// Returns whether a new entry would be as good, at `now` in nanoseconds.
    fn is_idle(&self, now: u64) -> bool;
}

/// Sharded table.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    shards: Vec<Mutex<Shard<K, V>>>,
    hasher: RandomState,
    shard_entries_max: usize,
}

#[derive(Debug)]
struct Shard<K, V> {
    entries: HashMap<K, Arc<V>>,
    /// Earliest time of the next sweep of the whole shard for want of room.
    sweep_at: u64,
}

impl<K: Clone + Eq + Hash, V: TableEntry> Table<K, V> {
    /// Creates an empty table of at most `entries_max` entries.
    pub(super) fn new(entries_max: usize) -> Self {
        let shard = || Mutex::new(Shard { entries: HashMap::new(), sweep_at: 0 });
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, hasher: RandomState::new(), shard_entries_max: entries_max.div_ceil(SHARDS) }
    }

    /// Returns the entry of a key, created if absent.
    pub(super) fn get(&self, key: &K, now: u64) -> Arc<V> {
        let part = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or_default() % SHARDS;
        // There always is a shard; an entry outside of the table would count for its holder alone.
        let Some(shard) = self.shards.get(part) else { return Arc::default() };
        let mut shard = shard.lock();
        if let Some(entry) = shard.entries.get(key) {
            return entry.clone();
        }
        let entry = Arc::<V>::default();
        if shard.has_room(self.shard_entries_max, now) {
            shard.entries.insert(key.clone(), entry.clone());
        }
        entry
    }

    /// Drops idle entries, and frees their memory.
    pub(super) fn sweep(&self, now: u64) {
        for shard in &self.shards {
            shard.lock().sweep(now);
        }
    }

    /// Returns how many entries there are.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }
}

impl<K: Clone + Eq + Hash, V: TableEntry> Shard<K, V> {
    fn has_room(&mut self, entries_max: usize, now: u64) -> bool {
        if self.entries.len() < entries_max {
            return true;
        }
        if now >= self.sweep_at {
            self.sweep(now);
            self.sweep_at = now.saturating_add(SWEEP_INTERVAL);
        }
        if self.entries.len() >= entries_max {
            let free = self.entries.iter().find(|(_, entry)| !is_held(entry)).map(|(key, _)| key.clone());
            return free.is_some_and(|key| self.entries.remove(&key).is_some());
        }
        true
    }

    fn sweep(&mut self, now: u64) {
        self.entries.retain(|_, entry| is_held(entry) || !entry.is_idle(now));
        if self.entries.capacity() > 4 * self.entries.len().max(SHARDS) {
            self.entries.shrink_to_fit();
        }
    }
}

/// Handles are given out under the lock, so an entry with a single reference has no holder.
fn is_held<V>(entry: &Arc<V>) -> bool {
    Arc::strong_count(entry) > 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// Busy until a time.
    #[derive(Debug, Default)]
    struct Until(AtomicU64);

    impl TableEntry for Until {
        fn is_idle(&self, now: u64) -> bool {
            self.0.load(Ordering::Relaxed) <= now
        }
    }

    const MAX: usize = 2 * SHARDS;

    #[derive(Clone, Debug)]
    enum TableStep {
        Touch { key: u16, for_nanos: u64, hold: bool },
        LetGo { key: u16 },
        Sweep,
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, TableStep)>> {
        // Few keys, so that they come again, or many, so that the table is always full.
        let keys = prop_oneof![Just(24_u16), Just(u16::MAX)];
        keys.prop_flat_map(|keys| {
            let step = prop_oneof![
                6 => (0..keys, 0..3 * SWEEP_INTERVAL, prop::bool::weighted(0.1))
                    .prop_map(|(key, for_nanos, hold)| TableStep::Touch { key, for_nanos, hold }),
                1 => (0..keys).prop_map(|key| TableStep::LetGo { key }),
                1 => Just(TableStep::Sweep),
            ];
            prop::collection::vec((0..SWEEP_INTERVAL, step), 1..400)
        })
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_what_is_held_is_never_doubled(steps in steps()) {
            let table: Table<u16, Until> = Table::new(MAX);
            // The model: who is held, and until when the others are remembered where there is room.
            let mut held: BTreeMap<u16, Arc<Until>> = BTreeMap::new();
            let mut now = 0;
            for (pause, step) in steps {
                now += pause;
                match step {
                    TableStep::Touch { key, for_nanos, hold } => {
                        let entry = table.get(&key, now);
                        if let Some(holder) = held.get(&key) {
                            prop_assert!(Arc::ptr_eq(holder, &entry), "{key} has two entries");
                        }
                        entry.0.fetch_max(now + for_nanos, Ordering::Relaxed);
                        // No more than one part can hold: beyond that entries are their holder's own.
                        if hold && held.len() < MAX / SHARDS {
                            held.insert(key, entry);
                        }
                    }
                    TableStep::LetGo { key } => drop(held.remove(&key)),
                    TableStep::Sweep => {
                        table.sweep(now);
                        for shard in &table.shards {
                            for entry in shard.lock().entries.values() {
                                prop_assert!(is_held(entry) || !entry.is_idle(now), "an idle entry survived a sweep");
                            }
                        }
                    }
                }
                prop_assert!(table.len() <= MAX, "{} entries", table.len());
            }
            drop(held);
            table.sweep(u64::MAX);
            prop_assert_eq!(table.len(), 0);
        }
    }

    #[test]
    fn busy_entry_is_remembered_while_there_is_room() {
        let table: Table<u16, Until> = Table::new(MAX);
        table.get(&1, 0).0.store(100, Ordering::Relaxed);
        table.sweep(99);
        assert_eq!(table.get(&1, 99).0.load(Ordering::Relaxed), 100);
        table.sweep(100);
        assert_eq!(table.get(&1, 100).0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_million_keys_take_no_more_memory_than_the_bound_and_keep_no_holder_out() {
        let table: Table<u32, Until> = Table::new(1024);
        let holder = table.get(&7, 0);
        for key in 0..1_000_000 {
            table.get(&key, u64::from(key)).0.store(u64::MAX, Ordering::Relaxed);
        }
        assert!(table.len() <= 1024, "{}", table.len());
        assert!(Arc::ptr_eq(&holder, &table.get(&7, 0)));
    }
}
