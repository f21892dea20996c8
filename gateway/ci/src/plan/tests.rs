//! The plan against a small CI system in which everything goes wrong that can: requests that land late and whose answers are
//! lost, jobs that die, agents that go, a gateway that stops between any two things that it does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::provider::{JobStatus, RunRef, RunStatus};
use super::*;

mod life;
mod saving;

const START: UnixSeconds = UnixSeconds::new(1_000_000);
const PACE: RunTimeouts = RunTimeouts::DEFAULT;
const NO_DEFINITION: &str = "the devfile makes no pipeline any more";

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn minutes_of(count: u64) -> Duration {
    seconds(count * 60)
}

/// A pipeline as the CI system has it.
#[derive(Clone, Debug)]
struct Pipe {
    id: String,
    state: RunState,
    started_at: Option<UnixSeconds>,
    failure: Option<String>,
    /// Its agent has a session.
    is_connected: bool,
    /// When the job ends in good order, once its agent was told.
    ends_at: Option<UnixSeconds>,
    /// When the job is gone, once that was asked for.
    cancelled_at: Option<UnixSeconds>,
}

/// Where the gateway stops while it does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Before what is written down first.
    Before,
    /// After that, and before the CI system hears of it.
    Written,
    /// After the CI system has heard of it, and before the answer is written down.
    Heard,
    /// The CI system hears of it later, and its answer is lost; the gateway goes on.
    Late(u64),
}

struct World {
    now: UnixSeconds,
    time: JobTime,
    /// How long jobs take to save their files, in seconds.
    saving: u64,
    /// How often the CI system was asked where a run stands.
    asks: u32,
    life: Lifecycle,
    ci: CiState,
    heard: ObservedRun,
    keys: u64,
    pipes: BTreeMap<String, Pipe>,
    /// Requests for a run that the CI system gets to later.
    late: Vec<(UnixSeconds, String)>,
    is_out: bool,
    is_forgotten: bool,
    runners: bool,
    agents: bool,
    /// A pipeline can be made of what is stored.
    has_definition: bool,
    /// The operator has the CI system in the configuration.
    is_configured: bool,
    /// The workspace ended while it was not: its job was left alone, and what it keeps.
    was_over_alone: bool,
}

impl World {
    fn new() -> Self {
        let ci = CiState {
            provider: "gitlab".parse().unwrap(),
            cache_key: "c".into(),
            project: None,
            tags: Vec::new(),
            failures: 0,
            retry_at: None,
            run: None,
        };
        Self {
            now: START,
            time: JobTime::of(minutes_of(120), minutes_of(30)),
            saving: 20,
            asks: 0,
            life: Lifecycle::new(START),
            ci,
            heard: ObservedRun::default(),
            keys: 0,
            pipes: BTreeMap::new(),
            late: Vec::new(),
            is_out: false,
            is_forgotten: false,
            runners: true,
            agents: true,
            has_definition: true,
            is_configured: true,
            was_over_alone: false,
        }
    }

    fn is_up(&self) -> bool {
        self.pipes.values().any(|pipe| pipe.is_connected)
    }

    fn live(&self) -> Vec<&Pipe> {
        self.pipes.values().filter(|pipe| !pipe.state.is_over()).collect()
    }

    fn make(&mut self, key: &str) {
        let id = format!("p{}", self.pipes.len());
        let pipe = Pipe {
            id,
            state: RunState::Pending,
            started_at: None,
            failure: None,
            is_connected: false,
            ends_at: None,
            cancelled_at: None,
        };
        self.pipes.entry(key.to_owned()).or_insert(pipe);
        assert!(self.live().len() <= 1, "two run at once: {:?}", self.pipes);
    }

    fn status(&self, key: &str) -> RunStatus {
        let pipe = &self.pipes[key];
        RunStatus {
            state: pipe.state,
            run: RunRef { id: pipe.id.clone(), child: None },
            job: Some(JobStatus { id: "1".to_owned(), started_at: pipe.started_at, failure: pipe.failure.clone() }),
            web_url: None,
        }
    }

