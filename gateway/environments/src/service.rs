//! Environments of CI jobs: takes the requests of jobs and operators, and answers questions about environments.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::call::{Calls, Sessions};
use super::cluster_permits::ClusterPermits;
use super::controller::{Outside, Wakes};
use super::elsewhere::OwnChanges;
use super::files::{NoTemplate, TemplateFiles};
use super::on_record::OnRecord;
use super::policy::{AccessPolicy, AccessVerdict, AllowedCluster};
use super::progress::{AwaitedEnd, Broadcaster, EnvironmentEvent, PreparationOutcome, ProgressStream};
use super::record::{self, Environment, FinalFailure};
use super::refusal::{EnvironmentRefusal, RefusalCode, RefusalProblem};
#[cfg(test)]
use super::request::By;
use super::request::{JobRequest, Met, Unmet};
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Text};
use gateway_net::telemetry::Metrics;
use gateway_store::{
    EnvironmentFilter, EnvironmentId, EnvironmentState, ForgottenEnvironment, PreparationStatus, StateSet, Store,
    StoreError, StoredEnvironment,
};
use gateway_types::{Clock, ClusterName, UnixSeconds, UserName};
use workspace_spec::environment::facts::{AgentFacts, TemplateVars};
use workspace_spec::environment::template::{RenderedTemplate, Template, TemplateName};

mod ending;
mod may;
mod prepare;
mod templates;

pub use may::JudgedRequest;
pub use prepare::ObjectSource;

use may::JobVerdict;

/// Desired state of an environment.
pub type DesiredEnvironment = EnvironmentState;

/// Dependencies of the environments.
pub struct EnvironmentsParts {
    /// Storage of the environments.
    pub store: Store,
    /// The agents that have a session.
    pub registry: Arc<Registry>,
    /// Other replicas, which have the sessions of other agents.
    pub peers: MaybePeers,
    /// The clusters' templates.
    pub templates: Arc<TemplateFiles>,
    /// Audit log of the requests.
    pub audit: Audit,
    /// Counters.
    pub metrics: Metrics,
    /// Settings of the operator.
    pub settings: gateway_config::Environments,
    /// URL under which users reach the gateway.
    pub public_url: String,
    /// Clock.
    pub clock: Clock,
}

/// The environments of all clusters. Clones share them.
#[derive(Clone)]
pub struct Environments {
    inner: Arc<EnvironmentsShared>,
}

/// Shared state of all clones. A clone of it differs in the store that it writes to, and in nothing else.
#[derive(Clone)]
pub(super) struct EnvironmentsShared {
    pub(super) store: Store,
    pub(super) access: Arc<AccessPolicy>,
    pub(super) hub: Arc<Broadcaster>,
    pub(super) wakes: Arc<Wakes>,
    pub(super) own: Arc<OwnChanges>,
    pub(super) permits: Arc<Mutex<ClusterPermits>>,
    pub(super) calls: Arc<dyn Calls>,
    pub(super) audit: Audit,
    pub(super) metrics: Metrics,
    templates: Arc<TemplateFiles>,
    settings: gateway_config::Environments,
    public_url: String,
    clock: Clock,
}

impl fmt::Debug for Environments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Environments").finish_non_exhaustive()
    }
}

/// Filter of a list of environments. Fields that are `None` match everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those of a cluster.
    pub agent: Option<ClusterName>,
    /// Only those of a project.
    pub project_id: Option<u64>,
    /// Only those in this state.
    pub state: Option<EnvironmentState>,
}

impl EnvironmentsShared {
    pub(super) fn now(&self) -> UnixSeconds {
        (self.clock)()
    }
}

