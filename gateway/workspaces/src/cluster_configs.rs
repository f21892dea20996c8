//! Loads the configurations of clusters: `agents_dir/NAME/config.yaml` for the cluster agent `NAME`, read on each
//! change and stored version by version. Each workspace keeps the version that it was made with.
//!
//! A file with a mistake changes nothing: the previous version stays in force. The reason is logged once, and
//! [`ClusterConfigs::refusals`] has it for as long as it applies. A deleted file changes nothing either. A cluster
//! without a file has the defaults, with which no workspaces can be made.
//!
//! The namespace mode of a cluster with workspaces is not changed: its agent works in one mode, and would lose those of
//! the other. Such a file is refused as if it had a mistake, and taken over once the last workspace is over.

mod folder;
mod stored;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::stored::StoredConfig;

use self::folder::{ChangedConfig, gone, mode_in_use, scan};
use crate::agents_dir::{self, FolderReader, Stamp};
use gateway_store::{Cluster, ClusterId, ConfigVersion, Store, StoreError, wall_clock};
use gateway_types::ClusterName;
use workspace_spec::cluster_config::ClusterConfig;

pub use self::folder::check;
pub use crate::agents_dir::{FileRefusal, RefusalCode};

/// The configurations of all clusters.
#[derive(Debug)]
pub struct ClusterConfigs {
    dir: Option<PathBuf>,
    /// Counts the configurations that were taken over.
    changes: watch::Sender<u64>,
    refusals: RwLock<BTreeMap<PathBuf, Arc<FileRefusal>>>,
}

/// State that is kept between two scans.
#[derive(Debug, Default)]
struct ConfigScan {
    stamps: HashMap<PathBuf, Stamp>,
    /// Files that may be taken over without having changed.
    waiting: HashSet<PathBuf>,
    /// Clusters that have some configuration.
    configured: HashSet<ClusterId>,
}

/// The watch over the files.
struct ConfigReader {
    configs: Arc<ClusterConfigs>,
    store: Store,
    seen: ConfigScan,
}

impl FolderReader for ConfigReader {
    async fn look(&mut self) -> Result<(), StoreError> {
        self.configs.look(&self.store, &mut self.seen).await
    }

    fn log_failure(&self, error: &StoreError) {
        warn!(%error, "configurations of clusters cannot be stored now");
    }
}

