//! Joins what workspaces in CI systems need: who their jobs are, what they are asked to run, and who asks for them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use tunnel_link::drain::Drain;

use super::{StartError, wall_clock};
use crate::api::{Definitions, NoDefinition};
use crate::config::Config;
use crate::executors::ci::downloads::Downloads;
use crate::executors::ci::driver::Driver;
use crate::executors::ci::settings::{Places, Systems};
use crate::executors::timers::Timers;
use crate::model::ProviderName;
use crate::sessions::identity::{AgentIdentities, Refusal};
use crate::sessions::registry::Registry;
use crate::store::{RunOwner, Store, StoreError};
use crate::workspaces::changes::Changes;
use crate::workspaces::ci::RunFacts;
use crate::workspaces::service::{Addresses, Workspaces};

/// What there is while workspaces may be in CI systems.
#[derive(Clone, Debug)]
pub(super) struct CiParts {
    pub(super) systems: Option<Arc<Systems>>,
    pub(super) downloads: Arc<Downloads>,
}

impl CiParts {
    /// Opens the programs that jobs download and sets the CI systems up; none is asked yet.
    pub(super) fn new(config: &Config, addresses: &Addresses) -> Result<Self, StartError> {
        let downloads = Arc::new(Downloads::open(&config.ci.agent_files)?);
        if !config.ci.enabled {
            return Ok(Self { systems: None, downloads });
        }
        let Addresses { zone, public_url, agents_url } = addresses.clone();
        let agents = downloads.agents(&public_url);
        let systems = Systems::new(&config.ci, Places { zone, public_url, agents_url }, &agents)?;
        Ok(Self { systems: Some(Arc::new(systems)), downloads })
    }

    /// Lets workspaces be made there.
    pub(super) fn open_for(&self, workspaces: Workspaces) -> Workspaces {
        match &self.systems {
            Some(systems) => workspaces.with_ci(systems.targets().clone()),
            None => workspaces,
        }
    }

    /// Makes what answers jobs there.
    pub(super) fn jobs(&self, identities: &Arc<AgentIdentities>, store: &Store) -> Jobs {
        Jobs { identities: identities.clone(), store: store.clone(), systems: self.systems.clone() }
    }

    /// Adds how long workspaces may be what they are there.
    pub(super) fn limit(&self, timers: Timers) -> Timers {
        match &self.systems {
            Some(systems) => timers.with_providers(systems.limits()),
            None => timers,
        }
    }

    /// Starts to look after workspaces there. Nothing new is asked for in a drain; what was begun is brought to its end.
    pub(super) fn execute(
        &self,
        registry: &Arc<Registry>,
        store: &Store,
        changes: &Changes,
        drain: &Drain,
        tasks: &Drain,
    ) {
        let Some(systems) = &self.systems else { return };
        let driver =
            Driver::new(registry.clone(), store.clone(), changes.clone(), systems.clone(), Arc::new(wall_clock));
        tasks.spawn(driver.run(drain.draining().clone()));
    }
}

/// Makes the definitions that jobs ask for.
#[derive(Debug)]
pub(super) struct Jobs {
    identities: Arc<AgentIdentities>,
    store: Store,
    systems: Option<Arc<Systems>>,
}

impl Jobs {
    async fn of(&self, systems: &Systems, headers: &HeaderMap) -> Result<String, NoDefinition> {
        let (provider, run) = self.identities.run_of(headers).await.map_err(|refusal| refused(&refusal))?;
        self.make(systems, provider, run).await.map_err(|error| {
            tracing::warn!(%error, "the store did not answer a job");
            NoDefinition::Unavailable
        })?
    }

    async fn make(
        &self,
        systems: &Systems,
        provider: ProviderName,
        run: RunOwner,
    ) -> Result<Result<String, NoDefinition>, StoreError> {
        let Some(managed) = self.store.managed(&run.workspace).await? else {
            return Ok(Err(NoDefinition::Over("run_over")));
        };
        let id = managed.workspace.id;
        let Some(ci) = managed.ci().cloned() else { return Ok(Err(NoDefinition::Over("run_over"))) };
        let devfile = self.store.devfile_of(id).await?.unwrap_or_default();
        let (variables, targets) = (self.store.variables(id).await?, systems.targets().clone());
        let work = move || {
            let facts = RunFacts {
                workspace: &run.workspace,
                run: run.number,
                cache_key: &ci.cache_key,
                devfile: devfile.as_bytes(),
                project: ci.project.as_ref(),
                tags: &ci.tags,
                variables: &variables,
            };
            targets.definition(&provider, &facts).map_err(|error| {
                tracing::warn!(workspace = %run.workspace, %error, "a job gets no definition");
                NoDefinition::Broken
            })
        };
        Ok(tokio::task::spawn_blocking(work).await.unwrap_or(Err(NoDefinition::Unavailable)))
    }
}

impl Definitions for Jobs {
    fn definition<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<String, NoDefinition>> {
        Box::pin(async move {
            match &self.systems {
                Some(systems) => self.of(systems, headers).await,
                None => Err(NoDefinition::Disabled),
            }
        })
    }
}

/// Tells a job why it gets nothing.
fn refused(refusal: &Refusal) -> NoDefinition {
    if matches!(refusal, Refusal::RunOver | Refusal::WorkspaceStopped) {
        NoDefinition::Over(refusal.code())
    } else if refusal.is_unchecked() {
        NoDefinition::Unavailable
    } else {
        NoDefinition::Refused(refusal.code())
    }
}
