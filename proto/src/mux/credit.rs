//! Credit in payload bytes: the only place where windows are computed, and every step is checked.
//!
//! The law, which the property tests check after every step: outstanding, buffered and owed bytes add up to the window.

use std::time::{Duration, Instant};

use super::budget::Budget;
use crate::limit::WINDOW_BYTES_MIN;

/// A round trip below this is treated as this long: on a loopback or in a rack, scheduling takes longer than the
/// wire, and a window of a few microseconds' worth would starve the link.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(1);

/// Credit that we have on one channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SendCredit {
    available: u32,
}

/// The peer granted more than fits 32 bits: its books are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

impl SendCredit {
    /// Starts with the credit that the peer gave at open, in bytes.
    pub(super) fn new(bytes: u32) -> Self {
        Self { available: bytes }
    }

    /// Returns how many bytes may be sent now.
    pub(super) fn available(&self) -> u32 {
        self.available
    }

    /// Adds a grant.
    ///
    /// # Errors
    /// [`Overflow`] when the sum leaves 32 bits; nothing was added.
    pub(super) fn add(&mut self, bytes: u32) -> Result<(), Overflow> {
        self.available = self.available.checked_add(bytes).ok_or(Overflow)?;
        Ok(())
    }

    /// Takes up to `wanted` bytes for sending and returns how many were taken.
    pub(super) fn take(&mut self, wanted: usize) -> usize {
        let taken = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.available);
        self.available -= taken;
        taken as usize
    }
}

/// Credit that the peer has on one channel, and the bytes of it that we hold.
#[derive(Debug)]
pub(super) struct RecvCredit {
    /// Promised in all: outstanding + buffered + owed.
    window: u32,
    /// Granted and not yet received.
    outstanding: u32,
    /// Received and not yet taken by its destination.
    buffered: u32,
    /// Taken, and not yet granted again.
    owed: u32,
    window_max: u32,
    last_grant: Instant,
}

/// The peer sent more than it had credit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

impl RecvCredit {
    /// Starts with a window that the caller reserved from the budget, all of it outstanding.
    pub(super) fn new(window: u32, window_max: u32, now: Instant) -> Self {
        Self { window, outstanding: window, buffered: 0, owed: 0, window_max: window_max.max(window), last_grant: now }
    }

    /// Returns the window in bytes: this channel's part of the budget.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Returns the credit that the peer still has, by our books.
    #[cfg(any(test, feature = "model"))]
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the bytes that were received and not yet taken.
    pub(super) fn buffered(&self) -> u32 {
        self.buffered
    }

    /// Widens the window by bytes that the caller reserved and grants in a frame of its own.
    pub(super) fn extend(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes);
        self.outstanding = self.outstanding.saturating_add(bytes);
        self.window_max = self.window_max.max(self.window);
    }

    /// Accounts for received payload. Called before the payload is stored.
    ///
    /// # Errors
    /// [`Overrun`] when the peer had no credit for it; nothing changed.
    pub(super) fn receive(&mut self, bytes: usize) -> Result<(), Overrun> {
        let bytes = u32::try_from(bytes).map_err(|_| Overrun)?;
        self.outstanding = self.outstanding.checked_sub(bytes).ok_or(Overrun)?;
        // Cannot overflow: outstanding + buffered ≤ window.
        self.buffered = self.buffered.saturating_add(bytes);
        Ok(())
    }

    /// Accounts for bytes that the destination took.
    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.buffered);
        self.buffered -= bytes;
        self.owed = self.owed.saturating_add(bytes);
    }

    /// Returns whether half of the window is owed, so that a grant is worth a frame.
    pub(super) fn wants_grant(&self) -> bool {
        self.owed > 0 && self.owed >= self.window / 2
    }

    /// Settles owed credit: returns the credit to send, in bytes, 0 for none.
    ///
    /// The window doubles if half of it was used up within two round trips: then it was the limit, and not the link or
    /// the destination. Near the budget's end it shrinks instead: owed credit is kept back.
    pub(super) fn grant(&mut self, now: Instant, round_trip: Option<Duration>, budget: &mut Budget) -> u32 {
        if !self.wants_grant() {
            return 0;
        }
        let elapsed = now.saturating_duration_since(self.last_grant);
        let limited_by_window = round_trip.is_some_and(|rtt| elapsed < 2 * rtt.max(ROUND_TRIP_MIN));
        self.last_grant = now;
        if budget.is_short() {
            self.shrink(budget);
        } else if limited_by_window {
            self.grow(budget);
        }
        let granted = std::mem::take(&mut self.owed);
        self.outstanding = self.outstanding.saturating_add(granted);
        granted
    }

    /// Returns whether the law that ties the four numbers together holds.
    pub(super) fn is_conserved(&self) -> bool {
        let sum = u64::from(self.outstanding) + u64::from(self.buffered) + u64::from(self.owed);
        sum == u64::from(self.window)
    }

    fn grow(&mut self, budget: &mut Budget) {
        let more = budget.growth(self.window.min(self.window_max - self.window));
        if more > 0 && budget.reserve(u64::from(more)) {
            self.window += more;
            self.owed += more;
        }
    }

    /// Halves the window down to the smallest, as far as owed credit allows.
    fn shrink(&mut self, budget: &mut Budget) {
        let less = (self.window / 2).min(self.window.saturating_sub(WINDOW_BYTES_MIN)).min(self.owed);
        self.window -= less;
        self.owed -= less;
        budget.release(u64::from(less));
    }
}

#[cfg(test)]
#[path = "credit_tests.rs"]
mod tests;