impl Environments {
    /// Reads the configurations of clusters and the prepared jobs. Nothing is carried out before [`Environments::run`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(parts: EnvironmentsParts) -> Result<Self, StoreError> {
        let calls = Sessions { registry: parts.registry.clone(), peers: parts.peers.clone() };
        Self::open_with(parts, Box::new(calls)).await
    }

    pub(super) async fn open_with(parts: EnvironmentsParts, calls: Box<dyn Calls>) -> Result<Self, StoreError> {
        let EnvironmentsParts { store, registry: _, peers: _, templates, audit, metrics, settings, public_url, clock } =
            parts;
        let access = Arc::new(AccessPolicy::default());
        access.read(&store, clock()).await?;
        access.remember(&store).await?;
        let (hub, wakes, permits) = Default::default();
        let inner = EnvironmentsShared {
            store,
            access,
            hub,
            wakes,
            own: Arc::default(),
            permits,
            calls: calls.into(),
            audit,
            metrics,
            templates,
            settings,
            public_url,
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the same environments, for a controller whose writes go to another handle of the store.
    #[must_use]
    pub fn writing_to(&self, store: Store) -> Self {
        Self { inner: Arc::new(EnvironmentsShared { store, ..(*self.inner).clone() }) }
    }

    /// Keeps what clusters allow to jobs up to date until `stop`, also while another process carries requests out.
    pub async fn keep_access(self, configs: tokio::sync::watch::Receiver<u64>, stop: CancellationToken) {
        self.inner.keep_access(configs, stop).await;
    }

    /// Carries out requests until `draining`; those under way then go on until `stop`.
    pub async fn run(
        self,
        registry: Arc<Registry>,
        configs: tokio::sync::watch::Receiver<u64>,
        draining: CancellationToken,
        stop: CancellationToken,
    ) {
        let outside = Outside { arrivals: registry.arrivals(), registry, configs, draining, stop };
        self.inner.run(outside).await;
    }

    /// Returns the operator's settings.
    #[must_use]
    pub fn settings(&self) -> &gateway_config::Environments {
        &self.inner.settings
    }

    /// Returns whether a user is an operator, who may do anything with every environment.
    #[must_use]
    pub fn is_operator(&self, user: &UserName) -> bool {
        self.inner.settings.operators.contains(user)
    }

    /// Returns whether something has to be made before a job runs. Answered from memory, without waiting and without
    /// writing.
    #[must_use]
    pub fn unmet(&self, request: &JobRequest) -> Unmet {
        let answer = self.inner.access.unmet(request);
        self.inner.metrics.environment_unmet(answer == Unmet::Unmet);
        answer
    }

    /// Prepares a job's environment at the request of the job itself: see [`Environments::complete_by`].
    #[cfg(test)]
    pub(crate) async fn complete(&self, request: JobRequest) -> Result<ProgressStream, EnvironmentRefusal> {
        let by = request.job.by();
        self.complete_by(self.judge(request)?, by).await
    }

    /// Prepares a job's environment. Done once for each job, however often and by however many callers it is requested;
    /// a preparation under way goes on once no caller waits for it any more.
    ///
    /// # Errors
    /// [`EnvironmentRefusal`]; then nothing was done.
    pub async fn complete_by(
        &self,
        judged: JudgedRequest,
        by: impl Into<OnRecord> + Send,
    ) -> Result<ProgressStream, EnvironmentRefusal> {
        let JudgedRequest { request, verdict } = judged;
        match verdict {
            JobVerdict::Met(Met::NoEnvironment) => Err(RefusalCode::NoEnvironment.into()),
            JobVerdict::Met(met @ (Met::Disabled | Met::NotAStart | Met::NotEnabled | Met::Completed)) => {
                Ok(ProgressStream::ended(PreparationOutcome::nothing(met)))
            }
            // Includes requests that were carried out before: the store knows their outcome.
            JobVerdict::AllowedCluster(allowed) => self.prepare_job(&allowed, &request, by.into()).await,
        }
    }

    /// Prepares an environment from a template, with facts that an operator gives. The gateway replaces the facts that
    /// it knows itself: the numbers of agent and environment, and the URLs of their pages.
    ///
    /// # Errors
    /// [`EnvironmentRefusal`]; then nothing was done.
    pub async fn ensure(
        &self,
        agent: &ClusterName,
        source: impl Into<ObjectSource> + Send,
        info: TemplateVars,
        by: impl Into<OnRecord> + Send,
    ) -> Result<ProgressStream, EnvironmentRefusal> {
        self.prepare_as_told(agent, source.into(), info, by.into()).await
    }

    /// Returns the environment of a project on a cluster that has this name.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], [`RefusalCode::NoSuchEnvironment`], or no store.
    pub async fn find(
        &self,
        agent: &ClusterName,
        project_id: u64,
        name: &str,
    ) -> Result<Environment, EnvironmentRefusal> {
        let cluster = self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        let slug = workspace_spec::environment::slug::environment_slug(name);
        let found = self.inner.store.environment_of(cluster, project_id, &slug).await?;
        self.shown(found.filter(|found| found.name == name).ok_or(RefusalCode::NoSuchEnvironment)?).await
    }

    /// Returns an environment.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchEnvironment`], or no store.
    pub async fn get(&self, id: u64) -> Result<Environment, EnvironmentRefusal> {
        let found = self.inner.store.environment(EnvironmentId::new(id)).await?;
        self.shown(found.ok_or(RefusalCode::NoSuchEnvironment)?).await
    }

    /// Returns up to `limit` environments behind `after`, by number.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], or no store.
    pub async fn list(
        &self,
        filter: &Filter,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Environment>, EnvironmentRefusal> {
        let cluster = match &filter.agent {
            Some(agent) => Some(self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?),
            None => None,
        };
        let filter = EnvironmentFilter { cluster, project_id: filter.project_id, state: filter.state };
        let found = self.inner.store.environments(filter, after.map(EnvironmentId::new), limit).await?;
        let mut shown = Vec::with_capacity(found.len());
        for environment in found {
            shown.push(self.shown(environment).await?);
        }
        Ok(shown)
    }

    /// Follows an environment until nothing is under way any more.
    #[must_use]
    pub fn follow(&self, id: u64) -> ProgressStream {
        ProgressStream::new(self, EnvironmentId::new(id), AwaitedEnd::Everything)
    }

    /// Follows an environment until none of its objects has to be removed any more, whatever else is under way.
    #[must_use]
    pub fn follow_removal(&self, id: u64) -> ProgressStream {
        ProgressStream::new(self, EnvironmentId::new(id), AwaitedEnd::Removal)
    }

    /// Returns the facts of an agent that templates may use.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`].
    pub fn agent(&self, agent: &ClusterName) -> Result<AgentFacts, EnvironmentRefusal> {
        let id = self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?.get();
        let url = format!("{}/api/v1/agents/{agent}", self.inner.public_url.trim_end_matches('/'));
        Ok(AgentFacts { id, name: agent.to_string(), url })
    }

    /// Returns the URL of an environment's page.
    #[must_use]
    pub fn page_url(&self, id: u64) -> String {
        record::page_url(&self.inner.public_url, id)
    }

    /// Returns a cluster's template.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], [`RefusalCode::NoSuchTemplate`] or [`RefusalCode::TemplateInvalid`].
    pub fn template(&self, agent: &ClusterName, name: &TemplateName) -> Result<Arc<Template>, EnvironmentRefusal> {
        self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        self.inner.templates.get(agent, name).map_err(|none| match none {
            NoTemplate::NotFound => RefusalCode::NoSuchTemplate.into(),
            NoTemplate::Invalid(problems) => EnvironmentRefusal::template(&problems),
        })
    }

    /// Returns the template of clusters that have no `default` of their own.
    #[must_use]
    pub fn default_template(&self) -> Arc<Template> {
        self.inner.templates.built_in().clone()
    }

    /// Returns the names of a cluster's templates.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`].
    pub fn templates(&self, agent: &ClusterName) -> Result<Vec<TemplateName>, EnvironmentRefusal> {
        self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        Ok(self.inner.templates.names(agent))
    }

    /// Fills facts into a template.
    ///
    /// # Errors
    /// [`RefusalCode::FactsInvalid`] or [`RefusalCode::TemplateInvalid`].
    pub fn render(&self, template: &Template, info: &TemplateVars) -> Result<RenderedTemplate, EnvironmentRefusal> {
        prepare::check_facts(info)?;
        prepare::fill(template, info)
    }

    pub(super) fn shared(&self) -> &EnvironmentsShared {
        &self.inner
    }

    pub(super) fn hub(&self) -> &Broadcaster {
        &self.inner.hub
    }

    /// Returns the outcome of the awaited end, if it has come. A store that does not answer counts as not yet.
    pub(super) async fn outcome(&self, id: EnvironmentId, awaited: AwaitedEnd) -> Option<PreparationOutcome> {
        let told = async {
            // The end is read first, so that the environment read after it includes its effects.
            let Some(failure) = self.ended(id, awaited).await? else { return Ok(None) };
            match self.inner.store.environment(id).await? {
                Some(stored) if awaited == AwaitedEnd::Removal && stored.is_removal_due => Ok(None),
                Some(stored) => {
                    let environment = Some(Box::new(self.shown(stored).await?));
                    Ok(Some(PreparationOutcome { failure, met: None, environment }))
                }
                None => {
                    let failure = Some(prepare::failure(RefusalCode::NoSuchEnvironment));
                    Ok(Some(PreparationOutcome { failure, met: None, environment: None }))
                }
            }
        };
        told.await.unwrap_or_else(|refusal: EnvironmentRefusal| {
            tracing::debug!(%refusal, "the store did not say how an environment is");
            None
        })
    }

    /// Returns the awaited end, once it has come: the failure, or `None` for success.
    async fn ended(&self, id: EnvironmentId, awaited: AwaitedEnd) -> Result<Option<Option<FinalFailure>>, StoreError> {
        let store = &self.inner.store;
        Ok(match awaited {
            AwaitedEnd::Preparation(preparation, job) => {
                let found = match (store.preparation(preparation).await?, job) {
                    // It failed for a moment, and was asked for anew meanwhile: of a job there is one.
                    (None, Some(job)) => store.preparation_of(id, job).await?,
                    (found, _) => found,
                };
                match found {
                    Some(ended) if ended.status == PreparationStatus::Preparing => None,
                    Some(ended) => Some(record::failure_of(&ended)),
                    // It ended so long ago that its record was deleted.
                    None => Some(Some(prepare::failure(RefusalCode::EnvironmentBusy))),
                }
            }
            AwaitedEnd::Removal => Some(None),
            AwaitedEnd::Everything => {
                let stored = store.environment(id).await?;
                if stored.as_ref().is_some_and(|stored| stored.is_removal_due) {
                    return Ok(None);
                }
                match store.last_preparation(id).await? {
                    Some(last) if last.status == PreparationStatus::Preparing => None,
                    last => {
                        let is_there = |_: &_| stored.is_some_and(|one| one.state == EnvironmentState::Available);
                        Some(last.filter(is_there).as_ref().and_then(record::failure_of))
                    }
                }
            }
        })
    }

    async fn shown(&self, stored: StoredEnvironment) -> Result<Environment, EnvironmentRefusal> {
        let agent = self.inner.agent_of(&stored).await?;
        Ok(Environment::of(stored, agent, &self.inner.public_url))
    }

    /// Records a change in the audit log, and wakes the controller and the followers.
    fn told(&self, changed: &StoredEnvironment, how: &'static str, by: OnRecord) {
        let event = AuditEvent::EnvironmentChanged {
            by: by.by().actor(),
            environment: Text::of(changed.id),
            project: Text::new(&changed.project_path),
            name: Text::new(&changed.name),
            how,
        };
        by.record(AuditRecord::new(event));
        self.inner.wake(changed.id);
        self.inner.tell(changed.id, super::progress::Notification::Settled);
    }
}

/// Returns the first event for callers that wait for an environment whose objects are being removed.
fn first_word(environment: &StoredEnvironment) -> Option<EnvironmentEvent> {
    environment.is_removal_due.then_some(EnvironmentEvent::Waiting { why: "removal" })
}

#[cfg(test)]
mod tests;
