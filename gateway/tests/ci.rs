//! Workspaces in jobs of a CI system: a gateway in this process, a shell program that plays the CI system, and an agent in this
//! process that is what the job would run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gateway::app::App;
use gateway_agents::registry::Registry;
use gateway_ci::provider::command::{CommandProvider as Program, CommandSettings};
use gateway_ci::provider::{CacheKey, NewRun, Provider, RunKey};
use gateway_config::{CiEditor, CiProvider, CiSystem, CommandCi, Config, StoreConfig, StoreUrl};
use gateway_store::{CiRun, CiState, ManagedWorkspace, NewCi, NewCiRun, Quotas, Runs, Store, wall_clock};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ActualState, DesiredState, Lifecycle, WorkspaceName};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workspace_agent::{DialEnded, Gateway, MEMORY_BUDGET_BYTES, Options, Ports, TokenSource, Transport};

/// The longest that anything here may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays a CI system that runs one job: it shows what the job would see, and ends when it is told how, or with its folder.
const PROGRAM: &str = "\
cp run/secrets/WORKSPACE_AGENT_TOKEN_FILE seeing && mv seeing seen
echo 'the job began'
trap 'echo the job was cancelled; exit 143' TERM
while [ ! -e end ]; do [ -e .gitlab-ci.yml ] || exit 1; sleep 0.05; done
status=$(cat end)
rm -f end seen
echo 'the job ends'
exit \"$status\"
";

struct World {
    folder: tempfile::TempDir,
    public: SocketAddr,
    agents: SocketAddr,
    admin: SocketAddr,
    store: Store,
    /// Whatever the gateway runs has it.
    registry: Weak<Registry>,
    gateway: JoinSet<()>,
    agent: JoinSet<Result<(), DialEnded>>,
}

