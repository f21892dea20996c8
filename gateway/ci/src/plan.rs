//! Decides the next step for one workspace in a CI system, as a function of stored state, observed state and time.
//!
//! ```text
//!   no run ──Begin──► decided on ──Create──► made ──Ask…──► over ──End──► no run
//!      ▲                  │ Find: never made    │ Stop, Cancel, Ask…          │
//!      └──────────────────┴────────────────────┴────────────────────────────┘
//! ```
//!
//! Everything that the decision rests on is stored before it is acted upon, so it can be made again after a crash at
//! any moment, with the same outcome: a run's key before the CI system is asked for the run, and the decision to end it
//! before the agent is told. A next run is decided on once the CI system reports that the last one is over, and not
//! before.

use std::time::Duration;

use super::provider::RunState;
use gateway_store::{CiRun, CiState};
use gateway_types::{ActualState, DesiredState, JobTime, Lifecycle, UnixSeconds};

mod end;
mod observed;
mod orphan;
mod record;

pub(super) use self::end::Ending;
use self::end::{ending, lost};
pub(super) use self::observed::{Leaving, ObservedRun};
pub(super) use self::orphan::{OrphanStep, orphaned};
pub(super) use self::record::{
    asked, cancelling, ended, impossible, known, named, stopping, unmade_for_good, unsaved, up,
};

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunTimeouts {
    /// Time from telling the agent to end until the job is checked. If it is not ending then, it is cancelled, because
    /// its agent cannot be told; a job that is ending saves its files, and is left alone for as long as that may take.
    pub(super) stop_grace: Duration,
    /// Time after a request for a run until the CI system has made it or never will. Longer than a request may take.
    pub(super) settle: Duration,
    /// Interval between two requests to end a run.
    pub(super) cancel_again: Duration,
    /// Interval between two status queries of a run whose state is expected to change, in the first minute.
    pub(super) ask_often: Duration,
    /// Longest such interval: a change that has not happened for long is not expected at once, and many may wait for
    /// one runner.
    pub(super) ask_often_max: Duration,
    /// Interval between two status queries of a run whose agent is connected.
    pub(super) ask_rarely: Duration,
    /// Longest outage of a CI system before the state of its jobs counts as unknown.
    pub(super) unknown_after: Duration,
    /// Longest time until the agent of a running job connects first.
    pub(super) agent_first: Duration,
    /// Longest absence of the agent.
    pub(super) agent_away: Duration,
    /// Pause between the end of a failed run and the next one, doubled with each further failure.
    pub(super) retry_first: Duration,
    /// Longest such pause.
    pub(super) retry_max: Duration,
    /// Time with a connected agent after which a run counts as good: failures are counted anew.
    pub(super) healthy: Duration,
}

impl RunTimeouts {
    /// Values in production.
    pub(super) const DEFAULT: Self = Self {
        stop_grace: Duration::from_secs(120),
        settle: Duration::from_secs(30),
        cancel_again: Duration::from_secs(30),
        ask_often: Duration::from_secs(3),
        ask_often_max: Duration::from_secs(30),
        ask_rarely: Duration::from_secs(60),
        unknown_after: Duration::from_secs(2 * 60),
        agent_first: Duration::from_secs(15 * 60),
        agent_away: Duration::from_secs(5 * 60),
        retry_first: Duration::from_secs(10),
        retry_max: Duration::from_secs(10 * 60),
        healthy: Duration::from_secs(10 * 60),
    };

    /// Returns the interval of status queries for a run whose change is expected since then.
    fn often(&self, since: Option<UnixSeconds>, now: UnixSeconds) -> Duration {
        /// Fraction of the time waited so far.
        const PART: u32 = 20;
        let waited = since.map_or(0, |since| now.get().saturating_sub(since.get()));
        let waited = Duration::from_secs(u64::try_from(waited).unwrap_or(0));
        (waited / PART).clamp(self.ask_often, self.ask_often_max)
    }

    /// Returns the pause after this many failures.
    fn retry(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.retry_first.saturating_mul(factor).min(self.retry_max)
    }
}

/// Inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanInput<'a> {
    /// Desired state, and the last observed one.
    pub(super) life: &'a Lifecycle,
    /// The runs.
    pub(super) ci: &'a CiState,
    /// Observed state of the last run, after [`ObservedRun::look`].
    pub(super) heard: &'a ObservedRun,
    /// An agent of the workspace is connected.
    pub(super) is_up: bool,
    /// Schedule of a job.
    pub(super) time: JobTime,
    /// The wall clock.
    pub(super) now: UnixSeconds,
    /// Timeouts and intervals.
    pub(super) pace: &'a RunTimeouts,
    /// Time at which this process took the work over from another replica, whose clock may differ. That one's requests left
    /// before, and may take effect for as long as one that leaves then.
    pub(super) begun_at: Option<UnixSeconds>,
}

