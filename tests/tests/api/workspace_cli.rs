//! The commands that make workspaces and change what they are to be, against a running gateway, with a cluster that does what
//! it is told.

use std::collections::BTreeMap;

use clap::Parser as _;
use e2e::buffer::Buffer;
use e2e::reports::observe;
use gateway_cli::{Cli, Console, Exit, GatewayCommand, run_workspace};
use gateway_store::wall_clock;
use gateway_types::{ActualState, DesiredState};
use serde_json::Value;
use tokio::task::JoinSet;
use tunnel_proto::reconcile::Blocker;

use tempfile::TempDir;

use super::support::{As, World};
use super::workspace_events::Listener;
use super::workspaces::{make, world};

/// As many as one user may listen with.
const LISTENERS_MAX: usize = 16;

/// Somebody with a token at a machine of their own.
pub(super) struct Desk {
    folder: TempDir,
    flags: String,
}

impl Desk {
    pub(super) fn new(world: &World) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let As::Token(token) = world.dev() else { unreachable!() };
        let file = folder.path().join("token");
        std::fs::write(&file, token).unwrap();
        let flags = format!(" --gateway http://{} --token-file {}", world.public(), file.display());
        Self { folder, flags }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs a command; `answer` is what somebody types who sits there.
    pub(super) async fn run(&self, words: &str, answer: Option<&'static str>) -> (Exit, String, String) {
        let (out, err) = (Buffer::default(), Buffer::default());
        let exit = self.run_into(words, answer, (&out, &err)).await;
        (exit, out.text(), err.text())
    }

    async fn run_into(&self, words: &str, answer: Option<&'static str>, (out, err): (&Buffer, &Buffer)) -> Exit {
        let words = format!("gateway workspace {words}{}", self.flags);
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()), answer.is_some());
        if let Some(answer) = answer {
            console = console.with_answers(Box::new(answer.as_bytes()));
        }
        let GatewayCommand::Workspace(args) = &cli.command else { panic!("{cli:?}") };
        run_workspace(&cli, args, &BTreeMap::new(), &mut console, wall_clock()).await
    }
}

/// Does to `app` what a cluster would, a step for each look, until the test ends.
fn obedient(world: &World) -> JoinSet<()> {
    let (store, changes) = (world.gateway.store.clone(), world.gateway.changes.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let Ok(Some(found)) = store.managed(&"app".parse().unwrap()).await else { continue };
            let actual = step(found.lifecycle.desired, found.lifecycle.actual);
            if actual != found.lifecycle.actual {
                observe(&store, &changes, "app", actual, None, &[]).await;
            }
        }
    });
    tasks
}

fn step(desired: DesiredState, actual: ActualState) -> ActualState {
    use ActualState::{Running, Starting, Stopped, Stopping, Terminated, Terminating};
    match (desired, actual) {
        (DesiredState::Running, Starting | Running) => Running,
        (DesiredState::Running, _) => Starting,
        (DesiredState::Stopped | DesiredState::RestartRequested, Stopping | Stopped) => Stopped,
        (DesiredState::Stopped | DesiredState::RestartRequested, _) => Stopping,
        (DesiredState::Terminated, Terminating | Terminated) => Terminated,
        (DesiredState::Terminated, _) => Terminating,
    }
}

