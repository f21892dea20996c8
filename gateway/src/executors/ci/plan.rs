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

use super::provider::{RunState, RunStatus};
use crate::model::{ActualState, DesiredState, Lifecycle, UnixSeconds};
use crate::store::{CiRun, CiState};

mod orphan;

pub(super) use self::orphan::{OrphanStep, orphaned};

/// How long things take and how often they are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// From telling the agent to end until the CI system is asked to end the job: what is kept is packed meanwhile.
    pub(super) stop_grace: Duration,
    /// After it was asked for a run, the CI system has made it or never will. Longer than a request may take.
    pub(super) settle: Duration,
    /// Between two requests to end a run.
    pub(super) cancel_again: Duration,
    /// Between two questions about a run that something is expected of.
    pub(super) ask_often: Duration,
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
    /// So long before its job's time is up, people are told.
    pub(super) warn_before: Duration,
    /// So long before, the run is ended in good order and another takes its place.
    pub(super) renew_before: Duration,
}

impl Pace {
    /// What gateways keep to.
    pub(super) const DEFAULT: Self = Self {
        stop_grace: Duration::from_secs(120),
        settle: Duration::from_secs(30),
        cancel_again: Duration::from_secs(30),
        ask_often: Duration::from_secs(3),
        ask_rarely: Duration::from_secs(60),
        unknown_after: Duration::from_secs(2 * 60),
        agent_first: Duration::from_secs(15 * 60),
        agent_away: Duration::from_secs(5 * 60),
        retry_first: Duration::from_secs(10),
        retry_max: Duration::from_secs(10 * 60),
        healthy: Duration::from_secs(10 * 60),
        warn_before: Duration::from_secs(15 * 60),
        renew_before: Duration::from_secs(5 * 60),
    };

    /// Returns how long to wait after so many failures.
    fn retry(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.retry_first.saturating_mul(factor).min(self.retry_max)
    }
}

/// What this process heard of one run. Lost with it: then it is asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Which run.
    pub(super) run: u64,
    /// Where it stands, as the CI system last said.
    pub(super) state: Option<RunState>,
    /// Why its job failed, in the CI system's word.
    pub(super) failure: Option<String>,
    /// When it was last asked about.
    pub(super) asked_at: Option<UnixSeconds>,
    /// The CI system does not do what it is asked for.
    pub(super) trouble: Option<Trouble>,
    /// Since when its agent is away, which was there.
    pub(super) away_since: Option<UnixSeconds>,
    /// Why the run cannot be made, which was asked for before: whether that made it has to be seen first.
    pub(super) refused: Option<String>,
}

/// A CI system that does not do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Since when.
    pub(super) since: UnixSeconds,
    /// How often in a row.
    pub(super) count: u32,
    /// When it is asked again.
    pub(super) until: UnixSeconds,
    /// What it says, or what is wrong with it.
    pub(super) why: String,
}

impl Heard {
    /// Forgets what is about another run than the last one, and takes note of whether the agent is there.
    pub(super) fn look(&mut self, ci: &CiState, is_up: bool, now: UnixSeconds) {
        let number = ci.run.as_ref().map_or(0, |run| run.number);
        if self.run != number {
            *self = Self { run: number, trouble: self.trouble.take(), ..Self::default() };
        }
        let was_up = ci.live().is_some_and(|run| run.up_at.is_some());
        self.away_since = if is_up || !was_up { None } else { self.away_since.or(Some(now)) };
    }

    /// Takes what the CI system said of the run.
    pub(super) fn told(&mut self, status: &RunStatus, now: UnixSeconds) {
        self.state = Some(status.state);
        self.failure = status.job.as_ref().and_then(|job| job.failure.clone()).or(self.failure.take());
        self.asked_at = Some(now);
        self.trouble = None;
    }

    /// The CI system did what it was asked for.
    pub(super) fn well(&mut self) {
        self.trouble = None;
    }

