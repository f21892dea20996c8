//! Ids of traces and spans, the choice of one request in so many, and bounds by the second. Pure but for its counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// Spans of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanPlace {
    /// The whole request.
    Request,
    /// Its time in the gateway.
    Queue,
    /// Its time on the way and in the app.
    Tunnel,
    /// Its time in the app.
    App,
}

/// Ids of one process: a random start and a count, scattered. They are no secrets.
#[derive(Debug)]
pub(super) struct Ids {
    start: u64,
    count: AtomicU64,
}

impl Ids {
    pub(super) fn new(start: u64) -> Self {
        Self { start, count: AtomicU64::new(0) }
    }

    /// Returns the number of the next request.
    pub(super) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether a request is one of those that have a trace, by its number: about one in `one_in`, and none for 0.
    pub(super) fn is_chosen(&self, count: u64, one_in: u64) -> bool {
        one_in != 0 && scatter(self.start ^ count).is_multiple_of(one_in)
    }

    /// Returns the id of a request's trace, not 0.
    pub(super) fn trace(&self, count: u64) -> u128 {
        let high = scatter(self.start.wrapping_add(count.rotate_left(32)));
        let low = scatter(high ^ count) | 1;
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns the id of a request's span, not 0.
    pub(super) fn span(&self, count: u64, place: SpanPlace) -> u64 {
        scatter(self.start.rotate_left(17) ^ count.wrapping_mul(8).wrapping_add(place as u64)) | 1
    }
}

/// Maps numbers one to one to others that do not look alike (the finaliser of `SplitMix64`, Steele et al. 2014).
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// So many in a second, and no more.
#[derive(Debug)]
pub(super) struct Bound {
    most: u32,
    second: Mutex<Option<Second>>,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    began: Instant,
    taken: u32,
}

impl Bound {
    pub(super) fn new(most: u32) -> Self {
        Self { most, second: Mutex::new(None) }
    }

    /// Takes one, if there is one left in this second.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut second = self.second.lock();
        match &mut *second {
            Some(current) if now.saturating_duration_since(current.began).as_secs() == 0 => {
                let has_room = current.taken < self.most;
                current.taken += u32::from(has_room);
                has_room
            }
            _ => {
                *second = Some(Second { began: now, taken: 1 });
                self.most > 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn about_one_in_so_many_is_chosen_and_none_for_zero() {
        let ids = Ids::new(7);
        let chosen = |one_in: u64| (0..100_000).filter(|count| ids.is_chosen(*count, one_in)).count();
        assert_eq!((chosen(0), chosen(1)), (0, 100_000));
        assert!((800..1_200).contains(&chosen(100)), "{}", chosen(100));
    }

    #[test]
    fn ids_are_distinct_and_never_zero() {
        let ids = Ids::new(7);
        let traces: HashSet<u128> = (0..10_000).map(|count| ids.trace(count)).collect();
        let places = [SpanPlace::Request, SpanPlace::Queue, SpanPlace::Tunnel, SpanPlace::App];
        let spans: HashSet<u64> = (0..10_000).flat_map(|count| places.map(|place| ids.span(count, place))).collect();
        assert_eq!((traces.len(), spans.len()), (10_000, 40_000));
        assert!(!traces.contains(&0) && !spans.contains(&0));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
    fn bound_is_for_each_second() {
        let (bound, start) = (Bound::new(2), Instant::now());
        let taken = |after_ms: u64| bound.take(start + Duration::from_millis(after_ms));
        assert_eq!([0, 100, 200, 999].map(taken), [true, true, false, false]);
        assert_eq!([1000, 1500, 1999, 2000].map(taken), [true, true, false, true]);
        assert!(!Bound::new(0).take(start));
    }
}
