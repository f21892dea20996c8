//! Random lives of one environment: jobs, stops, answers and restarts in any order, against laws that hold after each step
//! and an end that they all come to.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tokio::task::JoinSet;
use tunnel_proto::environments::{Call, Done, ObjectError, ObjectErrorCode, ObjectRef};

use super::super::super::call::CallError;
use super::super::super::record::objects_from;
use super::super::*;
use super::stage::{Stage, request};
use gateway_store::KeptOnStop;

const TEMPLATES: [&str; 4] = ["one", "two", "three", "kept"];

/// What can happen.
#[derive(Clone, Debug)]
enum Happening {
    /// A job asks, with one of the templates.
    Ask(u64, usize),
    /// Somebody asks the environment to stop, has it stopped, or removed.
    Stopping,
    Stopped,
    Remove,
    /// The gateway looks at it, if it does not already.
    Look,
    /// The agent does so many steps, and answers.
    Answer(usize, Answer),
    /// The gateway is killed after the agent did so many steps.
    Kill(usize),
    /// Time passes, in seconds.
    Later(i64),
    /// Somebody else makes an object under a name that templates use.
    Stranger,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    /// What came of it.
    Honest,
    /// No answer.
    Lost,
    /// That something may not be done.
    Forbidden,
    /// That things are there that nobody asked about.
    Boasting,
    /// Of what was to be made: nothing at all.
    Empty,
}

fn happening() -> impl Strategy<Value = Happening> {
    let answer = prop_oneof![
        4 => Just(Answer::Honest),
        1 => Just(Answer::Lost),
        1 => Just(Answer::Forbidden),
        1 => Just(Answer::Boasting),
        1 => Just(Answer::Empty),
    ];
    prop_oneof![
        4 => (1..6_u64, 0..TEMPLATES.len()).prop_map(|(job, template)| Happening::Ask(job, template)),
        1 => Just(Happening::Stopping),
        2 => Just(Happening::Stopped),
        1 => Just(Happening::Remove),
        6 => Just(Happening::Look),
        6 => (prop_oneof![0..4_usize, Just(usize::MAX)], answer).prop_map(|(steps, answer)| Happening::Answer(steps, answer)),
        1 => (0..4_usize).prop_map(Happening::Kill),
        2 => (1..400_i64).prop_map(Happening::Later),
        1 => Just(Happening::Stranger),
    ]
}

fn accounts_of(template: &str) -> &'static [&'static str] {
    match template {
        "two" | "kept" => &["a"],
        "three" => &["b", "c"],
        _ => &[],
    }
}

/// A life under way.
struct Life {
    stage: Stage,
    visits: JoinSet<()>,
    stop: CancellationToken,
    id: Option<EnvironmentId>,
    /// Somebody had it stopped or removed since it was last without anything, so it may be removed.
    may_be_removed: bool,
    /// Calls that were looked at.
    calls_seen: usize,
    strangers: BTreeSet<super::stage::Name>,
}

impl Life {
    async fn new() -> Self {
        Self {
            stage: Stage::new().await,
            visits: JoinSet::new(),
            stop: CancellationToken::new(),
            id: None,
            may_be_removed: false,
            calls_seen: 0,
            strangers: BTreeSet::new(),
        }
    }

    async fn stored(&self) -> Option<StoredEnvironment> {
        self.stage.store.environment(self.id?).await.unwrap()
    }

    async fn happen(&mut self, happening: &Happening) {
        let by = By::Hook;
        let id = self.id.map_or(1, EnvironmentId::get);
        match happening {
            Happening::Ask(job, template) => {
                let asked = self.stage.environments.complete(request(*job, TEMPLATES[*template])).await.unwrap();
                self.id = asked.environment().map(EnvironmentId::new).or(self.id);
            }
            Happening::Stopping => {
                self.stage.environments.set_state(id, DesiredEnvironment::Stopping, by).await.ok();
            }
            Happening::Stopped => {
                if let Ok(stopped) = self.stage.environments.set_state(id, DesiredEnvironment::Stopped, by).await {
                    self.may_be_removed |= stopped.is_removal_due;
                }
            }
            Happening::Remove => {
                self.may_be_removed |= self.stage.environments.remove(id, by).await.is_ok();
            }
            Happening::Look => self.look().await,
            Happening::Answer(steps, answer) => {
                let instead = self.instead(*answer, *steps);
                self.stage.cluster.answer(*steps, instead);
                self.settle().await;
            }
            Happening::Kill(steps) => {
                self.stage.cluster.work(*steps);
                self.visits.abort_all();
                while self.visits.join_next().await.is_some() {}
                self.stage.restart().await;
            }
            Happening::Later(seconds) => self.stage.later(*seconds),
            Happening::Stranger => {
                let slug = workspace_spec::environment::slug::environment_slug("review/1");
                let name = ("ServiceAccount".to_owned(), slug, "a".to_owned());
                let mut world = self.stage.cluster.world.lock();
                if !world.objects.contains_key(&name) {
                    world.objects.insert(name.clone(), "somebody".to_owned());
                    self.strangers.insert(name);
                }
            }
        }
    }

    /// Makes what the agent says of what it does, where that is not the truth.
    fn instead(&self, answer: Answer, steps: usize) -> Option<Result<Done, CallError>> {
        let done = self.stage.cluster.work(steps)?;
        match answer {
            Answer::Honest => None,
            Answer::Empty => {
                let world = self.stage.cluster.world.lock();
                let is_apply = world.pending.as_ref().is_some_and(|pending| matches!(pending.call, Call::Apply(_)));
                is_apply.then(|| Ok(Done::default()))
            }
            Answer::Lost => Some(Err(CallError::Late("end"))),
            Answer::Forbidden => {
                let (object, code) = (done.objects.first().cloned(), ObjectErrorCode::Forbidden);
                let error = ObjectError { object, code, message: "forbidden".to_owned() };
                Some(Ok(Done { errors: vec![error], ..done }))
            }
            Answer::Boasting => {
                let boast = ObjectRef { kind: "Namespace".into(), name: "kube-system".into(), ..ObjectRef::default() };
                let mut done = done;
                done.objects.push(boast);
                Some(Ok(done))
            }
        }
    }

