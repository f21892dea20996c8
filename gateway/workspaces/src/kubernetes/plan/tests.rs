use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn id(number: u64) -> WorkspaceId {
    format!("w-{number}").parse().expect("an id")
}

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
    Instant::now()
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn alive(generation: u64, is_unsettled: bool) -> WorkspaceState {
    WorkspaceState { generation, is_over: false, is_unsettled }
}

/// A plan whose agent has begun and was told that there is nothing.
fn talking(now: Instant) -> ConversationPlan {
    let mut plan = ConversationPlan::new(now);
    assert_eq!(plan.next(now), ConversationStep::Terms);
    plan.begun().expect("in turn");
    assert_eq!(plan.next(now), ConversationStep::Page(None));
    plan.page(&[]);
    assert_eq!(plan.next(now), ConversationStep::RoundEnd { round: 1, workspaces: 0 });
    assert_eq!(plan.next(now), ConversationStep::Wait);
    plan
}

#[test]
fn terms_come_first_and_nothing_else_before_the_agent_began() {
    let now = start();
    let mut plan = ConversationPlan::new(now);
    plan.changed(id(1), now);
    assert_eq!(
        [plan.next(now), plan.next(now), plan.next(now)],
        [ConversationStep::Terms, ConversationStep::Wait, ConversationStep::Wait]
    );
    assert_eq!(plan.reported(1, now), Err(OutOfTurn::BeforeBegin));
    assert_eq!(plan.full_requested(now), Err(OutOfTurn::BeforeBegin));
    plan.begun().expect("in turn");
    assert_eq!(plan.begun(), Err(OutOfTurn::BeginTwice));
    assert_eq!(plan.next(now), ConversationStep::Tell(id(1), Why::Changed));
}

#[test]
fn agent_that_does_not_begin_is_not_waited_for_forever() {
    let now = start();
    let mut plan = ConversationPlan::new(now);
    assert_eq!(plan.next(now), ConversationStep::Terms);
    assert_eq!(plan.deadline(), Some(now + BEGIN_TIMEOUT));
    assert_eq!(plan.next(now + BEGIN_TIMEOUT - seconds(1)), ConversationStep::Wait);
    assert_eq!(plan.next(now + BEGIN_TIMEOUT), ConversationStep::Late);
}

#[test]
fn change_is_told_at_once_in_the_middle_of_a_round() {
    let now = start();
    let mut plan = ConversationPlan::new(now);
    plan.next(now);
    plan.begun().expect("in turn");
    assert_eq!(plan.next(now), ConversationStep::Page(None));
    plan.page(&[id(1), id(2), id(3)]);
    assert_eq!(plan.next(now), ConversationStep::Tell(id(1), Why::Round(1)));
    plan.told(id(1), alive(1, true), Why::Round(1), now);
    plan.changed(id(3), now);
    plan.changed(id(3), now);
    assert_eq!(plan.next(now), ConversationStep::Tell(id(3), Why::Changed));
    plan.told(id(3), alive(2, true), Why::Changed, now);
    assert_eq!(plan.next(now), ConversationStep::Tell(id(2), Why::Round(1)));
    plan.told(id(2), alive(1, true), Why::Round(1), now);
    assert_eq!(plan.next(now), ConversationStep::Tell(id(3), Why::Round(1)), "the round names it too");
    plan.told(id(3), alive(2, true), Why::Round(1), now);
    assert_eq!(plan.next(now), ConversationStep::Page(Some(id(3))));
    plan.page(&[]);
    assert_eq!(plan.next(now), ConversationStep::RoundEnd { round: 1, workspaces: 3 });
}

#[test]
fn change_that_brings_no_new_intent_is_not_told() {
    let now = start();
    let mut plan = talking(now);
    assert!(plan.wants(id(1), alive(1, true), Why::Changed));
    plan.told(id(1), alive(1, true), Why::Changed, now);
    assert!(!plan.wants(id(1), alive(1, false), Why::Changed), "what the agent itself reported");
    assert!(plan.wants(id(1), alive(2, true), Why::Changed));
    assert!(!plan.wants(id(1), alive(1, false), Why::Repeat), "it was acknowledged meanwhile");
}