    /// Lets time pass, with all that happens by itself meanwhile.
    fn pass(&mut self, by: u64) {
        for _ in 0..by {
            self.now = self.now.later(seconds(1));
            let now = self.now;
            let (landed, late): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
            self.late = late;
            for (_, key) in landed {
                self.make(&key);
            }
            let current = self.ci.live().filter(|run| run.stop_at.is_none()).map(|run| run.key.to_string());
            let is_wanted = self.life.desired == DesiredState::Running && self.is_configured;
            let (runners, agents, time, saving) = (self.runners, self.agents, self.time, seconds(self.saving));
            for (key, pipe) in &mut self.pipes {
                if pipe.state == RunState::Pending && runners {
                    (pipe.state, pipe.started_at) = (RunState::Running, Some(now));
                }
                // Agents of other runs are refused, and end.
                let is_let_in = is_wanted && current.as_deref() == Some(key);
                if pipe.state == RunState::Running && agents && is_let_in && pipe.ends_at.is_none() {
                    pipe.is_connected = true;
                }
                let is_past = |after| pipe.started_at.is_some_and(|at| at.later(after) <= now);
                // The script counts its time by itself.
                if pipe.state == RunState::Running && pipe.ends_at.is_none() && is_past(time.script_end()) {
                    (pipe.is_connected, pipe.ends_at) = (false, Some(now.later(saving)));
                }
                let is_timed_out = is_past(time.end());
                if pipe.state == RunState::Running && is_timed_out {
                    (pipe.state, pipe.failure) = (RunState::Failed, Some("job_execution_timeout".to_owned()));
                }
                let is_through = pipe.ends_at.is_some_and(|at| at <= now);
                if !pipe.state.is_over() && is_through {
                    pipe.state = RunState::Succeeded;
                }
                if !pipe.state.is_over() && pipe.cancelled_at.is_some_and(|at| at <= now) {
                    pipe.state = RunState::Cancelled;
                }
                pipe.is_connected &= !pipe.state.is_over();
            }
        }
    }

