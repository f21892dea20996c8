//! Reads from the store what changed, every second: the safety net under [`super::sender`]. One small statement for each
//! replica and second, which finds nothing while nothing changes.

use std::sync::Arc;
use std::time::Duration;

use gateway_net::telemetry::{ChangeWay, Metrics};
use gateway_store::{ChangedRows, Store};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Change, ChangeSink};

/// Interval of readings.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of clearing what no replica reads any more.
const CLEAR_INTERVAL: Duration = Duration::from_secs(60);

/// Reads until `stop`. A store that is away is asked again: nothing is lost, or everything counts as changed.
pub async fn read(store: Store, sink: Arc<dyn ChangeSink>, metrics: Metrics, stop: CancellationToken) {
    let (mut reader, mut ticks) = (store.changed_rows(), tokio::time::interval(READ_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut clear_at = Instant::now() + CLEAR_INTERVAL;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match reader.next().await {
            Ok(ChangedRows::Some(rows)) => {
                metrics.changes(ChangeWay::Found, rows.len());
                rows.into_iter().for_each(|row| sink.found(row));
            }
            Ok(ChangedRows::Everything) => {
                metrics.changes(ChangeWay::Everything, 1);
                sink.announced(Change::Everything);
            }
            Err(error) => debug!(%error, "changes of other replicas cannot be read from the store"),
        }
        if Instant::now() >= clear_at {
            clear_at = Instant::now() + CLEAR_INTERVAL;
            if let Err(error) = reader.clear().await {
                debug!(%error, "old changes are not cleared away");
            }
        }
    }
}
