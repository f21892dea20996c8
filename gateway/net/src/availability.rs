//! Circuit breaker for the store: its availability for the whole process, so that no request finds out by itself.
//!
//! Any task that gets no answer from the store reports it ([`Availability::failed`]); from then on statements fail at
//! once, those in flight are given up, and cached results count, until the one task that goes on asking
//! (`gateway_store::Store::watch`) gets an answer. Without that task the store is never away: commands wait as long as
//! it takes.

mod state;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::state::{Outage, REMEMBERED_MAX};

use self::state::StoreState;
use crate::telemetry::Latency;

/// Longest time of one look-up of a request, or of one check whether the store is back. A longer one counts as no
/// answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_millis(1500);

/// Availability of the store. Clones share it.
#[derive(Clone, Debug)]
pub struct Availability {
    shared: Arc<AvailabilityShared>,
}

#[derive(Debug)]
struct AvailabilityShared {
    state: RwLock<StoreState>,
    latency: Latency,
    /// Whether the store is away, for tasks that wait for a change.
    away: watch::Sender<bool>,
}

impl Default for Availability {
    /// Creates one that bridges nothing.
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl Availability {
    /// Creates the state before any answer; cached results count for `outage_max` without the store.
    #[must_use]
    pub fn new(outage_max: Duration) -> Self {
        Self {
            shared: Arc::new(AvailabilityShared {
                state: RwLock::new(StoreState::new(outage_max)),
                latency: Latency::default(),
                away: watch::Sender::new(false),
            }),
        }
    }

    /// Records that a task now asks whether the store is back, so that it can count as away.
    pub fn watched(&self) {
        self.shared.state.write().watched();
    }

    /// Returns the histogram of the time that the store's answers take.
    #[must_use]
    pub fn latency(&self) -> &Latency {
        &self.shared.latency
    }

    /// Records that a request begun at `began` got no answer. Returns whether that is new.
    pub fn failed(&self, began: Instant) -> bool {
        let is_new = self.shared.state.write().failed(began.into_std());
        if is_new {
            self.shared.away.send_replace(true);
        }
        is_new
    }

    /// Records that the store answers; returns the outage that this ends.
    pub fn answered(&self, now: Instant) -> Option<Outage> {
        let ended = self.shared.state.write().answered(now.into_std());
        if ended.is_some() {
            self.shared.away.send_replace(false);
        }
        ended
    }

    /// Records whether the store can be written. It may be readable all the same, as SQLite is on a full disk. Returns
    /// whether that is new.
    pub fn writable(&self, is_writable: bool, now: Instant) -> bool {
        self.shared.state.write().writable(is_writable, now.into_std())
    }

    /// Makes the store count as away, whatever it answers, until it is let go: a test and a drill need an outage that ends
    /// when they say so.
    pub fn hold(&self, is_held: bool, now: Instant) {
        self.shared.state.write().hold(is_held, now.into_std());
        if is_held {
            self.shared.away.send_replace(true);
        }
    }

    /// Returns the current outage; `None` while the store answers.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.shared.state.read().outage()
    }

    /// Returns the time since which the store answers but cannot be written.
    #[must_use]
    pub fn unwritable_since(&self) -> Option<Instant> {
        self.shared.state.read().unwritable_since().map(Instant::from_std)
    }

    /// Returns how many outages there were.
    #[must_use]
    pub fn outages(&self) -> u64 {
        self.shared.state.read().outages()
    }

    /// Waits until the store is away.
    ///
    /// Cancel safety: safe.
    pub async fn lost(&self) {
        let mut away = self.shared.away.subscribe();
        // The sender lives as long as this.
        drop(away.wait_for(|is_away| *is_away).await);
    }
}
