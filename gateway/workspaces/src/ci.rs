//! Workspaces in CI systems, as far as they can be decided without asking one: the CI systems that an operator opens
//! for workspaces, and the pipeline of a workspace's run.
//!
//! A pipeline is made of the owner's input and the operator's settings, each time anew: nothing of it is stored, so the
//! next run has the operator's latest changes.

use std::collections::BTreeMap;

use thiserror::Error;

use super::addresses::Addresses;
use gateway_store::{CiProject, Quotas, Variable, VariableKind};
use gateway_types::{Port, ProviderName, WorkspaceName};
use workspace_spec::devfile;
use workspace_spec::pipeline::{PipelineFacts, PipelineProblem, PipelineSettings, VariableName, generate};
use workspace_spec::project::Project;

/// Most tags of one workspace.
pub const TAGS_MAX: usize = 50;

/// Longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = 255;

/// The CI systems that workspaces can be made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiTargets {
    /// By their names.
    pub targets: BTreeMap<ProviderName, CiTarget>,
    /// Addresses of the gateway, for jobs.
    pub addresses: Addresses,
}

/// Settings and bounds of workspaces in one CI system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiTarget {
    /// Settings of all its pipelines.
    pub settings: PipelineSettings,
    /// The runners that workspaces may name.
    pub allowed_tags: Vec<String>,
    /// Quotas of its workspaces.
    pub quotas: Quotas,
}

/// Reason why a workspace cannot be in a CI system.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTarget {
    /// The operator has configured none of that name.
    #[error("there is no CI system of that name")]
    Unknown,
    /// There are several.
    #[error("there are several CI systems, and none is named")]
    Unnamed,
    /// A runner that the operator keeps for others.
    #[error("tag number {0} is not allowed for workspaces there")]
    Tag(usize),
    /// Too many, or too long ones.
    #[error("a workspace has at most {TAGS_MAX} tags of 1 to {TAG_BYTES_MAX} bytes")]
    Tags,
}

/// Input for the pipeline of a run, besides the operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// Number of the run, among those of the workspace.
    pub run: u64,
    /// Key of the cache that its runs leave to each other.
    pub cache_key: &'a str,
    /// The devfile, as it was given.
    pub devfile: &'a [u8],
    /// Project to clone.
    pub project: Option<&'a CiProject>,
    /// Tags of the runners that take the job.
    pub tags: &'a [String],
    /// The owner's variables, of which only names and kinds count.
    pub variables: &'a [Variable],
    /// Ports to expose beside the devfile's.
    pub ports: &'a [Port],
}

/// Reason why there is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPipeline {
    /// The operator has configured no such CI system.
    #[error(transparent)]
    Target(#[from] NoTarget),
    /// The devfile cannot be used.
    #[error("the devfile cannot be used: {0}")]
    Devfile(#[from] devfile::DevfileProblems),
    /// Requests that CI cannot fulfil; all of them.
    #[error("CI does not support this devfile: {}", told(.0))]
    Problems(Vec<PipelineProblem>),
}

fn told(problems: &[PipelineProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl CiTargets {
    /// Finds the CI system of that name, or the only one.
    ///
    /// # Errors
    /// [`NoTarget::Unknown`] or [`NoTarget::Unnamed`].
    pub fn find(&self, name: Option<&ProviderName>) -> Result<(&ProviderName, &CiTarget), NoTarget> {
        match name {
            Some(name) => self.targets.get_key_value(name).ok_or(NoTarget::Unknown),
            None if self.targets.len() > 1 => Err(NoTarget::Unnamed),
            None => self.targets.first_key_value().ok_or(NoTarget::Unknown),
        }
    }

    /// Makes the pipeline of a run.
    ///
    /// # Errors
    /// [`NoPipeline`] lists all problems.
    pub fn definition(&self, provider: &ProviderName, facts: &RunFacts<'_>) -> Result<String, NoPipeline> {
        let (_, target) = self.find(Some(provider))?;
        let devfile = devfile::parse(facts.devfile)?;
        let project =
            facts.project.map(|project| Project { url: project.url.clone(), reference: project.reference.clone() });
        let variables: Vec<VariableName> = facts
            .variables
            .iter()
            .map(|variable| VariableName {
                name: variable.name.clone(),
                is_file: variable.kind == VariableKind::File,
                bytes: variable.value.reveal().len(),
            })
            .collect();
        let facts = PipelineFacts {
            workspace: facts.workspace,
            run: facts.run,
            cache_key: facts.cache_key,
            agents_url: &self.addresses.agents_url,
            public_url: &self.addresses.public_url,
            zone: &self.addresses.zone,
            project: project.as_ref(),
            tags: facts.tags,
            variables: &variables,
            ports: facts.ports,
        };
        Ok(generate(&devfile, &target.settings, &facts).map_err(NoPipeline::Problems)?.yaml)
    }
}

impl CiTarget {
    /// Checks that a workspace may use the runners that it names.
    ///
    /// # Errors
    /// [`NoTarget::Tag`] or [`NoTarget::Tags`].
    pub fn allow(&self, tags: &[String]) -> Result<(), NoTarget> {
        let is_tag = |tag: &String| (1..=TAG_BYTES_MAX).contains(&tag.len()) && !tag.chars().any(char::is_control);
        if tags.len() > TAGS_MAX || !tags.iter().all(is_tag) {
            return Err(NoTarget::Tags);
        }
        let is_allowed = |tag: &String| self.allowed_tags.contains(tag) || self.settings.tags.contains(tag);
        match tags.iter().position(|tag| !is_allowed(tag)) {
            Some(number) => Err(NoTarget::Tag(number)),
            None => Ok(()),
        }
    }
}
