//! Thread that only sleeps: it wakes a worker's dispatcher when an arrival is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::scheduling::without_slack;
use crate::pace::Schedule;

/// Longest sleep at once, so that a stopped run ends soon.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Starts the thread. It ends by itself at `end` or after `stop`.
pub(super) fn start(
    schedule: Schedule,
    begin: Instant,
    end: Instant,
    wake: Arc<Notify>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let run = move || {
        without_slack();
        for offset in schedule {
            let due = begin + offset;
            if due >= end || !sleep_until(due, &stop) {
                break;
            }
            wake.notify_one();
        }
        sleep_until(end, &stop);
        wake.notify_one();
    };
    std::thread::Builder::new().name("alarm".to_owned()).stack_size(64 * 1024).spawn(run).map(drop)
}

/// Sleeps; returns false if the run was stopped.
#[expect(clippy::disallowed_methods, reason = "this thread is a clock: it does nothing but sleep")]
fn sleep_until(due: Instant, stop: &CancellationToken) -> bool {
    loop {
        if stop.is_cancelled() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLEEP_MAX));
    }
}
