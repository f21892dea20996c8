//! Turns requests into stored preparations: facts, template, manifest. Nothing is asked of the cluster here.

use super::super::record::{FinalFailure, kept_of, objects_to};
use super::*;
use crate::identity;
use tunnel_proto::environments::{INVENTORY_PREFIX, OBJECTS_BYTES_MAX};
use workspace_spec::environment::facts::{
    FactProblem, NumberedFacts, ProjectFacts, TemplateVars, UnrecordedFacts, UserFacts,
};
use workspace_spec::environment::manifest::{Border, Manifest, RefusedCode, manifest};
use workspace_spec::environment::slug::{environment_slug, path_slug};

use gateway_store::{ClusterId, NewEnvironment, NewPreparation};
use gateway_types::token::random_key;
use workspace_spec::cluster_config::{AccessAs, AccessEntry};

/// Annotation that names the inventory which owns an object (cli-utils, `config.k8s.io/owning-inventory`).
const OWNER_ANNOTATION: &str = "config.k8s.io/owning-inventory";

/// Random bytes of an inventory's name.
const INVENTORY_BYTES: usize = 4;

/// Source of an environment's objects.
#[derive(Clone, Debug)]
pub enum ObjectSource {
    /// Objects that the caller has rendered.
    Rendered(RenderedTemplate),
    /// A template, filled in with the gateway's facts, also those known only once the environment is recorded.
    Template(Arc<Template>),
}

impl From<RenderedTemplate> for ObjectSource {
    fn from(rendered: RenderedTemplate) -> Self {
        Self::Rendered(rendered)
    }
}

/// A preparation to be stored.
struct StoredPreparation<'a> {
    environment: &'a StoredEnvironment,
    rendered: &'a RenderedTemplate,
    info: &'a TemplateVars,
    /// Access entry of the project; an operator needs none.
    entry: Option<&'a AccessEntry>,
    /// Namespaces on the cluster that others may share.
    default_namespaces: &'a [String],
    /// Job of the preparation, if a job asks.
    job: Option<u64>,
    by: OnRecord,
}

impl Environments {
    /// Prepares a job's environment, or follows the preparation that was made before.
    pub(super) async fn prepare_job(
        &self,
        allowed: &AllowedCluster,
        request: &JobRequest,
        by: OnRecord,
    ) -> Result<ProgressStream, EnvironmentRefusal> {
        let facts = self.facts_of(request)?;
        facts.validate().map_err(|problems| facts_invalid(&problems))?;
        let environment = self.ensured(allowed.cluster, &facts).await?;
        let job = request.job.job_id;
        if let Some(known) = self.inner.store.preparation_of(environment.id, job).await?
            && !is_of_the_moment(&known)
        {
            let awaited = AwaitedEnd::Preparation(known.id, known.job);
            return Ok(ProgressStream::new(self, environment.id, awaited).beginning(first_word(&environment)));
        }
        let info = self.recorded(facts, &environment);
        let named = request.template.clone().unwrap_or_else(TemplateName::default_one);
        let template = self.template(&request.agent, &named)?;
        let rendered = &fill(&template, &info)?;
        let (environment, info, entry, job) = (&environment, &info, Some(&allowed.entry), Some(job));
        let default_namespaces = &allowed.default_namespaces;
        self.prepare(StoredPreparation { environment, rendered, info, entry, default_namespaces, job, by }).await
    }

    /// Prepares an environment at the request of an operator.
    pub(super) async fn prepare_as_told(
        &self,
        agent: &ClusterName,
        source: ObjectSource,
        mut info: TemplateVars,
        by: OnRecord,
    ) -> Result<ProgressStream, EnvironmentRefusal> {
        let cluster = self.inner.access.cluster(agent).ok_or(RefusalCode::NoSuchAgent)?;
        info.agent = self.agent(agent)?;
        info.environment.page_url = self.page_url(info.environment.id);
        check_facts(&info)?;
        let facts = UnrecordedFacts::from(info);
        // Recorded first, because the template needs its number.
        let environment = self.ensured(cluster, &facts).await?;
        let info = self.recorded(facts, &environment);
        let rendered = &match source {
            ObjectSource::Rendered(rendered) => rendered,
            ObjectSource::Template(template) => fill(&template, &info)?,
        };
        let (entry, default_namespaces) = &self.inner.access.of_project(agent, &info.project.path);
        let (environment, info, entry) = (&environment, &info, entry.as_ref());
        self.prepare(StoredPreparation { environment, rendered, info, entry, default_namespaces, job: None, by }).await
    }

