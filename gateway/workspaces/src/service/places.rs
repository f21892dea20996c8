//! Places where a user may have a workspace made, and a trial of a request for one.

use super::{NewOn, NewWorkspace, Workspaces};
use crate::cluster_configs::StoredConfig;
use crate::service::WorkspaceError;
use gateway_store::StoreError;
use gateway_types::{ClusterName, ProviderName, UserName};

/// Places for new workspaces, beside machines of users' own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The clusters that take some.
    pub clusters: Vec<ClusterPlace>,
    /// The CI systems.
    pub providers: Vec<ProviderName>,
}

/// A cluster that takes workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPlace {
    /// Its name.
    pub name: ClusterName,
    /// Its editors by name, the default first.
    pub editors: Vec<String>,
}

impl Workspaces {
    /// Returns where workspaces may be made.
    ///
    /// # Errors
    /// [`StoreError`]. A cluster whose configuration this version cannot read is left out.
    pub async fn places(&self) -> Result<Places, StoreError> {
        let mut clusters = Vec::new();
        for cluster in self.store.clusters().await? {
            let stored = StoredConfig::read(&self.store, cluster.id, None).await?;
            if let Some(config) = stored.and_then(|stored| stored.config.ok()).filter(|config| config.enabled) {
                let editors = config.editors.iter().map(|editor| editor.name.clone()).collect();
                clusters.push(ClusterPlace { name: cluster.name, editors });
            }
        }
        let providers = self.ci.iter().flat_map(|ci| ci.targets.keys().cloned()).collect();
        Ok(Places { clusters, providers })
    }

    /// Returns the URL at which agents dial, for people.
    #[must_use]
    pub fn agents_url(&self) -> &str {
        &self.addresses.agents_url
    }

    /// Makes everything that [`Workspaces::create`] would store of a workspace in a cluster, and stores nothing. One for a CI system is
    /// not tried.
    ///
    /// # Errors
    /// [`WorkspaceError`], of a devfile all problems at once.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn check(&self, owner: &UserName, new: &NewWorkspace) -> Result<(), WorkspaceError> {
        let NewOn::Kubernetes(on) = &new.on else { return Ok(()) };
        let cluster = self.store.cluster(&on.cluster).await?.ok_or(WorkspaceError::NoSuchCluster)?;
        let contents = self.contents(new, on)?;
        self.prepare(&new.name, owner, &cluster, contents).await.map(drop)
    }
}
