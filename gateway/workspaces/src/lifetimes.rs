//! Stops and terminates workspaces whose time limits have passed: they stop after their active hours, or once they were not used
//! them for long enough, and are terminated after their stopped hours or at their greatest age. Within seconds, and not at
//! the next full round.
//!
//! Deadlines are computed from the stored state, by [`Lifecycle::next_due`](gateway_types::Lifecycle::next_due). The
//! queue in memory only says when to check, so a restart loses nothing and a change that was missed costs one check.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::changes::{ChangeNews, ChangeNotice, Changes, Subscriber};
use crate::cluster_configs::StoredConfig;
use crate::idle_stops::{IdleStep, IdleStops};
use gateway_store::{ClusterId, ConfigVersion, ManagedWorkspace, Runs, Store, StoreError, WorkspaceId};
use gateway_types::{Clock, ProviderName, TimeLimits, UnixSeconds};
use work_queue::{Requeue, WorkQueue};
use workspace_spec::cluster_config::ClusterConfig;

/// Interval at which due workspaces are looked for: checks the next deadline, and nothing else while that is in the
/// future.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which everything is read anew: changes by other replicas are not notified here. Far below the shortest
/// time limit.
const READ_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Workspaces that are reconciled at a time: little is ever due, and the store is not asked for more at once.
const IN_FLIGHT_MAX: usize = 1;

/// Workspaces that are read at a time.
const PAGE: u32 = 500;

/// Versions of configurations whose limits are kept.
const LIMITS_KEPT: usize = 1024;

/// Enforces the time limits of workspaces.
pub struct LifetimeController {
    store: Store,
    changes: Changes,
    clock: Clock,
    queue: WorkQueue<WorkspaceId, UnixSeconds>,
    limits: HashMap<(ClusterId, ConfigVersion), TimeLimits>,
    providers: HashMap<ProviderName, TimeLimits>,
    idle: IdleStops,
}

impl fmt::Debug for LifetimeController {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Timers").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl LifetimeController {
    /// Creates the timers. Changes are published on `changes`.
    #[must_use]
    pub fn new(store: Store, changes: Changes, clock: Clock) -> Self {
        Self {
            store,
            changes,
            clock,
            queue: WorkQueue::default(),
            limits: HashMap::new(),
            providers: HashMap::new(),
            idle: IdleStops::default(),
        }
    }

    /// Sets how workspaces are stopped without use.
    #[must_use]
    pub fn with_idle(mut self, idle: IdleStops) -> Self {
        self.idle = idle;
        self
    }

    /// Adds the time limits of workspaces in CI systems.
    #[must_use]
    pub fn with_providers(mut self, limits: HashMap<ProviderName, TimeLimits>) -> Self {
        self.providers = limits;
        self
    }

    /// Runs until `stop`. A store that does not answer is asked again a second later.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut listener = self.changes.listen();
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reads = tokio::time::interval(READ_INTERVAL);
        reads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_read = false;
        loop {
            let heard = tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => None,
                _ = reads.tick() => {
                    is_read = false;
                    None
                }
                heard = hear(&mut listener) => Some(heard),
            };
            match heard {
                // Checked now, and from then on at its next deadline: no change is older than the known state.
                Some(Some(workspace)) => self.queue.add(workspace, (self.clock)()),
                Some(None) => is_read = false,
                None => {}
            }
            if let Err(error) = self.look(&mut is_read).await {
                warn!(%error, "cannot read which workspaces have reached a time limit");
            }
        }
    }

    async fn look(&mut self, is_read: &mut bool) -> Result<(), StoreError> {
        if !*is_read {
            self.read_all().await?;
            *is_read = true;
        }
        while let Some(workspace) = self.queue.start((self.clock)(), IN_FLIGHT_MAX) {
            let error = match self.reconcile(workspace).await {
                Ok(requeue) => {
                    self.queue.finish(workspace, requeue);
                    continue;
                }
                Err(error) => error,
            };
            let is_of_one_row = matches!(error, StoreError::Corrupt { .. });
            let pause = if is_of_one_row { READ_INTERVAL } else { LOOK_INTERVAL };
            self.queue.finish(workspace, Requeue::At((self.clock)().later(pause)));
            if !is_of_one_row {
                return Err(error);
            }
            warn!(%workspace, %error, "time limits not enforced: the workspace's row is corrupt");
        }
        Ok(())
    }

    /// Adds every workspace that is not over.
    async fn read_all(&mut self) -> Result<(), StoreError> {
        let (now, mut after) = ((self.clock)(), None);
        loop {
            let page = self.store.managed_ids(None, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(*last);
            for workspace in page {
                self.queue.add(workspace, now);
            }
        }
    }

    /// Carries out what is due for a workspace, if anything is. Returns its next deadline.
    async fn reconcile(&mut self, workspace: WorkspaceId) -> Result<Requeue<UnixSeconds>, StoreError> {
        loop {
            let Some(managed) = self.store.managed_by_id(workspace).await? else {
                return Ok(Requeue::AwaitAdd);
            };
            let limits = self.limits_of(&managed).await?;
            let (life, now) = (&managed.lifecycle, (self.clock)());
            let due = life.due(managed.workspace.created_at, &limits, now);
            let Some(next) = due.and_then(|desired| life.request(desired, now).ok()) else {
                let idle = match self.idle.step(&self.store, &managed, now).await? {
                    IdleStep::Again => continue,
                    IdleStep::Stopped => {
                        self.changes.publish(ChangeNotice { workspace, cluster: managed.cluster() });
                        continue;
                    }
                    IdleStep::Wait(at) => at,
                };
                let deadline = life.next_due(managed.workspace.created_at, &limits).map(|(at, _)| at);
                return Ok(deadline.into_iter().chain(idle).min().map_or(Requeue::AwaitAdd, Requeue::At));
            };
            if self.store.swap_lifecycle(workspace, life.revision, &next).await? {
                info!(workspace = %managed.workspace.name, desired = %next.desired, "the workspace has reached a time limit");
                self.changes.publish(ChangeNotice { workspace, cluster: managed.cluster() });
            }
            // Read again: whichever writer changed it, it has another deadline now.
        }
    }

    /// Returns the time limits of a workspace: by the configuration that it was made with, in a CI system by the
    /// current one.
    async fn limits_of(&mut self, managed: &ManagedWorkspace) -> Result<TimeLimits, StoreError> {
        let state = match &managed.runs {
            Runs::Kubernetes(state) => state,
            Runs::Ci(state) => {
                let limits = self.providers.get(&state.provider).copied();
                return Ok(limits.unwrap_or_else(|| ClusterConfig::default().time_limits()));
            }
        };
        let key = (state.cluster, state.config_version);
        if let Some(limits) = self.limits.get(&key) {
            return Ok(*limits);
        }
        let stored = StoredConfig::read(&self.store, key.0, Some(key.1)).await?;
        let config = stored.and_then(|stored| match stored.config {
            Ok(config) => Some(config),
            Err(error) => {
                warn!(workspace = %managed.workspace.name, %error, "the cluster's configuration cannot be read: default time limits apply");
                None
            }
        });
        let limits = config.unwrap_or_default().time_limits();
        if self.limits.len() >= LIMITS_KEPT {
            self.limits.clear();
        }
        self.limits.insert(key, limits);
        Ok(limits)
    }
}

/// Waits for the next changed workspace; `None` if changes were missed.
async fn hear(listener: &mut Subscriber) -> Option<WorkspaceId> {
    match listener.next().await {
        ChangeNews::Change(change) => Some(change.workspace),
        ChangeNews::Missed => None,
    }
}

#[cfg(test)]
mod tests;