    fn view<R>(&mut self, with: impl FnOnce(&PlanInput<'_>) -> R) -> R {
        let is_up = self.is_up();
        self.heard.look(&self.ci, is_up, self.now);
        with(&PlanInput {
            life: &self.life,
            ci: &self.ci,
            heard: &self.heard,
            is_up,
            time: self.time,
            now: self.now,
            pace: &PACE,
            begun_at: None,
        })
    }

    fn crash(&mut self) {
        self.heard = ObservedRun::default();
        for pipe in self.pipes.values_mut() {
            pipe.is_connected = false;
        }
    }

    /// Does what is to be done until there is nothing to do, as the controller does.
    fn drive(&mut self, fault: Fault) {
        self.drive_to(0, fault);
    }

    /// Likewise; the step of this number meets the fault.
    fn drive_to(&mut self, number: usize, fault: Fault) {
        if self.life.is_over() {
            return;
        }
        if !self.is_configured {
            return self.drive_alone(number, fault);
        }
        let mut taken = 0;
        for _ in 0..200 {
            let decision = self.view(decide);
            if fault == Fault::Before && taken == number {
                return self.crash();
            }
            self.life = self.life.observe(decision.actual, decision.reason.as_deref(), self.now);
            if decision.step != self.view(decide).step {
                continue;
            }
            if matches!(decision.step, RunStep::Wait(_)) {
                return;
            }
            self.take(decision.step, if taken == number { fault } else { Fault::None });
            taken += 1;
            assert!(self.live().len() <= 1, "two run at once");
        }
        panic!("it never waits: {:?} {:?}", self.life, self.ci);
    }

    /// Likewise, with a CI system that nobody can ask.
    fn drive_alone(&mut self, number: usize, fault: Fault) {
        for taken in 0..200 {
            let (now, is_up) = (self.now, self.is_up());
            if self.life.is_over() {
                let failure = self.ci.live().and_then(|run| run.failure.clone());
                if self.ci.live().is_some() {
                    self.ci = ended(&self.ci, failure.as_deref(), &PACE, now);
                }
                return;
            }
            let decision = orphaned(&self.life, &self.ci, is_up);
            if fault == Fault::Before && taken == number {
                return self.crash();
            }
            let next = self.life.observe(decision.actual, Some(&decision.reason), now);
            if next != self.life {
                self.life = next;
                self.was_over_alone |= self.life.is_over();
                continue;
            }
            match decision.step {
                OrphanStep::Wait => return,
                OrphanStep::Stop => {
                    self.ci = stopping(&self.ci, Some(&decision.reason), now);
                    if fault != Fault::None {
                        return self.crash();
                    }
                    self.close();
                }
                OrphanStep::Close => self.close(),
                OrphanStep::End => {
                    assert!(self.ci.live().unwrap().asked_at.is_none(), "it may run");
                    self.ci = ended(&self.ci, Some(&decision.reason), &PACE, now);
                }
            }
        }
        panic!("it never waits: {:?} {:?}", self.life, self.ci);
    }

    fn take(&mut self, step: RunStep, fault: Fault) {
        let (now, key) = (self.now, self.ci.run.as_ref().map(|run| run.key.to_string()).unwrap_or_default());
        match step {
            RunStep::Begin { anew } => self.begin(anew),
            RunStep::Create => self.create(key, fault),
            RunStep::Find => self.request(fault, |world| match world.pipes.get(&key).map(|pipe| pipe.id.clone()) {
                Some(id) => world.ci = named(&world.ci, &id, None),
                None => {
                    assert!(world.late.is_empty(), "it is still to come");
                    world.ci = unmade_for_good(&world.ci, &world.heard, &PACE, world.now);
                }
            }),
            RunStep::Ask => self.request(fault, |world| {
                world.asks += 1;
                let status = world.status(&key);
                world.heard.told(&status, now);
                world.ci = known(&world.ci, &status);
            }),
            RunStep::NoteUp => self.ci = up(&self.ci, now),
            RunStep::Stop { failure } => {
                self.ci = stopping(&self.ci, failure.as_deref(), now);
                if fault == Fault::Written {
                    return self.crash();
                }
                self.close();
            }
            RunStep::Close => self.close(),
            RunStep::Look => {
                self.heard.looked_at = Some(now);
                self.request(fault, |world| {
                    let is_ending = world.pipes[&key].ends_at.is_some();
                    world.heard.leaving = if is_ending { Leaving::Told } else { Leaving::Stuck };
                });
            }
            RunStep::Cancel => {
                self.check_cancel(&key);
                self.ci = cancelling(&self.ci, now);
                if self.heard.leaving == Leaving::Stuck {
                    self.heard.leaving = Leaving::Unknown;
                }
                self.request(fault, |world| {
                    let pipe = world.pipes.get_mut(&key).unwrap();
                    pipe.cancelled_at = pipe.cancelled_at.or(Some(now.later(seconds(4))));
                });
            }
            RunStep::End(ending) => {
                let is_over = self.pipes.get(&key).is_none_or(|pipe| pipe.state.is_over());
                assert!(is_over && self.late.is_empty(), "it ends what runs");
                self.ci = match ending {
                    Ending::Well => ended(&self.ci, None, &PACE, now),
                    Ending::Unsaved(note) => unsaved(&self.ci, &note, now),
                    Ending::Failed(failure) => ended(&self.ci, Some(&failure), &PACE, now),
                };
            }
            RunStep::Forget => {
                assert!(self.live().is_empty());
                self.request(fault, |world| {
                    world.is_forgotten = true;
                    world.life = world.life.observe(ActualState::Terminated, None, now);
                });
            }
            RunStep::Wait(_) => {}
        }
    }

    fn create(&mut self, key: String, fault: Fault) {
        let is_first = self.ci.live().unwrap().asked_at.is_none();
        match (self.has_definition, is_first) {
            (true, _) => self.ci = asked(&self.ci, self.now),
            (false, true) => return self.ci = ended(&self.ci, Some(NO_DEFINITION), &PACE, self.now),
            (false, false) => return self.heard.refused = Some(NO_DEFINITION.to_owned()),
        }
        self.request(fault, |world| {
            world.make(&key);
            let id = world.pipes[&key].id.clone();
            world.ci = named(&world.ci, &id, None);
        });
        if let Fault::Late(after) = fault {
            self.late.push((self.now.later(seconds(after.min(PACE.settle.as_secs() - 1))), key));
        }
    }

    /// A job is not cut while it saves, unless that is what is wanted or takes too long.
    fn check_cancel(&self, key: &str) {
        let run = self.ci.run.clone().unwrap();
        let is_past = |after| run.stop_at.unwrap().later(after) <= self.now;
        let is_over = run.started_at.is_some_and(|at| at.later(self.time.end()) <= self.now);
        let is_saving = self.pipes[key].ends_at.is_some();
        let is_bound = is_past(PACE.stop_grace + self.time.save_max()) || is_over;
        let is_kept = run.up_at.is_some() && self.life.desired != DesiredState::Terminated;
        assert!(!is_kept || is_bound || !is_saving && is_past(PACE.stop_grace), "a save is cut: {run:?}");
    }

    fn begin(&mut self, anew: bool) {
        assert!(self.live().is_empty() && self.late.is_empty(), "a run is begun beside another");
        if anew {
            (self.ci.failures, self.ci.retry_at) = (0, None);
        }
        self.keys += 1;
        self.ci.run = Some(CiRun {
            number: self.keys,
            key: format!("k{}", self.keys).into(),
            intent: self.life.generation,
            pipeline: None,
            child: None,
            web_url: None,
            token: None,
            intended_at: self.now,
            asked_at: None,
            started_at: None,
            up_at: None,
            stop_at: None,
            cancel_at: None,
            ended_at: None,
            failure: None,
        });
    }

    /// Asks the CI system for something, and takes its answer.
    fn request(&mut self, fault: Fault, done: impl FnOnce(&mut Self)) {
        match fault {
            Fault::Written => self.crash(),
            Fault::Heard => {
                let (ci, heard, life) = (self.ci.clone(), self.heard.clone(), self.life.clone());
                if !self.is_out {
                    done(self);
                }
                (self.ci, self.heard, self.life) = (ci, heard, life);
                self.crash();
            }
            Fault::None | Fault::Before if !self.is_out => {
                done(self);
                self.heard.well();
            }
            Fault::None | Fault::Before | Fault::Late(_) => self.heard.failed("no answer".to_owned(), None, self.now),
        }
    }

    /// The session ends, and the agent with it; its job packs what is kept.
    fn close(&mut self) {
        for pipe in self.pipes.values_mut().filter(|pipe| pipe.is_connected) {
            pipe.is_connected = false;
            pipe.ends_at = Some(self.now.later(seconds(self.saving)));
            self.heard.leaving = Leaving::Told;
        }
    }

    fn request_of_owner(&mut self, desired: DesiredState) {
        if let Ok(next) = self.life.request(desired, self.now) {
            self.life = next;
        }
    }

    /// Lets everything be well again and waits until what is wanted is.
    fn settle(&mut self) {
        (self.is_out, self.runners, self.agents) = (false, true, true);
        (self.has_definition, self.is_configured) = (true, true);
        for _ in 0..3 * 60 * 60 {
            self.drive(Fault::None);
            if self.life.is_settled() && (self.life.desired != DesiredState::Running || self.is_up()) {
                return;
            }
            self.pass(1);
        }
        panic!("it does not become {}: {:?} {:?} {:?}", self.life.desired, self.life, self.ci, self.pipes);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    /// Somebody asks for it, and what is done for that meets a fault.
    Want(DesiredState, usize, Fault),
    /// A step meets a fault: the first, or a later one.
    Fault(usize, Fault),
    Crash,
    Outage(bool),
    Runners(bool),
    Agents(bool),
    /// Saving takes so long from now on.
    Saving(u64),
    Definition(bool),
    /// The operator takes the CI system out of the configuration, or puts it back: with a gateway that is started anew.
    Configured(bool),
    /// The agent's session is gone, and comes back by itself.
    Drop,
    /// The job dies.
    Die(RunState),
}

fn act() -> impl Strategy<Value = Act> {
    let some = || {
        prop_oneof![Just(Fault::Before), Just(Fault::Written), Just(Fault::Heard), (0_u64..40).prop_map(Fault::Late),]
    };
    let (fault, with) = (some(), prop_oneof![2 => Just(Fault::None), 1 => some()]);
    let wish = prop_oneof![
        6 => Just(DesiredState::Running),
        4 => Just(DesiredState::Stopped),
        3 => Just(DesiredState::RestartRequested),
        1 => Just(DesiredState::Terminated),
    ];
    let end =
        prop_oneof![Just(RunState::Failed), Just(RunState::Cancelled), Just(RunState::Succeeded), Just(RunState::Gone)];
    prop_oneof![
        4 => (1_u64..20).prop_map(Act::Pass),
        2 => (20_u64..900).prop_map(Act::Pass),
        4 => (wish, 0_usize..4, with).prop_map(|(wish, number, fault)| Act::Want(wish, number, fault)),
        5 => (0_usize..6, fault).prop_map(|(number, fault)| Act::Fault(number, fault)),
        2 => Just(Act::Crash),
        1 => any::<bool>().prop_map(Act::Outage),
        1 => any::<bool>().prop_map(Act::Runners),
        1 => any::<bool>().prop_map(Act::Agents),
        1 => prop_oneof![1_u64..200, 200_u64..4000].prop_map(Act::Saving),
        1 => any::<bool>().prop_map(Act::Definition),
        2 => any::<bool>().prop_map(Act::Configured),
        1 => Just(Act::Drop),
        2 => end.prop_map(Act::Die),
    ]
}

impl World {
    fn act(&mut self, act: Act) {
        let mut fault = (0, Fault::None);
        match act {
            Act::Pass(by) => self.pass(by),
            Act::Want(desired, number, with) => {
                self.request_of_owner(desired);
                fault = (number, with);
            }
            Act::Fault(number, with) => fault = (number, with),
            Act::Crash => self.crash(),
            Act::Outage(is_out) => self.is_out = is_out,
            Act::Runners(are_there) => self.runners = are_there,
            Act::Agents(can) => self.agents = can,
            Act::Saving(takes) => self.saving = takes,
            Act::Definition(can) => self.has_definition = can,
            Act::Configured(is_configured) => {
                self.is_configured = is_configured;
                self.crash();
            }
            Act::Drop => self.pipes.values_mut().for_each(|pipe| pipe.is_connected = false),
            Act::Die(state) => {
                for pipe in self.pipes.values_mut().filter(|pipe| !pipe.state.is_over()) {
                    (pipe.state, pipe.is_connected) = (state, false);
                }
            }
        }
        self.drive_to(fault.0, fault.1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_goes_wrong_no_two_run_at_once_and_what_is_wanted_comes_about(
        acts in proptest::collection::vec(act(), 0..60),
        job_timeout in prop_oneof![Just(10_u64), 10_u64..60, 60_u64..300],
        save_max in prop_oneof![Just(1_u64), 1_u64..60],
        last in prop_oneof![
            3 => Just(DesiredState::Running),
            2 => Just(DesiredState::Stopped),
            2 => Just(DesiredState::RestartRequested),
            2 => Just(DesiredState::Terminated),
        ],
    ) {
        let mut world = World::new();
        world.time = JobTime::of(minutes_of(job_timeout), minutes_of(save_max));
        for act in acts {
            world.act(act);
        }
        world.request_of_owner(last);
        world.settle();
        let (live, desired) = (world.live().len(), world.life.desired);
        // Unless nobody could be asked when it ended.
        if !world.was_over_alone {
            prop_assert_eq!(live, usize::from(desired == DesiredState::Running));
            prop_assert_eq!(world.is_forgotten, desired == DesiredState::Terminated);
            prop_assert!(world.ci.live().is_some() == (live == 1));
        }
    }
}

/// Brings a workspace up.
fn running() -> World {
    let mut world = World::new();
    world.settle();
    world
}
