//! Quotas of a cluster: what is in use, and starts that have to stay within them.

use gateway_store::{ClusterId, ClusterUsage, CreateError, ManagedWorkspace, StartWithin};
use gateway_types::quota::{Needs, Quotas};
use gateway_types::{DesiredState, Lifecycle, UserName};
use tracing::warn;
use workspace_spec::frozen::FrozenConfig;

use super::{WorkspaceError, Workspaces};
use crate::cluster_configs::StoredConfig;

/// Workspaces of earlier versions whose needs are read from their objects at a time.
const MEASURED_AT_ONCE: u32 = 64;

/// Limits of a cluster, and what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport {
    /// Limits, of the newest configuration.
    pub quotas: Quotas,
    /// Amounts in use.
    pub usage: ClusterUsage,
}

/// Result of a write that has to stay within quotas.
pub(super) enum Written {
    /// The lifecycle was still the one that was read.
    Yes,
    /// It was not, or the quotas have changed meanwhile.
    No,
}

impl Workspaces {
    /// Returns the limits of a cluster, and what is in use there by all and by a user.
    ///
    /// # Errors
    /// [`WorkspaceError::NoSuchCluster`] without a configuration.
    pub async fn quota_report(&self, cluster: ClusterId, user: &UserName) -> Result<QuotaReport, WorkspaceError> {
        let stored = StoredConfig::read(&self.store, cluster, None).await?;
        let config = stored.ok_or(WorkspaceError::NoSuchCluster)?.config;
        let quotas = config.map_err(|_| WorkspaceError::ClusterUnreadable)?.quotas();
        self.measure_all(cluster).await?;
        Ok(QuotaReport { quotas, usage: self.store.cluster_usage(cluster, user).await? })
    }

    /// Writes the next lifecycle of a workspace. One that begins to run has to stay within the quotas that its cluster has now; one
    /// that is to run already takes nothing more.
    pub(super) async fn write(&self, found: &ManagedWorkspace, next: &Lifecycle) -> Result<Written, WorkspaceError> {
        let (id, revision) = (found.workspace.id, found.lifecycle.revision);
        let written = |is_written| if is_written { Written::Yes } else { Written::No };
        let starts = counts(next.desired) && !counts(found.lifecycle.desired);
        let Some(state) = found.kubernetes().filter(|_| starts) else {
            return Ok(written(self.store.swap_lifecycle(id, revision, next).await?));
        };
        let stored = StoredConfig::read(&self.store, state.cluster, None).await?;
        let StoredConfig { version, config } = stored.ok_or(WorkspaceError::NoSuchCluster)?;
        let quotas = config.map_err(|_| WorkspaceError::ClusterUnreadable)?.quotas();
        if quotas.counts_needs() {
            self.measure_all(state.cluster).await?;
        }
        let within =
            StartWithin { cluster: state.cluster, config_version: version, owner: &found.workspace.owner, quotas };
        match self.store.start_within(id, revision, next, &within).await {
            Ok(is_written) => Ok(written(is_written)),
            Err(CreateError::ConfigChanged) => Ok(Written::No),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the needs of workspaces that an earlier version made, so that sums have them too.
    pub(super) async fn measure_all(&self, cluster: ClusterId) -> Result<(), WorkspaceError> {
        loop {
            let found = self.store.unmeasured(cluster, MEASURED_AT_ONCE).await?;
            if found.is_empty() {
                return Ok(());
            }
            for (workspace, frozen) in found {
                let needs = FrozenConfig::from_json(&frozen).map_or_else(
                    |_| {
                        warn!(%workspace, "a workspace counts in no quota: its frozen objects cannot be read");
                        Needs::default()
                    },
                    |frozen| frozen.needs(),
                );
                self.store.measure(workspace, &needs).await?;
            }
        }
    }
}

/// Returns whether a workspace with this desired state counts as one that is to run.
fn counts(desired: DesiredState) -> bool {
    match desired {
        DesiredState::Running | DesiredState::RestartRequested => true,
        DesiredState::Stopped | DesiredState::Terminated => false,
    }
}
