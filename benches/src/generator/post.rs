//! Place of one connection's task in the run: its next arrivals, and their recorder.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::ExchangeFailure;
use crate::stats::{Bytes, Recorder, Window};

/// Pause after a failure in a closed loop, which has no rate that bounds it.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);

/// Queue of arrivals that are due and not yet taken by a connection.
pub(super) struct ArrivalQueue {
    due: RefCell<VecDeque<Instant>>,
    is_closed: Cell<bool>,
    change: Notify,
}

impl ArrivalQueue {
    pub(super) fn new() -> Self {
        Self { due: RefCell::new(VecDeque::new()), is_closed: Cell::new(false), change: Notify::new() }
    }

    pub(super) fn push(&self, intended: Instant) {
        self.due.borrow_mut().push_back(intended);
        self.change.notify_one();
    }

    /// Lets tasks end when the queue is empty.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.change.notify_waiters();
    }

    /// Takes all arrivals that no connection took.
    pub(super) fn take_all(&self) -> VecDeque<Instant> {
        self.due.take()
    }

    async fn next(&self) -> Option<Instant> {
        loop {
            if let Some(intended) = self.due.borrow_mut().pop_front() {
                return Some(intended);
            }
            if self.is_closed.get() {
                return None;
            }
            // Nothing else runs on this thread between the look above and this registration.
            self.change.notified().await;
        }
    }
}

/// Source of a task's arrivals.
#[derive(Clone)]
pub(super) enum ArrivalSource {
    /// Open loop.
    Queue(Rc<ArrivalQueue>),
    /// Closed loop: the next one is due when the last one ended.
    Own,
}

/// Place of one connection in the run.
pub struct Post {
    pub(super) index: usize,
    pub(super) source: ArrivalSource,
    pub(super) recorder: Rc<RefCell<Recorder>>,
    pub(super) window: Window,
    pub(super) timeout: Duration,
    pub(super) stop: CancellationToken,
    pub(super) free_since: Cell<Instant>,
    /// Exchange under way: counted as unfinished if the run ends before it does.
    pub(super) under_way: Cell<Option<Instant>>,
}

impl Post {
    /// Returns the number of this connection among all of the run.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns how long an exchange may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether nothing new is to be begun.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stop.is_cancelled() || Instant::now() >= self.window.end
    }

    /// Waits until an arrival is due and returns its intended start; `None` once the run is over.
    pub async fn next(&self) -> Option<Instant> {
        match &self.source {
            ArrivalSource::Queue(queue) => queue.next().await,
            ArrivalSource::Own => {
                let now = Instant::now();
                if now >= self.window.end || self.stop.is_cancelled() {
                    return None;
                }
                self.recorder.borrow_mut().offered(now);
                self.free_since.set(now);
                Some(now)
            }
        }
    }

    /// Records that the exchange intended for `intended` is sent now.
    pub fn sending(&self, intended: Instant) -> Instant {
        let now = Instant::now();
        self.under_way.set(Some(intended));
        // A busy connection is the subject's slowness, not the generator's.
        let could = intended.max(self.free_since.get());
        if matches!(self.source, ArrivalSource::Queue(_)) {
            self.recorder.borrow_mut().late(intended, now.saturating_duration_since(could));
        }
        now
    }

    /// Records the result of an exchange.
    pub async fn ended(&self, intended: Instant, sent: Instant, result: Result<Bytes, ExchangeFailure>) {
        let now = Instant::now();
        self.under_way.set(None);
        self.free_since.set(now);
        match result {
            Ok(bytes) => self.recorder.borrow_mut().ok(intended, sent, now, bytes),
            Err(failure) => {
                self.recorder.borrow_mut().failed(intended, now, failure.why);
                if matches!(self.source, ArrivalSource::Own) {
                    self.stop.run_until_cancelled(tokio::time::sleep(FAILURE_PAUSE)).await;
                }
            }
        }
    }

    /// Records bytes of an exchange that goes on.
    pub fn moved(&self, bytes: Bytes) {
        self.recorder.borrow_mut().moved(Instant::now(), bytes);
    }

    /// Records that an event should arrive about now.
    pub fn expected(&self, now: Instant) {
        self.recorder.borrow_mut().offered(now);
    }

    /// Records the arrival of an event that was made at `made`; its bytes are recorded by [`Self::moved`].
    pub fn arrived(&self, made: Instant) {
        self.recorder.borrow_mut().ok(made, made, Instant::now(), Bytes::default());
    }

    /// Records that an event did not arrive.
    pub fn missed(&self, intended: Instant, why: &'static str) {
        self.recorder.borrow_mut().failed(intended, Instant::now(), why);
    }

    /// Waits until nothing new is to be begun.
    pub async fn over(&self) {
        self.stop.run_until_cancelled(tokio::time::sleep_until(self.window.end)).await;
    }
}