impl World {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("program.sh"), PROGRAM).unwrap();
        Self::start_in(folder, change).await
    }

    /// Starts a gateway on the database and the jobs of a folder.
    async fn start_in(folder: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        (config.listen.public, config.listen.agents, config.listen.admin) = (any, any, Some(any));
        config.public_url = config.public_url.with_port(0);
        config.store = StoreConfig::at(StoreUrl::SqliteFile(folder.path().join("gateway.db")));
        config.timeouts.drain = Duration::from_secs(2);
        config.ci.enabled = true;
        config.ci.agent_files = vec![env!("CARGO_BIN_EXE_gateway").into()];
        config.ci.providers = vec![provider(folder.path())];
        change(&mut config);
        let app = App::bind(config).await.expect("the gateway starts");
        let (store, addresses) = (app.store().clone(), app.addresses().unwrap());
        let registry = Arc::downgrade(app.registry());
        let token = store.create_user_token(&"dev".parse().unwrap(), wall_clock()).await.unwrap().token;
        std::fs::write(folder.path().join("token"), token.reveal()).unwrap();
        let mut gateway = JoinSet::new();
        gateway.spawn(async move {
            app.run(CancellationToken::new()).await;
        });
        let agent = JoinSet::new();
        let admin = addresses.admin.expect("it is on");
        Self { folder, public: addresses.public, agents: addresses.agents, admin, store, registry, gateway, agent }
    }

    /// Kills the gateway and all agents, and starts another gateway on what is there.
    async fn start_anew(self, change: impl FnOnce(&mut Config)) -> Self {
        let mut world = self.kill_gateway().await;
        world.agent.shutdown().await;
        Self::start_in(world.folder, change).await
    }

    /// Kills the gateway, and waits until nothing of it is left: it would do the work of the next one.
    async fn kill_gateway(mut self) -> Self {
        self.gateway.shutdown().await;
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.registry.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "something of the gateway that was killed lives on");
        self
    }

    /// Runs `gateway workspace` as its owner, over the API.
    async fn workspace(&self, words: &str) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .arg("workspace")
            .args(words.split(' '))
            .env_clear()
            .env("GATEWAY_URL", format!("http://localhost:{}", self.public.port()))
            .env("GATEWAY_TOKEN_FILE", self.folder.path().join("token"))
            .stdin(Stdio::null())
            .output()
            .await
            .expect("the program runs");
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    }

    async fn done(&self, words: &str) -> String {
        let (is_done, told) = self.workspace(words).await;
        assert!(is_done, "{words}: {told}");
        told
    }

    async fn managed(&self) -> ManagedWorkspace {
        self.store.managed(&"app".parse().unwrap()).await.unwrap().expect("it is there")
    }

    async fn read(&self) -> (Lifecycle, CiState) {
        let managed = self.managed().await;
        let Runs::Ci(state) = managed.runs else { panic!("{:?}", managed.runs) };
        (managed.lifecycle, *state)
    }

    /// Returns what the metrics have of jobs.
    async fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.admin).await.expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("text");
        text.lines().filter(|line| line.starts_with("gateway_ci_")).map(|line| format!("{line}\n")).collect()
    }

    /// Waits until the workspace is something, and returns why it is.
    async fn until(&self, actual: ActualState) -> Option<String> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let (life, _) = self.read().await;
                if life.actual == actual {
                    return life.reason.map(|reason| reason.to_string());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match waited.await {
            Ok(reason) => reason,
            Err(_) => panic!("it does not become {actual}: {:?}", self.read().await),
        }
    }

    /// Waits until something is known of the last run.
    async fn until_run(&self, is_so: impl Fn(&CiRun) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !self.read().await.1.run.as_ref().is_some_and(&is_so) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "waited in vain: {:?}", self.read().await);
    }

    /// Waits until a job runs, and returns its folder.
    async fn job(&self, run: u64) -> PathBuf {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let (_, state) = self.read().await;
                let folder = self.folder.path().join("jobs").join(&*state.cache_key);
                if state.live().is_some_and(|live| live.number == run) && folder.join("seen").exists() {
                    return folder;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match waited.await {
            Ok(folder) => folder,
            Err(_) => panic!("there is no job {run}: {:?}", self.read().await),
        }
    }

    /// Starts the agent that a job would start, with the token that the job sees.
    async fn start_agent(&mut self, run: u64) -> PathBuf {
        let folder = self.job(run).await;
        let seen = std::fs::read_to_string(folder.join("seen")).unwrap();
        let token = Token::parse(seen.trim()).expect("the token of an agent");
        let options = Options {
            gateway: Gateway::parse(&format!("http://{}", self.agents), None).unwrap(),
            transport: Transport::default(),
            token: TokenSource::Value(token.reveal().into()),
            ports: Arc::new(Ports::default()),
            lanes: 1,
            memory_budget: MEMORY_BUDGET_BYTES,
            terminal: None,
            ssh: None,
            inspector: None,
            logs: None,
        };
        self.agent.spawn(workspace_agent::run(options, CancellationToken::new()));
        folder
    }

    /// Waits until the agent was told that its workspace is not to run, and ends its job well as the job's script does.
    async fn end_with_agent(&mut self, folder: &Path) {
        let ended = tokio::time::timeout(PATIENCE, self.agent.join_next()).await.expect("it ends").unwrap().unwrap();
        assert!(matches!(ended, Err(DialEnded::WorkspaceStopped { .. })), "{ended:?}");
        end(folder, 0);
    }

    /// Brings the workspace up.
    async fn up(&mut self, run: u64) -> PathBuf {
        let folder = self.start_agent(run).await;
        self.until(ActualState::Running).await;
        folder
    }
}

/// Tells a job to end.
fn end(folder: &Path, status: u8) {
    std::fs::write(folder.join("ending"), status.to_string()).unwrap();
    std::fs::rename(folder.join("ending"), folder.join("end")).unwrap();
}

