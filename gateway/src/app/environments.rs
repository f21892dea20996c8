//! Joins the parts for environments of CI jobs: their store, their clusters' templates, and the task that reconciles
//! them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::assemble::Base;
use super::duties::Work;
use super::wall_clock;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_config::Config;
use gateway_environments::files::TemplateFiles;
use gateway_environments::service::{Environments, EnvironmentsParts};
use gateway_replicas::duties::HeldDuty;
use gateway_store::{Duty, Incarnation, Store, StoreError};
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

    /// Starts to read templates, and, among replicas, the rights of CI jobs, which every one of them answers for.
    pub(super) fn execute(
        &self,
        store: &Store,
        configs: &ClusterConfigs,
        replica: Option<Incarnation>,
        tasks: &Drain,
        closed: &CancellationToken,
    ) {
        tasks.spawn(self.templates.clone().watch(store.clone(), closed.clone()));
        if replica.is_some() {
            tasks.spawn(self.environments.clone().keep_access(configs.changes(), closed.clone()));
        }
    }

    /// Returns the work of reconciling environments. Nothing new is begun in a drain; work under way may end while there are
    /// sessions, and otherwise goes on after the next start, or at another replica.
    pub(super) fn work(
        &self,
        registry: Arc<Registry>,
        configs: Arc<ClusterConfigs>,
        drain: &Drain,
        closed: &CancellationToken,
    ) -> Work {
        let environments = self.environments.clone();
        let begin = Box::new(move |held: HeldDuty| -> BoxFuture<'static, ()> {
            let HeldDuty { store, ending, lost } = held;
            let environments = environments.writing_to(store);
            Box::pin(environments.run(registry.clone(), configs.changes(), ending, lost))
        });
        let (ending, stop) = (drain.draining().clone(), closed.clone());
        Work { duty: Duty::Environments, begin, ending, stop }
    }
}
