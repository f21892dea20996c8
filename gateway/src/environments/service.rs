//! Environments of CI jobs: what jobs and operators ask for, and what is known of it (design, section 6.5).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Allowed, Verdict};
use super::call::{Calls, Sessions};
use super::driver::{Outside, Wakes};
use super::facts::{AgentFacts, Info};
use super::files::{NoTemplate, TemplateFiles};
use super::following::{Awaited, Event, Following, Hub, Outcome};
use super::on_record::OnRecord;
use super::record::{self, Environment, Failure};
use super::refusal::{Refusal, RefusalCode, RefusalProblem};
#[cfg(test)]
use super::request::By;
use super::request::{JobRequest, Met, Unmet};
use super::seats::Seats;
use super::template::{Rendered, Template, TemplateName};
use crate::audit::{Audit, Event as AuditEvent, Record, Text};
use crate::config;
use crate::model::{ClusterName, UnixSeconds, UserName};
use crate::sessions::registry::Registry;
use crate::store::{
    EnvironmentFilter, EnvironmentId, EnvironmentState, Forgotten, PreparationStatus, StateSet, Store, StoreError,
    StoredEnvironment,
};
use crate::telemetry::Metrics;

mod ending;
mod may;
mod prepare;
mod templates;

pub use prepare::Source;

/// The wall clock, as an argument: tests turn it.
pub type Clock = Arc<dyn Fn() -> UnixSeconds + Send + Sync>;

/// What an environment can be asked to be.
pub type Wanted = EnvironmentState;

/// What environments need.
pub struct Parts {
    /// Where they are kept.
    pub store: Store,
    /// The agents that have a session.
    pub registry: Arc<Registry>,
    /// The clusters' templates.
    pub templates: Arc<TemplateFiles>,
    /// Who asks for what.
    pub audit: Audit,
    /// Counters.
    pub metrics: Metrics,
    /// What the operator decided.
    pub settings: config::Environments,
    /// Where the gateway is for people.
    pub public_url: String,
    /// What time it is.
    pub clock: Clock,
}

/// The environments of all clusters. Clones share them.
#[derive(Clone)]
pub struct Environments {
    inner: Arc<Inner>,
}

/// What they share.
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) access: Access,
    pub(super) hub: Hub,
    pub(super) wakes: Wakes,
    pub(super) seats: Mutex<Seats>,
    pub(super) calls: Box<dyn Calls>,
    pub(super) audit: Audit,
    pub(super) metrics: Metrics,
    templates: Arc<TemplateFiles>,
    settings: config::Environments,
    public_url: String,
    clock: Clock,
}

impl fmt::Debug for Environments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Environments").finish_non_exhaustive()
    }
}

/// Which environments are listed. What is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those of a cluster.
    pub agent: Option<ClusterName>,
    /// Those of a project.
    pub project_id: Option<u64>,
    /// Those that are so.
    pub state: Option<EnvironmentState>,
}

impl Inner {
    pub(super) fn now(&self) -> UnixSeconds {
        (self.clock)()
    }
}

