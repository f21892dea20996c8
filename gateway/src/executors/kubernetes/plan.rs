//! What a cluster's driver does next: the order and the pace of one conversation, without I/O and without a clock.
//!
//! ```text
//!             Terms                begun()               page(some), page(none)
//!   Opening ────────► Listening ──────────► Talking ◄────────────────────────► Talking, in a round
//! ```
//!
//! A conversation begins with a session and ends with it, and nothing is carried over: the next one begins with a full
//! round, which says everything again. So what was lost with the end of one is healed by the next, whenever it ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::store::WorkspaceId;

/// How long the agent may take for its first message.
pub(super) const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two full rounds that nobody asked for (design, section 6.3).
pub(super) const FULL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Between the beginnings of two full rounds, whoever asks: a round reads everything.
pub(super) const FULL_PAUSE: Duration = Duration::from_secs(2);

/// How often it is looked which workspaces are not settled.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What is not acknowledged for so long is said again, once the agent has been silent for as long: one that is at work will
/// come to it.
pub(super) const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// What is not acknowledged for so long is said again, however busy the agent is.
pub(super) const REPEAT_AT_LATEST: Duration = Duration::from_secs(60);

/// Workspaces that one look says again, those that have waited longest first. When a whole cluster does not answer for its
/// workspaces, the rest waits for the next looks.
pub(super) const REPEATS_MAX: usize = 256;

/// Workspaces whose changes wait to be told. Beyond it, it is looked who is not settled instead.
pub(super) const CHANGES_MAX: usize = 4096;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Say how this cluster is worked in.
    Terms,
    /// Say that reports up to this number are stored.
    Noted(u64),
    /// Read a workspace, and say what it is to be if [`Plan::wants`].
    Tell(WorkspaceId, Why),
    /// Read which workspaces come after this one, for the round: [`Plan::page`].
    Page(Option<WorkspaceId>),
    /// Say that the round has named them all.
    RoundEnd {
        /// Its number.
        round: u64,
        /// How many it named.
        workspaces: u32,
    },
    /// Read which workspaces are not settled: [`Plan::unsettled`].
    Look,
    /// The agent did not begin in time: end the conversation.
    Late,
    /// Nothing, until something happens or [`Plan::deadline`].
    Wait,
}

/// Why a workspace is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something about it has changed.
    Changed,
    /// What was said is not acknowledged.
    Repeat,
    /// It is its turn in a full round.
    Round(u64),
}

/// What there is to know of a workspace to decide whether it is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Counts its intents.
    pub(super) generation: u64,
    /// Nothing is to be done about it any more.
    pub(super) is_over: bool,
    /// The newest intent is not fulfilled yet.
    pub(super) is_unsettled: bool,
}

/// The agent said what cannot be said then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum OutOfTurn {
    /// Its first message is not `Begin`.
    #[error("the cluster agent spoke before its Begin")]
    BeforeBegin,
    /// It began twice.
    #[error("the cluster agent said Begin twice")]
    BeginTwice,
    /// Reports are counted from 1.
    #[error("a report of the cluster agent has no number")]
    Unnumbered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Terms are to be said.
    Opening,
    /// The agent is to begin, until then.
    Listening(Instant),
    Talking,
}

/// A full round under way.
#[derive(Debug)]
struct Round {
    number: u64,
    /// Read and not told yet.
    queue: VecDeque<WorkspaceId>,
    /// The last that was read.
    cursor: Option<WorkspaceId>,
    /// All were read.
    is_read: bool,
    named: u32,
}

/// What was said last of a workspace in this conversation.
#[derive(Clone, Copy, Debug)]
struct Told {
    generation: u64,
    at: Instant,
}

/// The plan of one conversation.
///
/// Invariants: `changes` has each workspace once, as `is_waiting` tells; nothing but terms is planned before the agent
/// began; one round at a time.
#[derive(Debug)]
pub(super) struct Plan {
    phase: Phase,
    are_terms_due: bool,
    changes: VecDeque<WorkspaceId>,
    is_waiting: HashSet<WorkspaceId>,
    repeats: VecDeque<WorkspaceId>,
    told: HashMap<WorkspaceId, Told>,
    round: Option<Round>,
    rounds: u64,
    /// When the next round begins.
    full_at: Instant,
    /// When the last round began.
    full_since: Option<Instant>,
    look_at: Instant,
    /// When the last report came.
    heard_at: Option<Instant>,
    /// Number of the last report that is stored.
    stored: u64,
    is_noting: bool,
}

