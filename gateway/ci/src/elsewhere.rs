//! Agents of jobs whose sessions other replicas have. The replica that reconciles jobs learns from the store which of them are
//! connected, and every replica ends the sessions that it has of jobs that are to end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use tunnel_proto::reason::Reason;

use super::reconcile::STOP_WORDS;
use gateway_agents::registry::{Registry, Subject};
use gateway_store::{Incarnation, Store, StoreError};
use gateway_types::WorkspaceName;

/// Interval at which a replica looks for sessions of jobs that are to end.
const STOPPED_INTERVAL: Duration = Duration::from_secs(2);

/// Workspaces in CI systems whose agent has a session at a replica that lives, this one included.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// `None` until it was read: jobs would seem to have lost their agents.
    connected: RwLock<Option<HashSet<WorkspaceName>>>,
}

impl Elsewhere {
    /// Returns whether anything was read yet.
    pub(super) fn is_known(&self) -> bool {
        self.connected.read().is_some()
    }

    /// Returns whether the agent of a workspace had a session when it was read.
    pub(super) fn is_connected(&self, workspace: &WorkspaceName) -> bool {
        self.connected.read().as_ref().is_some_and(|connected| connected.contains(workspace))
    }

    /// Reads all of them, in one query.
    ///
    /// # Errors
    /// [`StoreError`]; what was read before stays.
    pub(super) async fn read(&self, store: &Store) -> Result<(), StoreError> {
        let connected = store.connected_jobs().await?.into_iter().collect();
        *self.connected.write() = Some(connected);
        Ok(())
    }
}

/// Ends the sessions at this replica of jobs that are to end, until `stop`. Whichever replica stops a job, its agent is connected
/// to any.
pub async fn close_stopped(registry: Arc<Registry>, store: Store, replica: Incarnation, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(STOPPED_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match store.stopped_jobs_at(replica).await {
            Ok(stopped) => {
                for session in stopped.into_iter().filter_map(|name| registry.of(&Subject::Workspace(name))) {
                    session.tunnel.close(Reason::WorkspaceStopped, STOP_WORDS);
                }
            }
            Err(error) => debug!(%error, "cannot read which jobs are to end"),
        }
    }
}
