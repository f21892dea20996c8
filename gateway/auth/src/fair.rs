//! A bounded map of entries by unauthenticated clients. No client can fill it for the others: when it is full, the
//! block of addresses with the most entries gives up its oldest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

/// Returns the network that counts as one address: a whole IPv6 network, as one customer gets it.
#[must_use]
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// Returns the block of an address: a /24 or a /48, as one organisation is commonly given (RFC 6177).
fn block(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
    }
}

/// The map. All entries live for the same time.
///
/// Invariants: `order`, `blocks` and `networks` agree on every entry, and mention no other.
#[derive(Debug)]
pub(crate) struct FairMap<K, V> {
    entries: HashMap<K, FairEntry<V>>,
    /// Every entry's key by its number: the oldest first.
    order: BTreeMap<u64, K>,
    blocks: HashMap<IpAddr, BTreeSet<u64>>,
    networks: HashMap<IpAddr, usize>,
    numbers: u64,
    lifetime: Duration,
    entries_max: usize,
}

#[derive(Debug)]
struct FairEntry<V> {
    number: u64,
    born: Instant,
    peer: IpAddr,
    value: V,
}

impl<K: Clone + Eq + Hash, V> FairMap<K, V> {
    /// Makes an empty map. An entry is there while its age is below `lifetime`.
    pub(crate) fn new(lifetime: Duration, entries_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            blocks: HashMap::new(),
            networks: HashMap::new(),
            numbers: 0,
            lifetime,
            entries_max,
        }
    }

    /// Returns the value.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<&V> {
        let entry = self.entries.get(key)?;
        (now.saturating_duration_since(entry.born) < self.lifetime).then_some(&entry.value)
    }

    /// Returns the value, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let lifetime = self.lifetime;
        let entry = self.entries.get_mut(key)?;
        (now.saturating_duration_since(entry.born) < lifetime).then_some(&mut entry.value)
    }

    /// Returns the number of entries of an address's network, including expired ones not yet swept.
    pub(crate) fn count_of(&self, peer: IpAddr) -> usize {
        self.networks.get(&network(peer)).copied().unwrap_or_default()
    }

    /// Removes and returns the expired entries and, when the map is full, the oldest of the block with the most
    /// entries.
    pub(crate) fn make_room(&mut self, now: Instant) -> Vec<(K, V)> {
        let mut gone = Vec::new();
        while let Some((_, key)) = self.order.first_key_value() {
            let key = key.clone();
            let is_over =
                self.entries.get(&key).is_none_or(|entry| now.saturating_duration_since(entry.born) >= self.lifetime);
            if !is_over {
                break;
            }
            self.take(key, &mut gone);
        }
        while self.entries.len() >= self.entries_max {
            let fullest = self.blocks.values().filter_map(|numbers| Some((numbers.len(), *numbers.first()?)));
            // Among equally full blocks, the one with the oldest entry.
            let oldest = fullest.max_by_key(|(count, first)| (*count, Reverse(*first))).map(|(_, first)| first);
            let Some(key) = oldest.and_then(|number| self.order.get(&number)).cloned() else { break };
            self.take(key, &mut gone);
        }
        gone
    }

    fn take(&mut self, key: K, gone: &mut Vec<(K, V)>) {
        if let Some(value) = self.remove(&key) {
            gone.push((key, value));
        }
    }

    /// Takes out the oldest entry of an address's network.
    pub(crate) fn drop_oldest_of(&mut self, peer: IpAddr) {
        let theirs = network(peer);
        let is_theirs = |key: &&K| self.entries.get(*key).is_some_and(|entry| network(entry.peer) == theirs);
        let numbers = self.blocks.get(&block(peer)).into_iter().flatten();
        let oldest = numbers.filter_map(|number| self.order.get(number)).find(is_theirs).cloned();
        if let Some(key) = oldest {
            self.remove(&key);
        }
    }

    /// Adds or replaces an entry of `peer`, born `now`. Call [`FairMap::make_room`] before.
    pub(crate) fn insert(&mut self, key: K, value: V, peer: IpAddr, now: Instant) {
        self.remove(&key);
        self.numbers = self.numbers.wrapping_add(1);
        let number = self.numbers;
        self.order.insert(number, key.clone());
        self.blocks.entry(block(peer)).or_default().insert(number);
        *self.networks.entry(network(peer)).or_default() += 1;
        self.entries.insert(key, FairEntry { number, born: now, peer, value });
    }

    /// Takes an entry out, expired or not.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let FairEntry { number, peer, value, .. } = self.entries.remove(key)?;
        self.order.remove(&number);
        if let Some(numbers) = self.blocks.get_mut(&block(peer)) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.blocks.remove(&block(peer));
            }
        }
        if let Some(count) = self.networks.get_mut(&network(peer)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.networks.remove(&network(peer));
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn fullest_block_makes_room_for_the_others() {
        let now = Instant::now();
        let mut map = FairMap::new(LIFETIME, 64);
        map.insert(1_000, (), address("192.0.2.1"), now);
        for key in 0..1_000_u64 {
            // One organisation, with a network for each entry.
            let peer = Ipv6Addr::from((0x2001_0db8_0001_u128 << 80) | (u128::from(key) << 64)).into();
            map.make_room(now);
            map.insert(key, (), peer, now);
        }
        assert!(map.get(&1_000, now).is_some(), "the stranger stays");
        assert!(map.entries.len() <= 64 && map.get(&999, now).is_some() && map.get(&0, now).is_none());
    }

    #[test]
    fn entry_is_gone_exactly_when_its_age_reaches_the_lifetime() {
        let now = Instant::now();
        let mut map = FairMap::new(LIFETIME, 4);
        map.insert(1, "a", address("192.0.2.1"), now);
        assert!(map.get(&1, now + LIFETIME - Duration::from_nanos(1)).is_some());
        assert!(map.get(&1, now + LIFETIME).is_none() && map.get_mut(&1, now + LIFETIME).is_none());
        assert_eq!(map.make_room(now + LIFETIME), [(1, "a")]);
    }

    #[test]
    fn oldest_of_a_network_goes_and_its_neighbours_stay() {
        let now = Instant::now();
        let mut map = FairMap::new(LIFETIME, 8);
        for (key, peer) in [(1, "2001:db8:1:2::1"), (2, "2001:db8:1:1::1"), (3, "2001:db8:1:1::2")] {
            map.insert(key, (), address(peer), now);
        }
        assert_eq!(map.count_of(address("2001:db8:1:1::9")), 2);
        map.drop_oldest_of(address("2001:db8:1:1::9"));
        assert!(map.get(&1, now).is_some() && map.get(&2, now).is_none() && map.get(&3, now).is_some());
    }

    proptest! {
        #[test]
        fn books_agree_whatever_happens(
            steps in prop::collection::vec((0..4_u8, 0..20_u16, 0..6_u8, 0..3_000_u64), 1..200)
        ) {
            let mut now = Instant::now();
            let mut map = FairMap::new(LIFETIME, 8);
            for (kind, key, of, wait_ms) in steps {
                now += Duration::from_millis(wait_ms);
                let peer = Ipv4Addr::new(192, 0, of % 3, of).into();
                match kind {
                    0 => drop(map.remove(&key)),
                    1 => map.drop_oldest_of(peer),
                    _ => {
                        map.make_room(now);
                        map.insert(key, (), peer, now);
                    }
                }
                let count = map.entries.len();
                prop_assert!(count <= 8);
                prop_assert_eq!(map.order.len(), count);
                prop_assert_eq!(map.blocks.values().map(BTreeSet::len).sum::<usize>(), count);
                prop_assert_eq!(map.networks.values().sum::<usize>(), count);
            }
        }
    }
}
