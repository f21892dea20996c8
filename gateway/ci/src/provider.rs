//! Systems that run the jobs of workspaces: one interface with an implementation for each of them.
//!
//! A run is one pipeline of one workspace. Its [`RunKey`] is drawn and stored before anything is asked for, and the
//! provider keeps it with the run. So a gateway that crashed between request and answer finds the run again, and no run
//! is made twice. The decisions to make and to end a run are not made here.

pub mod command;
mod error;
pub mod gitlab;
mod text;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::command::CommandProvider;
pub use self::error::ProviderError;
use self::gitlab::Gitlab;
use gateway_store::Variable;
use gateway_types::token::{NoRandomness, Token, random_key};
use gateway_types::{UnixSeconds, WorkspaceName};

/// Random bytes in a key.
const KEY_BYTES: usize = 16;

/// Characters of a key: two hexadecimal digits for each byte.
pub const KEY_CHARS: usize = KEY_BYTES * 2;

/// Variable with the key of a run: of the pipeline, and of the environment of a `command`.
pub const RUN_VARIABLE: &str = "WORKSPACE_GATEWAY_RUN";

/// Variable with the path of the agent's token file in a job, if the provider brings one.
pub const TOKEN_VARIABLE: &str = "WORKSPACE_AGENT_TOKEN_FILE";

/// Returns the name of the variable that holds the value of a job's `number`th variable, counted from 1.
///
/// The value is base64 (RFC 4648, section 4), in one line: systems that run jobs expand `$` in values, and some of them
/// hand a file variable on as a plain one. So the job finds either the path of a file that holds it, or the base64
/// itself.
#[must_use]
pub fn variable_name(number: usize) -> String {
    format!("GW_VAR_{number}")
}

/// Key of one run of one workspace, chosen before the provider has a name for it. No secret: it grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunKey(String);

/// Key of the cache that the runs of one workspace share. No other workspace can guess it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CacheKey(String);

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key has {KEY_CHARS} hexadecimal digits in lower case")]
pub struct BadKey;

macro_rules! key {
    ($name:ident) => {
        impl $name {
            /// Draws a new key.
            ///
            /// # Errors
            /// [`NoRandomness`] when the system's source fails.
            pub fn generate() -> Result<Self, NoRandomness> {
                random_key::<KEY_BYTES>().map(Self)
            }

            /// Returns the key as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadKey;

            fn from_str(text: &str) -> Result<Self, BadKey> {
                Self::try_from(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadKey;

            fn try_from(text: String) -> Result<Self, BadKey> {
                let is_key = text.len() == KEY_CHARS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                if is_key { Ok(Self(text)) } else { Err(BadKey) }
            }
        }

        impl From<$name> for String {
            fn from(key: $name) -> Self {
                key.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

key!(RunKey);
key!(CacheKey);

/// A run to make.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// Its key, which is stored already.
    pub key: &'a RunKey,
    /// The run cannot exist, and need not be searched for: it was never asked for, or was searched for since.
    pub is_new: bool,
    /// Time at which the key was stored: nothing older can be this run.
    pub since: UnixSeconds,
    /// Workspace of the run.
    pub workspace: &'a WorkspaceName,
    /// Key of the workspace's cache.
    pub cache_key: &'a CacheKey,
    /// The pipeline's definition.
    pub yaml: &'a str,
    /// Token that the run's agent presents to the gateway, for providers whose jobs have no signed tokens.
    pub token: Option<&'a Token>,
    /// The workspace's variables, in the order in which the definition counts them.
    pub variables: &'a [Variable],
}

/// Provider's name for a run. Stored, and passed back in each query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRef {
    /// The pipeline's id; of a `command`, its folder and its key, as `CACHE_KEY/RUN_KEY`.
    pub id: String,
    /// The id of the pipeline that the first one started, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
}

/// Status of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStatus {
    /// State of the run.
    pub state: RunState,
    /// The run, perhaps with more ids than in the query: to be stored.
    pub run: RunRef,
    /// Its job, once there is one.
    pub job: Option<JobStatus>,
    /// URL of its page for people.
    pub web_url: Option<String>,
}

/// State of a run.
///
/// ```text
/// Pending ─► Running ─► Succeeded, Failed, Cancelled ─► Gone
///     └────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Waits for a runner, or for the stages before its job.
    Pending,
    /// Its job runs, or may run: also one that was cancelled and has not ended.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Ended on request.
    Cancelled,
    /// The provider does not know it any more.
    Gone,
}

impl RunState {
    /// Returns whether no job of the run is left that runs or will run.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Gone => true,
        }
    }
}

