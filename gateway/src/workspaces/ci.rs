//! Workspaces in CI systems, as far as they can be told without one: which CI systems an operator lets workspaces into, and
//! what the pipeline of a workspace's run is (design, section 6.4).
//!
//! A pipeline is made of what the owner gave and of what the operator decided, each time anew: nothing of it is stored, so a
//! next run has what the operator changed since.

use std::collections::BTreeMap;

use thiserror::Error;

use super::addresses::Addresses;
use super::devfile;
use super::pipeline::{PipelineFacts, PipelineProblem, PipelineSettings, Project, VariableName, generate};
use crate::model::{ProviderName, WorkspaceName};
use crate::store::{CiProject, Quotas, Variable, VariableKind};

/// Most tags of one workspace.
pub const TAGS_MAX: usize = 50;

/// Longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = 255;

/// The CI systems that workspaces can be made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiTargets {
    /// By their names.
    pub targets: BTreeMap<ProviderName, CiTarget>,
    /// Where the gateway is, for jobs.
    pub addresses: Addresses,
}

/// What workspaces may be in one CI system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiTarget {
    /// What all its pipelines have.
    pub settings: PipelineSettings,
    /// The runners that workspaces may name.
    pub allowed_tags: Vec<String>,
    /// How many there may be.
    pub quotas: Quotas,
}

/// Why a workspace cannot be in a CI system.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTarget {
    /// The operator has configured none of that name.
    #[error("there is no CI system of that name")]
    Unknown,
    /// There are several.
    #[error("there are several CI systems, and none is named")]
    Unnamed,
    /// A runner that the operator keeps for others.
    #[error("the tag number {0} is none that workspaces may have there")]
    Tag(usize),
    /// Too many, or too long ones.
    #[error("a workspace has at most {TAGS_MAX} tags of 1 to {TAG_BYTES_MAX} bytes")]
    Tags,
}

/// What the pipeline of a run is made from, beside what the operator decided.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// Which of its runs.
    pub run: u64,
    /// Names what its runs leave to each other.
    pub cache_key: &'a str,
    /// The devfile, as it was given.
    pub devfile: &'a [u8],
    /// What is cloned.
    pub project: Option<&'a CiProject>,
    /// Which runners take the job.
    pub tags: &'a [String],
    /// The owner's variables, of which names and kinds count.
    pub variables: &'a [Variable],
}

/// Why there is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPipeline {
    /// The operator has configured no such CI system.
    #[error(transparent)]
    Target(#[from] NoTarget),
    /// The devfile cannot be used.
    #[error("the devfile cannot be used: {0}")]
    Devfile(#[from] devfile::DevfileProblems),
    /// What is asked for cannot be in CI; all of it.
    #[error("CI cannot give what is asked for: {}", told(.0))]
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
    /// [`NoPipeline`] has everything that is wrong.
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
        };
        Ok(generate(&devfile, &target.settings, &facts).map_err(NoPipeline::Problems)?.yaml)
    }
}

impl CiTarget {
    /// Agrees to the runners that a workspace names.
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
