//! What is done next for one workspace in a CI system: one decision from what is stored, what was heard and what time it is.
//!
//! ```text
//!   no run ──Begin──► decided on ──Create──► made ──Ask…──► over ──End──► no run
//!      ▲                  │ Find: never made    │ Stop, Cancel, Ask…          │
//!      └──────────────────┴────────────────────┴────────────────────────────┘
//! ```
//!
//! Everything that the decision rests on is stored before it is acted upon, so it can be made again after a crash at any
//! moment, with the same outcome: a run's key before the CI system is asked for the run, the wish to end it before anybody is
//! told. A next run is decided on when the CI system said that the last one is over, and not before.

use std::time::Duration;

use super::provider::RunState;
use crate::model::{ActualState, DesiredState, JobTime, Lifecycle, UnixSeconds};
use crate::store::{CiRun, CiState};

mod end;
mod heard;
mod orphan;
mod record;

pub(super) use self::end::Ending;
use self::end::{ending, lost};
pub(super) use self::heard::{Heard, Leaving};
pub(super) use self::orphan::{OrphanStep, orphaned};
pub(super) use self::record::{
    asked, cancelling, ended, impossible, known, named, stopping, unmade_for_good, unsaved, up,
};

/// How long things take and how often they are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// From telling the agent to end until it is looked whether the job is ending. One that is not is cancelled then, since its
    /// agent cannot be told; one that is saves its files, which is left alone for as long as that may take.
    pub(super) stop_grace: Duration,
    /// After it was asked for a run, the CI system has made it or never will. Longer than a request may take.
    pub(super) settle: Duration,
    /// Between two requests to end a run.
    pub(super) cancel_again: Duration,
    /// Between two questions about a run that something is expected of, in the first minute.
    pub(super) ask_often: Duration,
    /// The longest of these: what has not happened for long is not expected at once, and many may wait for one runner.
    pub(super) ask_often_max: Duration,
    /// Between two questions about a run whose agent is connected.
    pub(super) ask_rarely: Duration,
    /// How long a CI system may not answer until nobody knows what its jobs do.
    pub(super) unknown_after: Duration,
    /// How long the agent of a running job may take to connect first.
    pub(super) agent_first: Duration,
    /// How long it may be away.
    pub(super) agent_away: Duration,
    /// Between the end of a run that failed and the next one, doubled with each that fails too.
    pub(super) retry_first: Duration,
    /// The longest of these.
    pub(super) retry_max: Duration,
    /// A run whose agent was there for so long was a good one: failures are counted anew.
    pub(super) healthy: Duration,
}

impl Pace {
    /// What gateways keep to.
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

    /// Returns how often to ask about a run that something is expected of since then.
    fn often(&self, since: Option<UnixSeconds>, now: UnixSeconds) -> Duration {
        /// Of the time that was waited already.
        const PART: u32 = 20;
        let waited = since.map_or(0, |since| now.get().saturating_sub(since.get()));
        let waited = Duration::from_secs(u64::try_from(waited).unwrap_or(0));
        (waited / PART).clamp(self.ask_often, self.ask_often_max)
    }

    /// Returns how long to wait after so many failures.
    fn retry(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.retry_first.saturating_mul(factor).min(self.retry_max)
    }
}

/// Everything that a decision rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// What is wanted, and what was seen last.
    pub(super) life: &'a Lifecycle,
    /// The runs.
    pub(super) ci: &'a CiState,
    /// What was heard of the last one, after [`Heard::look`].
    pub(super) heard: &'a Heard,
    /// An agent of the workspace is connected.
    pub(super) is_up: bool,
    /// What happens when in the time of a job.
    pub(super) time: JobTime,
    /// The wall clock.
    pub(super) now: UnixSeconds,
    /// How long things take.
    pub(super) pace: &'a Pace,
}

/// What is done next, and what the workspace is said to be before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// What it is.
    pub(super) actual: ActualState,
    /// Why, for people.
    pub(super) reason: Option<String>,
    /// What is done.
    pub(super) step: Step,
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Write down a new run. With `anew`, its owner asked again since the last one: earlier failures do not count.
    Begin {
        /// Failures are forgotten.
        anew: bool,
    },
    /// Ask for the run, after writing down when: [`asked`].
    Create,
    /// Look whether the run was made, since nobody knows, and nobody wants it any more or it cannot be asked for again.
    Find,
    /// Ask where the run stands.
    Ask,
    /// Write down that the agent came: [`up`].
    NoteUp,
    /// Write down that the run is to end, and why if that is a failure: [`stopping`]. Then tell the agent.
    Stop {
        /// What is wrong with it.
        failure: Option<String>,
    },
    /// Tell the agent once more.
    Close,
    /// Look into the job's log, whether it is ending.
    Look,
    /// Ask the CI system to end the run, after writing down when: [`cancelling`].
    Cancel,
    /// Write down that nothing is left of the run, and what is to be said of it: [`ended`] or
    /// [`unsaved`].
    End(Ending),
    /// Have the CI system delete what the runs left to each other. Then nothing is left of the workspace.
    Forget,
    /// Look again then, or when something happens.
    Wait(Option<UnixSeconds>),
}

