//! Settings of CI systems, ready for use: providers, and limits of the workspaces there.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::provider::command::{CommandProvider, CommandSettings};
use super::provider::gitlab::{self, Gitlab, GitlabSettings, GitlabToken};
use super::provider::{Provider, ProviderError};
use gateway_config::{Ci, CiEditor, CiProvider, CiSystem};
use gateway_net::fetch::FetchSetupError;
use gateway_store::{CiState, Quotas, Variable};
use gateway_types::{IdleRules, JobTime, NamedPort, Port, ProviderName, TimeLimits, WorkspaceName};
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::ci::{CiTarget, CiTargets, NoPipeline, RunFacts};
use workspace_spec::pipeline::{AgentFile, Editor, PipelineSettings, Proof};

/// Concurrent requests to one CI system.
const QUESTIONS_MAX: usize = 8;

/// Longest time that the program of a `command` may take to end on request.
const COMMAND_GRACE: Duration = Duration::from_secs(30);

/// Largest file of authorities, in bytes: it goes into each job.
const CA_BYTES_MAX: u64 = 256 * 1024;

/// Reason for CI systems to be unusable. Each text names the setting to change.
#[derive(Debug, Error)]
pub enum CiSetupError {
    /// A file of authorities of a provider.
    #[error("ci.providers.{provider}: {error}")]
    Fetch {
        /// The provider.
        provider: ProviderName,
        /// Reason.
        error: FetchSetupError,
    },
    /// The program of a provider.
    #[error("ci.providers.{provider}: {error}")]
    Program {
        /// The provider.
        provider: ProviderName,
        /// Reason.
        error: ProviderError,
    },
    /// The file of authorities for jobs.
    #[error("ci.ca_file: {} cannot be used: {why}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
}

/// Reason for a missing definition.
#[derive(Debug, Error)]
pub enum NoDefinition {
    /// The gateway is ending.
    #[error("the work was interrupted")]
    Interrupted,
    /// The definition is impossible.
    #[error(transparent)]
    Impossible(#[from] NoPipeline),
}

/// A CI system with its settings.
#[derive(Clone, Debug)]
pub struct System {
    /// Its provider.
    pub provider: Provider,
    /// Schedule of a job.
    pub time: JobTime,
    /// Time limits of a workspace.
    pub limits: TimeLimits,
    /// Rules for workspaces without use.
    pub idle: IdleRules,
    /// Its jobs have no signed tokens of their own: each run gets a token of the gateway's.
    pub needs_token: bool,
    /// Permits for concurrent requests.
    slots: Arc<Semaphore>,
}

impl System {
    /// Sends a request, once there are not too many under way.
    ///
    /// Cancel safety: that of the request; the permit is given back.
    pub async fn ask<T>(&self, question: impl Future<Output = T>) -> T {
        let _slot = self.slot().await;
        question.await
    }

    /// Waits for a permit, for one request that has to be prepared right before it is sent.
    ///
    /// Cancel safety: safe.
    pub async fn slot(&self) -> RequestPermit<'_> {
        // Never closed, so acquiring does not fail.
        RequestPermit { _permit: self.slots.acquire().await.ok() }
    }
}

/// Permit for a request to a CI system, given back on drop.
#[derive(Debug)]
pub struct RequestPermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

/// All CI systems of the configuration.
#[derive(Clone, Debug)]
pub struct Systems {
    systems: HashMap<ProviderName, System>,
    targets: Arc<CiTargets>,
}

impl Systems {
    /// Sets them up; sends nothing yet. `agents` are the programs that jobs download.
    ///
    /// # Errors
    /// [`CiSetupError`] names the key to change.
    pub fn new(ci: &Ci, addresses: Addresses, agents: &[AgentFile]) -> Result<Self, CiSetupError> {
        let mut systems = HashMap::new();
        for one in &ci.providers {
            systems.insert(one.name.clone(), system(one)?);
        }
        Ok(Self { systems, targets: Arc::new(targets(ci, addresses, agents)?) })
    }

    /// Returns the CI system of that name.
    #[must_use]
    pub fn get(&self, name: &ProviderName) -> Option<&System> {
        self.systems.get(name)
    }

    /// Returns the limits of workspaces in them.
    #[must_use]
    pub fn targets(&self) -> &Arc<CiTargets> {
        &self.targets
    }

    /// Generates the definition of a run of a workspace on a blocking thread: a large devfile would keep other tasks
    /// waiting.
    ///
    /// # Errors
    /// [`NoDefinition`].
    pub async fn definition(
        &self,
        workspace: &WorkspaceName,
        ci: &CiState,
        run: u64,
        devfile: String,
        variables: Vec<Variable>,
        ports: &[NamedPort],
    ) -> Result<String, NoDefinition> {
        let (targets, workspace, ci) = (self.targets.clone(), workspace.clone(), ci.clone());
        let ports: Vec<Port> = ports.iter().map(|named| named.port).collect();
        let work = move || {
            let facts = RunFacts {
                workspace: &workspace,
                run,
                cache_key: &ci.cache_key,
                devfile: devfile.as_bytes(),
                project: ci.project.as_ref(),
                tags: &ci.tags,
                variables: &variables,
                ports: &ports,
            };
            targets.definition(&ci.provider, &facts)
        };
        Ok(tokio::task::spawn_blocking(work).await.map_err(|_| NoDefinition::Interrupted)??)
    }