impl ClusterConfigs {
    /// Creates the configurations for a folder, if there is one. Nothing is read yet.
    #[must_use]
    pub fn new(dir: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { dir, changes: watch::Sender::new(0), refusals: RwLock::default() })
    }

    /// Creates the configurations and takes over the files that exist, before any request is served: actions that a
    /// file allows would seem forbidden until then.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(dir: Option<PathBuf>, store: &Store) -> Result<Arc<Self>, StoreError> {
        let configs = Self::new(dir);
        // Boxed because it is large, and awaited by the start of the gateway, whose future is large as it is.
        Box::pin(configs.look(store, &mut ConfigScan::default())).await?;
        Ok(configs)
    }

    /// Notifies of a new configuration in force, of any cluster.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the files that are not in force as they are, and the reasons.
    #[must_use]
    pub fn refusals(&self) -> Vec<Arc<FileRefusal>> {
        self.refusals.read().values().cloned().collect()
    }

    /// Returns the reason why a cluster's file is not in force as it is.
    #[must_use]
    pub fn refusal(&self, cluster: &ClusterName) -> Option<Arc<FileRefusal>> {
        self.refusals.read().values().find(|refusal| refusal.cluster == cluster.as_str()).cloned()
    }

    /// Returns the newest configuration of a cluster. One that has none gets the defaults.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Corrupt`] for a configuration that this version cannot read.
    pub async fn newest(&self, store: &Store, cluster: &Cluster) -> Result<(ConfigVersion, ClusterConfig), StoreError> {
        let default = ClusterConfig::default().to_json();
        let (version, text) = store.ensure_cluster_config(cluster.id, &default, wall_clock()).await?;
        let unreadable = |_| StoreError::Corrupt { table: "cluster_configs", column: "config" };
        Ok((version, StoredConfig::parse(version, &text).config.map_err(unreadable)?))
    }

    /// Scans the folder at intervals and takes over changes, until `stop`.
    pub async fn watch(self: Arc<Self>, store: Store, stop: CancellationToken) {
        let reader = ConfigReader { configs: self, store, seen: ConfigScan::default() };
        agents_dir::watch(reader, stop).await;
    }

    async fn look(&self, store: &Store, seen: &mut ConfigScan) -> Result<(), StoreError> {
        if let Some(dir) = self.dir.clone() {
            let (stamps, waiting) = (seen.stamps.clone(), seen.waiting.clone());
            let work = move || {
                let gone = gone(&stamps);
                let settled = stamps.into_iter().filter(|(path, _)| !waiting.contains(path)).collect();
                (scan(&dir, &settled), gone)
            };
            // A folder may be on a file system that answers slowly.
            let (found, gone) = tokio::task::spawn_blocking(work).await.unwrap_or_default();
            for path in gone {
                info!(file = %path.display(), "a cluster's configuration is gone, and what was in force stays");
                seen.stamps.remove(&path);
                seen.waiting.remove(&path);
                self.refusals.write().remove(&path);
            }
            for one in found {
                let (path, stamp) = (one.path.clone(), one.stamp);
                if self.take_over(store, one).await? {
                    seen.waiting.remove(&path);
                } else {
                    seen.waiting.insert(path.clone());
                }
                seen.stamps.insert(path, stamp);
            }
        }
        for cluster in store.clusters().await? {
            if !seen.configured.contains(&cluster.id) {
                match self.newest(store, &cluster).await {
                    Ok(_) => seen.configured.insert(cluster.id),
                    // Reported to callers that make workspaces there.
                    Err(StoreError::Corrupt { .. }) => false,
                    Err(error) => return Err(error),
                };
            }
        }
        Ok(())
    }

    /// Takes a file over or refuses it; returns whether the outcome would be the same again for an unchanged file.
    async fn take_over(&self, store: &Store, found: ChangedConfig) -> Result<bool, StoreError> {
        let (name, config) = match found.read {
            Ok(read) => read,
            Err(refusal) => {
                self.refuse(refusal);
                return Ok(true);
            }
        };
        let cluster = store.ensure_cluster(&name, wall_clock()).await?;
        let before = StoredConfig::read(store, cluster.id, None).await?;
        // A configuration written by a later version cannot be compared, so that version decides.
        let fits = |before: &str| {
            ClusterConfig::from_json(before).is_ok_and(|before| before.shared_namespace == config.shared_namespace)
        };
        let put = store.put_fitting_cluster_config(cluster.id, &config.to_json(), fits, wall_clock()).await?;
        let Some(version) = put else {
            let before = before.and_then(|before| before.config.ok()).unwrap_or_default();
            self.refuse(mode_in_use(found.path, &name, &before));
            return Ok(false);
        };
        self.refusals.write().remove(&found.path);
        if before.is_none_or(|before| before.version != version) {
            info!(cluster = %name, %version, file = %found.path.display(), "a cluster's configuration is in force");
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(true)
    }

    /// Keeps the reason for a file not to be in force, and logs it once.
    fn refuse(&self, refusal: FileRefusal) {
        let mut refusals = self.refusals.write();
        if refusals.get(&refusal.path).is_none_or(|before| **before != refusal) {
            let code = refusal.code.as_str();
            warn!(code, problems = %refusal, "a cluster's configuration is refused, and what was in force stays");
            refusals.insert(refusal.path.clone(), Arc::new(refusal));
        }
    }
}

#[cfg(test)]
mod tests;
