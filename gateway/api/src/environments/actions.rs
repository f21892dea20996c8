//! Operations on environments for both APIs: they check the caller's rights, and then do the work.

use std::sync::Arc;

use super::CallerPermit;
use super::caller::{JobCaller, operator};
use super::request::{AskedInfo, complete_info};
use crate::problem::{ApiProblem, FaultLocation, ProblemRow};
use crate::{ApiShared, Caller};
use gateway_environments::progress::ProgressStream;
use gateway_environments::record::Environment;
use gateway_environments::refusal::{EnvironmentRefusal, RefusalCode};
use gateway_environments::request::{JobFacts, JobRequest, Unmet};
use gateway_environments::service::{DesiredEnvironment, Filter, ObjectSource};
use gateway_types::ClusterName;
use workspace_spec::environment::facts::TemplateVars;
use workspace_spec::environment::template::{RenderedTemplate, Template, TemplateName};

/// Request for a job.
#[derive(Clone, Debug)]
pub(crate) struct CallerJobRequest {
    pub(crate) agent: ClusterName,
    pub(crate) template: Option<TemplateName>,
    pub(crate) is_disabled: bool,
    pub(crate) url: Option<String>,
    /// Environment that the caller means.
    pub(crate) environment: Option<String>,
    /// Facts of the job, as an operator gives them.
    pub(crate) job: Option<JobFacts>,
}

impl CallerJobRequest {
    /// Makes the request of a job: of the one that calls, or of the one that an operator describes.
    fn by(self, asker: &JobCaller) -> Result<JobRequest, ProblemRow> {
        let Self { agent, template, is_disabled, url, environment, job } = self;
        let job = match (asker, job) {
            (JobCaller::Job(own), None) => own.facts.clone(),
            (JobCaller::Job(_), Some(_)) => return Err(ApiProblem::NotSuchJob { reason: "facts_in_token" }.into()),
            (JobCaller::Operator(_), Some(told)) => told,
            (JobCaller::Operator(_), None) => return Err(missing("/job")),
        };
        if environment.is_some() && environment != job.environment {
            return Err(ApiProblem::NotSuchJob { reason: "another_environment" }.into());
        }
        Ok(JobRequest { agent, template, is_disabled, url, job })
    }
}

/// Reports that something is missing.
pub(crate) fn missing(pointer: &str) -> ProblemRow {
    ProblemRow::mistake(pointer, "is missing")
}

/// Tells whether anything is to be done before a job may run.
pub(crate) fn unmet(api: &ApiShared, asker: &JobCaller, asked: CallerJobRequest) -> Result<Unmet, ProblemRow> {
    let request = asked.by(asker)?;
    Ok(api.environments.service.unmet(&request))
}

/// Meets the prerequisites of a job. It takes a permit, but only for a request that is allowed: jobs of projects that are
/// not allowed have none to take.
pub(crate) async fn complete(
    api: &ApiShared,
    asker: &JobCaller,
    asked: CallerJobRequest,
) -> Result<(ProgressStream, CallerPermit), ProblemRow> {
    let request = asked.by(asker)?;
    let judged = api.environments.service.judge(request).map_err(|refusal| told_to(asker, refusal))?;
    let held = asker.permit_for(api, judged.request())?;
    // Without a place in the audit log, nothing is done.
    let by = asker.on_record(api).await?;
    Ok((api.environments.service.complete_by(judged, by).await?, held))
}

/// Tells a job of an unknown agent the same as of one that has nothing for its project: every job of a CI system may
/// ask, and names of agents are not for all of them.
fn told_to(asker: &JobCaller, refusal: EnvironmentRefusal) -> EnvironmentRefusal {
    match (asker, refusal.code) {
        (JobCaller::Job(_), RefusalCode::NoSuchAgent) => RefusalCode::ProjectNotAllowed.into(),
        (JobCaller::Job(_) | JobCaller::Operator(_), _) => refusal,
    }
}

/// A template by its name, perhaps with its text.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSource {
    pub(crate) name: TemplateName,
    pub(crate) data: Option<String>,
}

/// Environment that an operator wants to exist.
#[derive(Clone, Debug)]
pub(crate) struct EnsureRequest {
    pub(crate) agent: ClusterName,
    pub(crate) template: TemplateSource,
    pub(crate) info: AskedInfo,
}

/// Ensures that the rendered objects exist; without data, those that the agent's template renders to.
pub(crate) async fn ensure(
    api: &ApiShared,
    asker: &JobCaller,
    wish: EnsureRequest,
) -> Result<ProgressStream, ProblemRow> {
    let EnsureRequest { agent, template, info } = wish;
    let info = complete_info(api, &agent, info).await?;
    let service = &api.environments.service;
    let source = match template.data {
        Some(data) => ObjectSource::Rendered(
            RenderedTemplate::parse(&template.name, data.as_bytes()).map_err(ProblemRow::template)?,
        ),
        None => ObjectSource::Template(known(api, &agent, &template.name)?),
    };
    let by = asker.on_record(api).await?;
    Ok(service.ensure(&agent, source, info, by).await?)
}

/// Puts values into a template; without data, into the agent's. Also returns the present faults of that template's
/// file.
pub(crate) async fn render(
    api: &ApiShared,
    caller: &Caller,
    wish: EnsureRequest,
) -> Result<(RenderedTemplate, Vec<FaultLocation>), ProblemRow> {
    operator(api, caller)?;
    let EnsureRequest { agent, template, info } = wish;
    let info: TemplateVars = complete_info(api, &agent, info).await?;
    let service = &api.environments.service;
    let (found, problems) = match template.data {
        Some(data) => {
            (Arc::new(Template::parse(&template.name, data.as_bytes()).map_err(ProblemRow::template)?), Vec::new())
        }
        None => (known(api, &agent, &template.name)?, template_problems(api, &agent, &template.name)),
    };
    Ok((service.render(&found, &info)?, problems))
}

