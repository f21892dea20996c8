//! Errors of providers.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use gateway_net::fetch::FetchError;

/// Failure of a request to a provider. Holds no secret, and of a server's own words only a short text in one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProviderError {
    /// No connection, no answer in time, or an invalid answer.
    #[error(transparent)]
    Fetch(FetchError),
    /// It has had too many requests (429).
    #[error("the CI system refuses further requests for now (429)")]
    Limited {
        /// Pause that it asks for.
        after: Option<Duration>,
    },
    /// It is unavailable (5xx).
    #[error("the CI system answered with status {status}")]
    Unavailable {
        /// Its status.
        status: u16,
        /// Pause that it asks for.
        after: Option<Duration>,
    },
    /// It does not know the token (401).
    #[error("the CI system does not accept the token of {path}: expired, revoked or not meant for it")]
    TokenRefused {
        /// File of the token.
        path: PathBuf,
    },
    /// The token may not do this (403).
    #[error("the token may not {what}: {why}")]
    Forbidden {
        /// The request.
        what: &'static str,
        /// Message of the CI system.
        why: String,
    },
    /// There is no such project, or the token does not see it (404).
    #[error("the CI system has no project {project}, or the token does not see it")]
    NoProject {
        /// Project as configured.
        project: String,
    },
    /// It refused the request, and would do so again.
    #[error("the CI system refused to {what} with status {status}: {why}")]
    Refused {
        /// The request.
        what: &'static str,
        /// Its status.
        status: u16,
        /// Its message.
        why: String,
    },
    /// The file of the token cannot be read, or has no token.
    #[error("the token cannot be read from {path}: {why}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Reason.
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
    /// The search was incomplete, so it is not known whether a run exists.
    #[error("the CI system may have created the job, and has not confirmed it: {why}")]
    Unsure {
        /// Reason why the search was incomplete.
        why: String,
    },
    /// The request was given up: this process stood still for too long. It may have been sent.
    #[error("the CI system was not asked in time")]
    Late,
    /// Another run of the same workspace has not ended.
    #[error("another run of this workspace has not ended")]
    Busy,
    /// A folder or a file of a `command` cannot be used.
    #[error("cannot {what} {path}: {why}")]
    Folder {
        /// Attempted operation.
        what: &'static str,
        /// Path of the folder or file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The program of a `command` cannot be started.
    #[error("{program} cannot be started: {why}")]
    Program {
        /// The program.
        program: PathBuf,
        /// Reason.
        why: String,
    },
    /// The supervisor of a run has not reported whether it began.
    #[error("{program} did not report the job's start within {after:?}")]
    NotBegun {
        /// The supervisor's program.
        program: PathBuf,
        /// Time that was waited.
        after: Duration,
    },
    /// The reference of a run was not made by this provider.
    #[error("this is not the name of a run of this provider")]
    NotOurs,
}

impl ProviderError {
    /// Returns whether the same request may succeed later without any change by people.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fetch(error) => match error {
                FetchError::Unreachable { .. } | FetchError::TimedOut { .. } => true,
                FetchError::Status { status, .. } => *status >= 500,
                // Another server answers, such as a proxy with its own page: that may pass like any outage.
                FetchError::TooLong { .. } | FetchError::Shape { .. } => true,
            },
            Self::Limited { .. }
            | Self::Unavailable { .. }
            | Self::Unsure { .. }
            | Self::Late
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

    /// Returns the pause that the provider asks for, if any.
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
            | Self::Late
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