#[test]
fn agent_hears_once_that_a_workspace_is_over() {
    let now = start();
    let mut plan = talking(now);
    let over = WorkspaceState { generation: 3, is_over: true, is_unsettled: false };
    assert!(!plan.wants(id(1), over, Why::Changed), "it never heard of it");
    plan.told(id(1), alive(3, true), Why::Changed, now);
    assert!(plan.wants(id(1), over, Why::Changed));
    plan.told(id(1), over, Why::Changed, now);
    assert!(!plan.wants(id(1), over, Why::Changed));
    // It lost that, and says so by reporting on it.
    plan.knows_what_is_over(id(1), now);
    assert_eq!(plan.next(now), ConversationStep::Tell(id(1), Why::Changed));
    assert!(plan.wants(id(1), over, Why::Changed));
}

#[test]
fn what_is_not_acknowledged_is_said_again_and_the_oldest_first() {
    let now = start();
    let mut plan = talking(now);
    let all: Vec<WorkspaceId> = (1..=REPEATS_MAX as u64 + 2).map(id).collect();
    for (index, workspace) in all.iter().enumerate() {
        plan.told(*workspace, alive(1, true), Why::Changed, now + Duration::from_millis(index as u64));
    }
    let soon = now + REPEAT_AFTER - seconds(1);
    plan.unsettled(&all, soon);
    assert_eq!(plan.next(now), ConversationStep::Wait, "it was said a moment ago");
    let later = now + REPEAT_AFTER + seconds(1);
    let newest = id(1);
    plan.told(newest, alive(2, true), Why::Changed, later);
    plan.unsettled(&all, later);
    let said: Vec<ConversationStep> =
        std::iter::from_fn(|| Some(plan.next(now)).filter(|step| *step != ConversationStep::Wait)).collect();
    assert_eq!(said.len(), REPEATS_MAX);
    assert_eq!(said[0], ConversationStep::Tell(id(2), Why::Repeat));
    assert!(!said.contains(&ConversationStep::Tell(newest, Why::Repeat)));
}

#[test]
fn agent_that_is_at_work_is_not_told_again_before_a_minute_has_passed() {
    let now = start();
    let mut plan = talking(now);
    plan.told(id(1), alive(1, true), Why::Changed, now);
    let mut last = now;
    while last < now + REPEAT_AT_LATEST - seconds(1) {
        assert_eq!(plan.reported(1, last), Ok(true));
        plan.unsettled(&[id(1)], last);
        assert!(plan.repeats.is_empty(), "after {:?}", last - now);
        last += seconds(5);
    }
    plan.unsettled(&[id(1)], now + REPEAT_AT_LATEST);
    assert_eq!(plan.repeats, [id(1)]);
}

#[test]
fn full_round_is_repeated_hourly_and_on_demand_but_not_all_the_time() {
    let now = start();
    let mut plan = talking(now);
    plan.full_requested(now + seconds(1)).expect("in turn");
    assert_eq!(plan.next(now + seconds(1)), ConversationStep::Wait);
    assert_eq!(plan.deadline(), Some(now + FULL_PAUSE));
    assert_eq!(plan.next(now + FULL_PAUSE), ConversationStep::Page(None));
    plan.page(&[]);
    assert_eq!(plan.next(now + FULL_PAUSE), ConversationStep::RoundEnd { round: 2, workspaces: 0 });
    let hour = now + FULL_PAUSE + FULL_INTERVAL;
    assert_eq!(plan.next(hour - seconds(1)), ConversationStep::Look);
    assert_eq!(plan.next(hour - seconds(1)), ConversationStep::Wait);
    assert_eq!(plan.next(hour), ConversationStep::Page(None));
}

#[test]
fn other_terms_are_said_before_the_round_that_follows_them() {
    let now = start();
    let mut plan = talking(now);
    plan.changed(id(1), now);
    plan.terms_changed(now + FULL_PAUSE);
    let later = now + FULL_PAUSE;
    assert_eq!(plan.next(later), ConversationStep::Terms);
    assert_eq!(plan.next(later), ConversationStep::Tell(id(1), Why::Changed));
    assert_eq!(plan.next(later), ConversationStep::Page(None));
}

#[test]
fn report_that_was_stored_before_is_acknowledged_again_and_not_stored_again() {
    let now = start();
    let mut plan = talking(now);
    assert_eq!(plan.reported(1, now), Ok(true));
    plan.stored(1);
    assert_eq!(plan.reported(2, now), Ok(true));
    plan.stored(2);
    assert_eq!([plan.next(now), plan.next(now)], [ConversationStep::Noted(2), ConversationStep::Wait]);
    assert_eq!(plan.reported(1, now), Ok(false));
    assert_eq!(plan.next(now), ConversationStep::Noted(2));
    assert_eq!(plan.reported(0, now), Err(OutOfTurn::Unnumbered));
}

