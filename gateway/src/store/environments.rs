//! Statements about environments of CI jobs, and about the jobs that are prepared in them.
//!
//! Each column has one writer, so that nobody overwrites what they have not read: whoever asks (a job, an operator) says
//! what an environment is to be (`wish`), and whoever carries it out (one at a time for each environment) what is in the
//! cluster (`work`). What is JSON here is a text that this module does not look into.

use std::fmt;
use std::str::FromStr;

use super::database::Row;
use super::{ClusterId, StoreError};
use crate::model::UnixSeconds;

mod gone;
mod jobs;
mod read;
mod templates;
mod wish;
mod work;

pub use gone::Forgotten;
pub use jobs::Begun;
pub use wish::StateSet;

/// Longest failure that is kept, in bytes.
const FAILURE_BYTES_MAX: usize = 4096;

/// Names an environment for good. Displays as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentId(i64);

impl EnvironmentId {
    /// Wraps a number; one that no row can have names nothing.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number_of(number))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }
}

impl fmt::Display for EnvironmentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Names what was asked for an environment: by a job, or by an operator. Ordered as they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PreparationId(i64);

/// What an environment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnvironmentState {
    /// Jobs run in it, or may.
    Available,
    /// It is asked to stop, and its stop job has not ended.
    Stopping,
    /// It is stopped.
    Stopped,
}

impl EnvironmentState {
    /// Returns the state as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

/// The text is no state of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an environment is `available`, `stopping` or `stopped`")]
pub struct BadEnvironmentState;

impl FromStr for EnvironmentState {
    type Err = BadEnvironmentState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "available" => Ok(Self::Available),
            "stopping" => Ok(Self::Stopping),
            "stopped" => Ok(Self::Stopped),
            _ => Err(BadEnvironmentState),
        }
    }
}

/// What becomes of an environment's objects when it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeptOnStop {
    /// They are deleted (`on_stop`).
    No,
    /// They stay (`never`).
    Yes,
}

impl KeptOnStop {
    /// Returns it as templates spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "on_stop",
            Self::Yes => "never",
        }
    }
}

/// Tries that failed in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// How many.
    pub failures: u32,
    /// Why the last one failed: a code, and a text for people.
    pub failure: Option<(String, String)>,
    /// When the next one is.
    pub retry_at: Option<UnixSeconds>,
}

/// An environment as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEnvironment {
    /// Its id.
    pub id: EnvironmentId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The CI system's number of its project.
    pub project_id: u64,
    /// Where the project was last.
    pub project_path: String,
    /// Its name.
    pub name: String,
    /// Its name as parts of other names have it.
    pub slug: String,
    /// Its deployment tier.
    pub tier: Option<String>,
    /// Where what is deployed there is seen.
    pub url: Option<String>,
    /// What marks its objects.
    pub inventory: String,
    /// What it is.
    pub state: EnvironmentState,
    /// Since when.
    pub since: UnixSeconds,
    /// Why, where it was nobody's wish.
    pub reason: Option<String>,
    /// The template of the last job that was prepared; `None` before the first, and once everything was removed.
    pub template: Option<String>,
    /// What becomes of its objects.
    pub kept: KeptOnStop,
    /// As whom its objects are removed: JSON; `None` is the agent itself.
    pub identity: Option<String>,
    /// What may be in the cluster: JSON.
    pub tracked: String,
    /// What is tracked has to go.
    pub is_removal_due: bool,
    /// What keeps it from going: JSON.
    pub blockers: Option<String>,
    /// What was tried of late.
    pub tries: Tries,
    /// Counts changes.
    pub revision: i64,
}

/// An environment that is to be known.
#[derive(Clone, Copy, Debug)]
pub struct NewEnvironment<'a> {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The CI system's number of its project.
    pub project_id: u64,
    /// Where the project is.
    pub project_path: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its name as parts of other names have it.
    pub slug: &'a str,
    /// What would mark its objects. One that is known keeps the mark that it has.
    pub inventory: &'a str,
}

/// Where a preparation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparationStatus {
    /// Under way, or waiting to be.
    Preparing,
    /// Everything is there.
    Completed,
    /// It failed for good.
    Failed,
}

impl PreparationStatus {
    /// Returns the status as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// What was asked for an environment, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Its id.
    pub id: PreparationId,
    /// The environment.
    pub environment: EnvironmentId,
    /// The CI system's number for the job; `None` for what an operator asked for.
    pub job: Option<u64>,
    /// Where it is.
    pub status: PreparationStatus,
    /// The template.
    pub template: String,
    /// What becomes of the objects.
    pub kept: KeptOnStop,
    /// As whom they are made: JSON; `None` is the agent itself.
    pub identity: Option<String>,
    /// What is to be made, ready to be sent: JSON; empty after the end.
    pub objects: String,
    /// The same as names, and after the end what is there: JSON.
    pub tracked: String,
    /// Why it failed: a code, and a text for people.
    pub failure: Option<(String, String)>,
    /// The same of each object: JSON.
    pub errors: Option<String>,
    /// When it was asked for.
    pub made_at: UnixSeconds,
    /// Until when it is tried.
    pub give_up_at: UnixSeconds,
    /// When it ended.
    pub finished_at: Option<UnixSeconds>,
}

