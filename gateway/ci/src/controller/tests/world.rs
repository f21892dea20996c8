//! A workspace in a GitLab, with its runners and agents, as they go on second by second.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controller::CiController;
use crate::plan::{ObservedRun, RunTimeouts};
use crate::provider::gitlab::tests::server::{Server, TOKEN, Trouble};
use crate::reconcile::{CiReconcileOutcome, EndedReconcile};
use crate::settings::Systems;
use gateway_agents::registry::{LiveSession, Registry};
use gateway_config::{Ci, CiEditor, CiProvider, CiSystem, GitlabCi, GitlabToken};
use gateway_net::telemetry::Metrics;
use gateway_store::{
    CiState, Duty, Fence, Incarnation, NewCi, NewReplica, Quotas, ReplicaState, Runs, Store, WorkspaceId,
};
use gateway_types::{DesiredState, JobTime, Lifecycle, ProviderName, UnixSeconds};
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::changes::Changes;
use workspace_spec::devfile::DEFAULT_DEVFILE;
use workspace_spec::pipeline::{AgentFile, Architecture, ENDING_WORDS};

use super::*;

pub(super) const START: UnixSeconds = UnixSeconds::new(1_900_000_000);

/// Children and their jobs have numbers so much above those of their parents.
const CHILD: u64 = 1_000_000;

pub(super) fn provider() -> ProviderName {
    "gitlab".parse().unwrap()
}

/// Draws a number below a bound (splitmix64).
pub(super) fn chance(random: &mut u64, below: u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below.max(1)
}

/// What becomes of a pipeline that has not ended, or of a job in one.
#[derive(Clone, Debug, Default)]
struct Fate {
    began_at: Option<UnixSeconds>,
    /// When its script began to end, and when its files are saved.
    ending: Option<(UnixSeconds, UnixSeconds)>,
    cancelled_at: Option<UnixSeconds>,
    /// It may be cut: it was asked to end before it was ending, or nobody knew that its agent came.
    is_given_up: bool,
}

pub(super) struct World {
    pub(super) server: Server,
    pub(super) controller: Arc<CiController>,
    pub(super) id: WorkspaceId,
    pub(super) random: u64,
    pub(super) has_runners: bool,
    pub(super) has_agents: bool,
    /// How long files take to save, in seconds.
    pub(super) saving: u64,
    /// After how many polls of its next look the controller is killed.
    pub(super) kill_after: Option<u64>,
    store: Store,
    clock: Arc<AtomicI64>,
    ci: Ci,
    time: JobTime,
    heard: ObservedRun,
    due: Option<UnixSeconds>,
    was_up: bool,
    session: Option<Arc<LiveSession>>,
    fates: BTreeMap<u64, Fate>,
    is_terminated: bool,
    _token: tempfile::NamedTempFile,
    /// While it is there, no clock goes on by itself.
    _blocker: std::sync::mpsc::Sender<()>,
}

