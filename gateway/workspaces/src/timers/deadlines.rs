//! Deadlines, ordered by time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use gateway_types::UnixSeconds;

/// Keys with their deadlines, the earliest first.
///
/// Invariants: `order` and `of` hold the same pairs.
#[derive(Debug)]
pub struct Deadlines<T> {
    order: BTreeSet<(UnixSeconds, T)>,
    of: HashMap<T, UnixSeconds>,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), of: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash + Ord> Deadlines<T> {
    /// Sets the deadline of a key, and replaces the one before.
    pub fn put(&mut self, thing: T, at: UnixSeconds) {
        self.remove(thing);
        self.of.insert(thing, at);
        self.order.insert((at, thing));
    }

    /// Removes the deadline of a key.
    pub fn remove(&mut self, thing: T) {
        if let Some(at) = self.of.remove(&thing) {
            self.order.remove(&(at, thing));
        }
    }

    /// Takes the next key whose deadline has passed.
    pub fn due(&mut self, now: UnixSeconds) -> Option<T> {
        let (at, thing) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.remove(thing);
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    #[test]
    fn the_earliest_is_due_first_and_nothing_before_its_time() {
        let mut deadlines = Deadlines::default();
        deadlines.put('a', at(30));
        deadlines.put('b', at(10));
        deadlines.put('c', at(20));
        deadlines.put('a', at(5));
        deadlines.remove('c');
        assert_eq!(deadlines.due(at(4)), None);
        assert_eq!([deadlines.due(at(99)), deadlines.due(at(99)), deadlines.due(at(99))], [Some('a'), Some('b'), None]);
    }

    proptest! {
        #[test]
        fn each_thing_is_due_once_at_its_latest_deadline(
            puts in proptest::collection::vec((0_u8..8, 0_i64..100), 0..60),
        ) {
            let mut deadlines = Deadlines::default();
            let mut expected = HashMap::new();
            for (thing, seconds) in puts {
                deadlines.put(thing, at(seconds));
                expected.insert(thing, seconds);
            }
            let mut seen = HashMap::new();
            for second in 0..100 {
                while let Some(thing) = deadlines.due(at(second)) {
                    prop_assert_eq!(seen.insert(thing, second), None);
                }
            }
            prop_assert_eq!(seen, expected);
            prop_assert!(deadlines.of.is_empty() && deadlines.order.is_empty());
        }
    }
}
