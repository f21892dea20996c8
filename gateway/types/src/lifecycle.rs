//! Lifecycle of a workspace that an executor runs for its owner: allowed changes of its state, and its time limits.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use tunnel_proto::state::{ActualState, BadState, DesiredState};

use super::UnixSeconds;

/// Longest reason, in bytes; longer ones are cut.
pub const REASON_BYTES_MAX: usize = 1024;

/// Desired and actual state of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// Desired state.
    pub desired: DesiredState,
    /// Last observed state.
    pub actual: ActualState,
    /// Counts the changes of the desired state, from 1.
    pub generation: u64,
    /// Time of the last change of the desired state.
    pub desired_at: UnixSeconds,
    /// Time of the last change of the actual state.
    pub actual_at: UnixSeconds,
    /// Reason of the actual state, for people.
    pub reason: Option<Arc<str>>,
    /// Counts the store's writes of it; a writer names the one that it read.
    pub revision: i64,
}

/// Refused change of the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LifecycleRefused {
    /// Its storage is gone, or on its way.
    #[error("the workspace is being terminated, which cannot be taken back")]
    Final,
}

/// Time limits of a workspace's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Time after its owner's last request to run it; then it is stopped.
    pub active: Duration,
    /// Time after the request to stop it; then it is terminated.
    pub stopped: Duration,
    /// Time after its creation; then it is terminated.
    pub age: Duration,
}

impl Lifecycle {
    /// Begins a lifecycle: it is desired to run, and nothing was done yet.
    #[must_use]
    pub fn new(now: UnixSeconds) -> Self {
        Self {
            desired: DesiredState::Running,
            actual: ActualState::CreationRequested,
            generation: 1,
            desired_at: now,
            actual_at: now,
            reason: None,
            revision: 0,
        }
    }

    /// Returns it with another desired state. A repeated request changes nothing, unless the state is a failure: then
    /// it is tried again. A restart of a stopped workspace starts it.
    ///
    /// # Errors
    /// [`LifecycleRefused::Final`] once it is to be terminated.
    pub fn request(&self, desired: DesiredState, now: UnixSeconds) -> Result<Self, LifecycleRefused> {
        if self.desired == DesiredState::Terminated && desired != DesiredState::Terminated {
            return Err(LifecycleRefused::Final);
        }
        let desired = match desired {
            DesiredState::RestartRequested if self.actual == ActualState::Stopped => DesiredState::Running,
            DesiredState::Running if self.desired == DesiredState::RestartRequested => DesiredState::RestartRequested,
            other @ (DesiredState::Running
            | DesiredState::Stopped
            | DesiredState::RestartRequested
            | DesiredState::Terminated) => other,
        };
        if desired == self.desired && !self.went_wrong() {
            return Ok(self.clone());
        }
        Ok(Self { desired, generation: self.generation + 1, desired_at: now, reason: None, ..self.clone() })
    }

    /// Returns it after an observation. A restart that has stopped goes on with its start, and a terminated workspace
    /// stays so.
    #[must_use]
    pub fn observe(&self, actual: ActualState, reason: Option<&str>, now: UnixSeconds) -> Self {
        if self.actual == ActualState::Terminated {
            return self.clone();
        }
        let mut next = self.clone();
        if actual != self.actual {
            next.actual_at = now;
        }
        next.actual = actual;
        if reason != self.reason.as_deref() {
            next.reason = reason.map(|reason| Arc::from(cut(reason)));
        }
        if self.desired == DesiredState::RestartRequested && actual == ActualState::Stopped {
            next.desired = DesiredState::Running;
            next.desired_at = now;
            next.generation += 1;
        }
        next
    }

    /// Returns the desired state due by the time limits now, if it differs.
    #[must_use]
    pub fn due(&self, created_at: UnixSeconds, limits: &TimeLimits, now: UnixSeconds) -> Option<DesiredState> {
        let (at, desired) = self.next_due(created_at, limits)?;
        (at <= now).then_some(desired)
    }

    /// Returns the next change due by the time limits, and its time.
    #[must_use]
    pub fn next_due(&self, created_at: UnixSeconds, limits: &TimeLimits) -> Option<(UnixSeconds, DesiredState)> {
        let end = (created_at.later(limits.age), DesiredState::Terminated);
        let step = match self.desired {
            DesiredState::Running | DesiredState::RestartRequested => {
                (self.desired_at.later(limits.active), DesiredState::Stopped)
            }
            DesiredState::Stopped => (self.desired_at.later(limits.stopped), DesiredState::Terminated),
            DesiredState::Terminated => return None,
        };
        // If both are due at once, the termination wins: stopping first would only be one more step to it.
        Some(if end.0 <= step.0 { end } else { step })
    }

    /// Returns whether it is terminated, with nothing left of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.desired == DesiredState::Terminated && self.actual == ActualState::Terminated
    }

    /// Returns whether the actual state is the desired one.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match self.desired {
            DesiredState::Running => self.actual == ActualState::Running,
            DesiredState::Stopped => self.actual == ActualState::Stopped,
            DesiredState::Terminated => self.actual == ActualState::Terminated,
            DesiredState::RestartRequested => false,
        }
    }

    fn went_wrong(&self) -> bool {
        match self.actual {
            ActualState::Error | ActualState::Failed | ActualState::Unknown => true,
            ActualState::CreationRequested
            | ActualState::Starting
            | ActualState::Running
            | ActualState::Stopping
            | ActualState::Stopped
            | ActualState::Terminating
            | ActualState::Terminated => false,
        }
    }
}