#[tokio::test]
async fn workspace_lives_its_whole_life_from_the_command_line() {
    let world = world().await;
    let (desk, cluster) = (Desk::new(&world), obedient(&world));
    let devfile = desk.file(
        "devfile.yaml",
        "schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes:\n      gateway/inject-editor: true\n    \
         container:\n      image: example.com/app:1\n",
    );
    let (env, key) = (desk.file("app.env", "# for the app\nKEY=secret=1\n"), desk.file("key", "secret-2\n"));
    let words =
        format!("create app --agent one --devfile {devfile} --env-file {env} --secret-file id_rsa={key} --wait");
    let (exit, out, err) = desk.run(&words, None).await;
    assert_eq!(exit, Exit::Success, "{out} {err}");
    assert_eq!(out, format!("http://app.localhost:{}/\n", world.gateway.addresses.public.port()));
    assert!(err.contains("app: CreationRequested") && err.contains("app is Running, after "), "{err}");
    assert!(!err.contains("secret") && !err.contains('\r'), "{err:?}");
    let stored = world.gateway.managed("app").await;
    let kept = world.gateway.store.variables(stored.workspace.id).await.unwrap();
    assert!(kept.iter().any(|one| one.name == "KEY" && one.value.reveal() == "secret=1"));
    assert!(kept.iter().any(|one| one.name == "id_rsa" && one.value.reveal() == "secret-2\n"));

    for (words, last) in
        [("stop app", "app is Stopped"), ("start app", "app is Running"), ("restart app", "app is Running")]
    {
        let (exit, out, err) = desk.run(words, None).await;
        assert_eq!((exit, out.as_str()), (Exit::Success, ""), "{words}: {err}");
        assert!(err.lines().last().unwrap().starts_with(last), "{words}: {err}");
    }
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 5, "a restart is a stop and a start");
    let (_, list, _) = desk.run("list", None).await;
    assert!(list.lines().nth(1).unwrap().contains("Running"), "{list}");
    let (_, shown, _) = desk.run("show app", None).await;
    assert!(shown.contains("state    Running") && shown.contains("cluster  one"), "{shown}");

    let (exit, _, err) = desk.run("terminate app", Some("n\n")).await;
    assert_eq!(exit, Exit::Failed, "{err}");
    assert!(err.contains("cannot be taken back. [y/N]") && err.contains("was left as it is"), "{err}");
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 5);
    drop(cluster);
    let (out, err) = (Buffer::default(), Buffer::default());
    let end = async {
        let (store, changes) = (&world.gateway.store, &world.gateway.changes);
        world.audited("workspace_requested", 4).await;
        let blocker = Blocker { object: "Pod app-1".to_owned(), ..Blocker::default() };
        observe(store, changes, "app", ActualState::Terminating, None, &[blocker]).await;
        e2e::until("what is left is told", || out.text().contains("Pod app-1")).await;
        observe(store, changes, "app", ActualState::Terminated, None, &[]).await;
    };
    let streams = (&out, &err);
    let (exit, ()) = tokio::join!(desk.run_into("terminate app --output json", Some("yes\n"), streams), end);
    let (out, err) = (out.text(), err.text());
    assert_eq!(exit, Exit::Success, "{out} {err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|line| line["blockers"][0]["object"] == "Pod app-1"), "{out}");
    let last = lines.last().unwrap();
    assert_eq!((&last["actual"], &last["outcome"]), (&"Terminated".into(), &"reached".into()), "{out}");
    assert!(last["elapsed_seconds"].is_u64() && lines.len() >= 3, "{out}");
}

#[tokio::test]
async fn progress_on_a_terminal_is_one_line_that_changes() {
    let world = world().await;
    let (desk, _cluster) = (Desk::new(&world), obedient(&world));
    let (exit, _, err) = desk.run("create app --agent one --wait", Some("")).await;
    assert_eq!(exit, Exit::Success, "{err}");
    assert!(err.contains("\r\u{1b}[2Kapp: ") && err.contains(" s)"), "{err:?}");
    assert_eq!(err.matches('\n').count(), 1, "only the last one stays: {err:?}");
}

