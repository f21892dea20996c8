//! Facts that operators give about an environment, and those that the gateway adds.

use super::actions::missing;
use crate::api::ApiShared;
use crate::api::problem::{Mistake, ProblemRow};
use gateway_environments::refusal::RefusalCode;
use gateway_types::ClusterName;
use workspace_spec::environment::facts::{
    AgentFacts, EnvironmentFacts, NumberedFacts, ProjectFacts, TemplateVars, UserFacts,
};
use workspace_spec::environment::slug::{environment_slug, path_slug};

/// Facts of which some may be left out.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct AskedInfo {
    /// The agent, if it is named once more.
    pub(in crate::api) agent: Option<AskedAgent>,
    pub(in crate::api) environment: AskedEnvironment,
    pub(in crate::api) project: AskedProject,
    pub(in crate::api) ci_pipeline: Option<u64>,
    pub(in crate::api) ci_job: Option<u64>,
    pub(in crate::api) user: Option<(u64, String)>,
}

#[derive(Clone, Debug, Default)]
pub(in crate::api) struct AskedAgent {
    pub(in crate::api) name: String,
}

#[derive(Clone, Debug, Default)]
pub(in crate::api) struct AskedEnvironment {
    pub(in crate::api) id: Option<u64>,
    pub(in crate::api) name: String,
    pub(in crate::api) slug: Option<String>,
    pub(in crate::api) page_url: Option<String>,
    pub(in crate::api) url: Option<String>,
    pub(in crate::api) tier: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(in crate::api) struct AskedProject {
    pub(in crate::api) id: u64,
    pub(in crate::api) slug: Option<String>,
    pub(in crate::api) path: String,
    pub(in crate::api) url: Option<String>,
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
