//! What a connection may do before an agent came in on it: little. A stranger sends no more than a Hello takes, and is not
//! asked for long.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// What is read of a connection before a session came up on it, in bytes: what HTTP/2 begins with, heads, a Hello, and some
/// calls of reflection. Its window is far larger, because a session's bytes need that.
pub(super) const ALLOWANCE_BYTES: usize = 64 * 1024;

/// Calls that are refused on one connection before it is closed.
const REFUSALS_MAX: u32 = 8;

/// The time for the last refusal to get through.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Whether an agent is in.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_open: AtomicBool,
    reader: AtomicWaker,
    refusals: AtomicU32,
    shut: CancellationToken,
}

impl Gate {
    /// A session came up: everything gets through from now on.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// A call was refused.
    pub(super) fn refuse(&self) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS_MAX {
            self.shut.cancel();
        }
    }

    /// Returns whether an agent is in.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits until an agent is in.
    pub(super) fn poll_open(&self, context: &Context<'_>) -> Poll<()> {
        self.reader.register(context.waker());
        if self.is_open() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until too many calls were refused, and their answers could get through.
    ///
    /// Cancel safety: safe.
    pub(super) async fn shut(&self) {
        self.shut.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    }
}
