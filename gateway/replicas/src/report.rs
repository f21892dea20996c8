//! Reports of a replica about itself, for the operator, and the way by which the operator asks it to drain: both are columns of
//! its row, so one address answers for all replicas, and none has to be reached for that.

use std::time::Duration;

use gateway_store::{DrainRequest, Incarnation, ReplicaReport, Store};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

/// Interval of reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(3);

/// Reports until `stop`, and hands on what drain is asked. One small write each three seconds.
pub async fn keep(
    store: Store,
    incarnation: Incarnation,
    report: impl Fn() -> ReplicaReport,
    asked: watch::Sender<Option<DrainRequest>>,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match store.report_replica(incarnation, &report()).await {
            Ok(request) => {
                let is_news = asked.send_if_modified(|known| {
                    let is_news = request > *known;
                    *known = request.max(*known);
                    is_news
                });
                if is_news {
                    info!(replica = %incarnation, ?request, "the operator asks this replica to drain");
                }
            }
            // The lease says so louder.
            Err(error) => debug!(%error, "the report of this replica cannot be stored"),
        }
    }
}
