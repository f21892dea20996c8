//! Reads configurations of clusters from the store: the one place that parses them.

use gateway_store::{ClusterId, ConfigVersion, Store, StoreError};
use workspace_spec::cluster_config::ClusterConfig;

/// A stored version of a cluster's configuration.
#[derive(Debug)]
pub struct StoredConfig {
    /// Number of the version.
    pub version: ConfigVersion,
    /// The configuration; an error if a later version of the gateway wrote one that this one cannot read.
    pub config: Result<ClusterConfig, serde_json::Error>,
}

impl StoredConfig {
    /// Reads a version of a cluster's configuration; the newest for `None`.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn read(
        store: &Store,
        cluster: ClusterId,
        version: Option<ConfigVersion>,
    ) -> Result<Option<Self>, StoreError> {
        let stored = store.cluster_config(cluster, version).await?;
        Ok(stored.map(|(version, text)| Self::parse(version, &text)))
    }

    /// Parses a stored configuration.
    #[must_use]
    pub fn parse(version: ConfigVersion, text: &str) -> Self {
        Self { version, config: ClusterConfig::from_json(text) }
    }
}