    /// The CI system did not do it, and is left alone for a while: at least for as long as it wants.
    pub(super) fn failed(&mut self, why: String, wanted: Option<Duration>, now: UnixSeconds) {
        /// The longest that it is left alone unless it wants that.
        const PAUSE_MAX: Duration = Duration::from_secs(60);
        let (since, count) = self.trouble.as_ref().map_or((now, 0), |before| (before.since, before.count));
        let pause = Duration::from_secs(1 << count.min(6)).min(PAUSE_MAX).max(wanted.unwrap_or_default());
        self.asked_at = Some(now);
        self.trouble = Some(Trouble { since, count: count.saturating_add(1), until: now.later(pause), why });
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
    /// After how long the CI system ends a job.
    pub(super) job_timeout: Duration,
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
    /// Ask the CI system to end the run, after writing down when: [`cancelling`].
    Cancel,
    /// Write down that nothing is left of the run, and why if that is a failure: [`ended`].
    End {
        /// What went wrong.
        failure: Option<String>,
    },
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
            Decision { actual: ActualState::Stopped, reason: None, step: Step::Wait(None) }
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
        (false, None, _) => Step::End { failure: None },
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
        let failure = match run.stop_at {
            Some(_) => run.failure.as_deref().map(str::to_owned),
            None => Some(ending(state, heard.failure.as_deref())),
        };
        return Decision { actual: on_the_way(life), reason: None, step: Step::End { failure } };
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
        return decision(Step::Stop { failure: None });
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
    let ask_at = asking(heard, if is_quiet { pace.ask_rarely } else { pace.ask_often });
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
    // Without an agent nothing is kept, and what is terminated is not to be.
    let has_grace = run.up_at.is_some() && life.desired != DesiredState::Terminated;
    let cancel_at = match run.cancel_at {
        None => stop_at.later(if has_grace { pace.stop_grace } else { Duration::ZERO }),
        Some(cancel_at) => cancel_at.later(pace.cancel_again),
    };
    let is_free = heard.trouble.as_ref().is_none_or(|trouble| trouble.until <= now);
    if cancel_at <= now && is_free {
        return decision(Step::Cancel);
    }
    let ask_at = asking(heard, pace.ask_often);
    if ask_at.is_none_or(|at| at <= now) {
        return decision(Step::Ask);
    }
    decision(Step::Wait([ask_at, Some(cancel_at)].into_iter().flatten().filter(|at| *at > now).min()))
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
        let View { heard, is_up, job_timeout, pace, .. } = *view;
        // Of short jobs, a part.
        let before = |margin: Duration, part: u32| job_timeout.saturating_sub(margin.min(job_timeout / part));
        let from_start = |after: Duration| run.started_at.map(|started_at| started_at.later(after));
        let is_missing = run.up_at.is_none() && !is_up;
        Self {
            warn: from_start(before(pace.warn_before, 4)),
            renew: from_start(before(pace.renew_before, 12)),
            first: from_start(pace.agent_first).filter(|_| is_missing),
            away: heard.away_since.map(|since| since.later(pace.agent_away)),
        }
    }
}

/// Returns what a run that goes on is, for people.
fn shown(view: &View<'_>, run: &CiRun) -> (ActualState, Option<String>) {
    let View { heard, is_up, job_timeout, now, .. } = *view;
    let is_near = Deadlines::of(view, run).warn.is_some_and(|warn| warn <= now);
    let ends = run.started_at.filter(|_| is_near).map(|started_at| {
        let end = started_at.later(job_timeout);
        format!(
            "Save your work: the job ends before {end}, and a new one takes its place. The project's files are kept"
        )
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

/// Says how a run ended that was to go on.
fn ending(state: RunState, failure: Option<&str>) -> String {
    let why = failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
    match state {
        RunState::Failed => format!("the job failed{why}"),
        RunState::Canceled => format!("the job was cancelled in the CI system{why}"),
        RunState::Gone => "the CI system does not know the pipeline any more".to_owned(),
        RunState::Succeeded | RunState::Pending | RunState::Running => format!("the job ended by itself{why}"),
    }
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

/// Writes down that the CI system is asked for the run now.
pub(super) fn asked(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.asked_at = Some(now))
}

/// Writes down what the CI system says of the run: its names, and when its job began.
pub(super) fn known(ci: &CiState, status: &RunStatus) -> CiState {
    with_run(ci, |run| {
        run.pipeline = Some(status.run.id.as_str().into());
        run.child = status.run.child.as_deref().map(Box::from).or(run.child.take());
        run.web_url = status.web_url.as_deref().map(Box::from).or(run.web_url.take());
        run.started_at = run.started_at.or(status.job.as_ref().and_then(|job| job.started_at));
    })
}

/// Writes down what the CI system calls the run.
pub(super) fn named(ci: &CiState, pipeline: &str, child: Option<&str>) -> CiState {
    with_run(ci, |run| {
        run.pipeline = Some(pipeline.into());
        run.child = child.map(Box::from);
    })
}

/// Writes down that the run was not made, and never will be.
pub(super) fn unmade_for_good(ci: &CiState, heard: &Heard, pace: &Pace, now: UnixSeconds) -> CiState {
    ended(ci, heard.refused.as_deref().map(impossible).as_deref(), pace, now)
}

/// Says why there is no run.
pub(super) fn impossible(why: &str) -> String {
    format!("the job cannot be made: {why}")
}

/// Writes down that the agent came.
pub(super) fn up(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.up_at = Some(now))
}

/// Writes down that the run is to end.
pub(super) fn stopping(ci: &CiState, failure: Option<&str>, now: UnixSeconds) -> CiState {
    with_run(ci, |run| {
        run.stop_at = Some(now);
        run.failure = failure.map(Box::from);
    })
}

/// Writes down that the CI system is asked to end the run now.
pub(super) fn cancelling(ci: &CiState, now: UnixSeconds) -> CiState {
    with_run(ci, |run| run.cancel_at = Some(now))
}

/// Writes down that nothing is left of the run, and when the next may begin.
pub(super) fn ended(ci: &CiState, failure: Option<&str>, pace: &Pace, now: UnixSeconds) -> CiState {
    let was_healthy = ci.run.as_ref().and_then(|run| run.up_at).is_some_and(|up_at| up_at.later(pace.healthy) <= now);
    let mut next = with_run(ci, |run| {
        run.ended_at = Some(now);
        run.failure = failure.map(Box::from);
    });
    next.failures = match failure {
        None => 0,
        Some(_) if was_healthy => 1,
        Some(_) => ci.failures.saturating_add(1),
    };
    next.retry_at = failure.map(|_| now.later(pace.retry(next.failures)));
    next
}

fn with_run(ci: &CiState, change: impl FnOnce(&mut CiRun)) -> CiState {
    let mut next = ci.clone();
    if let Some(run) = next.run.as_mut() {
        change(run);
    }
    next
}

#[cfg(test)]
mod tests;
