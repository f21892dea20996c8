//! Runs of a program as CI jobs, with real processes: the gateway's own supervisor, shells, signals.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gateway_ci::provider::command::{CommandProvider, CommandSettings, ENVIRONMENT};
use gateway_ci::provider::{
    CacheDeletion, CacheKey, NewRun, Provider, ProviderError, RunKey, RunRef, RunState, RunStatus,
};
use gateway_store::{SecretText, Variable, VariableKind, wall_clock};
use gateway_types::WorkspaceName;
use gateway_types::token::{Token, TokenKind};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const DEFINITION: &str = "workspace:\n  script: [\"true\"]\n";

/// A directory of workspaces, and a program that is run in it.
struct Lab {
    directory: PathBuf,
    _kept: Option<tempfile::TempDir>,
    provider: Provider,
    cache: CacheKey,
    workspace: WorkspaceName,
}

impl Lab {
    fn new(script: &str) -> Self {
        let kept = tempfile::tempdir().expect("a folder");
        let mut lab = Self::at(kept.path().join("jobs"), script);
        lab._kept = Some(kept);
        lab
    }

    fn at(directory: PathBuf, script: &str) -> Self {
        Self::with_grace(directory, script, Duration::from_secs(1))
    }

    fn with_grace(directory: PathBuf, script: &str, stop_grace: Duration) -> Self {
        let settings = CommandSettings {
            program: ["sh", "-c", script].map(str::to_owned).to_vec(),
            directory: directory.clone(),
            environment: Vec::new(),
            stop_grace,
            supervisor: Some(env!("CARGO_BIN_EXE_gateway").into()),
        };
        let provider = Provider::Command(CommandProvider::new(settings).expect("settings"));
        let cache = CacheKey::generate().expect("randomness");
        let workspace = "my-app".parse().expect("a name");
        Self { directory, _kept: None, provider, cache, workspace }
    }

    fn folder(&self) -> PathBuf {
        self.directory.join(self.cache.as_str())
    }

    async fn create_with(
        &self,
        key: &RunKey,
        token: Option<&Token>,
        variables: &[Variable],
    ) -> Result<RunRef, ProviderError> {
        let (workspace, cache_key) = (&self.workspace, &self.cache);
        let is_new = false;
        let run = NewRun { key, is_new, since: wall_clock(), workspace, cache_key, yaml: DEFINITION, token, variables };
        self.provider.create(&run).await
    }

    async fn create(&self) -> (RunKey, RunRef) {
        let key = RunKey::generate().expect("randomness");
        let run = self.create_with(&key, None, &[]).await.expect("a run");
        (key, run)
    }

    async fn status(&self, run: &RunRef) -> RunStatus {
        self.provider.status(run).await.expect("a status")
    }

    /// Waits until the run is over.
    async fn end(&self, run: &RunRef) -> (RunState, Option<String>) {
        let is_over = async |lab: &Self| lab.status(run).await.state.is_over();
        self.until("the run is over", is_over).await;
        let status = self.status(run).await;
        (status.state, status.job.and_then(|job| job.failure))
    }

    async fn trace(&self, run: &RunRef) -> String {
        self.provider.trace(run, 64 * 1024).await.expect("a trace")
    }

