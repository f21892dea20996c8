//! Joins the parts for workspaces in CI systems: identities of their jobs, definitions to run, and the executor that
//! asks for jobs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::assemble::Base;
use super::duties::Work;
use super::{StartError, wall_clock};
use gateway_agents::identity::{AgentIdentities, CredentialRefusal};
use gateway_api::{Definitions, NoDefinition};
use gateway_ci::controller::CiController;
use gateway_ci::downloads::Downloads;
use gateway_ci::elsewhere::{self, Elsewhere};
use gateway_ci::settings::{NoDefinition as Unmade, Systems};
use gateway_config::{Ci, Config};
use gateway_replicas::duties::HeldDuty;
use gateway_store::{Duty, Incarnation, RunOwner, Store, StoreError};
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::changes::Changes;
use gateway_workspaces::idle_stops::IdleStops;
use gateway_workspaces::lifetimes::LifetimeController;
use gateway_workspaces::service::Workspaces;

/// Parts for workspaces in CI systems.
#[derive(Clone, Debug)]
pub(super) struct CiParts {
    /// Systems in which workspaces can be created.
    pub(super) systems: Option<Arc<Systems>>,
    /// Systems whose workspaces are reconciled. If CI systems were turned off while workspaces are left there, an empty
    /// set: these still have to be stopped and ended.
    watched: Option<Arc<Systems>>,
    pub(super) downloads: Arc<Downloads>,
}

impl CiParts {
    /// Opens the programs that jobs download and sets the CI systems up; no system is asked yet.
    pub(super) async fn new(config: &Config, addresses: &Addresses, store: &Store) -> Result<Self, StartError> {
        let downloads = Arc::new(Downloads::open(&config.ci.agent_files)?);
        if config.ci.enabled {
            let agents = downloads.agents(&addresses.public_url);
            let systems = Arc::new(Systems::new(&config.ci, addresses.clone(), &agents)?);
            return Ok(Self { systems: Some(systems.clone()), watched: Some(systems), downloads });
        }
        let is_left = !store.ci_revisions(None, 1).await?.is_empty();
        let watched =
            is_left.then(|| Systems::new(&Ci::default(), addresses.clone(), &[]).map(Arc::new)).transpose()?;
        Ok(Self { systems: None, watched, downloads })
    }

    /// Creates the identities of agents, those of workspaces in CI systems included.
    pub(super) fn identities(&self, config: &Config, store: &Store) -> Result<Arc<AgentIdentities>, StartError> {
        let identities = AgentIdentities::new(store.clone(), &config.auth.agents)?;
        Ok(Arc::new(match &self.watched {
            Some(_) => identities.with_runs(&config.ci)?,
            None => identities,
        }))
    }

    /// Allows workspaces to be created in CI systems.
    pub(super) fn open_for(&self, workspaces: Workspaces) -> Workspaces {
        match &self.systems {
            Some(systems) => workspaces.with_ci(systems.targets().clone()),
            None => workspaces,
        }
    }

    /// Creates the answers to jobs.
    pub(super) fn jobs(&self, identities: &Arc<AgentIdentities>, store: &Store) -> Jobs {
        Jobs { identities: identities.clone(), store: store.clone(), systems: self.systems.clone() }
    }

    /// Adds how idle workspaces are stopped, and what holds for those in CI systems.
    pub(super) fn limit(&self, timers: LifetimeController, idle: IdleStops) -> LifetimeController {
        match &self.systems {
            Some(systems) => {
                timers.with_providers(systems.limits()).with_idle(idle.with_providers(systems.idle_rules()))
            }
            None => timers.with_idle(idle),
        }
    }

    /// Returns the work of reconciling workspaces in CI systems. No new job is asked for in a drain; started work is completed.
    pub(super) fn work(&self, base: &Base, changes: &Changes, replica: Option<Incarnation>) -> Option<Work> {
        let systems = self.watched.clone()?;
        let (registry, changes, metrics) = (base.registry.clone(), changes.clone(), base.metrics.clone());
        let begin = Box::new(move |held: HeldDuty| -> BoxFuture<'static, ()> {
            let HeldDuty { store, ending, lost } = held;
            let controller = CiController::new(
                registry.clone(),
                store,
                changes.clone(),
                systems.clone(),
                metrics.clone(),
                Arc::new(wall_clock),
                replica.map(|_| Elsewhere::default()),
            );
            Box::pin(async move { lost.run_until_cancelled(controller.run(ending)).await.unwrap_or_default() })
        });
        // It is cut with all other tasks at the end.
        let (ending, stop) = (base.drain.draining().clone(), CancellationToken::new());
        Some(Work { duty: Duty::Ci, begin, ending, stop })
    }

    /// Starts to end sessions of jobs that another replica stops.
    pub(super) fn execute(&self, base: &Base, replica: Option<Incarnation>, tasks: &Drain, closed: &CancellationToken) {
        let (Some(_), Some(replica)) = (&self.watched, replica) else { return };
        let (registry, store, closed) = (base.registry.clone(), base.store.clone(), closed.clone());
        tasks.spawn(elsewhere::close_stopped(registry, store, replica, closed));
    }
}

/// Creates the definitions that jobs ask for.
#[derive(Debug)]
pub(super) struct Jobs {
    identities: Arc<AgentIdentities>,
    store: Store,
    systems: Option<Arc<Systems>>,
}

impl Jobs {
    async fn of(&self, systems: &Systems, headers: &HeaderMap) -> Result<String, NoDefinition> {
        let run = self.identities.run_of(headers).await.map_err(|refusal| refused(&refusal))?;
        self.make(systems, run).await.map_err(|error| {
            tracing::warn!(%error, "the store did not answer a job");
            NoDefinition::Unavailable
        })?
    }

    async fn make(&self, systems: &Systems, run: RunOwner) -> Result<Result<String, NoDefinition>, StoreError> {
        let Some(managed) = self.store.managed(&run.workspace).await? else {
            return Ok(Err(NoDefinition::Over("run_over")));
        };
        let id = managed.workspace.id;
        let Some(ci) = managed.ci() else { return Ok(Err(NoDefinition::Over("run_over"))) };
        let devfile = self.store.devfile_of(id).await?.unwrap_or_default();
        let variables = self.store.variables(id).await?;
        let made =
            systems.definition(&run.workspace, ci, run.number, devfile, variables, &managed.workspace.ports).await;
        Ok(made.map_err(|error| match error {
            Unmade::Interrupted => NoDefinition::Unavailable,
            Unmade::Impossible(error) => {
                tracing::warn!(workspace = %run.workspace, %error, "no definition for a job");
                NoDefinition::Broken
            }
        }))
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

/// Tells a job the reason that it gets nothing.
fn refused(refusal: &CredentialRefusal) -> NoDefinition {
    if matches!(refusal, CredentialRefusal::RunOver | CredentialRefusal::WorkspaceStopped) {
        NoDefinition::Over(refusal.code())
    } else if *refusal == CredentialRefusal::RunAwaited {
        NoDefinition::NotYet(refusal.code())
    } else if refusal.is_unchecked() {
        NoDefinition::Unavailable
    } else {
        NoDefinition::Refused(refusal.code())
    }
}