/// Cuts a text to its bound, between characters.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: UnixSeconds = UnixSeconds::new(1_000);
    const LATER: UnixSeconds = UnixSeconds::new(2_000);
    const LIMITS: TimeLimits = TimeLimits {
        active: Duration::from_secs(100),
        stopped: Duration::from_secs(1_000),
        age: Duration::from_secs(5_000),
    };

    fn life(desired: DesiredState, actual: ActualState) -> Lifecycle {
        Lifecycle { desired, actual, generation: 5, reason: Some("why".into()), ..Lifecycle::new(START) }
    }

    #[test]
    fn workspace_begins_to_run_and_nothing_was_done() {
        let new = Lifecycle::new(START);
        assert_eq!(
            (new.desired, new.actual, new.generation),
            (DesiredState::Running, ActualState::CreationRequested, 1)
        );
    }

    #[test]
    fn termination_is_final() {
        let ending = life(DesiredState::Terminated, ActualState::Terminating);
        for desired in [DesiredState::Running, DesiredState::Stopped, DesiredState::RestartRequested] {
            assert_eq!(ending.request(desired, LATER), Err(LifecycleRefused::Final));
        }
        assert_eq!(ending.request(DesiredState::Terminated, LATER), Ok(ending.clone()));
        let over = ending.observe(ActualState::Terminated, None, LATER);
        assert!(over.is_over());
        assert_eq!(over.observe(ActualState::Running, None, LATER), over);
    }

    #[test]
    fn same_intent_again_changes_nothing_unless_it_went_wrong() {
        for actual in ActualState::ALL.iter().copied() {
            let running = life(DesiredState::Running, actual);
            let again = running.request(DesiredState::Running, LATER).expect("allowed");
            let retried = matches!(actual, ActualState::Error | ActualState::Failed | ActualState::Unknown);
            assert_eq!(again.generation, if retried { 6 } else { 5 }, "{actual}");
            assert_eq!(again.desired_at, if retried { LATER } else { START }, "{actual}");
        }
    }

    #[test]
    fn restart_waits_for_the_stop_and_then_runs() {
        let running = life(DesiredState::Running, ActualState::Running);
        let restart = running.request(DesiredState::RestartRequested, LATER).expect("allowed");
        assert_eq!((restart.desired, restart.generation), (DesiredState::RestartRequested, 6));
        let stopping = restart.observe(ActualState::Stopping, None, LATER);
        assert_eq!((stopping.desired, stopping.generation), (DesiredState::RestartRequested, 6));
        let stopped = stopping.observe(ActualState::Stopped, None, LATER);
        assert_eq!((stopped.desired, stopped.generation), (DesiredState::Running, 7));
    }

    #[test]
    fn start_during_a_restart_does_not_leave_out_the_stop() {
        let restart = life(DesiredState::RestartRequested, ActualState::Running);
        assert_eq!(restart.request(DesiredState::Running, LATER), Ok(restart.clone()));
        let stopped = restart.request(DesiredState::Stopped, LATER).expect("allowed");
        assert_eq!(stopped.desired, DesiredState::Stopped, "a stop takes the restart back");
    }

    #[test]
    fn restart_of_what_is_stopped_is_a_start() {
        let stopped = life(DesiredState::Stopped, ActualState::Stopped);
        assert_eq!(
            stopped.request(DesiredState::RestartRequested, LATER).map(|life| life.desired),
            Ok(DesiredState::Running)
        );
    }

    #[test]
    fn time_stops_what_runs_and_ends_what_is_stopped_or_old() {
        let at = |seconds| UnixSeconds::new(seconds);
        let running = life(DesiredState::Running, ActualState::Failed);
        assert_eq!(running.due(START, &LIMITS, at(1_099)), None);
        assert_eq!(running.due(START, &LIMITS, at(1_100)), Some(DesiredState::Stopped));
        let stopped = life(DesiredState::Stopped, ActualState::Running);
        assert_eq!(stopped.due(START, &LIMITS, at(1_999)), None);
        assert_eq!(stopped.due(START, &LIMITS, at(2_000)), Some(DesiredState::Terminated));
        let old = UnixSeconds::new(-4_000);
        assert_eq!(running.due(old, &LIMITS, at(1_050)), Some(DesiredState::Terminated));
        assert_eq!(life(DesiredState::Terminated, ActualState::Running).due(old, &LIMITS, at(9_999)), None);
    }

    #[test]
    fn long_reason_is_cut_between_characters() {
        let told = life(DesiredState::Running, ActualState::Running).observe(
            ActualState::Failed,
            Some(&"é".repeat(1_000)),
            LATER,
        );
        assert_eq!(told.reason.map(|reason| reason.len()), Some(REASON_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn generation_never_falls_and_every_change_of_intent_raises_it(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..10, 0_i64..500), 0..40),
        ) {
            let mut life = Lifecycle::new(START);
            let mut now = START;
            for (asks, choice, passed) in steps {
                now = now.later(Duration::from_secs(passed.unsigned_abs()));
                let next = if asks {
                    life.request(DesiredState::ALL[choice % DesiredState::ALL.len()], now).unwrap_or_else(|_| life.clone())
                } else {
                    life.observe(ActualState::ALL[choice % ActualState::ALL.len()], None, now)
                };
                prop_assert!(next.generation >= life.generation);
                prop_assert_eq!(next.generation > life.generation, next.desired != life.desired || next.desired_at != life.desired_at
                    || (asks && next.generation == life.generation + 1));
                if life.desired == DesiredState::Terminated {
                    prop_assert_eq!(next.desired, DesiredState::Terminated);
                }
                // A change is due from the moment that `next_due` returned before.
                if let Some((at, desired)) = next.next_due(START, &LIMITS) {
                    prop_assert_eq!(next.due(START, &LIMITS, at), Some(desired));
                    prop_assert_eq!(next.due(START, &LIMITS, UnixSeconds::new(at.get() - 1)), None);
                }
                life = next;
            }
        }
    }
}
