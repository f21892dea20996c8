//! Restricts a connection until an agent is admitted on it: a stranger sends no more than a Hello takes, and is not
//! waited for long.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::carry::LaneQueue;
use gateway_net::limits::Guest;

/// Most bytes read of a connection before a session came up on it: the preface of HTTP/2, heads, a Hello, and some
/// calls of reflection. Its window is far larger, because a session's bytes need that.
pub(super) const ALLOWANCE_BYTES: usize = 64 * 1024;

/// Calls that are refused on one connection before it is closed.
const REFUSALS_MAX: u32 = 8;

/// Time for the last refusal to get through.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Frame that ends the connection of a peer whose behaviour may cause too much work: a GOAWAY with ENHANCE_YOUR_CALM,
/// and no stream that was worked on (RFC 9113, sections 6.8 and 7).
pub(super) const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];

/// Admission state of a connection.
#[derive(Debug, Default)]
pub(super) struct HandshakeLimit {
    /// Counts against its address until an agent is admitted. `None` for a connection without a client, in tests.
    guest: Option<Arc<Guest>>,
    is_open: AtomicBool,
    /// A Hello has come, and is being considered.
    is_greeted: AtomicBool,
    /// A call has come that has to say Hello.
    is_called: AtomicBool,
    refusals: AtomicU32,
    shut: CancellationToken,
    /// Set for a connection whose link is a relay lane that passes through here.
    queue: OnceLock<Arc<LaneQueue>>,
}

impl HandshakeLimit {
    /// Makes a closed one for a connection.
    pub(super) fn new(guest: Arc<Guest>) -> Self {
        Self { guest: Some(guest), ..Self::default() }
    }

    /// Opens the gate once a session is up: everything gets through from now on.
    pub(super) fn open(&self) {
        if let Some(guest) = &self.guest {
            guest.prove();
        }
        self.is_open.store(true, Ordering::Release);
    }

    /// Makes the connection that of a relay lane. Returns the queue that bounds how far it is read.
    pub(super) fn pass(&self) -> Arc<LaneQueue> {
        self.queue.get_or_init(Arc::default).clone()
    }

    /// Returns the queue of a relay lane, if the connection has one.
    pub(super) fn queue(&self) -> Option<Arc<LaneQueue>> {
        self.queue.get().cloned()
    }

    /// Notes a call that has to say Hello.
    pub(super) fn call(&self) {
        self.is_called.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call has come that has to say Hello.
    pub(super) fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Relaxed)
    }

    /// Notes a Hello: from now on the agent waits, and not the gateway.
    pub(super) fn greet(&self) {
        self.is_greeted.store(true, Ordering::Relaxed);
    }

    /// Returns whether a Hello has come.
    pub(super) fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Relaxed)
    }

    /// Ends the wait: the time for a Hello is over.
    pub(super) fn close(&self) {
        self.shut.cancel();
    }

    /// Counts a refused call.
    pub(super) fn refuse(&self) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS_MAX {
            self.shut.cancel();
        }
    }

    /// Returns whether an agent is admitted.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits until the gate is closed or too many calls were refused, and their answers could get through.
    ///
    /// Cancel safety: safe.
    pub(super) async fn shut(&self) {
        self.shut.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    }
}