    /// Completes the facts of an environment that is recorded.
    fn recorded(&self, facts: UnrecordedFacts, environment: &StoredEnvironment) -> TemplateVars {
        let id = environment.id.get();
        facts.recorded(id, self.page_url(id))
    }

    async fn prepare(&self, asked: StoredPreparation<'_>) -> Result<ProgressStream, EnvironmentRefusal> {
        let StoredPreparation { environment, rendered, info, entry, default_namespaces, job, by } = asked;
        let border = Border {
            default_namespace: entry.and_then(|entry| entry.default_namespace.as_deref()),
            default_namespaces,
        };
        let Manifest { mut objects, tracked } =
            manifest(rendered, info, border).map_err(|refused| objects_refused(&refused))?;
        for object in &mut objects {
            mark(object, &environment.inventory);
        }
        let objects = serde_json::Value::Array(objects).to_string();
        if objects.len() > OBJECTS_BYTES_MAX {
            return Err(too_large());
        }
        let is_as_job = entry.is_some_and(|entry| entry.access_as == AccessAs::CiJob);
        let acting = is_as_job.then(|| identity::of_job(info)).flatten().map(|one| identity::to_json(&one));
        let now = self.inner.now();
        let again: Vec<&str> = RefusalCode::OF_THE_MOMENT.iter().map(|code| code.as_str()).collect();
        let new = NewPreparation {
            environment: environment.id,
            job,
            project_path: &info.project.path,
            tier: info.environment.tier.as_deref(),
            url: info.environment.url.as_deref(),
            template: rendered.template.as_str(),
            kept: kept_of(rendered.deletion),
            identity: acting.as_deref(),
            objects: &objects,
            tracked: &objects_to(&tracked),
            give_up_at: now.later(self.inner.settings.complete_max),
            again_after: &again,
            // Jobs do not count as operators: a CI system may repeat a request until it is heard, and the project may
            // be gone since.
            is_operators: job.is_none(),
        };
        let begun = self.inner.store.begin_preparation(&new, now).await?.ok_or(RefusalCode::ProjectDeleted)?;
        let awaited = AwaitedEnd::Preparation(begun.preparation.id, begun.preparation.job);
        let following = ProgressStream::new(self, environment.id, awaited);
        let mut first = first_word(environment);
        if begun.is_new {
            self.told(environment, "asked_for", by);
            // It is stored: no later failure undoes that.
            let next = self.inner.store.next_preparation(environment.id).await.ok().flatten();
            let is_queued = next.is_some_and(|next| next.id < begun.preparation.id);
            first = first.or_else(|| is_queued.then_some(EnvironmentEvent::Waiting { why: "queued" }));
        }
        Ok(following.beginning(first))
    }

    /// Returns the facts of a job.
    fn facts_of(&self, request: &JobRequest) -> Result<UnrecordedFacts, EnvironmentRefusal> {
        let job = &request.job;
        let name = job.environment.clone().ok_or(RefusalCode::NoEnvironment)?;
        let issuer = self.inner.settings.jobs.as_ref().map(|jobs| jobs.issuer.as_str());
        let projects = issuer.unwrap_or(&self.inner.public_url).trim_end_matches('/');
        Ok(UnrecordedFacts {
            agent: self.agent(&request.agent)?,
            slug: environment_slug(&name),
            name,
            url: request.url.clone(),
            tier: job.tier.clone(),
            project: ProjectFacts {
                id: job.project_id,
                slug: path_slug(&job.project_path),
                path: job.project_path.clone(),
                url: format!("{projects}/{}", job.project_path),
            },
            ci_pipeline: job.pipeline_id.map(|id| NumberedFacts { id }),
            ci_job: Some(NumberedFacts { id: job.job_id }),
            user: Some(UserFacts { id: job.user_id, username: job.username.clone() }),
        })
    }

