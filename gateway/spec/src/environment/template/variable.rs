//! The variables of templates (GitLab documentation, "GitLab-managed Kubernetes resources", template variables).

use std::borrow::Cow;

use crate::environment::facts::TemplateVars;

/// One of the values that a template may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    AgentId,
    AgentName,
    AgentUrl,
    EnvironmentId,
    EnvironmentName,
    EnvironmentSlug,
    EnvironmentUrl,
    EnvironmentPageUrl,
    EnvironmentTier,
    ProjectId,
    ProjectSlug,
    ProjectPath,
    ProjectUrl,
    PipelineId,
    JobId,
    UserId,
    Username,
}

/// All of them, in the order in which the documentation has them.
const ALL: [Variable; 17] = [
    Variable::AgentId,
    Variable::AgentName,
    Variable::AgentUrl,
    Variable::EnvironmentId,
    Variable::EnvironmentName,
    Variable::EnvironmentSlug,
    Variable::EnvironmentUrl,
    Variable::EnvironmentPageUrl,
    Variable::EnvironmentTier,
    Variable::ProjectId,
    Variable::ProjectSlug,
    Variable::ProjectPath,
    Variable::ProjectUrl,
    Variable::PipelineId,
    Variable::JobId,
    Variable::UserId,
    Variable::Username,
];

impl Variable {
    /// Returns the spelling in templates.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AgentId => ".agent.id",
            Self::AgentName => ".agent.name",
            Self::AgentUrl => ".agent.url",
            Self::EnvironmentId => ".environment.id",
            Self::EnvironmentName => ".environment.name",
            Self::EnvironmentSlug => ".environment.slug",
            Self::EnvironmentUrl => ".environment.url",
            Self::EnvironmentPageUrl => ".environment.page_url",
            Self::EnvironmentTier => ".environment.tier",
            Self::ProjectId => ".project.id",
            Self::ProjectSlug => ".project.slug",
            Self::ProjectPath => ".project.path",
            Self::ProjectUrl => ".project.url",
            Self::PipelineId => ".ci_pipeline.id",
            Self::JobId => ".ci_job.id",
            Self::UserId => ".user.id",
            Self::Username => ".user.username",
        }
    }

    /// Finds a variable by its spelling in templates.
    pub(super) fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|variable| variable.name() == name)
    }

    /// Returns whether it is a number, whatever the facts are.
    pub(super) fn is_number(self) -> bool {
        match self {
            Self::AgentId | Self::EnvironmentId | Self::ProjectId | Self::PipelineId | Self::JobId | Self::UserId => {
                true
            }
            Self::AgentName
            | Self::AgentUrl
            | Self::EnvironmentName
            | Self::EnvironmentSlug
            | Self::EnvironmentUrl
            | Self::EnvironmentPageUrl
            | Self::EnvironmentTier
            | Self::ProjectSlug
            | Self::ProjectPath
            | Self::ProjectUrl
            | Self::Username => false,
        }
    }

    /// Returns its value; `None` if there is none and the documentation has no default for it. Documented defaults are
    /// an empty text for the environment's URL, and zero for the numbers of pipeline and job.
    pub(super) fn value(self, info: &TemplateVars) -> Option<Cow<'_, str>> {
        let number = |id: u64| Some(Cow::Owned(id.to_string()));
        let text = |text| Some(Cow::Borrowed(text));
        match self {
            Self::AgentId => number(info.agent.id),
            Self::AgentName => text(info.agent.name.as_str()),
            Self::AgentUrl => text(info.agent.url.as_str()),
            Self::EnvironmentId => number(info.environment.id),
            Self::EnvironmentName => text(info.environment.name.as_str()),
            Self::EnvironmentSlug => text(info.environment.slug.as_str()),
            Self::EnvironmentUrl => text(info.environment.url.as_deref().unwrap_or_default()),
            Self::EnvironmentPageUrl => text(info.environment.page_url.as_str()),
            Self::EnvironmentTier => info.environment.tier.as_deref().map(Cow::Borrowed),
            Self::ProjectId => number(info.project.id),
            Self::ProjectSlug => text(info.project.slug.as_str()),
            Self::ProjectPath => text(info.project.path.as_str()),
            Self::ProjectUrl => text(info.project.url.as_str()),
            Self::PipelineId => number(info.ci_pipeline.map_or(0, |pipeline| pipeline.id)),
            Self::JobId => number(info.ci_job.map_or(0, |job| job.id)),
            Self::UserId => info.user.as_ref().and_then(|user| number(user.id)),
            Self::Username => info.user.as_ref().map(|user| Cow::Borrowed(user.username.as_str())),
        }
    }
}

/// Returns the spellings of all variables, for messages.
pub(super) fn known() -> String {
    ALL.map(Variable::name).join(", ")
}
