//! Reasons why a workspace is not made or changed.

use thiserror::Error;

use super::BadVariable;
use crate::ci::NoTarget;
use crate::workspace_templates::NoTemplate;
use gateway_store::{CreateError, OverQuota, StoreError};
use gateway_types::LifecycleRefused;
use gateway_types::token::NoRandomness;
use workspace_spec::devfile::{DevfileProblems, Problem};
use workspace_spec::editor::NoSuchEditor;
use workspace_spec::pipeline::PipelineProblem;
use workspace_spec::workspace_template::ParameterFault;

/// Reason of a refusal. Each text says what to change.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// There is none of that name that an executor runs for its owner.
    #[error("no workspace of that name is managed here")]
    NoSuchWorkspace,
    /// There is no cluster of that name, or no operator has configured it yet.
    #[error("no cluster of that name is configured")]
    NoSuchCluster,
    /// The operator has not opened the cluster for workspaces.
    #[error("the cluster takes no workspaces: `enabled` is not set in its configuration")]
    ClusterDisabled,
    /// The configuration of the cluster in the store is not one that this version reads.
    #[error("the stored configuration of the cluster cannot be read")]
    ClusterUnreadable,
    /// Another workspace has that name.
    #[error("the name is taken")]
    NameTaken,
    /// The cluster's prefix and the name are longer than the name of a namespace may be.
    #[error("a name has at most {bytes_max} characters in this cluster")]
    NameTooLong {
        /// The longest name, in bytes.
        bytes_max: usize,
    },
    /// The cluster offers no such editor.
    #[error("the editor {0}")]
    Editor(#[from] NoSuchEditor),
    /// Quotas of the cluster or CI system, or of the owner there, do not allow it.
    #[error("a quota does not allow it: {}", over(.0))]
    OverQuota(Box<OverQuota>),
    /// The devfile cannot be used; all that is wrong with it.
    #[error("the devfile cannot be used: {}", problems(.0))]
    Devfile(Vec<Problem>),
    /// The objects of devfile and configuration cannot be applied; all problems of them.
    #[error("the objects of the devfile cannot be created: {}", .0.join("; "))]
    Frozen(Vec<String>),
    /// No workspace can be made from that template.
    #[error(transparent)]
    Template(#[from] NoTemplate),
    /// A template and a devfile are given.
    #[error("a workspace is made from a template or from a devfile, not from both")]
    TemplateAndDevfile,
    /// Parameters of the template are missing or wrong; all of them.
    #[error("parameters of the template cannot be used: {}", parameters(.0))]
    Parameters(Vec<ParameterFault>),
    /// What the template is made into cannot be used; all that is wrong with it, without places in a text that no user wrote.
    #[error("the template makes a devfile that cannot be used: {}", problems(.0))]
    Rendered(Vec<Problem>),
    /// The operator has not opened CI systems for workspaces.
    #[error("workspaces are not made in CI systems here: `ci.enabled` is not set")]
    CiDisabled,
    /// It cannot be in that CI system.
    #[error(transparent)]
    Target(#[from] NoTarget),
    /// Requests that CI cannot fulfil; all of them.
    #[error("CI does not support this devfile: {}", pipeline(.0))]
    Pipeline(Vec<PipelineProblem>),
    /// Variables that cannot be used; all that is wrong with them.
    #[error("variables cannot be used: {}", variables(.0))]
    Variables(Vec<BadVariable>),
    /// Ports that cannot be named; the first that is wrong.
    #[error("ports cannot be named: {0}")]
    Ports(String),
    /// It cannot become that any more.
    #[error(transparent)]
    Refused(#[from] LifecycleRefused),
    /// It is not what the caller believed.
    #[error("the workspace has changed since it was read")]
    Changed,
    /// Something is left of it.
    #[error("the workspace is not terminated yet")]
    NotOver,
    /// Others write the same all the time.
    #[error("the workspace changes too fast just now; try again")]
    Busy,
    /// The work was given up.
    #[error("the work was interrupted; try again")]
    Interrupted,
    /// No token could be made.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl WorkspaceError {
    /// Names the template as the source of what is wrong with a devfile.
    pub(super) fn of_template(self) -> Self {
        let without_place = |problem: Problem| Problem { line: None, column: None, ..problem };
        if let Self::Devfile(problems) = self {
            return Self::Rendered(problems.into_iter().map(without_place).collect());
        }
        if let Self::Frozen(lines) = self {
            let problem = |message| Problem { path: String::new(), line: None, column: None, message };
            return Self::Rendered(lines.into_iter().map(problem).collect());
        }
        self
    }
}

impl From<DevfileProblems> for WorkspaceError {
    fn from(problems: DevfileProblems) -> Self {
        Self::Devfile(problems.0)
    }
}

impl From<CreateError> for WorkspaceError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::NameTaken => Self::NameTaken,
            // The workspace was prepared anew as often as it is worth.
            CreateError::ConfigChanged => Self::Busy,
            CreateError::OverQuota(over) => Self::OverQuota(over),
            CreateError::Store(error) => Self::Store(error),
        }
    }
}

fn over(over: &OverQuota) -> String {
    let lines: Vec<String> = over.broken.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn problems(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| problem.message.clone()).collect();
    lines.join("; ")
}

fn parameters(faults: &[ParameterFault]) -> String {
    let lines: Vec<String> = faults.iter().map(|one| format!("{} {}", one.parameter, one.fault)).collect();
    lines.join("; ")
}

fn pipeline(problems: &[PipelineProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn variables(wrong: &[BadVariable]) -> String {
    let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