    /// Returns the environment of these facts, and records it first if it is not known.
    async fn ensured(
        &self,
        cluster: ClusterId,
        facts: &UnrecordedFacts,
    ) -> Result<StoredEnvironment, EnvironmentRefusal> {
        let random = random_key::<INVENTORY_BYTES>().map_err(|_| RefusalCode::StoreUnavailable)?;
        let inventory = format!("{}{}-{random}", INVENTORY_PREFIX, facts.key());
        let new = NewEnvironment {
            cluster,
            project_id: facts.project.id,
            project_path: &facts.project.path,
            name: &facts.name,
            slug: &facts.slug,
            inventory: &inventory,
        };
        let store = &self.inner.store;
        let is_it = |known: &StoredEnvironment| known.name == facts.name;
        let mut known = store.ensure_environment(&new, self.inner.now()).await?;
        // A slug is free for another name once the environment that had it has ended and none of its objects is left.
        if !is_it(&known) && store.forget_free_environment(known.id).await? {
            known = store.ensure_environment(&new, self.inner.now()).await?;
        }
        if !is_it(&known) {
            // A similar name must not give access to another environment's objects.
            let problem = FactProblem { path: "environment.name", message: "another one has this slug".to_owned() };
            return Err(facts_invalid(&[problem]));
        }
        Ok(known)
    }
}

/// Creates the refusal that lists objects which may not be made.
fn objects_refused(refused: &[workspace_spec::environment::manifest::RejectedObject]) -> EnvironmentRefusal {
    let problem = |one: &workspace_spec::environment::manifest::RejectedObject| {
        RefusalProblem::of(one.code.as_str(), &*one.object, &*one.message)
    };
    EnvironmentRefusal::with(RefusalCode::ObjectsRefused, refused.iter().map(problem).collect())
}

/// Creates the refusal of objects that, with their annotations, are larger than an agent takes in one call.
fn too_large() -> EnvironmentRefusal {
    let code = RefusedCode::TooLarge.as_str();
    let message = format!("the objects with their labels have more than {OBJECTS_BYTES_MAX} bytes");
    EnvironmentRefusal::with(RefusalCode::ObjectsRefused, vec![RefusalProblem::of(code, "", message)])
}

/// Returns whether a preparation failed for a transient reason.
fn is_of_the_moment(known: &gateway_store::Preparation) -> bool {
    let code = known.failure.as_ref().map(|(code, _)| code.as_str());
    RefusalCode::OF_THE_MOMENT.iter().any(|one| Some(one.as_str()) == code)
}

/// Sets the owning inventory of an object.
fn mark(object: &mut serde_json::Value, inventory: &str) {
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(|found| found.as_object_mut()) {
        annotations.insert(OWNER_ANNOTATION.to_owned(), inventory.into());
    } else if let Some(metadata) = object.get_mut("metadata").and_then(|found| found.as_object_mut()) {
        metadata.insert("annotations".to_owned(), serde_json::json!({ OWNER_ANNOTATION: inventory }));
    }
}

/// Checks facts.
pub(super) fn check_facts(info: &TemplateVars) -> Result<(), EnvironmentRefusal> {
    info.validate().map_err(|problems| facts_invalid(&problems))
}

/// Fills facts that were checked into a template.
pub(super) fn fill(template: &Template, info: &TemplateVars) -> Result<RenderedTemplate, EnvironmentRefusal> {
    template.render(info).map_err(|problems| EnvironmentRefusal::template(&problems))
}

fn facts_invalid(problems: &[FactProblem]) -> EnvironmentRefusal {
    let problem = |one: &FactProblem| RefusalProblem::of("", one.path, &*one.message);
    EnvironmentRefusal::with(RefusalCode::FactsInvalid, problems.iter().map(problem).collect())
}

/// Creates the failure of a code that has no further details.
pub(super) fn failure(code: RefusalCode) -> FinalFailure {
    FinalFailure { code: code.as_str().to_owned(), message: code.text().to_owned(), errors: Vec::new() }
}