    /// Waits until the run's log has a text, and returns what follows it in its line.
    async fn said(&self, run: &RunRef, text: &str) -> String {
        self.until(text, async |lab: &Self| lab.trace(run).await.contains(text)).await;
        let log = self.trace(run).await;
        let after = log.split_once(text).expect("it was there").1;
        after.split('\n').next().unwrap_or_default().to_owned()
    }

    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        let give_up_at = tokio::time::Instant::now() + Duration::from_secs(30);
        while !is_so(self).await {
            assert!(tokio::time::Instant::now() < give_up_at, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn record(&self) -> Value {
        serde_json::from_slice(&fs::read(self.folder().join("run/record.json")).expect("a record")).expect("JSON")
    }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number")).expect("not zero")
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z")
}

/// Makes a program. A process of its own writes it: one that a test beside this one begins meanwhile would inherit the file
/// from this process as it is being written, and what is being written cannot be run.
fn write_program(path: &Path, text: &str) {
    let write = "cat >\"$1\" && chmod 700 \"$1\"";
    let mut child = std::process::Command::new("sh")
        .args(["-c", write, "-"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{path:?}");
}

fn rights(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o777
}

#[tokio::test]
async fn program_runs_on_the_definition_in_a_folder_of_its_own_and_its_status_is_the_runs() {
    for (status, state, failure) in
        [(0, RunState::Succeeded, None), (7, RunState::Failed, Some("exit_status_7".to_owned()))]
    {
        let lab = Lab::new(&format!("pwd; cat .gitlab-ci.yml; echo to-stderr >&2; umask; exit {status}"));
        let (_, run) = lab.create().await;
        assert_eq!(lab.end(&run).await, (state, failure));
        let expected = format!("{}\n{}to-stderr\n0077", lab.folder().display(), DEFINITION);
        assert_eq!(lab.trace(&run).await, expected);
        assert!(lab.status(&run).await.job.expect("a job").started_at.is_some());
        for path in [lab.directory.clone(), lab.folder(), lab.folder().join("run")] {
            assert_eq!(rights(&path), 0o700, "{path:?}");
        }
        for entry in [".gitlab-ci.yml", "run/plan.json", "run/record.json", "run/lock", "run/log"] {
            assert_eq!(rights(&lab.folder().join(entry)), 0o600, "{entry}");
        }
    }
}

#[tokio::test]
async fn secrets_are_in_private_files_while_the_run_lasts_and_nowhere_else() {
    let lab = Lab::new(
        "stat -c %a run/secrets run/secrets/GW_VAR_1; cat .gitlab-ci-local-variables.yml; cat run/secrets/* >seen; env; \
         tr '\\0' ' ' </proc/$$/cmdline; tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' '\\n' </proc/$PPID/environ",
    );
    let (token, key) =
        (Token::generate(TokenKind::Agent).expect("randomness"), RunKey::generate().expect("randomness"));
    let value = SecretText::new("hunter2".to_owned());
    let variable = Variable { kind: VariableKind::Env, name: "PASSWORD".to_owned(), value };
    let run = lab.create_with(&key, Some(&token), &[variable]).await.expect("a run");
    assert_eq!(lab.end(&run).await.0, RunState::Succeeded);
    let log = lab.trace(&run).await;
    let named = format!(
        r#""GW_VAR_1":{{"type":"variable","values":{{"*":"{}/run/secrets/GW_VAR_1"}}}}"#,
        lab.folder().display()
    );
    assert!(log.starts_with("700\n600\n") && log.contains(&named), "{log}");
    assert!(log.contains(&format!("WORKSPACE_GATEWAY_RUN={key}")), "{log}");
    let seen = fs::read_to_string(lab.folder().join("seen")).expect("what the program saw");
    assert!(seen.contains(token.reveal()) && seen.contains("aHVudGVyMg=="), "{seen}");
    fs::remove_file(lab.folder().join("seen")).expect("deleted");
    // The environment of this test, which plays the gateway, has variables that are nobody's business.
    let own = std::env::vars().map(|(name, _)| name).filter(|name| !ENVIRONMENT.contains(&name.as_str()));
    for name in own.filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str())) {
        assert!(!log.contains(&format!("\n{name}=")), "{name}: {log}");
    }
    let mut files = vec![lab.folder()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let content = fs::read(&path).expect("a file");
        let text = String::from_utf8_lossy(&content);
        assert!(
            !text.contains(token.reveal()) && !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
            "{path:?}"
        );
    }
}

#[tokio::test]
async fn creating_again_gives_the_same_run_and_another_one_has_to_wait() {
    let lab = Lab::new("echo began; mkfifo wait; read line <wait");
    let key = RunKey::generate().expect("randomness");
    let run = lab.create_with(&key, None, &[]).await.expect("a run");
    assert_eq!(lab.create_with(&key, None, &[]).await, Ok(run.clone()));
    // Another workspace's folder that makes no sense is nothing to this one.
    fs::create_dir_all(lab.directory.join("f".repeat(32)).join("run/record.json")).expect("made");
    let find = async |key: &RunKey| lab.provider.find(key, &lab.cache, wall_clock()).await;
    assert_eq!(find(&key).await, Ok(Some(run.clone())));
    let other = RunKey::generate().expect("randomness");
    assert_eq!(find(&other).await, Ok(None));
    assert_eq!(lab.create_with(&other, None, &[]).await, Err(ProviderError::Busy));
    assert_eq!(lab.provider.forget(&lab.cache).await, Err(ProviderError::Busy));
    assert_eq!(lab.status(&run).await.state, RunState::Running);
    lab.provider.cancel(&run).await.expect("cancelled");
    assert_eq!(lab.end(&run).await, (RunState::Cancelled, None));
    lab.provider.cancel(&run).await.expect("cancelling again is no failure");
    assert_eq!(lab.create_with(&key, None, &[]).await, Ok(run.clone()), "a run that is over is not made again");

    let second = lab.create_with(&other, None, &[]).await.expect("the other one's turn");
    assert_eq!(lab.status(&run).await.state, RunState::Gone, "only the newest run is known");
    assert_eq!(lab.status(&second).await.state, RunState::Running);
    lab.provider.cancel(&second).await.expect("cancelled");
    assert_eq!(lab.end(&second).await.0, RunState::Cancelled);
    assert_eq!(lab.provider.forget(&lab.cache).await, Ok(CacheDeletion::Gone));
    assert!(!lab.folder().exists());
    assert_eq!(lab.provider.forget(&lab.cache).await, Ok(CacheDeletion::Gone));
    assert_eq!(lab.status(&second).await.state, RunState::Gone);
    assert_eq!(lab.trace(&second).await, "");
}

/// Plays the gateway of [`run_is_adopted_when_the_gateway_that_made_it_was_killed`] in a process of its own.
#[tokio::test]
async fn process_that_is_asked_to_play_a_gateway_makes_a_run_and_waits() {
    let Some(directory) = std::env::var_os("CI_COMMAND_LAB") else { return };
    // It ends by itself, and what it says then is not to be cut short.
    let script = "trap 'echo asked; exit 0' TERM; echo began; while :; do sleep 0.1; done";
    let lab = Lab::with_grace(directory.into(), script, Duration::from_secs(60));
    let (_, run) = lab.create().await;
    fs::write(lab.directory.join("made.new"), run.id).expect("written");
    fs::rename(lab.directory.join("made.new"), lab.directory.join("made")).expect("renamed");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn run_is_adopted_when_the_gateway_that_made_it_was_killed() {
    let lab = Lab::new("exit 1");
    let mut gateway = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "process_that_is_asked_to_play_a_gateway_makes_a_run_and_waits"])
        .env("CI_COMMAND_LAB", &lab.directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("this test again");
    let made = lab.directory.join("made");
    lab.until("the run is made", async |_: &Lab| made.exists()).await;
    gateway.kill().expect("killed");
    gateway.wait().expect("gone");
    let run = RunRef { id: fs::read_to_string(&made).expect("an id"), child: None };
    lab.said(&run, "began").await;
    assert_eq!(lab.status(&run).await.state, RunState::Running);
    let (cache, key) = run.id.split_once('/').expect("two keys");
    let cache = cache.parse().expect("a key");
    let found = lab.provider.find(&key.parse().expect("a key"), &cache, wall_clock()).await;
    assert_eq!(found, Ok(Some(run.clone())));
    assert_eq!(lab.provider.forget(&cache).await, Err(ProviderError::Busy));
    lab.provider.cancel(&run).await.expect("cancelled");
    assert_eq!(lab.end(&run).await, (RunState::Cancelled, None));
    assert!(lab.trace(&run).await.ends_with("asked"));
}

#[tokio::test]
async fn run_that_does_not_end_in_time_is_killed_with_all_that_it_started() {
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo apart $$; while :; do sleep 0.1; done' & \
        env -i PATH=\"$PATH\" sleep 1000 & echo child $!; echo own $$; while :; do sleep 0.1; done";
    let lab = Lab::new(script);
    let (_, run) = lab.create().await;
    let pids = [
        pid(&lab.said(&run, "apart ").await),
        pid(&lab.said(&run, "child ").await),
        pid(&lab.said(&run, "own ").await),
    ];
    assert!(pids.into_iter().all(lives));
    lab.provider.cancel(&run).await.expect("cancelled");
    lab.provider.cancel(&run).await.expect("cancelled again");
    assert_eq!(lab.end(&run).await, (RunState::Cancelled, None));
    assert!(!pids.into_iter().any(lives), "what is over has left nothing");
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_before_its_run_is_over() {
    let lab = Lab::new("echo hunter2 >run/private/1; setsid sleep 1000 & echo child $!; exit 0");
    let (_, run) = lab.create().await;
    let child = pid(&lab.said(&run, "child ").await);
    assert_eq!(lab.end(&run).await, (RunState::Succeeded, None));
    assert!(!lives(child));
    assert!(!lab.folder().join("run/private").exists());
}

#[tokio::test]
async fn killed_program_is_a_failed_run_that_names_the_signal() {
    let lab = Lab::new("echo own $$; while :; do sleep 0.1; done");
    let (_, run) = lab.create().await;
    kill_process(pid(&lab.said(&run, "own ").await), Signal::KILL).expect("killed");
    assert_eq!(lab.end(&run).await, (RunState::Failed, Some("signal_9".to_owned())));
}

#[tokio::test]
async fn killed_supervisor_takes_its_whole_run_with_it() {
    // As gitlab-ci-local reads the variable; what a job puts there may be a folder that is only to be read.
    let script = "dir=$(grep -o '\"GW_PRIVATE_DIR\":[^}]*' .gitlab-ci-local-variables.yml | cut -d'\"' -f12); \
        mkdir \"$dir/workspace.1\" && echo hunter2 >\"$dir/workspace.1/1\" && chmod 500 \"$dir/workspace.1\" && echo kept $dir; \
        setsid sh -c 'echo apart $$; while :; do sleep 0.1; done' & \
        env -i PATH=\"$PATH\" sleep 1000 & echo child $!; echo own $$; while :; do sleep 0.1; done";
    let lab = Lab::new(script);
    let (key, run) = lab.create().await;
    let private = PathBuf::from(lab.said(&run, "kept ").await);
    assert_eq!((private.clone(), rights(&private)), (lab.folder().join("run/private"), 0o700));
    let pids = [
        pid(&lab.said(&run, "apart ").await),
        pid(&lab.said(&run, "child ").await),
        pid(&lab.said(&run, "own ").await),
    ];
    let supervisor = pid(&lab.record()["supervisor"]["pid"].to_string());
    kill_process(supervisor, Signal::KILL).expect("killed");
    assert_eq!(lab.end(&run).await, (RunState::Failed, Some("supervisor_lost".to_owned())));
    assert!(!pids.into_iter().any(lives), "two of them had left the session or the mark behind");
    assert!(!lab.folder().join("run/secrets").exists() && !private.exists(), "nor had the job the time to delete it");
    assert_eq!(lab.create_with(&key, None, &[]).await, Ok(run), "it is not begun again");
    let (next_key, next) = lab.create().await;
    assert_ne!(next_key, key, "the next one can");
    lab.provider.cancel(&next).await.expect("cancelled");
    assert_eq!(lab.end(&next).await, (RunState::Cancelled, None), "or it would outlive this test");
}

#[tokio::test]
async fn run_of_before_the_machine_went_down_is_over_and_nothing_is_killed_for_it() {
    let lab = Lab::new("while :; do sleep 0.1; done");
    let (_, run) = lab.create().await;
    let record = lab.record();
    lab.provider.cancel(&run).await.expect("cancelled");
    assert_eq!(lab.end(&run).await.0, RunState::Cancelled);
    // The numbers of this very process, from another start of the machine.
    let own = format!("/proc/{}/stat", std::process::id());
    let ticks: u64 = fs::read_to_string(own)
        .expect("a stat")
        .rsplit(')')
        .next()
        .expect("fields")
        .split(' ')
        .nth(20)
        .expect("ticks")
        .parse()
        .expect("a number");
    let mut earlier = record;
    earlier["boot"] = "another".into();
    earlier["program"] = serde_json::json!({"pid": std::process::id(), "ticks": ticks});
    fs::write(lab.folder().join("run/record.json"), earlier.to_string()).expect("written");
    fs::remove_file(lab.folder().join("run/cancel")).expect("deleted");
    assert_eq!(lab.end(&run).await, (RunState::Failed, Some("supervisor_lost".to_owned())));
}

#[tokio::test]
async fn log_without_end_is_bounded_and_its_end_is_kept() {
    let lab = Lab::new(
        "i=0; while [ $i -lt 30 ]; do head -c 1000000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done; echo the end",
    );
    let (_, run) = lab.create().await;
    assert_eq!(lab.end(&run).await.0, RunState::Succeeded);
    let bytes =
        ["run/log", "run/log.before"].map(|name| fs::metadata(lab.folder().join(name)).map_or(0, |file| file.len()));
    assert!(bytes.iter().sum::<u64>() <= 4 << 20, "{bytes:?}");
    assert_eq!(lab.provider.trace(&run, 100).await.expect("a trace"), "the end");
}

#[tokio::test]
async fn supervisor_does_not_begin_a_run_that_is_not_wanted_any_more() {
    let lab = Lab::new("exit 0");
    let (key, run) = lab.create().await;
    assert_eq!(lab.end(&run).await.0, RunState::Succeeded);
    let begin = |key: &RunKey| {
        let mut supervisor = std::process::Command::new(env!("CARGO_BIN_EXE_gateway"));
        supervisor.args(["ci-run", key.as_str()]).current_dir(lab.folder());
        let output = supervisor.output().expect("a supervisor");
        (output.status.success(), String::from_utf8(output.stdout).expect("text"))
    };
    let late = RunKey::generate().expect("randomness");
    assert_eq!(begin(&late), (false, "another run is wanted by now\n".to_owned()));
    assert_eq!(begin(&key), (true, "started\n".to_owned()), "it ran already, and is not run again");
    assert_eq!(lab.status(&run).await.state, RunState::Succeeded);
}

#[tokio::test]
async fn run_that_was_cancelled_before_it_began_does_not_begin() {
    let lab = Lab::new("echo began");
    let (key, run) = lab.create().await;
    lab.end(&run).await;
    // As it is when the gateway was killed between the plan and the supervisor's first step.
    fs::remove_file(lab.folder().join("run/record.json")).expect("deleted");
    // The supervisor holds the folder's lock for a moment after it has recorded the end.
    lab.until("the supervisor is gone", async |lab: &Lab| lab.status(&run).await.state == RunState::Gone).await;
    lab.provider.cancel(&run).await.expect("cancelled");
    let mut supervisor = std::process::Command::new(env!("CARGO_BIN_EXE_gateway"));
    supervisor.args(["ci-run", key.as_str()]).current_dir(lab.folder());
    assert!(supervisor.output().expect("a supervisor").status.success());
    assert_eq!(lab.end(&run).await.0, RunState::Cancelled);
    assert_eq!(lab.trace(&run).await, "");
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    let directory = tempfile::tempdir().expect("a folder");
    let settings = CommandSettings {
        program: vec!["no-such-program".to_owned()],
        directory: directory.path().join("jobs"),
        environment: Vec::new(),
        stop_grace: Duration::from_secs(1),
        supervisor: None,
    };
    let create = async |settings: CommandSettings| {
        let mut lab = Lab::at(settings.directory.clone(), "");
        lab.provider = Provider::Command(CommandProvider::new(settings).expect("settings"));
        let key = RunKey::generate().expect("randomness");
        lab.create_with(&key, None, &[]).await.expect_err("it cannot be started").to_string()
    };
    assert_eq!(
        create(settings.clone()).await,
        "no-such-program cannot be started: there is no such program on the PATH"
    );
    let program = vec!["sh".to_owned()];
    let no_supervisor =
        CommandSettings { program, supervisor: Some("/nonexistent/gateway".into()), ..settings.clone() };
    assert!(create(no_supervisor.clone()).await.starts_with("/nonexistent/gateway cannot be started: "));
    let another_program = CommandSettings { supervisor: Some("/bin/true".into()), ..no_supervisor };
    assert!(create(another_program).await.contains("it ended before it had begun"));
    // It has no line that can be run, which only the kernel finds out.
    let script = directory.path().join("broken");
    write_program(&script, "#!/nonexistent/interpreter\n");
    let supervisor = Some(env!("CARGO_BIN_EXE_gateway").into());
    let broken = CommandSettings { program: vec![script.display().to_string()], supervisor, ..settings };
    let mut lab = Lab::at(broken.directory.clone(), "");
    lab.provider = Provider::Command(CommandProvider::new(broken).expect("settings"));
    let (_, run) = lab.create().await;
    assert_eq!(lab.end(&run).await, (RunState::Failed, Some("exit_status_127".to_owned())));
    assert!(lab.trace(&run).await.contains("cannot be started"));
}

#[tokio::test]
async fn supervisor_that_says_nothing_in_time_leaves_open_whether_its_run_begins_and_the_run_is_found_when_it_does() {
    let kept = tempfile::tempdir().expect("a folder");
    let (slow, go) = (kept.path().join("slow"), kept.path().join("go"));
    let script = format!(
        "#!/bin/sh\nwhile [ ! -e {} ]; do sleep 0.05; done\nexec {} \"$@\"\n",
        go.display(),
        env!("CARGO_BIN_EXE_gateway")
    );
    write_program(&slow, &script);
    let settings = CommandSettings {
        program: ["sh", "-c", "echo began; mkfifo wait; read line <wait"].map(str::to_owned).to_vec(),
        directory: kept.path().join("jobs"),
        environment: Vec::new(),
        stop_grace: Duration::from_secs(1),
        supervisor: Some(slow),
    };
    let mut lab = Lab::at(settings.directory.clone(), "");
    let command = CommandProvider::new(settings).expect("settings").with_start_time(Duration::from_millis(200));
    lab.provider = Provider::Command(command);
    let key = RunKey::generate().expect("randomness");
    let error = lab.create_with(&key, None, &[]).await.expect_err("it has not begun");
    assert!(matches!(error, ProviderError::NotBegun { .. }) && error.is_temporary(), "{error}");
    fs::write(&go, "").expect("written");
    lab.until("the run is found", async |lab: &Lab| {
        lab.provider.find(&key, &lab.cache, wall_clock()).await.expect("an answer").is_some()
    })
    .await;
    let run = lab.create_with(&key, None, &[]).await.expect("the same run");
    lab.said(&run, "began").await;
    lab.provider.cancel(&run).await.expect("cancelled");
    assert_eq!(lab.end(&run).await, (RunState::Cancelled, None));
}