/// Returns the states that a command told programs of.
fn told(out: &str) -> Vec<String> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| line["actual"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn states_are_told_as_they_come_and_not_only_those_that_a_look_finds() {
    let world = world().await;
    let desk = Desk::new(&world);
    make(&world, "app").await;
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    let (out, err) = (Buffer::default(), Buffer::default());
    let until_told = async |state: &str| {
        let part = format!("\"actual\":\"{state}\"");
        e2e::until("the state is told", || out.text().contains(&part)).await;
    };
    let cluster = async {
        until_told("Running").await;
        world.gateway.observe("app", ActualState::Stopping, None, &[]).await;
        until_told("Stopping").await;
        // Whoever listens does not look.
        assert_eq!(listen_with_all(&world).await.len(), LISTENERS_MAX - 1, "the command listens");
        world.gateway.observe("app", ActualState::Stopped, None, &[]).await;
    };
    let streams = (&out, &err);
    let (exit, ()) = tokio::join!(desk.run_into("stop app --output json", None, streams), cluster);
    assert_eq!(exit, Exit::Success, "{}", err.text());
    assert_eq!(told(&out.text()), ["Running", "Stopping", "Stopped", "Stopped"], "{}", out.text());
}

/// Listens to `app` as often as its user still may.
async fn listen_with_all(world: &World) -> Vec<Listener> {
    let mut listeners = Vec::new();
    loop {
        let listener = Listener::start(world, "app", &world.dev(), "").await;
        if listener.status() != 200 {
            return listeners;
        }
        listeners.push(listener);
    }
}

#[tokio::test]
async fn where_nothing_can_be_heard_it_is_looked() {
    let world = world().await;
    let (desk, _cluster) = (Desk::new(&world), obedient(&world));
    let (exit, _, err) = desk.run("create app --agent one --wait", None).await;
    assert_eq!(exit, Exit::Success, "{err}");
    let _listeners = listen_with_all(&world).await;
    let (exit, out, err) = desk.run("stop app --output json", None).await;
    assert_eq!((exit, told(&out).last().map(String::as_str)), (Exit::Success, Some("Stopped")), "{out} {err}");
}

#[tokio::test]
async fn waiting_that_is_over_ends_with_1_and_the_reason() {
    let world = world().await;
    let desk = Desk::new(&world);
    let (exit, _, err) = desk.run("create app --agent one --wait --timeout 1s", None).await;
    assert_eq!((exit, err.contains("not within 1s; it is CreationRequested")), (Exit::Failed, true), "{err}");
    let (store, changes) = (world.gateway.store.clone(), world.gateway.changes.clone());
    let stop = async {
        let (exit, out, _) = desk.run("stop app --no-wait --output json", None).await;
        let line: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((exit, &line["desired"]), (Exit::Success, &"Stopped".into()));
    };
    stop.await;
    let fail = async {
        e2e::until("it is asked for", || {
            let audit = world.audit();
            audit.iter().any(|record| record["how"] == "start")
        })
        .await;
        observe(&store, &changes, "app", ActualState::Failed, Some("CrashLoopBackOff: exit 1"), &[]).await;
    };
    let ((exit, out, err), ()) = tokio::join!(desk.run("start app --timeout 10s --output json", None), fail);
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    // Kubernetes tries again what failed, so the failure alone does not end the wait.
    assert_eq!((exit, &last["outcome"]), (Exit::Failed, &"timeout".into()), "{out} {err}");
    assert!(last["why"].as_str().unwrap().ends_with("it is Failed: CrashLoopBackOff: exit 1"), "{last}");
}

#[tokio::test]
async fn refusals_are_told_with_what_is_wrong_and_where() {
    let world = world().await;
    let desk = Desk::new(&world);
    let bad = desk.file("bad.yaml", "schemaVersion: 2.2.0\nparent: {}\n");
    let env = desk.file("bad.env", "A=1\nsecret-line\n");
    for (words, told) in [
        (format!("create app --agent one --devfile {bad}"), vec!["line 2, column", "parent"]),
        ("create app --agent absent".to_owned(), vec!["/agent", "no cluster of that name"]),
        (format!("create app --agent one --env-file {env}"), vec!["bad.env, line 2: has to be NAME=VALUE"]),
        ("create app --agent one --secret-file nothing".to_owned(), vec!["NAME=FILE"]),
        ("create app --agent one --devfile /does/not/exist".to_owned(), vec!["/does/not/exist: "]),
        ("create app --agent one --owner ann".to_owned(), vec!["--owner"]),
        ("start absent".to_owned(), vec!["not_found"]),
    ] {
        let (exit, out, err) = desk.run(&words, None).await;
        assert!(exit != Exit::Success && out.is_empty(), "{words}: {out}");
        assert!(told.iter().all(|told| err.contains(told)) && !err.contains("secret-line"), "{words}: {err}");
    }
}
