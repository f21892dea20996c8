//! Counts workspaces by state for the metrics: apart from their scrapes, which a database that is away must not hold up.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use gateway_net::telemetry::Metrics;
use gateway_store::Store;
use gateway_types::ActualState;

/// Time between two counts: one statement for each replica.
const INTERVAL: Duration = Duration::from_secs(30);

/// Counts until `stop`. While the store is away the last counts stay.
pub(super) async fn run(store: Store, metrics: Metrics, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let counts = match store.workspaces_by_state().await {
            Ok(counts) => counts,
            Err(error) => {
                debug!(%error, "workspaces are not counted");
                continue;
            }
        };
        let number = |state: Option<ActualState>| {
            counts.iter().find(|count| count.state == state).map_or(0, |count| count.workspaces)
        };
        metrics.workspaces("external", number(None));
        for state in ActualState::ALL.iter().copied() {
            metrics.workspaces(state.as_str(), number(Some(state)));
        }
    }
}
