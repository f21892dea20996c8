//! A bounded map whose entries live for a fixed time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// A map with one lifetime for all entries and a bound on their number. When full, the oldest makes room.
#[derive(Debug)]
pub struct Expiring<K, V> {
    entries: HashMap<K, ExpiringEntry<V>>,
    /// Every entry's key, oldest first. May hold births whose entry is gone or was born again.
    order: VecDeque<Birth<K>>,
    births: u64,
    lifetime: Duration,
    entries_max: usize,
}

#[derive(Debug)]
struct ExpiringEntry<V> {
    /// Number of this entry's birth in `order`; an instant alone would be ambiguous, because several births can share
    /// one.
    number: u64,
    born: Instant,
    value: V,
}

#[derive(Debug)]
struct Birth<K> {
    number: u64,
    born: Instant,
    key: K,
}

impl<K: Clone + Eq + Hash, V> Expiring<K, V> {
    /// Makes an empty map. An entry is there while its age is below `lifetime`, and gone when it reaches it.
    pub fn new(lifetime: Duration, entries_max: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), births: 0, lifetime, entries_max }
    }

    /// Returns the value and its age.
    pub fn get(&self, key: &K, now: Instant) -> Option<(&V, Duration)> {
        let entry = self.entries.get(key)?;
        let age = now.saturating_duration_since(entry.born);
        (age < self.lifetime).then_some((&entry.value, age))
    }

    /// Returns the values that have not expired, in no order.
    pub fn values(&self, now: Instant) -> impl Iterator<Item = &V> {
        let is_alive = move |entry: &&ExpiringEntry<V>| now.saturating_duration_since(entry.born) < self.lifetime;
        self.entries.values().filter(is_alive).map(|entry| &entry.value)
    }

    /// Adds or replaces an entry born `now`; drops expired entries and, when full, the oldest.
    pub fn insert(&mut self, key: K, value: V, now: Instant) {
        while self.order.front().is_some_and(|birth| now.saturating_duration_since(birth.born) >= self.lifetime) {
            self.drop_oldest();
        }
        while self.entries.len() >= self.entries_max && !self.entries.contains_key(&key) && !self.order.is_empty() {
            self.drop_oldest();
        }
        // Removals leave their births behind; without this, insert and remove in turn would grow the queue.
        if self.order.len() >= self.entries_max.saturating_mul(2) {
            let entries = &self.entries;
            self.order.retain(|birth| entries.get(&birth.key).is_some_and(|entry| entry.number == birth.number));
        }
        self.births = self.births.wrapping_add(1);
        self.order.push_back(Birth { number: self.births, born: now, key: key.clone() });
        self.entries.insert(key, ExpiringEntry { number: self.births, born: now, value });
    }

    /// Takes an entry out; `None` if it is not there or has expired.
    pub fn remove(&mut self, key: &K, now: Instant) -> Option<V> {
        let entry = self.entries.remove(key)?;
        (now.saturating_duration_since(entry.born) < self.lifetime).then_some(entry.value)
    }

    /// Takes all entries out.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    fn drop_oldest(&mut self) {
        if let Some(birth) = self.order.pop_front()
            && self.entries.get(&birth.key).is_some_and(|entry| entry.number == birth.number)
        {
            self.entries.remove(&birth.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    #[test]
    fn entry_is_gone_exactly_when_its_age_reaches_the_lifetime() {
        let now = Instant::now();
        let mut map = Expiring::new(LIFETIME, 4);
        map.insert(1, "a", now);
        let last = now + LIFETIME - Duration::from_nanos(1);
        assert!(map.get(&1, last).is_some());
        assert!(map.get(&1, now + LIFETIME).is_none());
        assert!(map.remove(&1, now + LIFETIME).is_none());
        map.insert(1, "a", now);
        assert_eq!(map.remove(&1, last), Some("a"));
        assert_eq!(map.remove(&1, last), None);
    }

    #[test]
    fn oldest_entry_makes_room_and_a_renewed_one_stays() {
        let now = Instant::now();
        let mut map = Expiring::new(LIFETIME, 2);
        map.insert(1, (), now);
        map.insert(2, (), now + Duration::from_secs(1));
        map.insert(1, (), now + Duration::from_secs(2));
        map.insert(3, (), now + Duration::from_secs(3));
        let at = now + Duration::from_secs(3);
        assert!(map.get(&1, at).is_some() && map.get(&3, at).is_some() && map.get(&2, at).is_none());
    }

    #[test]
    fn inserting_and_removing_in_turn_takes_no_memory() {
        let now = Instant::now();
        let mut map = Expiring::new(LIFETIME, 4);
        for key in 0..100 {
            map.insert(key, (), now);
            map.remove(&key, now);
            map.insert(0, (), now);
            assert!(map.entries.len() <= 4 && map.order.len() <= 8);
        }
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_reads_match_a_plain_map(
            steps in prop::collection::vec((0..3_u8, 0..12_u8, 0..4_000_u64), 1..200)
        ) {
            let mut now = Instant::now();
            let mut map = Expiring::new(LIFETIME, 12);
            let mut model: HashMap<u8, Instant> = HashMap::new();
            for (kind, key, wait_ms) in steps {
                now += Duration::from_millis(wait_ms);
                let alive = model.get(&key).is_some_and(|born| now - *born < LIFETIME);
                prop_assert_eq!(map.get(&key, now).is_some(), alive);
                if kind == 0 {
                    prop_assert_eq!(map.remove(&key, now).is_some(), alive);
                    model.remove(&key);
                } else {
                    map.insert(key, (), now);
                    model.insert(key, now);
                }
                prop_assert!(map.entries.len() <= 12 && map.order.len() <= 24);
            }
        }
    }
}
