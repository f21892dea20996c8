//! Joins the parts for environments of CI jobs: their store, their clusters' templates, and the task that reconciles
//! them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::wall_clock;
use crate::audit::Audit;
use crate::config::Config;
use crate::environments::files::TemplateFiles;
use crate::environments::service::{Environments, Parts};
use crate::executors::cluster_configs::ClusterConfigs;
use crate::sessions::registry::Registry;
use crate::store::{Store, StoreError};
use crate::telemetry::Metrics;

/// Environments and their templates.
#[derive(Clone, Debug)]
pub(super) struct EnvironmentParts {
    pub(super) environments: Environments,
    templates: Arc<TemplateFiles>,
}

impl EnvironmentParts {
    /// Reads templates and stored environments; nothing is reconciled yet.
    pub(super) async fn open(
        config: &Config,
        store: &Store,
        registry: &Arc<Registry>,
        (metrics, audit): (&Metrics, &Audit),
    ) -> Result<Self, StoreError> {
        let templates = TemplateFiles::new(config.agents_dir.clone());
        templates.begin(store).await?;
        let parts = Parts {
            store: store.clone(),
            registry: registry.clone(),
            templates: templates.clone(),
            audit: audit.clone(),
            metrics: metrics.clone(),
            settings: config.environments.clone(),
            public_url: config.public_url.to_string(),
            clock: Arc::new(wall_clock),
        };
        Ok(Self { environments: Environments::open(parts).await?, templates })
    }

    /// Starts to reconcile environments. Nothing new is begun in a drain; work under way may end while there are
    /// sessions, and otherwise goes on after the next start.
    pub(super) fn execute(
        self,
        (registry, store, configs): (&Arc<Registry>, &Store, &ClusterConfigs),
        drain: &Drain,
        tasks: &Drain,
        closed: &CancellationToken,
    ) {
        tasks.spawn(self.templates.watch(store.clone(), closed.clone()));
        let (draining, closed) = (drain.draining().clone(), closed.clone());
        tasks.spawn(self.environments.run(registry.clone(), configs.changes(), draining, closed));
    }
}