#[test]
fn too_many_changes_become_a_look_for_all() {
    let now = start();
    let mut plan = talking(now);
    for number in 1..=CHANGES_MAX as u64 + 5 {
        plan.changed(id(number), now);
    }
    assert_eq!(plan.changes.len(), CHANGES_MAX);
    for _ in 0..CHANGES_MAX {
        assert!(matches!(plan.next(now), ConversationStep::Tell(_, Why::Changed)));
    }
    assert_eq!(plan.next(now), ConversationStep::Look);
}

/// What is stored of a workspace.
#[derive(Clone, Copy, Debug)]
struct Row {
    generation: u64,
    applied: u64,
    is_ending: bool,
    is_over: bool,
}

impl Row {
    fn state(self) -> WorkspaceState {
        let is_unsettled = !self.is_over && (self.is_ending || self.generation > self.applied);
        WorkspaceState { generation: self.generation, is_over: self.is_over, is_unsettled }
    }
}

/// A store, an agent and a plan between them, with everything that can go wrong in between.
#[derive(Debug)]
struct World {
    now: Instant,
    plan: ConversationPlan,
    rows: BTreeMap<u64, Row>,
    /// What the agent was told, and has not forgotten.
    agent: BTreeMap<u64, u64>,
    has_begun: bool,
    are_terms_said: bool,
    named: BTreeSet<u64>,
    reports: u64,
    noted: u64,
    /// The agent does not take what it is told besides rounds.
    is_deaf: bool,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Change {
        workspace: u64,
        is_heard: bool,
    },
    End {
        workspace: u64,
        is_heard: bool,
    },
    Steps(usize),
    Pass(u64),
    Report {
        workspace: u64,
        is_old: bool,
    },
    Request,
    Miss,
    Deaf(bool),
    /// The gateway, the agent or the session dies.
    Crash,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let workspace = 1_u64..6;
    let act = prop_oneof![
        4 => (workspace.clone(), any::<bool>()).prop_map(|(workspace, is_heard)| Act::Change { workspace, is_heard }),
        1 => (workspace.clone(), any::<bool>()).prop_map(|(workspace, is_heard)| Act::End { workspace, is_heard }),
        6 => (1_usize..8).prop_map(Act::Steps),
        2 => (0_u64..15).prop_map(Act::Pass),
        4 => (workspace, any::<bool>()).prop_map(|(workspace, is_old)| Act::Report { workspace, is_old }),
        1 => Just(Act::Request),
        1 => Just(Act::Miss),
        1 => any::<bool>().prop_map(Act::Deaf),
        1 => Just(Act::Crash),
    ];
    proptest::collection::vec(act, 0..80)
}

impl World {
    fn new() -> Self {
        let now = start();
        Self {
            now,
            plan: ConversationPlan::new(now),
            rows: BTreeMap::new(),
            agent: BTreeMap::new(),
            has_begun: false,
            are_terms_said: false,
            named: BTreeSet::new(),
            reports: 0,
            noted: 0,
            is_deaf: false,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Change { workspace, is_heard } => {
                let new = Row { generation: 0, applied: 0, is_ending: false, is_over: false };
                let row = self.rows.entry(workspace).or_insert(new);
                if !row.is_ending {
                    row.generation += 1;
                }
                self.say(workspace, is_heard);
            }
            Act::End { workspace, is_heard } => {
                let Some(row) = self.rows.get_mut(&workspace).filter(|row| !row.is_ending) else { return };
                row.generation += 1;
                row.is_ending = true;
                self.say(workspace, is_heard);
            }
            Act::Steps(count) => {
                for _ in 0..count {
                    self.step();
                }
            }
            Act::Pass(passed) => self.now += seconds(passed),
            Act::Report { workspace, is_old } => self.report(workspace, is_old),
            Act::Request if self.has_begun => self.plan.full_requested(self.now).expect("in turn"),
            Act::Request => {}
            Act::Miss => self.plan.missed(self.now),
            Act::Deaf(is_deaf) => self.is_deaf = is_deaf,
            Act::Crash => self.crash(),
        }
    }

    fn say(&mut self, workspace: u64, is_heard: bool) {
        if is_heard {
            self.plan.changed(id(workspace), self.now);
        }
    }

    fn crash(&mut self) {
        *self = Self {
            rows: std::mem::take(&mut self.rows),
            now: self.now,
            plan: ConversationPlan::new(self.now),
            ..Self::new()
        };
    }

