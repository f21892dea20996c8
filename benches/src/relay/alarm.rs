//! Timers finer than the runtime's, which tick once a millisecond and round up: on a link of a few milliseconds that
//! would be most of the measured time. A thread sleeps until the earliest and rings.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Timers nearer than this are due: waking twice would cost more than it gains.
pub(super) const GRAIN: Duration = Duration::from_micros(50);

/// A thread with timers; dropping it ends it.
#[derive(Debug)]
pub(super) struct Alarm {
    shared: Arc<AlarmShared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct AlarmShared {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AlarmState {
    timers: BinaryHeap<Reverse<Timer>>,
    ended: bool,
}

#[derive(Debug)]
struct Timer {
    at: Instant,
    bell: Arc<Notify>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Alarm {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(AlarmShared::default());
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("relay-alarm".to_owned()).spawn(move || ring(&own))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until `at`.
    ///
    /// Cancel safety: safe; the timer stays until its time and then wakes no task.
    pub(super) async fn sleep_until(&self, at: Instant) {
        if at <= Instant::now() + GRAIN {
            return;
        }
        let bell = Arc::new(Notify::new());
        {
            let mut state = self.shared.state.lock();
            let earliest = state.timers.peek().is_none_or(|Reverse(first)| at < first.at);
            state.timers.push(Reverse(Timer { at, bell: Arc::clone(&bell) }));
            if earliest {
                self.shared.changed.notify_one();
            }
        }
        bell.notified().await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn ring(shared: &AlarmShared) {
    let mut state = shared.state.lock();
    while !state.ended {
        let now = Instant::now();
        while let Some(Reverse(first)) = state.timers.peek()
            && first.at <= now + GRAIN
        {
            if let Some(Reverse(timer)) = state.timers.pop() {
                timer.bell.notify_one();
            }
        }
        match state.timers.peek().map(|Reverse(first)| first.at) {
            Some(at) => drop(shared.changed.wait_until(&mut state, at.into_std())),
            None => shared.changed.wait(&mut state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timers_ring_in_the_order_of_their_times_and_never_early() {
        let alarm = Alarm::start().unwrap();
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let order = Mutex::new(Vec::new());
        let wait = |ms| {
            let (alarm, order) = (&alarm, &order);
            async move {
                alarm.sleep_until(at(ms)).await;
                assert!(Instant::now() + GRAIN >= at(ms), "{ms} rang early");
                order.lock().push(ms);
            }
        };
        tokio::join!(wait(12), wait(0), wait(4), wait(8));
        assert_eq!(*order.lock(), [0, 4, 8, 12]);
    }
}