/// What is asked for an environment.
#[derive(Clone, Copy, Debug)]
pub struct NewPreparation<'a> {
    /// The environment.
    pub environment: EnvironmentId,
    /// The CI system's number for the job; `None` for an operator.
    pub job: Option<u64>,
    /// Where the environment's project is.
    pub project_path: &'a str,
    /// The environment's deployment tier.
    pub tier: Option<&'a str>,
    /// Where what is deployed there is seen.
    pub url: Option<&'a str>,
    /// The template.
    pub template: &'a str,
    /// What becomes of the objects.
    pub kept: KeptOnStop,
    /// As whom they are made: JSON.
    pub identity: Option<&'a str>,
    /// What is to be made: JSON.
    pub objects: &'a str,
    /// The same as names: JSON.
    pub tracked: &'a str,
    /// Until when it is tried.
    pub give_up_at: UnixSeconds,
    /// A job's earlier try that failed with one of these codes is no end: it begins anew.
    pub again_after: &'a [&'a str],
    /// An operator asks, and for no job: that counts also for a project that was said to be no more. Then it is there again.
    pub is_operators: bool,
}

/// How a preparation ended.
#[derive(Clone, Copy, Debug)]
pub enum PreparationEnd<'a> {
    /// Everything is there.
    Completed,
    /// It failed for good.
    Failed {
        /// Why, as a code.
        code: &'a str,
        /// Why, for people.
        message: &'a str,
        /// The same of each object: JSON.
        errors: &'a str,
    },
}

/// Which environments are listed. What is `None` does not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentFilter {
    /// Those of a cluster.
    pub cluster: Option<ClusterId>,
    /// Those of a project.
    pub project_id: Option<u64>,
    /// Those that are so.
    pub state: Option<EnvironmentState>,
}

fn number_of(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Cuts a text for people and takes out what databases do not keep.
fn told(text: &str) -> String {
    super::lifecycles::storable(text.get(..text.floor_char_boundary(FAILURE_BYTES_MAX)).unwrap_or(text))
}

fn corrupt(column: &'static str) -> StoreError {
    StoreError::Corrupt { table: "environments", column }
}

fn corrupt_job(column: &'static str) -> StoreError {
    StoreError::Corrupt { table: "environment_jobs", column }
}

fn read_kept(text: &str) -> Option<KeptOnStop> {
    [KeptOnStop::No, KeptOnStop::Yes].into_iter().find(|kept| kept.as_str() == text)
}

fn read_failure(code: Option<String>, message: Option<String>) -> Option<(String, String)> {
    code.map(|code| (code, message.unwrap_or_default()))
}

fn read_environment(row: &Row) -> Result<StoredEnvironment, StoreError> {
    Ok(StoredEnvironment {
        id: EnvironmentId(row.get("id")?),
        cluster: ClusterId(row.get("cluster_id")?),
        project_id: u64::try_from(row.get::<i64>("project_id")?).map_err(|_| corrupt("project_id"))?,
        project_path: row.get("project_path")?,
        name: row.get("name")?,
        slug: row.get("slug")?,
        tier: row.get("tier")?,
        url: row.get("url")?,
        inventory: row.get("inventory")?,
        state: row.get::<&str>("state")?.parse().map_err(|_| corrupt("state"))?,
        since: UnixSeconds::new(row.get("since")?),
        reason: row.get("reason")?,
        template: row.get("template")?,
        kept: read_kept(row.get("deletion")?).ok_or_else(|| corrupt("deletion"))?,
        identity: row.get("identity")?,
        tracked: row.get("tracked")?,
        is_removal_due: row.get::<i64>("is_removal_due")? != 0,
        blockers: row.get("blockers")?,
        tries: Tries {
            failures: u32::try_from(row.get::<i64>("failures")?).map_err(|_| corrupt("failures"))?,
            failure: read_failure(row.get("failure_code")?, row.get("failure")?),
            retry_at: row.get::<Option<i64>>("retry_at")?.map(UnixSeconds::new),
        },
        revision: row.get("revision")?,
    })
}

fn read_preparation(row: &Row) -> Result<Preparation, StoreError> {
    let status = row.get::<&str>("status")?;
    let all = [PreparationStatus::Preparing, PreparationStatus::Completed, PreparationStatus::Failed];
    let job = row.get::<Option<i64>>("job_id")?;
    Ok(Preparation {
        id: PreparationId(row.get("id")?),
        environment: EnvironmentId(row.get("environment_id")?),
        job: job.map(u64::try_from).transpose().map_err(|_| corrupt_job("job_id"))?,
        status: all.into_iter().find(|one| one.as_str() == status).ok_or_else(|| corrupt_job("status"))?,
        template: row.get("template")?,
        kept: read_kept(row.get("deletion")?).ok_or_else(|| corrupt_job("deletion"))?,
        identity: row.get("identity")?,
        objects: row.get("objects")?,
        tracked: row.get("tracked")?,
        failure: read_failure(row.get("code")?, row.get("failure")?),
        errors: row.get("errors")?,
        made_at: UnixSeconds::new(row.get("made_at")?),
        give_up_at: UnixSeconds::new(row.get("give_up_at")?),
        finished_at: row.get::<Option<i64>>("finished_at")?.map(UnixSeconds::new),
    })
}

#[cfg(test)]
mod tests;