/// Next step, and the state to report before it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// State of the workspace.
    pub(super) actual: ActualState,
    /// Reason, for people.
    pub(super) reason: Option<String>,
    /// Next step.
    pub(super) step: RunStep,
}

/// Next step of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunStep {
    /// Store a new run. With `anew`, its owner asked again since the last one: earlier failures do not count.
    Begin {
        /// Failures are forgotten.
        anew: bool,
    },
    /// Ask for the run, after storing the time of the request: [`asked`].
    Create,
    /// Find out whether the run was made, because the answer was lost and the run is no longer wanted or cannot be
    /// asked for again.
    Find,
    /// Query the state of the run.
    Ask,
    /// Store that the agent connected: [`up`].
    NoteUp,
    /// Store that the run is to end, and the reason if that is a failure: [`stopping`]. Then tell the agent.
    Stop {
        /// The failure, if there is one.
        failure: Option<String>,
    },
    /// Tell the agent once more.
    Close,
    /// Check the job's log for whether it is ending.
    Look,
    /// Ask the CI system to end the run, after storing the time of the request: [`cancelling`].
    Cancel,
    /// Store that the run is over, and its outcome: [`ended`] or [`unsaved`].
    End(Ending),
    /// Have the CI system delete the cache of the workspace's runs. Then nothing is left of the workspace.
    Forget,
    /// Reconcile again at this time, or once something happens.
    Wait(Option<UnixSeconds>),
}

/// Decides the next step.
pub(super) fn decide(view: &PlanInput<'_>) -> Decision {
    match view.ci.live() {
        None => idle(view),
        Some(run) if run.pipeline.is_none() => unmade(view, run),
        Some(run) => made(view, run),
    }
}

/// Decides for a workspace without a run.
fn idle(view: &PlanInput<'_>) -> Decision {
    let PlanInput { life, ci, heard, now, .. } = *view;
    let trouble = heard.trouble.as_ref().filter(|trouble| trouble.until > now);
    match life.desired {
        DesiredState::Terminated if life.actual == ActualState::Terminated => Decision {
            actual: ActualState::Terminated,
            reason: life.reason.as_deref().map(str::to_owned),
            step: RunStep::Wait(None),
        },
        DesiredState::Terminated => {
            let step = trouble.map_or(RunStep::Forget, |trouble| RunStep::Wait(Some(trouble.until)));
            Decision { actual: ActualState::Terminating, reason: troubled(heard), step }
        }
        DesiredState::Stopped | DesiredState::RestartRequested => {
            Decision { actual: ActualState::Stopped, reason: lost(ci), step: RunStep::Wait(None) }
        }
        DesiredState::Running => {
            let anew = ci.run.as_ref().is_some_and(|run| life.generation > run.intent);
            let retry_at = ci.retry_at.filter(|retry_at| *retry_at > now && !anew);
            let failure = ci.run.as_ref().and_then(|run| run.failure.as_deref()).filter(|_| !anew);
            match retry_at {
                Some(retry_at) => {
                    let failure = failure.unwrap_or("the last job ended");
                    let reason = format!("A new job is tried at {retry_at}: {failure}");
                    Decision { actual: ActualState::Failed, reason: Some(reason), step: RunStep::Wait(Some(retry_at)) }
                }
                None => {
                    let reason = failure.map(|failure| format!("A new job begins: {failure}"));
                    Decision { actual: ActualState::Starting, reason, step: RunStep::Begin { anew } }
                }
            }
        }
    }
}

