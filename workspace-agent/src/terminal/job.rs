//! A CI job whose terminal is served: what it is at, and what a person can choose for its end.

use std::fmt;

use thiserror::Error;
use tokio::sync::watch;

/// A job that a terminal is a part of. Whoever serves the terminal shows it and hands choices on; it decides nothing.
pub trait Job: Send + Sync {
    /// Returns what the job is at.
    fn state(&self) -> JobState;

    /// Returns where changes of that are told.
    fn changed(&self) -> watch::Receiver<JobState>;

    /// Ends the wait as a person chose; `who` is the name that the gateway gives them.
    ///
    /// # Errors
    /// [`NotHeld`] when nothing waits for a choice: not yet, or not any more.
    fn choose(&self, choice: Choice, who: Option<&str>) -> Result<(), NotHeld>;
}

/// What a person can choose for a job that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The step counts as passed.
    Continue,
    /// It ends at once, with its command's own status; with another one if the command passed.
    Fail,
}

/// What a job is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// The command, as people are shown it.
    pub command: String,
    /// How far it is.
    pub phase: Phase,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The command runs.
    Running,
    /// The command has ended, and the job waits for a person.
    Held {
        /// The command's exit status, as a shell has it: 128 and its number for a signal.
        exit_status: i32,
        /// When it ends by itself. Units: seconds since the Unix epoch.
        until_unix: u64,
    },
    /// The job is about to end; nothing can be chosen any more.
    Ended,
}

/// Nothing waits for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the job does not wait for a choice")]
pub struct NotHeld;

impl fmt::Debug for dyn Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(formatter)
    }
}
