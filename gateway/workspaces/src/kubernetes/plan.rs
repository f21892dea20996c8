//! Plans a cluster's controller: the order and the pace of one conversation, without I/O and without a clock.
//!
//! ```text
//!             Terms                begun()               page(some), page(none)
//!   Opening ────────► Listening ──────────► Talking ◄────────────────────────► Talking, in a round
//! ```
//!
//! A conversation begins with a session and ends with it, and nothing is carried over: the next one begins with a full
//! round, which sends everything again. So losses at the end of one are healed by the next, whenever it ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

use gateway_store::WorkspaceId;

/// Longest time until the agent's first message.
pub(super) const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two full rounds without a request.
pub(super) const FULL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Shortest time between the beginnings of two full rounds, also on request: a round reads everything.
pub(super) const FULL_PAUSE: Duration = Duration::from_secs(2);

/// Interval at which unsettled workspaces are looked for.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which an unacknowledged intent is repeated, once the agent has been silent for as long: a busy agent will
/// come to it.
pub(super) const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// Time after which an unacknowledged intent is repeated, however busy the agent is.
pub(super) const REPEAT_AT_LATEST: Duration = Duration::from_secs(60);

/// Most workspaces that one look repeats, longest waiting first. If a whole cluster does not answer for its workspaces,
/// the rest waits for the next looks.
pub(super) const REPEATS_MAX: usize = 256;

/// Most workspaces whose changes wait to be sent. Beyond it, unsettled workspaces are looked for instead.
pub(super) const CHANGES_MAX: usize = 4096;

/// Next step of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConversationStep {
    /// Send the terms: cluster and namespace mode.
    Terms,
    /// Acknowledge that reports up to this number are stored.
    Noted(u64),
    /// Read a workspace, and send its desired state if [`ConversationPlan::wants`].
    Tell(WorkspaceId, Why),
    /// Read the ids of the workspaces after this one, for the round: [`ConversationPlan::page`].
    Page(Option<WorkspaceId>),
    /// Send the end of the round.
    RoundEnd {
        /// Number of the round.
        round: u64,
        /// Number of workspaces that it named.
        workspaces: u32,
    },
    /// Read the unsettled workspaces: [`ConversationPlan::unsettled`].
    Look,
    /// The agent did not begin in time: end the conversation.
    Late,
    /// Nothing, until something happens or [`ConversationPlan::deadline`].
    Wait,
}

/// Reason for sending a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The workspace has changed.
    Changed,
    /// The last intent is not acknowledged.
    Repeat,
    /// The workspace's turn in a full round has come.
    Round(u64),
}

/// State of a workspace that decides whether it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkspaceState {
    /// Number of its newest intent.
    pub(super) generation: u64,
    /// Nothing is to be done about it any more.
    pub(super) is_over: bool,
    /// The newest intent is not fulfilled yet.
    pub(super) is_unsettled: bool,
}

/// Message of the agent that is not allowed in this phase.
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
    /// Terms are to be sent.
    Opening,
    /// The agent has to begin by then.
    Listening(Instant),
    Talking,
}

/// A full round under way.
#[derive(Debug)]
struct Round {
    number: u64,
    /// Workspaces that were read and not sent yet.
    queue: VecDeque<WorkspaceId>,
    /// Last workspace that was read.
    cursor: Option<WorkspaceId>,
    /// All workspaces were read.
    is_read: bool,
    named: u32,
}

/// Last message about a workspace in this conversation.
#[derive(Clone, Copy, Debug)]
struct SentMessage {
    generation: u64,
    at: Instant,
}

/// The plan of one conversation.
///
/// Invariants: `changes` has each workspace once, as `is_waiting` tells; nothing but terms is planned before the agent
/// began; one round at a time.
#[derive(Debug)]
pub(super) struct ConversationPlan {
    phase: Phase,
    are_terms_due: bool,
    changes: VecDeque<WorkspaceId>,
    is_waiting: HashSet<WorkspaceId>,
    repeats: VecDeque<WorkspaceId>,
    told: HashMap<WorkspaceId, SentMessage>,
    round: Option<Round>,
    rounds: u64,
    /// Time of the next round.
    full_at: Instant,
    /// Start of the last round.
    full_since: Option<Instant>,
    look_at: Instant,
    /// Time of the last report.
    heard_at: Option<Instant>,
    /// Number of the last report that is stored.
    stored: u64,
    is_noting: bool,
}

impl ConversationPlan {
    /// Creates the plan of a new conversation.
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

    /// Decides the next step, and assumes that it is carried out.
    pub(super) fn next(&mut self, now: Instant) -> ConversationStep {
        if self.are_terms_due {
            self.are_terms_due = false;
            if self.phase == Phase::Opening {
                self.phase = Phase::Listening(now + BEGIN_TIMEOUT);
            }
            return ConversationStep::Terms;
        }
        match self.phase {
            Phase::Opening => return ConversationStep::Wait,
            Phase::Listening(by) => return if by <= now { ConversationStep::Late } else { ConversationStep::Wait },
            Phase::Talking => {}
        }
        if std::mem::take(&mut self.is_noting) {
            return ConversationStep::Noted(self.stored);
        }
        // Users wait for changes, and for nothing else here.
        if let Some(workspace) = self.changes.pop_front() {
            self.is_waiting.remove(&workspace);
            return ConversationStep::Tell(workspace, Why::Changed);
        }
        self.round_step(now).unwrap_or_else(|| self.quiet_step(now))
    }