/// Decides for a run that is stored, and that the CI system has not confirmed.
fn unmade(view: &PlanInput<'_>, run: &CiRun) -> Decision {
    let PlanInput { life, heard, now, pace, begun_at, .. } = *view;
    let left = |asked_at: UnixSeconds| begun_at.map_or(asked_at, |begun_at| begun_at.max(asked_at));
    let settled = run.asked_at.map(|asked_at| left(asked_at).later(pace.settle));
    let free = [settled, heard.trouble.as_ref().map(|trouble| trouble.until)];
    let wait = free.into_iter().flatten().max().filter(|free| *free > now);
    let is_wanted = life.desired == DesiredState::Running && run.stop_at.is_none();
    let step = match (is_wanted, settled, wait) {
        // The run was never asked for, so there is nothing to end.
        (false, None, _) => RunStep::End(Ending::Well),
        (_, _, Some(free)) => RunStep::Wait(Some(free)),
        (true, None, None) => RunStep::Create,
        (true, Some(_), None) if heard.refused.is_none() => RunStep::Create,
        (true | false, Some(_), None) => RunStep::Find,
    };
    let asking = || match &heard.refused {
        Some(why) => format!("It is looked for the job that was asked for before, since none can be made now: {why}"),
        None => "The CI system is asked for a job".to_owned(),
    };
    let reason = troubled(heard).or_else(|| is_wanted.then(asking));
    Decision { actual: on_the_way(life), reason, step }
}

/// Decides for a run that the CI system has made.
fn made(view: &PlanInput<'_>, run: &CiRun) -> Decision {
    let PlanInput { life, heard, .. } = *view;
    if let Some(state) = heard.state.filter(|state| state.is_over()) {
        return Decision { actual: on_the_way(life), reason: None, step: RunStep::End(ending(view, run, state)) };
    }
    match life.desired == DesiredState::Running && run.stop_at.is_none() {
        true => wanted(view, run),
        false => unwanted(view, run),
    }
}

/// Decides for a run that is to go on.
fn wanted(view: &PlanInput<'_>, run: &CiRun) -> Decision {
    let PlanInput { heard, is_up, now, pace, .. } = *view;
    let (actual, reason) = shown(view, run);
    let decision = |step| Decision { actual, reason: reason.clone(), step };
    if is_up && run.up_at.is_none() {
        return decision(RunStep::NoteUp);
    }
    let deadlines = Deadlines::of(view, run);
    let is_due = |at: Option<UnixSeconds>| at.is_some_and(|at| at <= now);
    if is_due(deadlines.renew) {
        // A job whose agent never connected would be followed by another at once, and so on for ever.
        let is_missing = run.up_at.is_none();
        let failure = is_missing.then(|| "the job's agent did not connect before its time was over".to_owned());
        return decision(RunStep::Stop { failure });
    }
    if is_due(deadlines.first) {
        let failure = format!("the job's agent did not connect within {} minutes", minutes(pace.agent_first));
        return decision(RunStep::Stop { failure: Some(failure) });
    }
    if is_due(deadlines.away) {
        let failure = format!("the job's agent was not connected for {} minutes", minutes(pace.agent_away));
        return decision(RunStep::Stop { failure: Some(failure) });
    }
    let is_quiet = is_up && heard.state == Some(RunState::Running);
    let since = [run.asked_at, run.started_at, run.up_at, heard.away_since].into_iter().flatten().max();
    let ask_at = asking(heard, if is_quiet { pace.ask_rarely } else { pace.often(since, now) });
    if ask_at.is_none_or(|at| at <= now) {
        return decision(RunStep::Ask);
    }
    let next = [ask_at, deadlines.warn, deadlines.renew, deadlines.first, deadlines.away, unknown_at(view)];
    decision(RunStep::Wait(next.into_iter().flatten().filter(|at| *at > now).min()))
}

/// Decides for a run that is to end.
fn unwanted(view: &PlanInput<'_>, run: &CiRun) -> Decision {
    let PlanInput { life, heard, is_up, now, pace, .. } = *view;
    let decision =
        |step| Decision { actual: on_the_way(life), reason: troubled(heard).or_else(|| renewal(life)), step };
    let Some(stop_at) = run.stop_at else { return decision(RunStep::Stop { failure: None }) };
    if is_up {
        return decision(RunStep::Close);
    }
    let (next, at) = match (cut(view, run, stop_at), run.cancel_at) {
        ((RunStep::Cancel, at), Some(cancel_at)) => (RunStep::Cancel, at.max(cancel_at.later(pace.cancel_again))),
        (cut, _) => cut,
    };
    let is_free = heard.trouble.as_ref().is_none_or(|trouble| trouble.until <= now);
    if at <= now && is_free {
        return decision(next);
    }
    let ask_at = asking(heard, pace.often(Some(stop_at), now));
    if ask_at.is_none_or(|at| at <= now) {
        return decision(RunStep::Ask);
    }
    decision(RunStep::Wait([ask_at, Some(at)].into_iter().flatten().filter(|at| *at > now).min()))
}

