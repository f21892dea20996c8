//! Statements about environments of CI jobs, and about the jobs that are prepared in them.
//!
//! Each column has one writer, so that no writer overwrites what it has not read: requesters (a job, an operator) write
//! the desired state of an environment (`wish`), and its driver (one at a time for each environment) the state in the
//! cluster (`work`). JSON is an opaque text for this module.

use std::fmt;
use std::str::FromStr;

use super::database::Row;
use super::{ClusterId, StoreError};
use gateway_types::UnixSeconds;

mod gone;
mod jobs;
mod read;
mod templates;
mod wish;
mod work;

pub use gone::ForgottenEnvironment;
pub use jobs::JobStart;
pub use wish::StateSet;

/// Longest failure text that is kept, in bytes.
const FAILURE_BYTES_MAX: usize = 4096;

/// Permanent id of an environment. Displays as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentId(pub(super) i64);

impl EnvironmentId {
    /// Wraps a number; one that no row can have matches no environment.
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

/// Id of a preparation, requested by a job or an operator. Ordered by the time of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PreparationId(i64);

/// State of an environment.
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

/// Retention of an environment's objects when it is stopped.
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

/// Failed tries in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Their number.
    pub failures: u32,
    /// Reason of the last failure: a code, and a text for people.
    pub failure: Option<(String, String)>,
    /// Time of the next try.
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
    /// Last known path of the project.
    pub project_path: String,
    /// Its name.
    pub name: String,
    /// Its name in the form used within other names.
    pub slug: String,
    /// Its deployment tier.
    pub tier: Option<String>,
    /// Web address of its deployment.
    pub url: Option<String>,
    /// Inventory mark of its objects.
    pub inventory: String,
    /// Its state.
    pub state: EnvironmentState,
    /// Begin of that state.
    pub since: UnixSeconds,
    /// Reason of the state, if no user asked for it.
    pub reason: Option<String>,
    /// The template of the last prepared job; `None` before the first, and once everything was removed.
    pub template: Option<String>,
    /// Retention of its objects.
    pub kept: KeptOnStop,
    /// Identity that removes its objects: JSON; `None` is the agent itself.
    pub identity: Option<String>,
    /// Objects that may be in the cluster: JSON.
    pub tracked: String,
    /// The tracked objects have to be removed.
    pub is_removal_due: bool,
    /// Blockers of the removal: JSON.
    pub blockers: Option<String>,
    /// Recent failed tries.
    pub tries: Tries,
    /// Counts changes.
    pub revision: i64,
}

/// An environment to register.
#[derive(Clone, Copy, Debug)]
pub struct NewEnvironment<'a> {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The CI system's number of its project.
    pub project_id: u64,
    /// Path of the project.
    pub project_path: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its name in the form used within other names.
    pub slug: &'a str,
    /// Inventory mark of its objects. A known environment keeps its own.
    pub inventory: &'a str,
}

/// Status of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparationStatus {
    /// Under way, or waiting for its turn.
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

/// A preparation requested for an environment, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Its id.
    pub id: PreparationId,
    /// The environment.
    pub environment: EnvironmentId,
    /// The CI system's number of the job; `None` for a request of an operator.
    pub job: Option<u64>,
    /// Its status.
    pub status: PreparationStatus,
    /// The template.
    pub template: String,
    /// Retention of the objects.
    pub kept: KeptOnStop,
    /// Identity that applies the objects: JSON; `None` is the agent itself.
    pub identity: Option<String>,
    /// Objects to apply, ready to be sent: JSON; empty after the end.
    pub objects: String,
    /// Names of these objects, and after the end of the existing ones: JSON.
    pub tracked: String,
    /// Reason of the failure: a code, and a text for people.
    pub failure: Option<(String, String)>,
    /// Failure of each object: JSON.
    pub errors: Option<String>,
    /// Time of the request.
    pub made_at: UnixSeconds,
    /// Deadline of the tries.
    pub give_up_at: UnixSeconds,
    /// Time of its end.
    pub finished_at: Option<UnixSeconds>,
}

/// A preparation to request for an environment.
#[derive(Clone, Copy, Debug)]
pub struct NewPreparation<'a> {
    /// The environment.
    pub environment: EnvironmentId,
    /// The CI system's number of the job; `None` for an operator.
    pub job: Option<u64>,
    /// Path of the environment's project.
    pub project_path: &'a str,
    /// The environment's deployment tier.
    pub tier: Option<&'a str>,
    /// Web address of the deployment.
    pub url: Option<&'a str>,
    /// The template.
    pub template: &'a str,
    /// Retention of the objects.
    pub kept: KeptOnStop,
    /// Identity that applies the objects: JSON.
    pub identity: Option<&'a str>,
    /// Objects to apply: JSON.
    pub objects: &'a str,
    /// Names of these objects: JSON.
    pub tracked: &'a str,
    /// Deadline of the tries.
    pub give_up_at: UnixSeconds,
    /// Codes of failures after which a job's preparation may begin anew.
    pub again_after: &'a [&'a str],
    /// Requested by an operator, for no job: accepted also for a project recorded as gone, whose record is then
    /// removed.
    pub is_operators: bool,
}

/// Outcome of a preparation.
#[derive(Clone, Copy, Debug)]
pub enum PreparationEnd<'a> {
    /// Everything is there.
    Completed,
    /// It failed for good.
    Failed {
        /// Code of the reason.
        code: &'a str,
        /// Reason for people.
        message: &'a str,
        /// Failure of each object: JSON.
        errors: &'a str,
    },
}

/// Filter of a list of environments. `None` matches all.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentFilter {
    /// Those of a cluster.
    pub cluster: Option<ClusterId>,
    /// Those of a project.
    pub project_id: Option<u64>,
    /// Those in a state.
    pub state: Option<EnvironmentState>,
}

fn number_of(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Cuts a text for people and removes characters that databases do not keep.
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
