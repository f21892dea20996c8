//! CI job whose terminal is served: its state, and the choices that a person has for its end.

use std::fmt;

use thiserror::Error;
use tokio::sync::watch;

/// Job that a terminal is a part of. The server of the terminal shows it and hands choices on; it decides nothing.
pub trait TerminalJob: Send + Sync {
    /// Returns the state of the job.
    fn state(&self) -> JobState;

    /// Returns a receiver for changes of the state.
    fn changed(&self) -> watch::Receiver<JobState>;

    /// Ends the wait as a person chose; `who` is the name that the gateway gives them.
    ///
    /// # Errors
    /// [`NotHeld`] when nothing waits for a choice: not yet, or not any more.
    fn choose(&self, choice: Choice, who: Option<&str>) -> Result<(), NotHeld>;
}

/// Choice of a person for a held job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The step counts as passed.
    Continue,
    /// The job ends at once, with its command's own status; with another one if the command passed.
    Fail,
}

/// State of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// The command, as people are shown it.
    pub command: String,
    /// Phase of the job.
    pub phase: Phase,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The command runs.
    Running,
    /// The command has ended, and the job waits for a person.
    Held {
        /// The command's exit status, as a shell has it: 128 and its number for a signal.
        exit_status: i32,
        /// Time at which it ends by itself. Units: seconds since the Unix epoch.
        until_unix: u64,
    },
    /// The job is about to end; nothing can be chosen any more.
    Ended,
}

/// Nothing waits for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the job does not wait for a choice")]
pub struct NotHeld;

impl fmt::Debug for dyn TerminalJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(formatter)
    }
}