/// Returns the step for a run that is to end and does not, and its time.
fn cut(view: &PlanInput<'_>, run: &CiRun, stop_at: UnixSeconds) -> (RunStep, UnixSeconds) {
    let PlanInput { life, heard, time, pace, .. } = *view;
    // Without an agent no files are kept, and those of a terminated workspace are not to be.
    if run.up_at.is_none() || life.desired == DesiredState::Terminated {
        return (RunStep::Cancel, stop_at);
    }
    let told = stop_at.later(pace.stop_grace);
    // A cancelled job saves nothing: while it may be saving, only its time limits end it.
    let saved = told.later(time.save_max());
    let over = run.started_at.map(|started_at| started_at.later(time.end()).later(pace.settle));
    let bound = over.map_or(saved, |over| saved.min(over));
    match heard.leaving {
        Leaving::Told => (RunStep::Cancel, bound),
        Leaving::Stuck => (RunStep::Cancel, told.min(bound)),
        Leaving::Unknown => {
            let again = heard.looked_at.map(|looked_at| looked_at.later(pace.cancel_again));
            let at = again.map_or(told, |again| again.max(told));
            if at < bound { (RunStep::Look, at) } else { (RunStep::Cancel, bound) }
        }
    }
}

/// Times at which the state of a run that goes on changes.
struct Deadlines {
    warn: Option<UnixSeconds>,
    renew: Option<UnixSeconds>,
    first: Option<UnixSeconds>,
    away: Option<UnixSeconds>,
}

impl Deadlines {
    fn of(view: &PlanInput<'_>, run: &CiRun) -> Self {
        let PlanInput { heard, is_up, time, pace, .. } = *view;
        let from_start = |after: Duration| run.started_at.map(|started_at| started_at.later(after));
        let is_missing = run.up_at.is_none() && !is_up;
        Self {
            warn: from_start(time.warn()),
            renew: from_start(time.renew()),
            first: from_start(pace.agent_first).filter(|_| is_missing),
            away: heard.away_since.map(|since| since.later(pace.agent_away)),
        }
    }
}

/// Returns the reported state of a run that goes on, for people.
fn shown(view: &PlanInput<'_>, run: &CiRun) -> (ActualState, Option<String>) {
    let PlanInput { heard, is_up, time, now, .. } = *view;
    let is_near = Deadlines::of(view, run).warn.is_some_and(|warn| warn <= now);
    let ends = run.started_at.filter(|_| is_near).map(|started_at| {
        let end = started_at.later(time.renew());
        format!("Save your work: the job ends at {end}, and a new one takes its place. The project's files are kept")
    });
    if is_up {
        return (ActualState::Running, ends);
    }
    if unknown_at(view).is_some_and(|at| at <= now) {
        return (ActualState::Unknown, troubled(heard));
    }
    let waits = match (run.up_at, heard.state) {
        (Some(_), _) => return (ActualState::Running, Some("Its agent is not connected at the moment".to_owned())),
        (None, Some(RunState::Running)) => "Its job runs, and its agent is about to connect",
        (None, _) => "Its job waits for a runner",
    };
    (ActualState::Starting, troubled(heard).or_else(|| Some(waits.to_owned())))
}

/// Returns the transitional state of a workspace towards its desired state.
fn on_the_way(life: &Lifecycle) -> ActualState {
    match life.desired {
        DesiredState::Running => ActualState::Starting,
        DesiredState::Stopped | DesiredState::RestartRequested => ActualState::Stopping,
        DesiredState::Terminated => ActualState::Terminating,
    }
}

/// Returns the reason why a workspace with a job is starting.
fn renewal(life: &Lifecycle) -> Option<String> {
    (life.desired == DesiredState::Running).then(|| "Its last job is ending, and a new one takes its place".to_owned())
}

fn troubled(heard: &ObservedRun) -> Option<String> {
    heard.trouble.as_ref().map(|trouble| format!("The last request to the CI system failed: {}", trouble.why))
}

/// Returns the time from which the state of a run is unknown.
fn unknown_at(view: &PlanInput<'_>) -> Option<UnixSeconds> {
    view.heard.trouble.as_ref().map(|trouble| trouble.since.later(view.pace.unknown_after))
}

/// Returns the time of the next status query; `None` for at once.
fn asking(heard: &ObservedRun, every: Duration) -> Option<UnixSeconds> {
    let trouble = heard.trouble.as_ref().map(|trouble| trouble.until);
    // After trouble, the query is repeated once the pause is over, counted from the failed one.
    trouble.or_else(|| heard.asked_at.map(|asked_at| asked_at.later(every)))
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

#[cfg(test)]
mod tests;
