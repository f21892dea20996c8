//! Requests of jobs and operators, and the decisions about them that need neither store nor agent (GitLab
//! documentation, "GitLab-managed Kubernetes resources").

use gateway_net::audit::{Actor, Text};
use gateway_types::{ClusterName, UserName};
use workspace_spec::environment::template::TemplateName;

/// A job that is about to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    /// The agent of the cluster that its environment is in.
    pub agent: ClusterName,
    /// The template; `None` for `default`, or else the built-in one.
    pub template: Option<TemplateName>,
    /// The job does not want anything to be made.
    pub is_disabled: bool,
    /// URL of the app that it deploys.
    pub url: Option<String>,
    /// Facts that its CI system reports.
    pub job: JobFacts,
}

/// Facts that the CI system reports of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// The number of its project.
    pub project_id: u64,
    /// Path of its project.
    pub project_path: String,
    /// The name of its environment, if it has one.
    pub environment: Option<String>,
    /// The deployment tier of that.
    pub tier: Option<String>,
    /// The job's `environment:action`; `None` for `start`.
    pub action: Option<String>,
    /// It runs on a protected branch or tag.
    pub is_ref_protected: bool,
    /// The number of its pipeline.
    pub pipeline_id: Option<u64>,
    /// Its number.
    pub job_id: u64,
    /// The number of its user.
    pub user_id: u64,
    /// The name of its user.
    pub username: String,
}

/// Whether something has to be made before a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// Something has to be made.
    Unmet,
    /// Nothing has to be made.
    Met(Met),
}

/// Reason for there being nothing to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// The job has no environment.
    NoEnvironment,
    /// The job opted out.
    Disabled,
    /// Nothing is made on this cluster for this project, environment or branch.
    NotEnabled,
    /// The objects were made already.
    Completed,
    /// The job does not start its environment: it stops, prepares, verifies or just uses it.
    NotAStart,
}

impl Met {
    /// Every reason, for tables.
    pub const ALL: [Self; 5] =
        [Self::NoEnvironment, Self::Disabled, Self::NotEnabled, Self::Completed, Self::NotAStart];

    /// Returns the reason as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEnvironment => "no_environment",
            Self::Disabled => "disabled",
            Self::NotEnabled => "not_enabled",
            Self::Completed => "completed",
            Self::NotAStart => "not_a_start",
        }
    }
}

/// Author of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// An operator.
    User(UserName),
    /// A job, with its project and number.
    Job(String, u64),
    /// The CI system itself.
    Hook,
}

impl By {
    /// Returns the actor of the audit log.
    pub(super) fn actor(&self) -> Actor {
        match self {
            Self::User(user) => Actor::User(Text::of(user)),
            Self::Job(project, job) => Actor::Job(Text::of(format_args!("{project}#{job}"))),
            Self::Hook => Actor::Hook,
        }
    }
}

impl JobFacts {
    /// Returns the job as author of a change.
    #[must_use]
    pub fn by(&self) -> By {
        By::Job(self.project_path.clone(), self.job_id)
    }

    /// Returns whether the job starts its environment (GitLab documentation, `environment:action`).
    pub(super) fn is_start(&self) -> bool {
        self.action.as_deref().is_none_or(|action| action == "start")
    }

    /// Returns whether the job stops its environment.
    pub(super) fn is_stop(&self) -> bool {
        self.action.as_deref() == Some("stop")
    }
}