impl Environments {
    /// Reads what is known of clusters and of jobs that were prepared. Nothing is carried out before [`Environments::run`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(parts: Parts) -> Result<Self, StoreError> {
        let calls = Sessions { registry: parts.registry.clone() };
        Self::open_with(parts, Box::new(calls)).await
    }

    pub(super) async fn open_with(parts: Parts, calls: Box<dyn Calls>) -> Result<Self, StoreError> {
        let Parts { store, registry: _, templates, audit, metrics, settings, public_url, clock } = parts;
        let access = Access::default();
        access.read(&store, clock()).await?;
        access.remember(&store).await?;
        let (hub, wakes, seats) = (Hub::default(), Wakes::default(), Mutex::default());
        let inner =
            Inner { store, access, hub, wakes, seats, calls, audit, metrics, templates, settings, public_url, clock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Carries out what is asked for, until `draining`; what is under way then goes on until `stop`.
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

    /// Returns what the operator decided.
    #[must_use]
    pub fn settings(&self) -> &config::Environments {
        &self.inner.settings
    }

    /// Returns whether a user may do with every environment what they want.
    #[must_use]
    pub fn is_operator(&self, user: &UserName) -> bool {
        self.inner.settings.operators.contains(user)
    }

    /// Tells whether something has to be made before a job runs. Answered from memory: it asks nobody, waits for nothing and
    /// writes nothing.
    #[must_use]
    pub fn unmet(&self, request: &JobRequest) -> Unmet {
        let answer = self.inner.access.unmet(request);
        self.inner.metrics.environment_unmet(answer == Unmet::Unmet);
        answer
    }

    /// Has a job's environment be what the job needs, as the job itself asks for it: see [`Environments::complete_by`].
    #[cfg(test)]
    pub(crate) async fn complete(&self, request: JobRequest) -> Result<Following, Refusal> {
        let by = request.job.by();
        self.complete_by(request, by).await
    }

    /// Has a job's environment be what the job needs. Once for each job, however often it is asked for and by how many; what
    /// was begun goes on when nobody waits for it any more.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing was done.
    pub async fn complete_by(&self, request: JobRequest, by: impl Into<OnRecord> + Send) -> Result<Following, Refusal> {
        match self.inner.access.verdict(&request) {
            Verdict::Met(Met::NoEnvironment) => Err(RefusalCode::NoEnvironment.into()),
            Verdict::Met(met @ (Met::Disabled | Met::NotAStart | Met::NotEnabled | Met::Completed)) => {
                Ok(Following::ended(Outcome::nothing(met)))
            }
            Verdict::Refused(code) => Err(code.into()),
            // Also what was done before: the store knows what became of that.
            Verdict::Allowed(allowed) => self.prepare_job(&allowed, &request, by.into()).await,
        }
    }

    /// Has an environment be what a template says, with facts that an operator gives. What of them the gateway knows itself
    /// counts: the numbers of agent and environment, and where they are shown.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing was done.
    pub async fn ensure(
        &self,
        agent: &ClusterName,
        source: impl Into<Source> + Send,
        info: Info,
        by: impl Into<OnRecord> + Send,
    ) -> Result<Following, Refusal> {
        self.prepare_as_told(agent, source.into(), info, by.into()).await
    }

    /// Returns the environment of a project on a cluster that has this name.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], [`RefusalCode::NoSuchEnvironment`], or no store.
    pub async fn find(&self, agent: &ClusterName, project_id: u64, name: &str) -> Result<Environment, Refusal> {
        let cluster = self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        let slug = super::slug::environment_slug(name);
        let found = self.inner.store.environment_of(cluster, project_id, &slug).await?;
        self.shown(found.filter(|found| found.name == name).ok_or(RefusalCode::NoSuchEnvironment)?).await
    }

    /// Returns an environment.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchEnvironment`], or no store.
    pub async fn get(&self, id: u64) -> Result<Environment, Refusal> {
        let found = self.inner.store.environment(EnvironmentId::new(id)).await?;
        self.shown(found.ok_or(RefusalCode::NoSuchEnvironment)?).await
    }

    /// Returns up to `limit` environments behind `after`, by number.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], or no store.
    pub async fn list(&self, filter: &Filter, after: Option<u64>, limit: u32) -> Result<Vec<Environment>, Refusal> {
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
    pub fn follow(&self, id: u64) -> Following {
        Following::new(self, EnvironmentId::new(id), Awaited::Everything)
    }

    /// Follows an environment until nothing of it has to go any more, whatever else is under way.
    #[must_use]
    pub fn follow_removal(&self, id: u64) -> Following {
        Following::new(self, EnvironmentId::new(id), Awaited::Removal)
    }

    /// Returns what templates can say of an agent.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`].
    pub fn agent(&self, agent: &ClusterName) -> Result<AgentFacts, Refusal> {
        let id = self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?.get();
        let url = format!("{}/api/v1/agents/{agent}", self.inner.public_url.trim_end_matches('/'));
        Ok(AgentFacts { id, name: agent.to_string(), url })
    }

    /// Returns where an environment is shown.
    #[must_use]
    pub fn page_url(&self, id: u64) -> String {
        record::page_url(&self.inner.public_url, id)
    }

    /// Returns a cluster's template.
    ///
    /// # Errors
    /// [`RefusalCode::NoSuchAgent`], [`RefusalCode::NoSuchTemplate`] or [`RefusalCode::TemplateInvalid`].
    pub fn template(&self, agent: &ClusterName, name: &TemplateName) -> Result<Arc<Template>, Refusal> {
        self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        self.inner.templates.get(agent, name).map_err(|none| match none {
            NoTemplate::NotFound => RefusalCode::NoSuchTemplate.into(),
            NoTemplate::Invalid(problems) => Refusal::template(&problems),
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
    pub fn templates(&self, agent: &ClusterName) -> Result<Vec<TemplateName>, Refusal> {
        self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        Ok(self.inner.templates.names(agent))
    }

    /// Fills facts into a template.
    ///
    /// # Errors
    /// [`RefusalCode::FactsInvalid`] or [`RefusalCode::TemplateInvalid`].
    pub fn render(&self, template: &Template, info: &Info) -> Result<Rendered, Refusal> {
        prepare::check_facts(info)?;
        template.render(info).map_err(|problems| Refusal::template(&problems))
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Returns how something ended, if it has. A store that does not answer says nothing yet.
    pub(super) async fn outcome(&self, id: EnvironmentId, awaited: Awaited) -> Option<Outcome> {
        let told = async {
            // The end first: the environment that is read after it has what came of it.
            let Some(failure) = self.ended(id, awaited).await? else { return Ok(None) };
            match self.inner.store.environment(id).await? {
                Some(stored) if awaited == Awaited::Removal && stored.is_removal_due => Ok(None),
                Some(stored) => {
                    let environment = Some(Box::new(self.shown(stored).await?));
                    Ok(Some(Outcome { failure, met: None, environment }))
                }
                None => {
                    let failure = Some(prepare::failure(RefusalCode::NoSuchEnvironment));
                    Ok(Some(Outcome { failure, met: None, environment: None }))
                }
            }
        };
        told.await.unwrap_or_else(|refusal: Refusal| {
            tracing::debug!(%refusal, "the store did not say how an environment is");
            None
        })
    }

    /// Returns why what is awaited failed, or that it did not, once it has ended.
    async fn ended(&self, id: EnvironmentId, awaited: Awaited) -> Result<Option<Option<Failure>>, StoreError> {
        let store = &self.inner.store;
        Ok(match awaited {
            Awaited::Preparation(preparation, job) => {
                let found = match (store.preparation(preparation).await?, job) {
                    // It failed for a moment, and was asked for anew meanwhile: of a job there is one.
                    (None, Some(job)) => store.preparation_of(id, job).await?,
                    (found, _) => found,
                };
                match found {
                    Some(ended) if ended.status == PreparationStatus::Preparing => None,
                    Some(ended) => Some(record::failure_of(&ended)),
                    // It ended so long ago that nobody knows how.
                    None => Some(Some(prepare::failure(RefusalCode::EnvironmentBusy))),
                }
            }
            Awaited::Removal => Some(None),
            Awaited::Everything => {
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

    async fn shown(&self, stored: StoredEnvironment) -> Result<Environment, Refusal> {
        let agent = self.inner.agent_of(&stored).await?;
        Ok(Environment::of(stored, agent, &self.inner.public_url))
    }

    /// Notes who changed what, and has it carried out.
    fn told(&self, changed: &StoredEnvironment, how: &'static str, by: OnRecord) {
        let event = AuditEvent::EnvironmentChanged {
            by: by.by().actor(),
            environment: Text::of(changed.id),
            project: Text::new(&changed.project_path),
            name: Text::new(&changed.name),
            how,
        };
        by.record(Record::new(event));
        self.inner.wakes.wake(changed.id);
        self.inner.hub.tell(changed.id, super::following::Told::Settled);
    }
}

/// Returns what those are told first who wait for an environment with much to do.
fn first_word(environment: &StoredEnvironment) -> Option<Event> {
    environment.is_removal_due.then_some(Event::Waiting { why: "removal" })
}

#[cfg(test)]
mod tests;
