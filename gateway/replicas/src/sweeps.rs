//! Removal of rows that replicas leave behind.

use std::time::Duration;

use tracing::debug;

use crate::duties::HeldDuty;

/// Interval at which rows are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Pause between two removals while there is more.
const MORE_PAUSE: Duration = Duration::from_secs(1);

/// Most places of sessions that are removed at a time: others claim them meanwhile.
const REAPED_MAX: u32 = 1_000;

/// Removes places of sessions that have no owner, for as long as the duty is held.
pub async fn sweep(held: HeldDuty) {
    loop {
        let pause = match held.store.reap_sessions(REAPED_MAX).await {
            Ok(removed) if removed >= u64::from(REAPED_MAX) => MORE_PAUSE,
            Ok(_) => SWEEP_INTERVAL,
            Err(error) => {
                debug!(%error, "places that are free cannot be removed");
                SWEEP_INTERVAL
            }
        };
        tokio::select! {
            () = held.ending.cancelled() => return,
            () = held.lost.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
