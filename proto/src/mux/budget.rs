//! The bound on memory: the sum of all receive windows, per session and per replica.
//!
//! A window is a promise to hold that many bytes, so promises are counted, not the bytes that happen to be here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::WINDOW_BYTES_MIN;

/// The budget of one process, shared by its sessions; or, inside that, the budget of one session, shared by its lanes.
#[derive(Debug)]
pub struct ReplicaBudget {
    limit_bytes: u64,
    reserved_bytes: AtomicU64,
    outer: Option<Arc<Self>>,
}

impl ReplicaBudget {
    /// Makes a budget of so many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, reserved_bytes: AtomicU64::new(0), outer: None })
    }

    /// Makes a budget inside another one: what it reserves counts in both.
    #[must_use]
    pub fn within(limit_bytes: u64, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { limit_bytes, reserved_bytes: AtomicU64::new(0), outer })
    }

    /// Returns the bytes promised by all sessions.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bound, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit_bytes
    }

    // Relaxed is enough: the number guards nothing but itself.
    fn reserve(&self, bytes: u64) -> bool {
        let fits = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        let reserved = self.reserved_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if reserved && self.outer.as_ref().is_some_and(|outer| !outer.reserve(bytes)) {
            self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        reserved
    }

    fn pressure(&self) -> Pressure {
        let own = Pressure::of(self.reserved(), self.limit_bytes);
        self.outer.as_ref().map_or(own, |outer| own.max(outer.pressure()))
    }

    /// See [`Budget::growth`].
    fn growth(&self) -> u64 {
        let own = (self.limit_bytes / 2).saturating_sub(self.reserved()) / 2;
        self.outer.as_ref().map_or(own, |outer| own.min(outer.growth()))
    }

    /// Returns the bytes that can still be reserved.
    fn free(&self) -> u64 {
        let own = self.limit_bytes.saturating_sub(self.reserved());
        self.outer.as_ref().map_or(own, |outer| own.min(outer.free()))
    }

    fn release(&self, bytes: u64) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(outer) = &self.outer {
            outer.release(bytes);
        }
    }
}

/// The budget of one session, inside its replica's. Its reservations go back when it is dropped.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: u64,
    reserved_bytes: u64,
    replica: Option<Arc<ReplicaBudget>>,
}

impl Budget {
    /// Makes a budget of so many bytes, inside `replica` if there is one.
    #[must_use]
    pub fn new(limit_bytes: u64, replica: Option<Arc<ReplicaBudget>>) -> Self {
        Self { limit_bytes, reserved_bytes: 0, replica }
    }

    /// Returns the bytes promised by this session.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved_bytes
    }

    /// Reserves so many bytes; all or nothing.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let Some(sum) = self.reserved_bytes.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes) else {
            return false;
        };
        if self.replica.as_ref().is_some_and(|replica| !replica.reserve(bytes)) {
            return false;
        }
        self.reserved_bytes = sum;
        true
    }

    /// Returns whether so many bytes could be reserved now.
    #[must_use]
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.free()
    }

    /// Returns the bytes that could be reserved now.
    #[must_use]
    pub fn free(&self) -> u64 {
        let own = self.limit_bytes.saturating_sub(self.reserved_bytes);
        self.replica.as_ref().map_or(own, |replica| own.min(replica.free()))
    }

    /// Reserves the window of a new channel: `wanted` while there is plenty, a quarter of it past half of the budget,
    /// the smallest past three quarters, so that many stalled channels still leave room for the next.
    pub fn reserve_window(&mut self, wanted: u32) -> Option<u32> {
        [self.tier(wanted), WINDOW_BYTES_MIN].into_iter().find(|window| self.reserve(u64::from(*window)))
    }

    /// Widens a new channel's window of `window` bytes to what [`Budget::reserve_window`] would give it. Returns the
    /// bytes that were added.
    pub fn widen(&mut self, window: u32, wanted: u32) -> u32 {
        let more = self.tier(wanted).saturating_sub(window);
        if self.reserve(u64::from(more)) { more } else { 0 }
    }

    fn tier(&self, wanted: u32) -> u32 {
        let wanted = wanted.max(WINDOW_BYTES_MIN);
        match self.pressure() {
            Pressure::None => wanted,
            Pressure::Half => (wanted / 4).max(WINDOW_BYTES_MIN),
            Pressure::Short => WINDOW_BYTES_MIN,
        }
    }

    /// Gives reserved bytes back.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.reserved_bytes, "released more than was reserved");
        let bytes = bytes.min(self.reserved_bytes);
        self.reserved_bytes -= bytes;
        if let Some(replica) = &self.replica {
            replica.release(bytes);
        }
    }

    /// Returns whether windows have to shrink: three quarters of the session's or of the replica's budget are promised.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.pressure() == Pressure::Short
    }

    /// Returns by how much a window of `wanted` bytes may grow. Growth gets half of the budget, so that the other half
    /// is there for new channels however fast the old ones are; and each growth takes half at most of what is left of
    /// that half, so that the next window can grow too.
    #[must_use]
    pub fn growth(&self, wanted: u32) -> u32 {
        let own = (self.limit_bytes / 2).saturating_sub(self.reserved_bytes) / 2;
        let left = self.replica.as_ref().map_or(own, |replica| own.min(replica.growth()));
        wanted.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn pressure(&self) -> Pressure {
        let own = Pressure::of(self.reserved_bytes, self.limit_bytes);
        self.replica.as_ref().map_or(own, |replica| own.max(replica.pressure()))
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.release(self.reserved_bytes);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    None,
    Half,
    Short,
}

impl Pressure {
    fn of(reserved: u64, limit: u64) -> Self {
        if reserved >= limit - limit / 4 {
            Self::Short
        } else if reserved >= limit / 2 {
            Self::Half
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_gives_everything_back_to_its_replica() {
        let replica = ReplicaBudget::new(100);
        let mut one = Budget::new(80, Some(replica.clone()));
        let mut two = Budget::new(80, Some(replica.clone()));
        assert!(one.reserve(80));
        assert!(!one.reserve(1), "the session's own bound");
        assert!(!two.reserve(21), "the replica's bound");
        assert!(two.reserve(20));
        drop(one);
        assert_eq!(replica.reserved(), 20);
        two.release(5);
        drop(two);
        assert_eq!(replica.reserved(), 0);
    }

    #[test]
    fn windows_get_smaller_as_the_budget_fills_so_that_a_thousand_stalled_channels_fit() {
        let mut budget = Budget::new(64 << 20, None);
        let mut windows = Vec::new();
        while let Some(window) = budget.reserve_window(256 << 10) {
            windows.push(window);
        }
        assert_eq!(windows.first(), Some(&(256 << 10)));
        assert_eq!(windows.last(), Some(&WINDOW_BYTES_MIN));
        assert!(windows.len() > 1000, "{}", windows.len());
        assert!(budget.reserved() <= 64 << 20);
    }
}