impl Plan {
    /// Makes the plan of a new conversation.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Opening,
            are_terms_due: true,
            changes: VecDeque::new(),
            is_waiting: HashSet::new(),
            repeats: VecDeque::new(),
            told: HashMap::new(),
            round: None,
            rounds: 0,
            full_at: now,
            full_since: None,
            look_at: now + LOOK_INTERVAL,
            heard_at: None,
            stored: 0,
            is_noting: false,
        }
    }

    /// Decides what to do next. What it returns is taken for done.
    pub(super) fn next(&mut self, now: Instant) -> Step {
        if self.are_terms_due {
            self.are_terms_due = false;
            if self.phase == Phase::Opening {
                self.phase = Phase::Listening(now + BEGIN_TIMEOUT);
            }
            return Step::Terms;
        }
        match self.phase {
            Phase::Opening => return Step::Wait,
            Phase::Listening(by) => return if by <= now { Step::Late } else { Step::Wait },
            Phase::Talking => {}
        }
        if std::mem::take(&mut self.is_noting) {
            return Step::Noted(self.stored);
        }
        // People wait for what has just changed, and for nothing else here.
        if let Some(workspace) = self.changes.pop_front() {
            self.is_waiting.remove(&workspace);
            return Step::Tell(workspace, Why::Changed);
        }
        self.round_step(now).unwrap_or_else(|| self.quiet_step(now))
    }

    fn round_step(&mut self, now: Instant) -> Option<Step> {
        if self.round.is_none() && self.full_at <= now {
            self.rounds += 1;
            self.full_since = Some(now);
            self.full_at = now + FULL_INTERVAL;
            // The round says them again anyway.
            self.repeats.clear();
            let number = self.rounds;
            self.round = Some(Round { number, queue: VecDeque::new(), cursor: None, is_read: false, named: 0 });
        }
        let round = self.round.as_mut()?;
        if let Some(workspace) = round.queue.pop_front() {
            return Some(Step::Tell(workspace, Why::Round(round.number)));
        }
        if !round.is_read {
            return Some(Step::Page(round.cursor));
        }
        let (round, workspaces) = (round.number, round.named);
        self.round = None;
        self.look_at = now + LOOK_INTERVAL;
        Some(Step::RoundEnd { round, workspaces })
    }

    fn quiet_step(&mut self, now: Instant) -> Step {
        if self.look_at <= now {
            self.look_at = now + LOOK_INTERVAL;
            return Step::Look;
        }
        self.repeats.pop_front().map_or(Step::Wait, |workspace| Step::Tell(workspace, Why::Repeat))
    }

    /// Returns when to ask again, if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Opening => None,
            Phase::Listening(by) => Some(by),
            Phase::Talking => Some(self.full_at.min(self.look_at)),
        }
    }

    /// The agent began.
    ///
    /// # Errors
    /// [`OutOfTurn::BeginTwice`].
    pub(super) fn begun(&mut self) -> Result<(), OutOfTurn> {
        match self.phase {
            Phase::Talking => Err(OutOfTurn::BeginTwice),
            Phase::Opening | Phase::Listening(_) => {
                self.phase = Phase::Talking;
                Ok(())
            }
        }
    }

    /// A report came. Returns whether it is new: one that was stored before is only acknowledged again.
    ///
    /// # Errors
    /// [`OutOfTurn`].
    pub(super) fn reported(&mut self, number: u64, now: Instant) -> Result<bool, OutOfTurn> {
        self.talks()?;
        self.heard_at = Some(now);
        if number == 0 {
            return Err(OutOfTurn::Unnumbered);
        }
        self.is_noting |= number <= self.stored;
        Ok(number > self.stored)
    }

    /// A new report, and all before it, are stored or are not worth to be.
    pub(super) fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
        self.is_noting = true;
    }

    /// The agent asked for a full round.
    ///
    /// # Errors
    /// [`OutOfTurn`].
    pub(super) fn full_requested(&mut self, now: Instant) -> Result<(), OutOfTurn> {
        self.talks()?;
        self.full_wanted(now);
        Ok(())
    }

    /// Everything is to be said again; a round that is under way is ended first.
    pub(super) fn full_wanted(&mut self, now: Instant) {
        let earliest = self.full_since.map_or(now, |since| now.max(since + FULL_PAUSE));
        self.full_at = self.full_at.min(earliest);
    }

    /// The terms are others now: they are said again, and then everything.
    pub(super) fn terms_changed(&mut self, now: Instant) {
        self.are_terms_due = true;
        self.full_wanted(now);
    }

    /// Something about a workspace has changed.
    pub(super) fn changed(&mut self, workspace: WorkspaceId, now: Instant) {
        if self.changes.len() >= CHANGES_MAX {
            return self.missed(now);
        }
        if self.is_waiting.insert(workspace) {
            self.changes.push_back(workspace);
        }
    }

    /// Changes were not heard of: whoever is not settled is told, now.
    pub(super) fn missed(&mut self, now: Instant) {
        self.look_at = now;
    }

    /// The next workspaces of the round, in the order in which they are read; none after the last.
    pub(super) fn page(&mut self, workspaces: &[WorkspaceId]) {
        let Some(round) = &mut self.round else { return };
        match workspaces.last() {
            Some(last) => {
                round.cursor = Some(*last);
                round.queue.extend(workspaces);
            }
            None => round.is_read = true,
        }
    }

    /// Those that are not settled: the ones about which nothing was said for a while are told again.
    pub(super) fn unsettled(&mut self, workspaces: &[WorkspaceId], now: Instant) {
        let since = |workspace: &WorkspaceId| self.told.get(workspace).map(|told| told.at);
        let is_busy = self.heard_at.is_some_and(|at| now < at + REPEAT_AFTER);
        let patience = if is_busy { REPEAT_AT_LATEST } else { REPEAT_AFTER };
        let is_old = |workspace: &&WorkspaceId| since(workspace).is_none_or(|at| now >= at + patience);
        let mut waiting: Vec<WorkspaceId> = workspaces.iter().filter(is_old).copied().collect();
        // What was never said is the oldest of all.
        waiting.sort_by_key(since);
        waiting.truncate(REPEATS_MAX);
        self.repeats = waiting.into();
    }

    /// Decides whether a workspace that was read is told about, for the reason for which it was read.
    pub(super) fn wants(&self, workspace: WorkspaceId, standing: Standing, why: Why) -> bool {
        let told = self.told.get(&workspace);
        match why {
            Why::Round(_) => !standing.is_over,
            Why::Repeat => standing.is_unsettled,
            // Its agent forgets it when it hears that it is over, if it knows it.
            Why::Changed if standing.is_over => told.is_some(),
            Why::Changed => told.is_none_or(|told| told.generation != standing.generation),
        }
    }

    /// A workspace was told about.
    pub(super) fn told(&mut self, workspace: WorkspaceId, standing: Standing, why: Why, now: Instant) {
        if standing.is_over {
            self.told.remove(&workspace);
        } else {
            self.told.insert(workspace, Told { generation: standing.generation, at: now });
        }
        match (why, &mut self.round) {
            (Why::Round(number), Some(round)) if round.number == number => round.named = round.named.saturating_add(1),
            (Why::Round(_) | Why::Changed | Why::Repeat, _) => {}
        }
    }

    /// A workspace cannot be told about: it is not tried again at once.
    pub(super) fn left_out(&mut self, workspace: WorkspaceId, generation: u64, now: Instant) {
        self.told.insert(workspace, Told { generation, at: now });
    }

    /// The agent knows of a workspace that is over: it is told so once more.
    pub(super) fn knows_what_is_over(&mut self, workspace: WorkspaceId, now: Instant) {
        self.told.entry(workspace).or_insert(Told { generation: 0, at: now });
        self.changed(workspace, now);
    }

    /// A workspace is not there any more.
    pub(super) fn gone(&mut self, workspace: WorkspaceId) {
        self.told.remove(&workspace);
    }

    fn talks(&self) -> Result<(), OutOfTurn> {
        match self.phase {
            Phase::Talking => Ok(()),
            Phase::Opening | Phase::Listening(_) => Err(OutOfTurn::BeforeBegin),
        }
    }
}

#[cfg(test)]
mod tests;
