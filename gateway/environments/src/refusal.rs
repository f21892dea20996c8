//! Table of the codes for refusals and failures, with texts for people.

use std::fmt;

use gateway_store::StoreError;
use workspace_spec::document::Problem;

/// Reason for a refusal, or for a final failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalCode {
    /// Jobs may not ask here.
    EnvironmentsOff,
    /// No cluster agent has that name.
    NoSuchAgent,
    /// Nothing is made for the project's environments on this cluster.
    NotEnabled,
    /// The cluster's configuration does not name the project, nor a group that it is in.
    ProjectNotAllowed,
    /// It does not let the project have this environment.
    EnvironmentNotAllowed,
    /// The configuration asks for a protected branch or tag.
    RefNotProtected,
    /// The job neither starts nor stops its environment.
    ActionNotAllowed,
    /// The job's project was deleted.
    ProjectDeleted,
    /// The cluster's configuration changed after the request.
    ConfigChanged,
    /// The job has no environment.
    NoEnvironment,
    /// The cluster has no template of that name.
    NoSuchTemplate,
    /// The template cannot be used, or not with these facts.
    TemplateInvalid,
    /// The facts are invalid.
    FactsInvalid,
    /// The template wants objects that may not be made.
    ObjectsRefused,
    /// Objects could not be made.
    ObjectsFailed,
    /// More is recorded of the environment than an agent takes.
    TooManyObjects,
    /// The cluster's agent is not connected.
    AgentAbsent,
    /// The cluster's agent does not know environments.
    AgentTooOld,
    /// The cluster's agent was displaced by another meanwhile.
    AgentDisplaced,
    /// The cluster's agent did not answer in time.
    CallTimeout,
    /// The cluster's agent has too much to do.
    Overloaded,
    /// There is no such environment.
    NoSuchEnvironment,
    /// The environment is being removed, or others are before this one.
    EnvironmentBusy,
    /// The environment was stopped meanwhile.
    EnvironmentStopped,
    /// The store does not answer.
    StoreUnavailable,
}

impl RefusalCode {
    /// Every code, for tables.
    pub const ALL: [Self; 25] = [
        Self::EnvironmentsOff,
        Self::NoSuchAgent,
        Self::NotEnabled,
        Self::ProjectNotAllowed,
        Self::EnvironmentNotAllowed,
        Self::RefNotProtected,
        Self::ActionNotAllowed,
        Self::ProjectDeleted,
        Self::ConfigChanged,
        Self::NoEnvironment,
        Self::NoSuchTemplate,
        Self::TemplateInvalid,
        Self::FactsInvalid,
        Self::ObjectsRefused,
        Self::ObjectsFailed,
        Self::TooManyObjects,
        Self::AgentAbsent,
        Self::AgentTooOld,
        Self::AgentDisplaced,
        Self::CallTimeout,
        Self::Overloaded,
        Self::NoSuchEnvironment,
        Self::EnvironmentBusy,
        Self::EnvironmentStopped,
        Self::StoreUnavailable,
    ];

    /// Codes of transient failures: a job that failed with one of them may be asked for again.
    pub(super) const OF_THE_MOMENT: [Self; 7] = [
        Self::AgentAbsent,
        Self::AgentTooOld,
        Self::AgentDisplaced,
        Self::CallTimeout,
        Self::Overloaded,
        Self::EnvironmentBusy,
        Self::ConfigChanged,
    ];

