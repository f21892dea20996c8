//! Whether the store answers: one word for the whole process, so that no request finds out by itself.
//!
//! A circuit breaker. Whatever meets a store that does not answer says so ([`Availability::failed`]); from then on statements
//! fail at once, those in flight are given up, and what is remembered counts, until the one task that asks on
//! ([`crate::store::Store::watch`]) gets an answer. Without that task nothing is ever away: commands wait as long as it takes.

mod state;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::state::{Outage, REMEMBERED_MAX};

use self::state::State;

/// The longest that one look-up of a request, or one question whether the store is back, may take. What takes longer counts as
/// no answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_millis(1500);

/// Whether the store answers. Clones share it.
#[derive(Clone, Debug)]
pub struct Availability {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    /// Whether it is away, for those who wait for that to change.
    away: watch::Sender<bool>,
}

impl Default for Availability {
    /// Bridges nothing.
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl Availability {
    /// Makes one that nothing is known of yet; what is remembered counts for `outage_max` without the store.
    #[must_use]
    pub fn new(outage_max: Duration) -> Self {
        Self {
            shared: Arc::new(Shared { state: RwLock::new(State::new(outage_max)), away: watch::Sender::new(false) }),
        }
    }

    /// Says that from now on it is asked whether the store is back, so that it can be away.
    pub(crate) fn watched(&self) {
        self.shared.state.write().watched();
    }

    /// Takes note that the store did not answer what was asked at `began`. Returns whether that is new.
    pub(crate) fn failed(&self, began: Instant) -> bool {
        let is_new = self.shared.state.write().failed(began.into_std());
        if is_new {
            self.shared.away.send_replace(true);
        }
        is_new
    }

    /// Takes note that the store answers; returns the outage that this ends.
    pub(crate) fn answered(&self, now: Instant) -> Option<Outage> {
        let ended = self.shared.state.write().answered(now.into_std());
        if ended.is_some() {
            self.shared.away.send_replace(false);
        }
        ended
    }

    /// Takes note of whether the store can be written; of one that is read without trouble, as SQLite is on a full disk.
    /// Returns whether that is new.
    pub(crate) fn writable(&self, is_writable: bool, now: Instant) -> bool {
        self.shared.state.write().writable(is_writable, now.into_std())
    }

    /// Returns since when the store has not answered; `None` while it does.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.shared.state.read().outage()
    }

    /// Returns since when the store, which answers, could not be written.
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
    pub(crate) async fn lost(&self) {
        let mut away = self.shared.away.subscribe();
        // The sender lives as long as this.
        drop(away.wait_for(|is_away| *is_away).await);
    }
}
