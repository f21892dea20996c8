//! Joins the parts for environments of CI jobs: their store, their clusters' templates, and the task that reconciles
//! them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::assemble::Base;
use super::wall_clock;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_config::Config;
use gateway_environments::files::TemplateFiles;
use gateway_environments::service::{Environments, EnvironmentsParts};
use gateway_store::{Store, StoreError};
use gateway_workspaces::cluster_configs::ClusterConfigs;

/// Environments and their templates.
#[derive(Clone, Debug)]
pub(super) struct EnvironmentParts {
    pub(super) environments: Environments,
    templates: Arc<TemplateFiles>,
}

impl EnvironmentParts {
    /// Reads templates and stored environments; nothing is reconciled yet.
    pub(super) async fn open(config: &Config, base: &Base, peers: MaybePeers) -> Result<Self, StoreError> {
        let templates = TemplateFiles::new(config.agents_dir.clone());
        templates.begin(&base.store).await?;
        let parts = EnvironmentsParts {
            store: base.store.clone(),
            registry: base.registry.clone(),
            peers,
            templates: templates.clone(),
            audit: base.audit.clone(),
            metrics: base.metrics.clone(),
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
        registry: Arc<Registry>,
        store: Store,
        configs: &ClusterConfigs,
        drain: &Drain,
        tasks: &Drain,
        closed: &CancellationToken,
    ) {
        tasks.spawn(self.templates.watch(store, closed.clone()));
        let (draining, closed) = (drain.draining().clone(), closed.clone());
        tasks.spawn(self.environments.run(registry, configs.changes(), draining, closed));
    }
}