/// Decides what is done next.
pub(super) fn decide(view: &View<'_>) -> Decision {
    match view.ci.live() {
        None => idle(view),
        Some(run) if run.pipeline.is_none() => unmade(view, run),
        Some(run) => made(view, run),
    }
}

/// There is no run.
fn idle(view: &View<'_>) -> Decision {
    let View { life, ci, heard, now, .. } = *view;
    let trouble = heard.trouble.as_ref().filter(|trouble| trouble.until > now);
    match life.desired {
        DesiredState::Terminated if life.actual == ActualState::Terminated => Decision {
            actual: ActualState::Terminated,
            reason: life.reason.as_deref().map(str::to_owned),
            step: Step::Wait(None),
        },
        DesiredState::Terminated => {
            let step = trouble.map_or(Step::Forget, |trouble| Step::Wait(Some(trouble.until)));
            Decision { actual: ActualState::Terminating, reason: troubled(heard), step }
        }
        DesiredState::Stopped | DesiredState::RestartRequested => {
            Decision { actual: ActualState::Stopped, reason: lost(ci), step: Step::Wait(None) }
        }
        DesiredState::Running => {
            let anew = ci.run.as_ref().is_some_and(|run| life.generation > run.intent);
            let retry_at = ci.retry_at.filter(|retry_at| *retry_at > now && !anew);
            let failure = ci.run.as_ref().and_then(|run| run.failure.as_deref()).filter(|_| !anew);
            match retry_at {
                Some(retry_at) => {
                    let failure = failure.unwrap_or("the last job ended");
                    let reason = format!("A new job is tried at {retry_at}: {failure}");
                    Decision { actual: ActualState::Failed, reason: Some(reason), step: Step::Wait(Some(retry_at)) }
                }
                None => {
                    let reason = failure.map(|failure| format!("A new job begins: {failure}"));
                    Decision { actual: ActualState::Starting, reason, step: Step::Begin { anew } }
                }
            }
        }
    }
}

/// The run is decided on, and the CI system has not said that it is made.
fn unmade(view: &View<'_>, run: &CiRun) -> Decision {
    let View { life, heard, now, pace, .. } = *view;
    let settled = run.asked_at.map(|asked_at| asked_at.later(pace.settle));
    let free = [settled, heard.trouble.as_ref().map(|trouble| trouble.until)];
    let wait = free.into_iter().flatten().max().filter(|free| *free > now);
    let is_wanted = life.desired == DesiredState::Running && run.stop_at.is_none();
    let step = match (is_wanted, settled, wait) {
        // Nobody was asked, so there is nothing.
        (false, None, _) => Step::End(Ending::Well),
        (_, _, Some(free)) => Step::Wait(Some(free)),
        (true, None, None) => Step::Create,
        (true, Some(_), None) if heard.refused.is_none() => Step::Create,
        (true | false, Some(_), None) => Step::Find,
    };
    let asking = || match &heard.refused {
        Some(why) => format!("It is looked for the job that was asked for before, since none can be made now: {why}"),
        None => "The CI system is asked for a job".to_owned(),
    };
    let reason = troubled(heard).or_else(|| is_wanted.then(asking));
    Decision { actual: on_the_way(life), reason, step }
}

/// The CI system has made the run.
fn made(view: &View<'_>, run: &CiRun) -> Decision {
    let View { life, heard, .. } = *view;
    if let Some(state) = heard.state.filter(|state| state.is_over()) {
        return Decision { actual: on_the_way(life), reason: None, step: Step::End(ending(view, run, state)) };
    }
    match life.desired == DesiredState::Running && run.stop_at.is_none() {
        true => wanted(view, run),
        false => unwanted(view, run),
    }
}

/// The run is to go on.
fn wanted(view: &View<'_>, run: &CiRun) -> Decision {
    let View { heard, is_up, now, pace, .. } = *view;
    let (actual, reason) = shown(view, run);
    let decision = |step| Decision { actual, reason: reason.clone(), step };
    if is_up && run.up_at.is_none() {
        return decision(Step::NoteUp);
    }
    let deadlines = Deadlines::of(view, run);
    let is_due = |at: Option<UnixSeconds>| at.is_some_and(|at| at <= now);
    if is_due(deadlines.renew) {
        // A job that nobody saw would be followed by another at once, and so on for ever.
        let is_missing = run.up_at.is_none();
        let failure = is_missing.then(|| "the job's agent did not connect before its time was over".to_owned());
        return decision(Step::Stop { failure });
    }
    if is_due(deadlines.first) {
        let failure = format!("the job's agent did not connect within {} minutes", minutes(pace.agent_first));
        return decision(Step::Stop { failure: Some(failure) });
    }
    if is_due(deadlines.away) {
        let failure = format!("the job's agent was not connected for {} minutes", minutes(pace.agent_away));
        return decision(Step::Stop { failure: Some(failure) });
    }
    let is_quiet = is_up && heard.state == Some(RunState::Running);
    let since = [run.asked_at, run.started_at, run.up_at, heard.away_since].into_iter().flatten().max();
    let ask_at = asking(heard, if is_quiet { pace.ask_rarely } else { pace.often(since, now) });
    if ask_at.is_none_or(|at| at <= now) {
        return decision(Step::Ask);
    }
    let next = [ask_at, deadlines.warn, deadlines.renew, deadlines.first, deadlines.away, unknown_at(view)];
    decision(Step::Wait(next.into_iter().flatten().filter(|at| *at > now).min()))
}