    /// Returns the code, as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EnvironmentsOff => "environments_off",
            Self::NoSuchAgent => "no_such_agent",
            Self::NotEnabled => "not_enabled",
            Self::ProjectNotAllowed => "project_not_allowed",
            Self::EnvironmentNotAllowed => "environment_not_allowed",
            Self::RefNotProtected => "ref_not_protected",
            Self::ActionNotAllowed => "action_not_allowed",
            Self::ProjectDeleted => "project_deleted",
            Self::ConfigChanged => "config_changed",
            Self::NoEnvironment => "no_environment",
            Self::NoSuchTemplate => "no_such_template",
            Self::TemplateInvalid => "template_invalid",
            Self::FactsInvalid => "facts_invalid",
            Self::ObjectsRefused => "objects_refused",
            Self::ObjectsFailed => "objects_failed",
            Self::TooManyObjects => "too_many_objects",
            Self::AgentAbsent => "agent_absent",
            Self::AgentTooOld => "agent_too_old",
            Self::AgentDisplaced => "agent_displaced",
            Self::CallTimeout => "call_timeout",
            Self::Overloaded => "overloaded",
            Self::NoSuchEnvironment => "no_such_environment",
            Self::EnvironmentBusy => "environment_busy",
            Self::EnvironmentStopped => "environment_stopped",
            Self::StoreUnavailable => "store_unavailable",
        }
    }

    /// Returns the text that users are shown.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::EnvironmentsOff => "jobs may not ask for environments here: environments.issuer is not set",
            Self::NoSuchAgent => "there is no cluster agent of that name",
            Self::NotEnabled => "resource_management is not enabled for this project in the agent's configuration",
            Self::ProjectNotAllowed => {
                "there is no such agent, or ci_access of its configuration names neither the project nor its groups"
            }
            Self::EnvironmentNotAllowed => "ci_access of the agent's configuration does not name this environment",
            Self::RefNotProtected => "ci_access of the agent's configuration asks for a protected branch or tag",
            Self::ActionNotAllowed => "only a job that starts or stops its environment says what becomes of it",
            Self::ProjectDeleted => "the project was deleted, and its environments with it",
            Self::ConfigChanged => "the agent's configuration changed after this was asked for: ask again",
            Self::NoEnvironment => "the job has no environment",
            Self::NoSuchTemplate => "the agent has no template of that name",
            Self::TemplateInvalid => "the template cannot be used",
            Self::FactsInvalid => "what is said of the job and its environment cannot be",
            Self::ObjectsRefused => "the template wants objects that may not be made",
            Self::ObjectsFailed => "not all objects could be made",
            Self::TooManyObjects => {
                "this job's objects and what earlier jobs may have left are more than an agent takes: stop the environment, and \
                 a new job begins anew"
            }
            Self::AgentAbsent => "the cluster's agent is not connected",
            Self::AgentTooOld => "the cluster's agent is too old for that: use a newer one",
            Self::AgentDisplaced => "the cluster's agent was displaced by another one while it worked",
            Self::CallTimeout => "the cluster's agent did not answer in time",
            Self::Overloaded => "the cluster's agent has too much to do",
            Self::NoSuchEnvironment => "there is no such environment",
            Self::EnvironmentBusy => "the environment is being removed, or other jobs are before this one",
            Self::EnvironmentStopped => "the environment was stopped",
            Self::StoreUnavailable => "the gateway cannot reach its database",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A request that was refused and had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct EnvironmentRefusal {
    /// Reason, as a code.
    pub code: RefusalCode,
    /// Reason, for people.
    pub message: String,
    /// All problems, if there may be several.
    pub problems: Vec<RefusalProblem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalProblem {
    /// Its code; empty if it has none.
    pub code: &'static str,
    /// Place of the problem: an object, a fact, or a value in a file.
    pub place: String,
    /// The line, in a file.
    pub line: Option<u32>,
    /// The column there.
    pub column: Option<u32>,
    /// Message for people.
    pub message: String,
}

impl RefusalProblem {
    /// Creates a problem outside any file.
    pub(super) fn of(code: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, place: place.into(), line: None, column: None, message: message.into() }
    }
}

impl From<&Problem> for RefusalProblem {
    fn from(problem: &Problem) -> Self {
        let Problem { path, line, column, message } = problem.clone();
        Self { line, column, ..Self::of("", path, message) }
    }
}

impl From<RefusalCode> for EnvironmentRefusal {
    fn from(code: RefusalCode) -> Self {
        Self { code, message: code.text().to_owned(), problems: Vec::new() }
    }
}

impl From<StoreError> for EnvironmentRefusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the store did not answer about an environment");
        RefusalCode::StoreUnavailable.into()
    }
}

impl EnvironmentRefusal {
    /// Creates a refusal with all problems.
    pub(super) fn with(code: RefusalCode, problems: Vec<RefusalProblem>) -> Self {
        Self { problems, ..code.into() }
    }

    /// Creates the refusal of a template, or of its rendered form.
    pub(super) fn template(problems: &[Problem]) -> Self {
        Self::with(RefusalCode::TemplateInvalid, problems.iter().map(RefusalProblem::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_differ_and_all_are_in_the_table() {
        let codes: std::collections::BTreeSet<_> = RefusalCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), RefusalCode::ALL.len());
        assert!(RefusalCode::OF_THE_MOMENT.iter().all(|code| RefusalCode::ALL.contains(code)));
    }

    #[test]
    fn mistake_in_a_template_keeps_its_line_and_column_apart_from_its_place() {
        let problem = |path: &str, line| Problem {
            path: path.to_owned(),
            line,
            column: line.map(|line| line + 2),
            message: "unknown".to_owned(),
        };
        let refusal = EnvironmentRefusal::template(&[problem("objects[0].kind", Some(3)), problem("", None)]);
        let told: Vec<_> = refusal.problems.iter().map(|one| (one.place.as_str(), one.line, one.column)).collect();
        assert_eq!(told, [("objects[0].kind", Some(3), Some(5)), ("", None, None)]);
    }
}