/// Returns a template of an agent, for operators.
pub(crate) fn template(
    api: &ApiShared,
    caller: &Caller,
    agent: &ClusterName,
    name: &TemplateName,
) -> Result<Arc<Template>, ProblemRow> {
    operator(api, caller)?;
    Ok(api.environments.service.template(agent, name)?)
}

/// Returns the present faults of the file of an agent's template: if there are any, the last good version is in force.
pub(crate) fn template_problems(api: &ApiShared, agent: &ClusterName, name: &TemplateName) -> Vec<FaultLocation> {
    api.environments.service.template_problems(agent, name).into_iter().map(FaultLocation::from).collect()
}

/// Returns the template that counts for an agent under a name: its own, or for `default` the built-in one.
fn known(api: &ApiShared, agent: &ClusterName, name: &TemplateName) -> Result<Arc<Template>, ProblemRow> {
    let service = &api.environments.service;
    match service.template(agent, name) {
        Err(refusal) if refusal.code == RefusalCode::NoSuchTemplate && *name == TemplateName::default_one() => {
            Ok(service.default_template())
        }
        found => Ok(found?),
    }
}

/// Choice of an environment.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The one with that number.
    Id(u64),
    /// The one of that agent, project and name. A job leaves out what its token says.
    Named { agent: ClusterName, project_id: Option<u64>, name: Option<String> },
}

/// Finds an environment for a caller who may see it. A job may see its own, and is told of no other.
pub(crate) async fn find(api: &ApiShared, asker: &JobCaller, which: Which) -> Result<Environment, ProblemRow> {
    let service = &api.environments.service;
    let found = match (which, asker) {
        (Which::Id(id), _) => service.get(id).await?,
        (Which::Named { agent, project_id, name }, JobCaller::Job(own)) => {
            let own_name = own.environment.as_deref().ok_or(ApiProblem::Environment(RefusalCode::NoEnvironment))?;
            if name.is_some_and(|name| name != own_name) || project_id.is_some_and(|id| id != own.project_id) {
                return Err(ApiProblem::NotSuchJob { reason: "another_environment" }.into());
            }
            match service.find(&agent, own.project_id, own_name).await {
                Ok(found) => found,
                Err(refusal) => return Err(not_found(api, agent, own, refusal).into()),
            }
        }
        (Which::Named { agent, project_id, name }, JobCaller::Operator(_)) => {
            let project_id = project_id.ok_or_else(|| missing("?project_id"))?;
            let name = name.ok_or_else(|| missing("?name"))?;
            service.find(&agent, project_id, &name).await?
        }
    };
    let is_theirs = match asker {
        JobCaller::Operator(_) => true,
        JobCaller::Job(own) => own.project_id == found.project_id && own.environment.as_deref() == Some(&found.name),
    };
    if is_theirs { Ok(found) } else { Err(ApiProblem::Environment(RefusalCode::NoSuchEnvironment).into()) }
}

/// Tells a job that its environment does not exist: the same for an unknown agent as for one that has nothing for its
/// project.
fn not_found(api: &ApiShared, agent: ClusterName, own: &JobFacts, refusal: EnvironmentRefusal) -> EnvironmentRefusal {
    if !matches!(refusal.code, RefusalCode::NoSuchAgent | RefusalCode::NoSuchEnvironment) {
        return refusal;
    }
    let job = JobFacts { action: None, ..own.clone() };
    let request = JobRequest { agent, template: None, is_disabled: false, url: None, job };
    match api.environments.service.check(&request) {
        Err(EnvironmentRefusal { code: RefusalCode::NoSuchAgent | RefusalCode::ProjectNotAllowed, .. }) => {
            RefusalCode::ProjectNotAllowed.into()
        }
        Ok(()) | Err(_) => RefusalCode::NoSuchEnvironment.into(),
    }
}

/// Lists environments, for operators.
pub(crate) async fn list(
    api: &ApiShared,
    filter: &Filter,
    after: Option<u64>,
    limit: u32,
) -> Result<Vec<Environment>, ProblemRow> {
    Ok(api.environments.service.list(filter, after, limit).await?)
}

/// Sets the state of an environment. A job sets that of its own, if it might have it made.
pub(crate) async fn set_state(
    api: &ApiShared,
    asker: &JobCaller,
    which: Which,
    wanted: DesiredEnvironment,
) -> Result<Environment, ProblemRow> {
    let found = find(api, asker, which).await?;
    let service = &api.environments.service;
    if let JobCaller::Job(own) = asker {
        service.may(&found.agent, own)?;
    }
    let by = asker.on_record(api).await?;
    Ok(service.set_state(found.id, wanted, by).await?)
}

/// Deletes the recorded objects of an environment, whatever its template says; for operators.
pub(crate) async fn remove(api: &ApiShared, asker: &JobCaller, id: u64) -> Result<ProgressStream, ProblemRow> {
    let by = asker.on_record(api).await?;
    Ok(api.environments.service.remove(id, by).await?)
}

/// Forgets an environment without asking its cluster; for operators.
pub(crate) async fn forget(api: &ApiShared, asker: &JobCaller, id: u64) -> Result<Environment, ProblemRow> {
    let by = asker.on_record(api).await?;
    Ok(api.environments.service.forget(id, by).await?)
}