/// The run is to end.
fn unwanted(view: &View<'_>, run: &CiRun) -> Decision {
    let View { life, heard, is_up, now, pace, .. } = *view;
    let decision =
        |step| Decision { actual: on_the_way(life), reason: troubled(heard).or_else(|| renewal(life)), step };
    let Some(stop_at) = run.stop_at else { return decision(Step::Stop { failure: None }) };
    if is_up {
        return decision(Step::Close);
    }
    let (next, at) = match (cut(view, run, stop_at), run.cancel_at) {
        ((Step::Cancel, at), Some(cancel_at)) => (Step::Cancel, at.max(cancel_at.later(pace.cancel_again))),
        (cut, _) => cut,
    };
    let is_free = heard.trouble.as_ref().is_none_or(|trouble| trouble.until <= now);
    if at <= now && is_free {
        return decision(next);
    }
    let ask_at = asking(heard, pace.often(Some(stop_at), now));
    if ask_at.is_none_or(|at| at <= now) {
        return decision(Step::Ask);
    }
    decision(Step::Wait([ask_at, Some(at)].into_iter().flatten().filter(|at| *at > now).min()))
}

/// Returns what is done with a run that is to end and does not, and when.
fn cut(view: &View<'_>, run: &CiRun, stop_at: UnixSeconds) -> (Step, UnixSeconds) {
    let View { life, heard, time, pace, .. } = *view;
    // Without an agent nothing is kept, and what is terminated is not to be.
    if run.up_at.is_none() || life.desired == DesiredState::Terminated {
        return (Step::Cancel, stop_at);
    }
    let told = stop_at.later(pace.stop_grace);
    // Cancelled, a job saves nothing: while it may be saving, only its bounds end it.
    let saved = told.later(time.save_max());
    let over = run.started_at.map(|started_at| started_at.later(time.end()).later(pace.settle));
    let bound = over.map_or(saved, |over| saved.min(over));
    match heard.leaving {
        Leaving::Told => (Step::Cancel, bound),
        Leaving::Stuck => (Step::Cancel, told.min(bound)),
        Leaving::Unknown => {
            let again = heard.looked_at.map(|looked_at| looked_at.later(pace.cancel_again));
            let at = again.map_or(told, |again| again.max(told));
            if at < bound { (Step::Look, at) } else { (Step::Cancel, bound) }
        }
    }
}

/// When something becomes of a run that goes on.
struct Deadlines {
    warn: Option<UnixSeconds>,
    renew: Option<UnixSeconds>,
    first: Option<UnixSeconds>,
    away: Option<UnixSeconds>,
}

impl Deadlines {
    fn of(view: &View<'_>, run: &CiRun) -> Self {
        let View { heard, is_up, time, pace, .. } = *view;
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

/// Returns what a run that goes on is, for people.
fn shown(view: &View<'_>, run: &CiRun) -> (ActualState, Option<String>) {
    let View { heard, is_up, time, now, .. } = *view;
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

/// Returns what a workspace is while it becomes what it is to be.
fn on_the_way(life: &Lifecycle) -> ActualState {
    match life.desired {
        DesiredState::Running => ActualState::Starting,
        DesiredState::Stopped | DesiredState::RestartRequested => ActualState::Stopping,
        DesiredState::Terminated => ActualState::Terminating,
    }
}

/// Says why a workspace that is to run is starting although it has a job.
fn renewal(life: &Lifecycle) -> Option<String> {
    (life.desired == DesiredState::Running).then(|| "Its last job is ending, and a new one takes its place".to_owned())
}

fn troubled(heard: &Heard) -> Option<String> {
    heard.trouble.as_ref().map(|trouble| format!("The CI system does not do what it is asked for: {}", trouble.why))
}

/// Returns when nobody knows any more what a run does.
fn unknown_at(view: &View<'_>) -> Option<UnixSeconds> {
    view.heard.trouble.as_ref().map(|trouble| trouble.since.later(view.pace.unknown_after))
}

/// Returns when to ask about a run; `None` for at once.
fn asking(heard: &Heard, every: Duration) -> Option<UnixSeconds> {
    let trouble = heard.trouble.as_ref().map(|trouble| trouble.until);
    // After trouble, when that is over; it was asked then.
    trouble.or_else(|| heard.asked_at.map(|asked_at| asked_at.later(every)))
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

#[cfg(test)]
mod tests;