    fn round_step(&mut self, now: Instant) -> Option<ConversationStep> {
        if self.round.is_none() && self.full_at <= now {
            self.rounds += 1;
            self.full_since = Some(now);
            self.full_at = now + FULL_INTERVAL;
            // The round sends them again anyway.
            self.repeats.clear();
            let number = self.rounds;
            self.round = Some(Round { number, queue: VecDeque::new(), cursor: None, is_read: false, named: 0 });
        }
        let round = self.round.as_mut()?;
        if let Some(workspace) = round.queue.pop_front() {
            return Some(ConversationStep::Tell(workspace, Why::Round(round.number)));
        }
        if !round.is_read {
            return Some(ConversationStep::Page(round.cursor));
        }
        let (round, workspaces) = (round.number, round.named);
        self.round = None;
        self.look_at = now + LOOK_INTERVAL;
        Some(ConversationStep::RoundEnd { round, workspaces })
    }

    fn quiet_step(&mut self, now: Instant) -> ConversationStep {
        if self.look_at <= now {
            self.look_at = now + LOOK_INTERVAL;
            return ConversationStep::Look;
        }
        self.repeats
            .pop_front()
            .map_or(ConversationStep::Wait, |workspace| ConversationStep::Tell(workspace, Why::Repeat))
    }

    /// Returns the time of the next call to [`ConversationPlan::next`], if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Opening => None,
            Phase::Listening(by) => Some(by),
            Phase::Talking => Some(self.full_at.min(self.look_at)),
        }
    }

    /// Takes in that the agent began.
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

    /// Takes in a report. Returns whether it is new: one that was stored before is only acknowledged again.
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

    /// Takes in that a new report, and all before it, are stored or need not be.
    pub(super) fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
        self.is_noting = true;
    }

    /// Takes in the agent's request for a full round.
    ///
    /// # Errors
    /// [`OutOfTurn`].
    pub(super) fn full_requested(&mut self, now: Instant) -> Result<(), OutOfTurn> {
        self.talks()?;
        self.full_wanted(now);
        Ok(())
    }

    /// Schedules a full round; one that is under way is finished first.
    pub(super) fn full_wanted(&mut self, now: Instant) {
        let earliest = self.full_since.map_or(now, |since| now.max(since + FULL_PAUSE));
        self.full_at = self.full_at.min(earliest);
    }

    /// Takes in changed terms: they are sent again, and then everything.
    pub(super) fn terms_changed(&mut self, now: Instant) {
        self.are_terms_due = true;
        self.full_wanted(now);
    }

    /// Takes in a change of a workspace.
    pub(super) fn changed(&mut self, workspace: WorkspaceId, now: Instant) {
        if self.changes.len() >= CHANGES_MAX {
            return self.missed(now);
        }
        if self.is_waiting.insert(workspace) {
            self.changes.push_back(workspace);
        }
    }

    /// Takes in that changes were missed: unsettled workspaces are looked for now.
    pub(super) fn missed(&mut self, now: Instant) {
        self.look_at = now;
    }

    /// Takes the next workspaces of the round, in the order in which they are read; none after the last.
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

    /// Takes the unsettled workspaces: those without a recent message are sent again.
    pub(super) fn unsettled(&mut self, workspaces: &[WorkspaceId], now: Instant) {
        let since = |workspace: &WorkspaceId| self.told.get(workspace).map(|told| told.at);
        let is_busy = self.heard_at.is_some_and(|at| now < at + REPEAT_AFTER);
        let patience = if is_busy { REPEAT_AT_LATEST } else { REPEAT_AFTER };
        let is_old = |workspace: &&WorkspaceId| since(workspace).is_none_or(|at| now >= at + patience);
        let mut waiting: Vec<WorkspaceId> = workspaces.iter().filter(is_old).copied().collect();
        // Workspaces without any message sort first.
        waiting.sort_by_key(since);
        waiting.truncate(REPEATS_MAX);
        self.repeats = waiting.into();
    }

    /// Decides whether a workspace that was read is sent, for the reason for which it was read.
    pub(super) fn wants(&self, workspace: WorkspaceId, state: WorkspaceState, why: Why) -> bool {
        let told = self.told.get(&workspace);
        match why {
            Why::Round(_) => !state.is_over,
            Why::Repeat => state.is_unsettled,
            // An agent that knows the workspace is told that it is over, and forgets it.
            Why::Changed if state.is_over => told.is_some(),
            Why::Changed => told.is_none_or(|told| told.generation != state.generation),
        }
    }

    /// Takes in that a workspace was sent.
    pub(super) fn told(&mut self, workspace: WorkspaceId, state: WorkspaceState, why: Why, now: Instant) {
        if state.is_over {
            self.told.remove(&workspace);
        } else {
            self.told.insert(workspace, SentMessage { generation: state.generation, at: now });
        }
        match (why, &mut self.round) {
            (Why::Round(number), Some(round)) if round.number == number => round.named = round.named.saturating_add(1),
            (Why::Round(_) | Why::Changed | Why::Repeat, _) => {}
        }
    }

    /// Takes in that a workspace cannot be sent: it is not tried again at once.
    pub(super) fn left_out(&mut self, workspace: WorkspaceId, generation: u64, now: Instant) {
        self.told.insert(workspace, SentMessage { generation, at: now });
    }

    /// Takes in that the agent knows a workspace that is over: it is told so once more.
    pub(super) fn knows_what_is_over(&mut self, workspace: WorkspaceId, now: Instant) {
        self.told.entry(workspace).or_insert(SentMessage { generation: 0, at: now });
        self.changed(workspace, now);
    }

    /// Takes in that a workspace no longer exists.
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