    /// Returns the time limits of workspaces, by provider.
    #[must_use]
    pub fn limits(&self) -> HashMap<ProviderName, TimeLimits> {
        self.systems.iter().map(|(name, system)| (name.clone(), system.limits)).collect()
    }

    /// Returns the rules for workspaces without use, by provider.
    #[must_use]
    pub fn idle_rules(&self) -> HashMap<ProviderName, IdleRules> {
        self.systems.iter().map(|(name, system)| (name.clone(), system.idle)).collect()
    }
}

/// Returns the limits of workspaces in the CI systems of a configuration.
///
/// # Errors
/// [`CiSetupError::CaFile`].
pub fn targets(ci: &Ci, addresses: Addresses, agents: &[AgentFile]) -> Result<CiTargets, CiSetupError> {
    let ca_pem = ci.ca_file.clone().map(read_ca).transpose()?;
    let target = |one: &CiProvider| CiTarget {
        settings: PipelineSettings {
            tags: one.tags.clone(),
            job_timeout: one.job_timeout,
            save_max: one.save_max,
            inherit_variables: one.inherit_variables.clone(),
            editor: match &one.editor {
                CiEditor::None => Editor::None,
                CiEditor::Installed => Editor::Installed,
                CiEditor::Archive { url, sha256 } => Editor::Archive { url: url.clone(), sha256: *sha256 },
            },
            agents: agents.to_vec(),
            proof: match &one.system {
                CiSystem::Gitlab(gitlab) => Proof::IdToken { audience: gitlab.audience.to_string() },
                CiSystem::Command(_) => Proof::FileVariable,
            },
            value_bytes_max: match &one.system {
                CiSystem::Gitlab(_) => gitlab::VALUE_BYTES_MAX,
                CiSystem::Command(_) => usize::MAX,
            },
            ca_pem: ca_pem.clone(),
        },
        allowed_tags: one.allowed_tags.clone(),
        quotas: Quotas::of_workspaces(one.quota, one.quota_per_user),
    };
    let targets: BTreeMap<_, _> = ci.providers.iter().map(|one| (one.name.clone(), target(one))).collect();
    let agents_url = ci.agents_url.clone().unwrap_or(addresses.agents_url);
    Ok(CiTargets { targets, addresses: Addresses { agents_url, ..addresses } })
}

fn system(one: &CiProvider) -> Result<System, CiSetupError> {
    let name = &one.name;
    let (provider, needs_token) = match &one.system {
        CiSystem::Gitlab(gitlab) => {
            let settings = GitlabSettings {
                url: gitlab.url.clone(),
                project: gitlab.project.to_string(),
                reference: gitlab.reference.to_string(),
                token_file: gitlab.token_file.clone(),
                token_kind: match gitlab.token {
                    gateway_config::GitlabToken::Private => GitlabToken::Access,
                    gateway_config::GitlabToken::Job => GitlabToken::Job,
                },
                ca_file: gitlab.ca_file.clone(),
            };
            let made = Gitlab::new(settings);
            (Provider::Gitlab(made.map_err(|error| CiSetupError::Fetch { provider: name.clone(), error })?), false)
        }
        CiSystem::Command(command) => {
            let settings = CommandSettings {
                program: command.program.clone(),
                directory: command.dir.clone(),
                environment: command.environment.clone(),
                stop_grace: COMMAND_GRACE,
                supervisor: command.supervisor.clone(),
            };
            let made = CommandProvider::new(settings);
            (Provider::Command(made.map_err(|error| CiSetupError::Program { provider: name.clone(), error })?), true)
        }
    };
    Ok(System {
        provider,
        time: one.job_time(),
        limits: TimeLimits { active: one.active_max, stopped: one.stopped_max, age: one.age_max },
        idle: IdleRules::of_minutes(one.idle_minutes, one.max_idle_minutes),
        needs_token,
        slots: Arc::new(Semaphore::new(QUESTIONS_MAX)),
    })
}

fn read_ca(path: PathBuf) -> Result<String, CiSetupError> {
    let wrong = |why: String| CiSetupError::CaFile { path: path.clone(), why };
    let size = std::fs::metadata(&path).map_err(|error| wrong(error.to_string()))?.len();
    if size > CA_BYTES_MAX {
        return Err(wrong(format!("it is longer than {CA_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(text),
        false => Err(wrong("it has no certificate in PEM".to_owned())),
    }
}