    /// Begins to look at the environment, and goes on until that waits for the agent or has ended.
    async fn look(&mut self) {
        let Some(id) = self.id else { return };
        if self.visits.is_empty() {
            let (inner, stop) = (self.stage.environments.inner.clone(), self.stop.clone());
            self.visits.spawn(async move {
                inner.reconcile(id, false, &stop, &stop).await;
            });
        }
        self.settle().await;
    }

    async fn settle(&mut self) {
        while !self.visits.is_empty() && self.stage.cluster.world.lock().pending.is_none() {
            tokio::select! {
                ended = self.visits.join_next() => if let Some(ended) = ended { ended.unwrap() },
                () = self.stage.cluster.began.notified() => {}
            }
        }
    }

    /// The laws.
    async fn check(&mut self) {
        let Some(stored) = self.stored().await else { return };
        let recorded: BTreeSet<_> =
            objects_from(&stored.tracked).unwrap().into_iter().map(|one| (one.kind, one.namespace, one.name)).collect();
        for name in self.stage.cluster.marked(&stored.inventory) {
            assert!(recorded.contains(&name), "{name:?} is there and not recorded");
        }
        assert!(!recorded.iter().any(|(_, _, name)| name == "kube-system"), "recorded by an agent's word alone");
        let last = self.stage.store.last_preparation(stored.id).await.unwrap();
        if let Some(last) = last.filter(|last| last.status == PreparationStatus::Completed) {
            let names: BTreeSet<_> = objects_from(&last.tracked).unwrap().into_iter().map(|one| one.name).collect();
            for account in accounts_of(&last.template) {
                assert!(names.contains(*account), "completed without {account}");
            }
        }
        let calls = self.stage.cluster.world.lock().calls.clone();
        for call in calls.get(self.calls_seen..).unwrap_or_default() {
            if let Call::Remove(remove) = call {
                assert!(self.may_be_removed, "removed without having been stopped");
                for object in &remove.tracked {
                    assert_ne!(object.name, "kube-system");
                }
            }
        }
        self.calls_seen = calls.len();
        if !stored.is_removal_due && stored.tracked == "[]" {
            self.may_be_removed = false;
        }
        let world = self.stage.cluster.world.lock();
        for name in &self.strangers {
            assert_eq!(world.objects.get(name).map(String::as_str), Some("somebody"), "somebody else's was touched");
        }
    }

    /// From here on nothing goes wrong: everything comes to its end.
    async fn converge(&mut self) {
        self.stage.cluster.world.lock().objects.retain(|_, owner| owner != "somebody");
        self.strangers.clear();
        for _ in 0..200 {
            self.look().await;
            self.stage.cluster.answer(usize::MAX, None);
            self.settle().await;
            self.check().await;
            self.stage.later(31);
            if self.visits.is_empty() && self.stage.store.environments_due().await.unwrap().is_empty() {
                return;
            }
        }
        panic!("it never ends: {:?}", self.stored().await);
    }

    async fn end(&self, was_kept: bool) {
        let Some(stored) = self.stored().await else { return };
        let marked = self.stage.cluster.marked(&stored.inventory);
        let recorded = objects_from(&stored.tracked).unwrap();
        if stored.state == EnvironmentState::Stopped && !was_kept && stored.kept == KeptOnStop::No {
            assert_eq!((marked.len(), recorded.len()), (0, 0), "something stays behind");
        }
        let last = self.stage.store.last_preparation(stored.id).await.unwrap();
        if let Some(last) = last.filter(|last| last.status == PreparationStatus::Completed)
            && stored.state == EnvironmentState::Available
        {
            let wanted = objects_from(&last.tracked).unwrap();
            let wanted: BTreeSet<_> = wanted.into_iter().map(|one| (one.kind, one.namespace, one.name)).collect();
            assert_eq!(marked.into_iter().collect::<BTreeSet<_>>(), wanted, "it is what its last job wants");
        }
    }
}

fn live(happenings: &[Happening]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut life = Life::new().await;
        for happening in happenings {
            life.happen(happening).await;
            life.check().await;
        }
        // Of one that was stopped while its objects were to be kept, they are kept.
        let was_kept = life.stored().await.is_some_and(|stored| !stored.is_removal_due && stored.tracked != "[]");
        life.converge().await;
        life.end(was_kept).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn environment_is_never_more_than_recorded_nor_removed_unasked_and_always_comes_to_its_end(
        happenings in prop::collection::vec(happening(), 0..40)
    ) {
        live(&happenings);
    }
}

#[test]
fn kept_objects_survive_a_stop_and_a_restart() {
    let kept = [Happening::Ask(1, 3), Happening::Look, Happening::Answer(usize::MAX, Answer::Honest)];
    let end = [Happening::Stopping, Happening::Stopped, Happening::Look, Happening::Kill(0), Happening::Look];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut life = Life::new().await;
        for happening in kept.iter().chain(&end) {
            life.happen(happening).await;
            life.check().await;
        }
        let stored = life.stored().await.unwrap();
        assert_eq!((stored.state, life.stage.cluster.marked(&stored.inventory).len()), (EnvironmentState::Stopped, 2));
    });
}
