//! What a gateway's process heard of a run. All of it can be asked for again, so none of it is stored.

use std::time::Duration;

use crate::executors::ci::provider::{RunState, RunStatus};
use crate::model::UnixSeconds;
use crate::store::CiState;

/// What this process heard of one run. Lost with it: then it is asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Heard {
    /// Which run.
    pub(in super::super) run: u64,
    /// Where it stands, as the CI system last said.
    pub(in super::super) state: Option<RunState>,
    /// Why its job failed, in the CI system's word.
    pub(in super::super) failure: Option<String>,
    /// When it was last asked about.
    pub(in super::super) asked_at: Option<UnixSeconds>,
    /// The CI system does not do what it is asked for.
    pub(in super::super) trouble: Option<Trouble>,
    /// Since when its agent is away, which was there.
    pub(in super::super) away_since: Option<UnixSeconds>,
    /// Why the run cannot be made, which was asked for before: whether that made it has to be seen first.
    pub(in super::super) refused: Option<String>,
    /// Whether the job of a run that is to end is ending.
    pub(in super::super) leaving: Leaving,
    /// When it was last looked into its log for that.
    pub(in super::super) looked_at: Option<UnixSeconds>,
}

/// Whether a job that is to end is ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Leaving {
    /// Nobody knows: its agent was away when it was to be told, or was told by another process of the gateway's.
    #[default]
    Unknown,
    /// Its agent was told, or its log says that its script is ending.
    Told,
    /// Its log did not say so just now. Known for one request to end it, since it may begin to end meanwhile.
    Stuck,
}

/// A CI system that does not do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Trouble {
    /// Since when.
    pub(in super::super) since: UnixSeconds,
    /// How often in a row.
    pub(in super::super) count: u32,
    /// When it is asked again.
    pub(in super::super) until: UnixSeconds,
    /// What it says, or what is wrong with it.
    pub(in super::super) why: String,
}

impl Heard {
    /// Forgets what is about another run than the last one, and takes note of whether the agent is there.
    pub(in super::super) fn look(&mut self, ci: &CiState, is_up: bool, now: UnixSeconds) {
        let number = ci.run.as_ref().map_or(0, |run| run.number);
        if self.run != number {
            *self = Self { run: number, trouble: self.trouble.take(), ..Self::default() };
        }
        let was_up = ci.live().is_some_and(|run| run.up_at.is_some());
        self.away_since = if is_up || !was_up { None } else { self.away_since.or(Some(now)) };
    }

    /// Takes what the CI system said of the run.
    pub(in super::super) fn told(&mut self, status: &RunStatus, now: UnixSeconds) {
        self.state = Some(status.state);
        self.failure = status.job.as_ref().and_then(|job| job.failure.clone()).or(self.failure.take());
        self.asked_at = Some(now);
        self.trouble = None;
    }

    /// The CI system did what it was asked for.
    pub(in super::super) fn well(&mut self) {
        self.trouble = None;
    }

    /// The CI system did not do it, and is left alone for a while: at least for as long as it wants.
    pub(in super::super) fn failed(&mut self, why: String, wanted: Option<Duration>, now: UnixSeconds) {
        /// The longest that it is left alone unless it wants that.
        const PAUSE_MAX: Duration = Duration::from_secs(60);
        let (since, count) = self.trouble.as_ref().map_or((now, 0), |before| (before.since, before.count));
        let pause = Duration::from_secs(1 << count.min(6)).min(PAUSE_MAX).max(wanted.unwrap_or_default());
        self.asked_at = Some(now);
        self.trouble = Some(Trouble { since, count: count.saturating_add(1), until: now.later(pause), why });
    }
}