impl World {
    pub(super) async fn new(seed: u64) -> Self {
        let (blocker, blocked) = std::sync::mpsc::channel::<()>();
        let mut blocking = JoinSet::new();
        blocking.spawn_blocking(move || blocked.recv().unwrap_or_default());
        blocking.detach_all();
        let server = Server::start().await;
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), TOKEN).unwrap();
        let minutes = |count: u64| Duration::from_secs(count * 60);
        let mut random = seed;
        // Its save_max is longer than any save here, unless its time is short.
        let job_timeout = [10, 45, 120, 480][usize::try_from(chance(&mut random, 4)).unwrap()];
        let (job_timeout, save_max) = (minutes(if seed == 0 { 480 } else { job_timeout }), minutes(45));
        let ci = configuration(&server, token.path(), job_timeout, save_max);
        let store = Store::open("sqlite::memory:").await.unwrap();
        let new = NewCi {
            name: &"app".parse().unwrap(),
            owner: &"ann".parse().unwrap(),
            provider: &provider(),
            cache_key: "0123456789abcdef0123456789abcdef",
            project: None,
            tags: &[],
            devfile: DEFAULT_DEVFILE,
            variables: &[],
            ports: &[],
            quotas: Quotas::default(),
        };
        let id = store.create_ci(&new, START).await.unwrap().workspace.id;
        let clock = Arc::new(AtomicI64::new(START.get()));
        server.state.lock().now = Some(START);
        Self {
            controller: controller(&ci, &store, &clock),
            server,
            id,
            random,
            has_runners: true,
            has_agents: true,
            saving: 20,
            kill_after: None,
            store,
            clock,
            ci,
            time: JobTime::of(job_timeout, save_max),
            heard: ObservedRun::default(),
            due: Some(START),
            was_up: false,
            session: None,
            fates: BTreeMap::new(),
            is_terminated: false,
            _token: token,
            _blocker: blocker,
        }
    }

    fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.clock.load(Ordering::Relaxed))
    }

    /// Makes two replicas, of which the first has the duty and the controller, and returns them.
    pub(super) async fn two_replicas(&mut self) -> [Incarnation; 2] {
        let mut made = Vec::new();
        for _ in 0..2 {
            let lease = Duration::from_secs(60);
            let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
            made.push(self.store.add_replica(&new).await.unwrap().unwrap());
        }
        let made: [Incarnation; 2] = made.try_into().unwrap();
        self.take_over(made[0]).await;
        made
    }

    /// Makes a controller of a replica that takes the duty. That of the one before goes on, and writes nothing.
    pub(super) async fn take_over(&mut self, replica: Incarnation) {
        assert!(self.store.take_duty(Duty::Ci, replica).await.unwrap());
        let fence = Fence::of_duty(Duty::Ci, replica, CancellationToken::new());
        self.controller = controller(&self.ci, &self.store.fenced(fence), &self.clock);
        (self.heard, self.was_up, self.due) = (ObservedRun::default(), false, Some(self.now()));
    }

    /// Ends the lease of a replica.
    pub(super) async fn pause(&self, replica: Incarnation) {
        self.store.renew_replica(replica, ReplicaState::Serving, Duration::ZERO).await.unwrap();
    }

    /// Turns the wall clocks, and nothing else.
    pub(super) fn turn(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
        self.server.state.lock().now = Some(self.now());
    }

    pub(super) async fn read(&self) -> (Lifecycle, CiState) {
        let managed = self.store.managed_by_id(self.id).await.unwrap().unwrap();
        let Runs::Ci(ci) = managed.runs else { panic!("{:?}", managed.runs) };
        (managed.lifecycle, *ci)
    }

    /// The owner asks for something.
    pub(super) async fn wish(&mut self, desired: DesiredState) {
        let (life, _) = self.read().await;
        let Ok(next) = life.request(desired, self.now()) else { return };
        assert!(self.store.swap_lifecycle(self.id, life.revision, &next).await.unwrap());
        self.is_terminated |= desired == DesiredState::Terminated;
        self.due = Some(self.now());
    }

    /// So many of the next requests are met with trouble, or so nearly.
    pub(super) fn trouble(&mut self, count: u64) {
        for _ in 0..count {
            let random = &mut self.random;
            let trouble = match chance(random, 9) {
                0 => Trouble::Answer(500, &[], "<h1>oops</h1>".to_owned()),
                1 => Trouble::Answer(502, &[], String::new()),
                2 => Trouble::Answer(503, &[("Retry-After", "7")], String::new()),
                3 => Trouble::Answer(429, &[("Retry-After", "20")], String::new()),
                4 => Trouble::Truncated,
                5 => Trouble::Hang,
                6 | 7 => Trouble::LostAnswer,
                // As late as the controller reckons with, and no later.
                _ => Trouble::Later(self.now().later(Duration::from_secs(chance(&mut self.random, 29)))),
            };
            self.server.trouble(trouble);
        }
    }

    pub(super) fn drop_agent(&mut self) {
        if let Some(session) = self.session.take() {
            self.controller.registry.release(&session);
        }
    }

    pub(super) fn kill_job(&mut self) {
        self.drop_agent();
        for id in self.live() {
            if self.fates.get(&id).is_some_and(|fate| fate.began_at.is_some()) {
                self.end(id, "failed", Some("runner_system_failure"));
            }
        }
    }

    /// Returns how many pipelines were asked for.
    pub(super) fn made(&self) -> usize {
        self.server.state.lock().pipelines.iter().filter(|one| one.id < CHILD).count()
    }

    /// Returns the pipelines that have not ended: of each run its parent, or the child that it has.
    pub(super) fn live(&self) -> Vec<u64> {
        let state = self.server.state.lock();
        let is_over = |status: &str| matches!(status, "success" | "failed" | "canceled");
        let all = state.pipelines.iter().filter(|one| one.child.is_none() && !is_over(one.status));
        all.map(|one| one.id).collect()
    }

    /// What nobody may ever see.
    fn check(&self) {
        let live = self.live();
        assert!(live.len() <= 1, "two run at once: {live:?} {:?}", self.fates);
        let state = self.server.state.lock();
        let mut keys: Vec<&Value> =
            state.pipelines.iter().filter(|one| one.id < CHILD).map(|one| &one.variables[0]["value"]).collect();
        let all = keys.len();
        keys.sort_by_key(|key| key.as_str());
        keys.dedup();
        assert_eq!(keys.len(), all, "a run was made twice");
    }

    /// Lets time pass, with all that happens by itself.
    pub(super) async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second().await;
            let is_up = self.controller.is_up(&"app".parse().unwrap());
            let is_due = self.due.is_some_and(|due| due <= self.now());
            if is_due || is_up != self.was_up || self.kill_after.is_some() {
                self.reconcile_due().await;
            }
        }
    }

    /// Lets everything be well again, and waits until what is wanted is.
    pub(super) async fn settle(&mut self) {
        (self.has_runners, self.has_agents) = (true, true);
        for _ in 0..3 * 60 * 60 {
            self.pass(1).await;
            let (life, _) = self.read().await;
            if life.is_settled() && (life.desired != DesiredState::Running || self.session.is_some()) {
                return;
            }
            self.saving = self.saving.min(1500);
        }
        panic!("it does not come about: {:?} {:?}", self.read().await, self.fates);
    }

    /// The controller looks at the workspace. A clock that stands still goes on while GitLab does not answer.
    async fn reconcile_due(&mut self) {
        let (running, polls_max, mut polls) = (self.controller.clone(), self.kill_after.take(), 0);
        {
            let mut visit = pin!(running.reconcile(self.id, self.heard.clone()));
            loop {
                let hangs = self.server.hangs.clone();
                let limited = poll_fn(|context| {
                    if polls_max.is_some_and(|max| polls >= max) {
                        return Poll::Ready(None);
                    }
                    polls += 1;
                    visit.as_mut().poll(context).map(Some)
                });
                tokio::select! {
                    biased;
                    done = limited => match done {
                        Some(visit) => return self.looked(visit),
                        None => break,
                    },
                    () = hangs.notified() => for _ in 0..12 {
                        self.second().await;
                    }
                }
            }
        }
        // Killed: another begins with what is stored, and agents have to come again.
        self.server.settled().await;
        // Who was killed heard of no request that hangs, and the next one has nothing of it: for time goes on only then.
        self.server.hangs.notified().now_or_never();
        self.session = None;
        (self.heard, self.was_up, self.due) = (ObservedRun::default(), false, Some(self.now()));
        self.controller = controller(&self.ci, &self.store, &self.clock);
        self.check();
    }

    fn looked(&mut self, visit: EndedReconcile) {
        self.check();
        self.heard = visit.heard;
        match visit.outcome {
            CiReconcileOutcome::Nothing => self.due = None,
            CiReconcileOutcome::Done { seen, again } => (self.was_up, self.due) = (seen.is_up, again),
            CiReconcileOutcome::Failed { error, .. } => panic!("{error}"),
        }
    }

    /// A second of everybody but the controller.
    async fn second(&mut self) {
        self.turn(1);
        tokio::time::advance(Duration::from_secs(1)).await;
        self.server.land(self.now());
        self.note_cancels();
        for id in self.live() {
            if id < CHILD { self.parent(id).await } else { self.child(id).await }
        }
        self.check();
    }

    /// Takes in who was asked to end, and that nobody was who saves files.
    fn note_cancels(&mut self) {
        let now = self.now();
        for asked in self.server.asked() {
            let id = asked.strip_prefix("POST /pipelines/").and_then(|rest| rest.strip_suffix("/cancel"));
            let Some(id) = id.and_then(|id| id.parse::<u64>().ok()) else { continue };
            // Who asks a parent to end is about to ask its child.
            let fate = self.fates.entry(if id < CHILD { id + CHILD } else { id }).or_default();
            let Some((since, _)) = fate.ending else {
                fate.is_given_up = true;
                continue;
            };
            let is_over = fate.began_at.is_some_and(|began_at| began_at.later(self.time.end()) <= now);
            let is_bound = since.later(self.time.save_max()) <= now;
            let may_be_cut = is_over || is_bound || fate.is_given_up || self.is_terminated;
            assert!(may_be_cut, "{id} is cut at {now} while it saves: {fate:?}");
        }
        let cancelled: Vec<u64> =
            self.server.state.lock().pipelines.iter().filter(|one| one.cancels > 0).map(|one| one.id).collect();
        for id in cancelled {
            let takes = Duration::from_secs(chance(&mut self.random, 8));
            let fate = self.fates.entry(id).or_default();
            fate.cancelled_at = fate.cancelled_at.or(Some(now.later(takes)));
        }
    }

    fn end(&mut self, id: u64, status: &'static str, failure: Option<&str>) {
        let job = self.fates.get(&id).and_then(|fate| fate.began_at).map(|at| job(id, status, Some(at), failure));
        self.server.change(id, |one| (one.status, one.jobs) = (status, job.into_iter().collect()));
        if id > CHILD {
            self.drop_agent();
            // The parent is what its child is.
            self.server.change(id - CHILD, |one| one.status = status);
        }
    }

    /// The pipeline that fetches the definition, and starts the other one.
    async fn parent(&mut self, id: u64) {
        let (now, random) = (self.now(), chance(&mut self.random, 5));
        let fate = self.fates.entry(id).or_default().clone();
        if fate.cancelled_at.is_some() {
            // It starts nothing any more.
            if fate.cancelled_at.is_some_and(|at| at <= now) {
                self.end(id, "canceled", None);
            }
            return;
        }
        if !self.has_runners || random > 0 {
            return;
        }
        let known = self.store.run_of_pipeline(&provider(), &id.to_string()).await.unwrap();
        match known {
            Some(run) if run.is_live => {
                let made = now.to_string();
                self.server.add(id + CHILD, "pending", &made, json!([]));
                self.server.change(id + CHILD, |one| one.jobs = vec![job(id + CHILD, "pending", None, None)]);
                self.server.change(id, |one| (one.status, one.child) = ("running", Some(id + CHILD)));
            }
            // It is told that nobody knows it, or that its run is over.
            Some(_) => self.end(id, "failed", None),
            None => {}
        }
    }

    /// The pipeline whose job is the workspace.
    async fn child(&mut self, id: u64) {
        let now = self.now();
        let fate = self.fates.entry(id).or_default().clone();
        if fate.cancelled_at.is_some_and(|at| at <= now) {
            return self.end(id, "canceled", None);
        }
        let Some(began_at) = fate.began_at else {
            if self.has_runners && fate.cancelled_at.is_none() {
                self.fates.entry(id).or_default().began_at = Some(now);
                self.server.change(id, |one| {
                    (one.status, one.jobs) = ("running", vec![job(id, "running", Some(now), None)]);
                });
            }
            return;
        };
        if began_at.later(self.time.end()) <= now {
            return self.end(id, "failed", Some("job_execution_timeout"));
        }
        if let Some((_, saved_at)) = fate.ending {
            if saved_at <= now {
                self.end(id, "success", None);
            }
            return;
        }
        let is_told = self.session.as_ref().is_some_and(|session| session.tunnel.is_ended());
        if is_told || began_at.later(self.time.script_end()) <= now {
            self.drop_agent();
            return self.ending(id).await;
        }
        if self.session.is_none() && self.has_agents && chance(&mut self.random, 4) == 0 {
            self.dial(id).await;
        }
    }

    /// The agent of a job comes, and is let in, told to come again, or refused: then its job ends.
    async fn dial(&mut self, id: u64) {
        let Some(run) = self.store.run_of_pipeline(&provider(), &id.to_string()).await.unwrap() else { return };
        assert!(run.is_child);
        if run.is_live && !run.is_stopping && run.desired == DesiredState::Running {
            let new = gateway_agents::testing::new("app");
            self.session = Some(self.controller.registry.claim(new).unwrap().0);
        } else {
            self.ending(id).await;
        }
    }

    async fn ending(&mut self, id: u64) {
        let (now, (_, ci)) = (self.now(), self.read().await);
        let was_noted = ci.live().is_some_and(|run| run.up_at.is_some());
        let saved_at = now.later(Duration::from_secs(self.saving));
        let fate = self.fates.entry(id).or_default();
        fate.ending = Some((now, saved_at));
        fate.is_given_up |= !was_noted;
        let log = format!("the agent starts\n{ENDING_WORDS} the workspace is not to run\nSaving cache\n");
        self.server.state.lock().traces.insert(id, log.into_bytes());
    }
}