fn provider(folder: &Path) -> CiProvider {
    let hour = Duration::from_secs(60 * 60);
    CiProvider {
        name: "local".parse().unwrap(),
        system: CiSystem::Command(CommandCi {
            program: vec!["sh".to_owned(), folder.join("program.sh").display().to_string()],
            dir: folder.join("jobs"),
            environment: Vec::new(),
            isolates_jobs: false,
            supervisor: Some(env!("CARGO_BIN_EXE_gateway").into()),
        }),
        tags: Vec::new(),
        allowed_tags: vec!["large".to_owned()],
        job_timeout: 8 * hour,
        save_max: hour,
        inherit_variables: Vec::new(),
        editor: CiEditor::None,
        quota: Some(2),
        quota_per_user: None,
        active_max: 24 * hour,
        stopped_max: 24 * hour,
        age_max: 48 * hour,
        idle_minutes: 0,
        max_idle_minutes: 0,
    }
}

#[tokio::test]
async fn workspace_in_a_ci_system_lives_the_life_that_its_owner_asks_for() {
    let mut world = World::start().await;
    let made: Value = serde_json::from_str(&world.done("create app --executor ci --output json").await).unwrap();
    assert_eq!((made["desired"].as_str(), made["generation"].as_u64()), (Some("Running"), Some(1)));
    let folder = world.job(1).await;
    assert_eq!(world.read().await.0.actual, ActualState::Starting);
    assert!(std::fs::read_to_string(folder.join(".gitlab-ci.yml")).unwrap().contains("script"));
    world.up(1).await;
    let shown: Value = serde_json::from_str(&world.done("show app --output json").await).unwrap();
    assert_eq!((shown["executor"].as_str(), shown["provider"].as_str()), (Some("ci"), Some("local")));
    assert_eq!((&shown["cluster"], &shown["connected"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(world.store.frozen(world.managed().await.workspace.id).await.unwrap(), None, "nothing of Kubernetes");

    // It stops in good order: the agent is told, the job ends by itself, and its token is worth nothing then.
    world.done("stop app --no-wait").await;
    world.end_with_agent(&folder).await;
    assert_eq!(world.until(ActualState::Stopped).await, None);
    let (_, state) = world.read().await;
    let run = state.run.unwrap();
    assert!(run.cancel_at.is_none() && run.ended_at.is_some() && run.failure.is_none(), "{run:?}");
    let tokens = world.store.list_tokens().await.unwrap();
    assert!(tokens.iter().find(|token| Some(token.id) == run.token).unwrap().revoked_at.is_some());

    // It starts again with a new job, and a restart is one more.
    world.done("start app --no-wait").await;
    world.up(2).await;
    world.done("restart app --no-wait").await;
    world.end_with_agent(&folder).await;
    world.up(3).await;
    assert_eq!(world.read().await.0.desired, DesiredState::Running);

    // Terminated, its job is cancelled and what it kept is deleted.
    world.done("terminate app --yes").await;
    assert!(world.read().await.0.is_over());
    assert!(!folder.exists(), "the cache is gone");
    let (_, state) = world.read().await;
    assert_eq!(state.run.unwrap().number, 3);
}

#[tokio::test]
async fn job_that_dies_is_replaced_and_the_reason_says_why() {
    let mut world = World::start().await;
    world.done("create app --executor ci --agent local --tag large").await;
    let folder = world.up(1).await;
    // The agent's session shows before the driver's next visit counts and stores that the run is up.
    world.until_run(|run| run.up_at.is_some()).await;
    // With the job goes its agent.
    world.agent.shutdown().await;
    end(&folder, 7);
    let reason = world.until(ActualState::Failed).await.expect("a reason");
    assert!(reason.contains("exit_status_7") && reason.contains("the job ends"), "{reason}");
    assert_eq!(world.read().await.1.failures, 1);
    // After ten seconds, by itself.
    world.up(2).await;
    assert_eq!(world.read().await.1.run.unwrap().intent, 1);
    // It is counted before this is stored.
    world.until_run(|run| run.up_at.is_some()).await;
    let metrics = world.metrics().await;
    for expected in [
        "gateway_ci_runs_total 2\n",
        "gateway_ci_runs_ended_total{end=\"failed\"} 1\n",
        "gateway_ci_run_up_seconds_count 2\n",
    ] {
        assert!(metrics.contains(expected), "{expected} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn gateway_that_is_killed_finds_the_job_again_and_makes_no_second_one() {
    let mut world = World::start().await;
    world.done("create app --executor ci").await;
    let folder = world.up(1).await;
    let before = world.read().await.1.run.unwrap();
    // Killed while it runs, and once more while it is about to stop it.
    let mut world = world.start_anew(|_| {}).await;
    world.start_agent(1).await;
    world.until(ActualState::Running).await;
    let after = world.read().await.1.run.unwrap();
    assert_eq!((after.number, &after.key, &after.pipeline), (before.number, &before.key, &before.pipeline));
    world.done("stop app --no-wait").await;
    world.until(ActualState::Stopping).await;
    let World { folder: kept, agent, .. } = world.kill_gateway().await;
    let mut world = World::start_in(kept, |_| {}).await;
    world.agent = agent;
    // Whether it heard it before or hears it now: it is told to end.
    world.agent.abort_all();
    while world.agent.join_next().await.is_some() {}
    world.start_agent(1).await;
    world.end_with_agent(&folder).await;
    world.until(ActualState::Stopped).await;
    assert_eq!(world.read().await.1.run.unwrap().number, 1);
}

#[tokio::test]
async fn what_ci_cannot_give_and_what_is_not_allowed_is_told_at_once_and_stores_nothing() {
    let world = World::start().await;
    let folder = world.folder.path();
    std::fs::write(folder.join("bad.yaml"), "schemaVersion: 2.2.0\nparent: {}\ncomponents: []\n").unwrap();
    for (words, expected) in [
        ("create app --executor ci --tag small".to_owned(), "tag"),
        ("create app --executor ci --agent other".to_owned(), "no CI system of that name"),
        ("create app --executor ci --project ftp://x".to_owned(), "project"),
        (format!("create app --executor ci --devfile {}", folder.join("bad.yaml").display()), "parent"),
        ("create app --project https://git.example/a --agent x".to_owned(), "agent"),
    ] {
        let (is_done, told) = world.workspace(&words).await;
        assert!(!is_done && told.contains(expected), "{words}: {told}");
    }
    assert!(world.store.workspaces().await.unwrap().is_empty());
    let off = World::start_with(|config| config.ci.enabled = false).await;
    let (is_done, told) = off.workspace("create app --executor ci").await;
    assert!(!is_done && told.contains("ci.enabled"), "{told}");
}

#[tokio::test]
async fn workspace_whose_ci_system_is_not_configured_any_more_stops_and_ends_and_its_job_is_let_in_no_more() {
    let mut world = World::start().await;
    world.done("create app --executor ci").await;
    let folder = world.up(1).await;
    let mut world = world.start_anew(|config| config.ci.enabled = false).await;
    world.start_agent(1).await;
    let reason = world.until(ActualState::Error).await.expect("a reason");
    assert!(reason.contains("local is not configured here any more") && reason.contains("time limit"), "{reason}");
    // Its agent, which comes back as it would after any pause of the gateway's, hears that it is not wanted, and ends its job.
    world.end_with_agent(&folder).await;
    world.done("stop app").await;
    let (life, state) = world.read().await;
    assert_eq!(life.actual, ActualState::Stopped);
    assert!(
        state.live().is_some_and(|run| run.number == 1 && run.stop_at.is_some()),
        "it may still run there: {state:?}"
    );

    // Configured again, the next start finds out what became of that job before it makes another.
    let mut world = world.start_anew(|_| {}).await;
    world.done("start app --no-wait").await;
    world.up(2).await;
    assert_eq!(world.read().await.1.failures, 0);

    let world = world.start_anew(|config| config.ci.providers.clear()).await;
    world.until(ActualState::Error).await;
    world.done("terminate app --yes").await;
    let (life, state) = world.read().await;
    assert!(life.is_over() && life.reason.is_some_and(|reason| reason.contains("until its own time limit")));
    assert_eq!(state.run.unwrap().number, 2);
    world.until_run(|run| run.ended_at.is_some()).await;
    let run = world.read().await.1.run.unwrap();
    assert!(run.number == 2 && run.failure.is_some(), "{run:?}");
    let tokens = world.store.list_tokens().await.unwrap();
    assert!(tokens.iter().find(|token| Some(token.id) == run.token).unwrap().revoked_at.is_some());
}

/// Writes down a workspace whose devfile makes no pipeline any more, with a run that was asked for a while ago.
async fn store_unmade(folder: &Path, cache_key: &CacheKey, key: &RunKey) {
    let store = Store::open_with(&StoreConfig::at(StoreUrl::SqliteFile(folder.join("gateway.db")))).await.unwrap();
    let (name, owner, provider) = ("app".parse().unwrap(), "dev".parse().unwrap(), "local".parse().unwrap());
    let new = NewCi {
        name: &name,
        owner: &owner,
        provider: &provider,
        cache_key: cache_key.as_str(),
        project: None,
        tags: &[],
        devfile: "schemaVersion: 2.2.0\nparent: {}\ncomponents: []\n",
        variables: &[],
        ports: &[],
        quotas: Quotas::default(),
    };
    let earlier = gateway_types::UnixSeconds::new(wall_clock().get() - 60);
    let made = store.create_ci(&new, earlier).await.unwrap();
    let (id, life) = (made.workspace.id, &made.lifecycle);
    let run = NewCiRun { key: key.as_str(), token: None };
    store.begin_run(id, life.revision, life, &run, earlier).await.unwrap().expect("it is the first");
    let Some(Runs::Ci(mut state)) = store.managed_by_id(id).await.unwrap().map(|managed| managed.runs) else {
        panic!("it is there")
    };
    state.run.as_mut().unwrap().asked_at = Some(earlier);
    assert!(store.put_run(id, &state, earlier).await.unwrap());
}

#[tokio::test]
async fn job_that_was_asked_for_is_found_although_none_could_be_made_now() {
    let (cache_key, key) = (CacheKey::generate().unwrap(), RunKey::generate().unwrap());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("program.sh"), PROGRAM).unwrap();
    let CiSystem::Command(command) = provider(folder.path()).system else { panic!("a program") };
    let settings = CommandSettings {
        program: command.program,
        directory: command.dir,
        environment: command.environment,
        stop_grace: Duration::from_secs(5),
        supervisor: command.supervisor,
    };
    // As it is when the gateway was killed before it heard the answer.
    let token = Token::generate(TokenKind::Agent).unwrap();
    let workspace: WorkspaceName = "app".parse().unwrap();
    let run = NewRun {
        key: &key,
        is_new: true,
        since: wall_clock(),
        workspace: &workspace,
        cache_key: &cache_key,
        yaml: "workspace:\n  script: [\"true\"]\n",
        token: Some(&token),
        variables: &[],
    };
    Provider::Command(Program::new(settings).unwrap()).create(&run).await.unwrap();
    store_unmade(folder.path(), &cache_key, &key).await;
    let world = World::start_in(folder, |_| {}).await;
    let jobs = world.job(1).await;
    world.until_run(|run| run.pipeline.is_some() || run.ended_at.is_some()).await;
    let run = world.read().await.1.run.unwrap();
    assert!(run.ended_at.is_none(), "somebody looks after it: {run:?}");
    world.done("stop app").await;
    let run = world.read().await.1.run.unwrap();
    assert_eq!((run.number, run.failure), (1, None));
    assert!(run.cancel_at.is_some() && run.ended_at.is_some() && jobs.exists());
}
