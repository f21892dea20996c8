//! The definition of a CI pipeline whose one job is a workspace: GitLab CI YAML made of a devfile.
//!
//! One job that stays: the main component's image is the job's, the other components are its services, and its script
//! fetches and checks the workspace agent, places and clones the project, starts the editor, runs the devfile's
//! commands and ends when told. Requests of a devfile that CI cannot fulfil are refused here, all of them at once.
//!
//! Pure: the same input makes the same bytes. [`generate`] is the only way to a [`Pipeline`]. No byte of a user's field
//! becomes structure: `yaml` writes only YAML that every reader reads alike, and a script has users' texts in quoted
//! words.

mod check;
mod environment;
mod job;
mod problem;
mod script;
mod yaml;

use std::time::Duration;

pub use self::problem::PipelineProblem;
pub(crate) use self::yaml::Yaml;
use super::devfile::Devfile;
use super::project::Project;
use gateway_types::{JobTime, Port, WorkspaceName, Zone};

/// The largest definition, in bytes: the most that CI systems take of one file.
pub const YAML_BYTES_MAX: usize = 1024 * 1024;

/// First words of a job's script when it ends. The runner saves the job's files then.
pub const ENDING_WORDS: &str = "workspace: ends, since";

/// The operator's settings for all workspaces of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSettings {
    /// Tags of the runners that take the job, unless the workspace names others; empty for runners that take jobs
    /// without tags.
    pub tags: Vec<String>,
    /// Time after which the CI system ends the job. Whole minutes count.
    pub job_timeout: Duration,
    /// Longest time that it takes to save the job's files.
    pub save_max: Duration,
    /// The CI system's own variables that stay in the environment of the workspace's processes. All others are taken
    /// out.
    pub inherit_variables: Vec<String>,
    /// Source of the editor.
    pub editor: Editor,
    /// The workspace agent's programs, one for each architecture; at least one.
    pub agents: Vec<AgentFile>,
    /// Credential of the job.
    pub proof: Proof,
    /// Longest value of a workspace's variable that the CI system can hand to a job, in bytes.
    pub value_bytes_max: usize,
    /// Certificates to trust besides the system's, in PEM, if the gateway's are not signed by one of those.
    pub ca_pem: Option<String>,
}

impl PipelineSettings {
    /// Returns the schedule of a job.
    fn job_time(&self) -> JobTime {
        JobTime::of(self.job_timeout, self.save_max)
    }
}

/// Source of a job's editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Editor {
    /// There is none: the workspace has a terminal only.
    None,
    /// `code-server` on the image's `PATH`.
    Installed,
    /// A `.tar.gz` with `bin/code-server` in the one folder that it has, as code-server is published.
    Archive {
        /// Its URL: `http` or `https`.
        url: String,
        /// Expected SHA-256 of it.
        sha256: [u8; 32],
    },
}

/// A program of the workspace agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFile {
    /// Architecture that it runs on.
    pub architecture: Architecture,
    /// Its URL: `http` or `https`.
    pub url: String,
    /// Expected SHA-256 of it.
    pub sha256: [u8; 32],
}

/// A processor architecture that there are agents for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// `x86_64` in the words of `uname -m`.
    Amd64,
    /// `aarch64` in the words of `uname -m`.
    Arm64,
}

/// Credential with which a job proves its identity to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A signed token that the CI system makes for the job (`id_tokens`).
    IdToken {
        /// Its audience: the gateway.
        audience: String,
    },
    /// A token of the gateway's, in the file that the variable `WORKSPACE_AGENT_TOKEN_FILE` names. The provider puts it there.
    FileVariable,
}

/// Input of generation besides a devfile and the settings.
#[derive(Clone, Copy, Debug)]
pub struct PipelineFacts<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// Number of the run, among the workspace's pipelines.
    pub run: u64,
    /// Key of the cache that the job leaves to the next one: one for each workspace, and not to be guessed.
    pub cache_key: &'a str,
    /// URL that the agent dials.
    pub agents_url: &'a str,
    /// The gateway's own address for people; hosts of workspaces have the same scheme and port.
    pub public_url: &'a str,
    /// The domain under which workspaces live.
    pub zone: &'a Zone,
    /// Project to clone; `None` for the project that the pipeline runs in, if there is one.
    pub project: Option<&'a Project>,
    /// Tags of the runners that take the job; empty for those of the settings.
    pub tags: &'a [String],
    /// Ports to expose beside the devfile's.
    pub ports: &'a [Port],
    /// The workspace's variables. Their values come as the variables `GW_VAR_1`, `GW_VAR_2` and so on, in this order:
    /// in base64, and as files or as they are.
    pub variables: &'a [VariableName],
}

/// A variable of a workspace, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableName {
    /// Name of an environment variable, or of a file.
    pub name: String,
    /// The value is in a file of this name in `GW_FILES_DIR`; else it is in the environment.
    pub is_file: bool,
    /// Length of the value, in bytes.
    pub bytes: usize,
}

/// A pipeline's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The text, as a `.gitlab-ci.yml` has it.
    pub yaml: String,
}

/// Generates the pipeline of one run of a workspace.
///
/// # Errors
/// All requests that CI cannot fulfil, and all problems of the input.
pub fn generate(
    devfile: &Devfile,
    settings: &PipelineSettings,
    facts: &PipelineFacts<'_>,
) -> Result<Pipeline, Vec<PipelineProblem>> {
    let problems = check::problems(devfile, settings, facts);
    if !problems.is_empty() {
        return Err(problems);
    }
    let yaml = job::definition(devfile, settings, facts).to_text();
    if yaml.len() > YAML_BYTES_MAX {
        return Err(vec![PipelineProblem::new("", "the definition of the pipeline is larger than 1 MiB")]);
    }
    Ok(Pipeline { yaml })
}

#[cfg(test)]
mod tests;