    /// The agent says what it has done.
    fn report(&mut self, workspace: u64, is_old: bool) {
        let Some(generation) = self.agent.get(&workspace).copied().filter(|_| self.has_begun) else { return };
        if is_old && self.reports > 0 {
            assert_eq!(self.plan.reported(self.reports, self.now), Ok(false));
            return;
        }
        self.reports += 1;
        assert_eq!(self.plan.reported(self.reports, self.now), Ok(true));
        if let Some(row) = self.rows.get_mut(&workspace) {
            row.applied = row.applied.max(generation);
            if row.is_ending && generation == row.generation && !row.is_over {
                row.is_over = true;
                self.plan.changed(id(workspace), self.now);
            } else if row.is_over {
                self.plan.knows_what_is_over(id(workspace), self.now);
            }
        }
        self.plan.stored(self.reports);
    }

    fn number(workspace: WorkspaceId) -> u64 {
        workspace.to_string().trim_start_matches("w-").parse().expect("a number")
    }

    fn step(&mut self) -> bool {
        match self.plan.next(self.now) {
            ConversationStep::Terms => {
                self.are_terms_said = true;
                if !self.has_begun {
                    self.has_begun = true;
                    self.plan.begun().expect("in turn");
                }
            }
            ConversationStep::Noted(number) => {
                assert!(number <= self.reports && number >= self.noted, "{number}");
                self.noted = number;
            }
            ConversationStep::Tell(workspace, why) => self.tell(workspace, why),
            ConversationStep::Page(after) => {
                let after = after.map_or(0, Self::number);
                let rows = self.rows.range(after + 1..).filter(|(_, row)| !row.is_over);
                let page: Vec<WorkspaceId> = rows.map(|(number, _)| id(*number)).take(2).collect();
                self.plan.page(&page);
            }
            ConversationStep::RoundEnd { workspaces, .. } => {
                assert_eq!(workspaces as usize, self.named.len());
                self.named.clear();
            }
            ConversationStep::Look => {
                let rows = self.rows.iter().filter(|(_, row)| row.state().is_unsettled);
                let unsettled: Vec<WorkspaceId> = rows.map(|(number, _)| id(*number)).collect();
                self.plan.unsettled(&unsettled, self.now);
            }
            ConversationStep::Late => panic!("it began"),
            ConversationStep::Wait => return false,
        }
        true
    }

    fn tell(&mut self, workspace: WorkspaceId, why: Why) {
        assert!(self.are_terms_said && self.has_begun);
        let number = Self::number(workspace);
        let row = self.rows[&number];
        if !self.plan.wants(workspace, row.state(), why) {
            return;
        }
        self.plan.told(workspace, row.state(), why, self.now);
        if matches!(why, Why::Round(_)) {
            assert!(self.named.insert(number), "named twice in a round");
        }
        // What a round says is lost with its conversation only: an agent that could not take all of it asks for another.
        if self.is_deaf && !matches!(why, Why::Round(_)) {
            return;
        }
        if row.is_over {
            self.agent.remove(&number);
        } else {
            self.agent.insert(number, row.generation);
        }
    }

    /// Lets everything come to rest, with an agent that does what it is told.
    fn settle(&mut self) {
        self.is_deaf = false;
        // An agent that speaks all the time is told again after a minute only.
        for _ in 0..24 {
            while self.step() {}
            for workspace in self.agent.keys().copied().collect::<Vec<_>>() {
                self.report(workspace, false);
            }
            self.now += seconds(6);
        }
        while self.step() {}
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_repeated_or_cut_the_agent_comes_to_know_all_that_is_wanted(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        for (number, row) in &world.rows {
            prop_assert!(!row.state().is_unsettled, "{number}: {row:?}");
            prop_assert_eq!(row.is_over, row.is_ending, "{}", number);
            let known = world.agent.get(number).copied();
            prop_assert_eq!(known, (!row.is_over).then_some(row.generation), "{}", number);
        }
        prop_assert_eq!(world.noted, world.reports, "every report is acknowledged");
        // And then there is silence.
        for _ in 0..20 {
            world.now += seconds(5);
            loop {
                let step = world.plan.next(world.now);
                prop_assert!(matches!(step, ConversationStep::Wait | ConversationStep::Look), "{:?} of what is settled", step);
                if step == ConversationStep::Wait {
                    break;
                }
                world.plan.unsettled(&[], world.now);
            }
        }
    }
}
