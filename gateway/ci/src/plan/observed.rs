//! Observed state of a run in this process. All of it can be queried again, so none of it is stored.

use std::time::Duration;

use crate::provider::{RunState, RunStatus};
use gateway_store::CiState;
use gateway_types::UnixSeconds;

/// Observed state of one run. Lost with the process, and queried again then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ObservedRun {
    /// Number of the run.
    pub(in super::super) run: u64,
    /// State in the CI system's last report.
    pub(in super::super) state: Option<RunState>,
    /// Reason of its job's failure, in the CI system's word.
    pub(in super::super) failure: Option<String>,
    /// Time of the last status query.
    pub(in super::super) asked_at: Option<UnixSeconds>,
    /// Failure of the CI system to carry out requests.
    pub(in super::super) trouble: Option<Trouble>,
    /// Time since which the agent is away, after it was connected.
    pub(in super::super) away_since: Option<UnixSeconds>,
    /// Reason for the run not to be made now, although it was asked for before: whether that request made it has to be
    /// checked first.
    pub(in super::super) refused: Option<String>,
    /// Whether the job of a run that is to end is ending.
    pub(in super::super) leaving: Leaving,
    /// Time of the last look into its log for that.
    pub(in super::super) looked_at: Option<UnixSeconds>,
}

/// Progress of a job that is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Leaving {
    /// Unknown: its agent was away when it was to be told, or was told by another process of the gateway's.
    #[default]
    Unknown,
    /// Its agent was told, or its log says that its script is ending.
    Told,
    /// Its log did not say so just now. Valid for one request to end the job, because it may begin to end meanwhile.
    Stuck,
}

/// Failure of a CI system to carry out requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Trouble {
    /// Time of the first failure.
    pub(in super::super) since: UnixSeconds,
    /// Failures in a row.
    pub(in super::super) count: u32,
    /// Time of the next request.
    pub(in super::super) until: UnixSeconds,
    /// Message of the CI system, or description of the problem.
    pub(in super::super) why: String,
}

impl ObservedRun {
    /// Resets the state if it is about another run than the last one, and notes whether the agent is connected.
    pub(in super::super) fn look(&mut self, ci: &CiState, is_up: bool, now: UnixSeconds) {
        let number = ci.run.as_ref().map_or(0, |run| run.number);
        if self.run != number {
            *self = Self { run: number, trouble: self.trouble.take(), ..Self::default() };
        }
        let was_up = ci.live().is_some_and(|run| run.up_at.is_some());
        self.away_since = if is_up || !was_up { None } else { self.away_since.or(Some(now)) };
    }

    /// Takes in the CI system's report of the run.
    pub(in super::super) fn told(&mut self, status: &RunStatus, now: UnixSeconds) {
        self.state = Some(status.state);
        self.failure = status.job.as_ref().and_then(|job| job.failure.clone()).or(self.failure.take());
        self.asked_at = Some(now);
        self.trouble = None;
    }

    /// Notes that a request succeeded.
    pub(in super::super) fn well(&mut self) {
        self.trouble = None;
    }

    /// Notes that a request failed. The CI system is left alone for a while: at least for as long as it asks.
    pub(in super::super) fn failed(&mut self, why: String, wanted: Option<Duration>, now: UnixSeconds) {
        /// Longest pause, unless the CI system asks for a longer one.
        const PAUSE_MAX: Duration = Duration::from_secs(60);
        let (since, count) = self.trouble.as_ref().map_or((now, 0), |before| (before.since, before.count));
        let pause = Duration::from_secs(1 << count.min(6)).min(PAUSE_MAX).max(wanted.unwrap_or_default());
        self.asked_at = Some(now);
        self.trouble = Some(Trouble { since, count: count.saturating_add(1), until: now.later(pause), why });
    }
}