/// The one job of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// Provider's name for the job.
    pub id: String,
    /// Time at which a runner took it.
    pub started_at: Option<UnixSeconds>,
    /// Reason of its failure, in one word of the provider, such as `runner_system_failure` or `job_execution_timeout`.
    pub failure: Option<String>,
}

/// Outcome of deleting the cache of a workspace's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheDeletion {
    /// Nothing of it is left.
    Gone,
    /// The provider cannot delete it: it stays until the provider's own rules end it.
    NotPossible,
}

/// A system that runs jobs. Clones share its state.
#[derive(Clone, Debug)]
pub enum Provider {
    /// GitLab, over its REST API.
    Gitlab(Gitlab),
    /// A program on this machine.
    Command(CommandProvider),
}

impl Provider {
    /// Makes a run, unless it is there already.
    ///
    /// Cancel safety: dropping the future leaves open whether the run is made; [`Provider::find`] tells.
    ///
    /// # Errors
    /// [`ProviderError`]. After a temporary one it is open whether the run was made; asking again makes no second one.
    pub async fn create(&self, run: &NewRun<'_>) -> Result<RunRef, ProviderError> {
        match self {
            Self::Gitlab(gitlab) => gitlab.create(run).await,
            Self::Command(command) => command.create(run).await,
        }
    }

    /// Finds a run of a workspace by its key, which was stored at `since`. `None` means that the run does not exist,
    /// and never that the search was incomplete.
    ///
    /// # Errors
    /// [`ProviderError`], also if the search was incomplete.
    pub async fn find(
        &self,
        key: &RunKey,
        workspace: &CacheKey,
        since: UnixSeconds,
    ) -> Result<Option<RunRef>, ProviderError> {
        match self {
            Self::Gitlab(gitlab) => gitlab.find(key, since).await,
            Self::Command(command) => command.find(key, workspace).await,
        }
    }

    /// Returns the status of a run.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn status(&self, run: &RunRef) -> Result<RunStatus, ProviderError> {
        match self {
            Self::Gitlab(gitlab) => gitlab.status(run).await,
            Self::Command(command) => command.status(run).await,
        }
    }

    /// Asks a run to end, with the pipeline that it started. It has ended once [`Provider::status`] says so. Asking
    /// again, or for a run that has ended, does no harm.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn cancel(&self, run: &RunRef) -> Result<(), ProviderError> {
        match self {
            Self::Gitlab(gitlab) => gitlab.cancel(run).await,
            Self::Command(command) => command.cancel(run).await,
        }
    }

    /// Returns the end of the job's log: at most `bytes_max` bytes, whole lines if there are any, without control
    /// characters. Empty while there is nothing.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn trace(&self, run: &RunRef, bytes_max: usize) -> Result<String, ProviderError> {
        match self {
            Self::Gitlab(gitlab) => gitlab.trace(run, bytes_max).await,
            Self::Command(command) => command.trace(run, bytes_max).await,
        }
    }

    /// Deletes the cache of a workspace's runs. To be called once all of them are over.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn forget(&self, workspace: &CacheKey) -> Result<CacheDeletion, ProviderError> {
        match self {
            Self::Gitlab(_) => Ok(CacheDeletion::NotPossible),
            Self::Command(command) => command.forget(workspace).await,
        }
    }
}

#[cfg(test)]
mod tests;