fn job(id: u64, status: &str, began_at: Option<UnixSeconds>, failure: Option<&str>) -> Value {
    let began_at = began_at.map(|at| at.to_string());
    json!({"id": id, "name": "workspace", "status": status, "started_at": began_at, "failure_reason": failure})
}

fn configuration(server: &Server, token: &Path, job_timeout: Duration, save_max: Duration) -> Ci {
    let gitlab = GitlabCi {
        url: server.at.clone(),
        project: "group/project".into(),
        reference: "main".into(),
        token_file: token.to_owned(),
        token: GitlabToken::Private,
        ca_file: None,
        issuer: server.at.clone(),
        audience: "https://gateway.test".into(),
        jwks_url: None,
    };
    let life = Duration::from_secs(30 * 24 * 60 * 60);
    let one = CiProvider {
        name: provider(),
        system: CiSystem::Gitlab(gitlab),
        tags: Vec::new(),
        allowed_tags: Vec::new(),
        job_timeout,
        save_max,
        inherit_variables: Vec::new(),
        editor: CiEditor::None,
        quota: None,
        quota_per_user: None,
        active_max: life,
        stopped_max: life,
        age_max: life,
        idle_minutes: 0,
        max_idle_minutes: 0,
    };
    Ci { enabled: true, providers: vec![one], ..Ci::default() }
}

/// Makes a controller as a gateway does that starts.
fn controller(ci: &Ci, store: &Store, clock: &Arc<AtomicI64>) -> Arc<CiController> {
    let addresses = Addresses {
        zone: "ws.example".parse().unwrap(),
        public_url: "https://gateway.test".to_owned(),
        agents_url: "https://agents.test".to_owned(),
    };
    let url = "https://gateway.test/agent".to_owned();
    let agents = [AgentFile { architecture: Architecture::Amd64, url, sha256: [7; 32] }];
    let systems = Systems::new(ci, addresses, &agents).unwrap();
    let time = clock.clone();
    let clock: Clock = Arc::new(move || UnixSeconds::new(time.load(Ordering::Relaxed)));
    let registry = Arc::new(Registry::new(10, 1));
    assert!(RunTimeouts::DEFAULT.settle >= Duration::from_secs(30), "as late as requests land here");
    CiController::new(registry, store.clone(), Changes::default(), Arc::new(systems), Metrics::default(), clock, None)
}
