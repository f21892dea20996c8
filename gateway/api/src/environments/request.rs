//! Facts that operators give about an environment, and those that the gateway adds.

use super::actions::missing;
use crate::ApiShared;
use crate::problem::{Mistake, ProblemRow};
use gateway_environments::refusal::RefusalCode;
use gateway_types::ClusterName;
use workspace_spec::environment::facts::{
    AgentFacts, EnvironmentFacts, NumberedFacts, ProjectFacts, TemplateVars, UserFacts,
};
use workspace_spec::environment::slug::{environment_slug, path_slug};

/// Facts of which some may be left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskedInfo {
    /// The agent, if it is named once more.
    pub(crate) agent: Option<AskedAgent>,
    pub(crate) environment: AskedEnvironment,
    pub(crate) project: AskedProject,
    pub(crate) ci_pipeline: Option<u64>,
    pub(crate) ci_job: Option<u64>,
    pub(crate) user: Option<(u64, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AskedAgent {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AskedEnvironment {
    pub(crate) id: Option<u64>,
    pub(crate) name: String,
    pub(crate) slug: Option<String>,
    pub(crate) page_url: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) tier: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AskedProject {
    pub(crate) id: u64,
    pub(crate) slug: Option<String>,
    pub(crate) path: String,
    pub(crate) url: Option<String>,
}

/// Completes the facts that were left out: those known of agent and environment, and those made of names.
pub(super) async fn complete_info(
    api: &ApiShared,
    agent: &ClusterName,
    asked: AskedInfo,
) -> Result<TemplateVars, ProblemRow> {
    let service = &api.environments.service;
    let known = service.agent(agent)?;
    let AskedInfo { agent: told, environment, project, ci_pipeline, ci_job, user } = asked;
    let agent_facts: AgentFacts = match told {
        Some(told) if told.name != known.name => {
            let detail = "names another agent than the request".to_owned();
            return Err(ProblemRow::invalid(vec![Mistake { pointer: "/info/agent/name".to_owned(), detail }]));
        }
        // The gateway's own knowledge counts: labels and names are made of it too.
        Some(_) | None => known,
    };
    let id = match environment.id {
        Some(id) => id,
        None => match service.find(agent, project.id, &environment.name).await {
            Ok(found) => found.id,
            Err(refusal) if refusal.code == RefusalCode::NoSuchEnvironment => 0,
            Err(refusal) => return Err(refusal.into()),
        },
    };
    let jobs = service.settings().jobs.as_ref();
    let project_url = match (project.url, jobs) {
        (Some(url), _) => url,
        (None, Some(jobs)) => format!("{}/{}", jobs.issuer.as_str().trim_end_matches('/'), project.path),
        (None, None) => return Err(missing("/info/project/url")),
    };
    Ok(TemplateVars {
        agent: agent_facts,
        environment: EnvironmentFacts {
            id,
            slug: environment.slug.unwrap_or_else(|| environment_slug(&environment.name)),
            page_url: environment.page_url.unwrap_or_else(|| service.page_url(id)),
            name: environment.name,
            url: environment.url,
            tier: environment.tier,
        },
        project: ProjectFacts {
            id: project.id,
            slug: project.slug.unwrap_or_else(|| path_slug(&project.path)),
            url: project_url,
            path: project.path,
        },
        ci_pipeline: ci_pipeline.map(|id| NumberedFacts { id }),
        ci_job: ci_job.map(|id| NumberedFacts { id }),
        user: user.map(|(id, username)| UserFacts { id, username }),
    })
}
