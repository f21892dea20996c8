//! Why a provider did not do what it was asked for.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::net::fetch::FetchError;

/// Why a provider did not do what it was asked for. Holds no secret, and of a server's own words only a short text in one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProviderError {
    /// No connection, no answer in time, or an answer that is none.
    #[error(transparent)]
    Fetch(FetchError),
    /// It has had too many requests (429).
    #[error("the CI system takes no more requests now")]
    Limited {
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// It is not well (5xx).
    #[error("the CI system answered with status {status}")]
    Unavailable {
        /// What it said.
        status: u16,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// It does not know the token (401).
    #[error("the CI system does not accept the token of {path}: expired, revoked or not meant for it")]
    TokenRefused {
        /// Where the token was read.
        path: PathBuf,
    },
    /// The token may not do this (403).
    #[error("the token may not {what}: {why}")]
    Forbidden {
        /// What was asked for.
        what: &'static str,
        /// What the CI system says.
        why: String,
    },
    /// There is no such project, or the token does not see it (404).
    #[error("the CI system has no project {project}, or the token does not see it")]
    NoProject {
        /// As configured.
        project: String,
    },
    /// It refused what was asked for, and would do so again.
    #[error("the CI system refused to {what} with status {status}: {why}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its status.
        status: u16,
        /// What it says.
        why: String,
    },
    /// The file of the token cannot be read, or has no token.
    #[error("the token cannot be read from {path}: {why}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A variable is longer than the CI system takes.
    #[error("the variable {name} is too long for a CI job: {bytes_max} bytes at most")]
    VariableTooLong {
        /// Its name.
        name: String,
        /// Bytes at most.
        bytes_max: usize,
    },
    /// Not everything could be looked at, so whether a run is there is not known.
    #[error("the CI system may have made the job already, and it cannot be told: {why}")]
    Unsure {
        /// What could not be looked at.
        why: String,
    },
    /// Another run of the same workspace has not ended.
    #[error("another run of this workspace has not ended")]
    Busy,
    /// A folder or a file of a `command` cannot be used.
    #[error("cannot {what} {path}: {why}")]
    Folder {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The program of a `command` cannot be started.
    #[error("{program} cannot be started: {why}")]
    Program {
        /// Which.
        program: PathBuf,
        /// Why.
        why: String,
    },
    /// The supervisor of a run has not said whether it began.
    #[error("{program} has not said within {after:?} that the job began")]
    NotBegun {
        /// The supervisor's program.
        program: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The reference of a run is none that this provider gave.
    #[error("this is not the name of a run of this provider")]
    NotOurs,
}

impl ProviderError {
    /// Returns whether the same question may get an answer later with nothing changed by people.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fetch(error) => match error {
                FetchError::Unreachable { .. } | FetchError::TimedOut { .. } => true,
                FetchError::Status { status, .. } => *status >= 500,
                // Something else answers, such as a proxy's page: it may go away like any outage.
                FetchError::TooLong { .. } | FetchError::Shape { .. } => true,
            },
            Self::Limited { .. }
            | Self::Unavailable { .. }
            | Self::Unsure { .. }
            | Self::Busy
            | Self::NotBegun { .. } => true,
            Self::TokenRefused { .. }
            | Self::Forbidden { .. }
            | Self::NoProject { .. }
            | Self::Refused { .. }
            | Self::TokenFile { .. }
            | Self::VariableTooLong { .. }
            | Self::Folder { .. }
            | Self::Program { .. }
            | Self::NotOurs => false,
        }
    }

    /// Returns how long the provider wants to be left alone, if it said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { after } | Self::Unavailable { after, .. } => *after,
            Self::Fetch(_)
            | Self::TokenRefused { .. }
            | Self::Forbidden { .. }
            | Self::NoProject { .. }
            | Self::Refused { .. }
            | Self::TokenFile { .. }
            | Self::VariableTooLong { .. }
            | Self::Unsure { .. }
            | Self::Busy
            | Self::NotBegun { .. }
            | Self::Folder { .. }
            | Self::Program { .. }
            | Self::NotOurs => None,
        }
    }
}

impl From<FetchError> for ProviderError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}
