//! `workspace-agent ci` as a program: what it runs must not notice it, nor whoever started it, whatever the gateway does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_workspace-agent-slim");

/// Nothing listens here.
const NOWHERE: &str = "http://127.0.0.1:1";

/// The longest that a job may be kept by a gateway that does not work, when it is given one second: that, the goodbye, and
/// what a busy machine needs.
const KEPT_MAX: Duration = Duration::from_secs(10);

/// Starts a program as somebody at a terminal does: below `nohup`, or in the background of a shell without job control, tests are
/// started with signals ignored, and what they start would inherit that.
const ATTENDED: [&str; 2] = ["env", "--default-signal=HUP,INT,QUIT"];

/// The wrapper around a command, without what the machine of the test says about gateways, or about a job that the test itself
/// is part of.
fn wrap(gateway: &str, more: &[&str], command: &[&str]) -> Command {
    let [program, signals] = ATTENDED;
    let mut wrapped = Command::new(program);
    wrapped.args([signals, PROGRAM]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_lowercase();
        if ["workspace_", "ci_job_"].iter().any(|begin| text.starts_with(begin)) || text.ends_with("_proxy") {
            wrapped.env_remove(name);
        }
    }
    wrapped.args(["ci", "--gateway", gateway, "--patience", "1s"]).args(more).arg("--").args(command);
    wrapped.env("WORKSPACE_GATEWAY_TOKEN", "gwa_not-a-token");
    wrapped
}

/// Returns the wrapper and its arguments without what gives it a terminal's signals: another one decides about those.
fn without_env(wrapped: &Command) -> impl Iterator<Item = &std::ffi::OsStr> {
    wrapped.get_args().skip(ATTENDED.len() - 1)
}

fn run(gateway: &str, more: &[&str], command: &[&str]) -> Output {
    wrap(gateway, more, command).stdin(Stdio::null()).output().expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// What a shell script prints first: it has to say that it is ready.
fn start_ready(wrapped: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        wrapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, output)
}

fn id(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Waits until a process of the wrapper's listens to SIGINT beside it.
fn until_witnessed(child: &Child) {
    let listens = |id: &str| {
        let is_witness =
            std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.contains("ci-witness"));
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().trim();
        is_witness && u64::from_str_radix(caught, 16).is_ok_and(|mask| mask & 0b10 != 0)
    };
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let began = Instant::now();
    while !std::fs::read_to_string(&children).expect("it runs").split_whitespace().any(listens) {
        assert!(began.elapsed() < KEPT_MAX, "no witness");
        std::thread::yield_now();
    }
}

/// A folder of this test's own.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

#[test]
fn status_of_a_command_is_the_status_of_the_step() {
    for status in [0, 1, 3, 42, 125, 128, 143, 255] {
        let output = run(NOWHERE, &[], &["sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(text(&output.stdout), "");
    }
    for (command, status) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        for more in [&[][..], &["--on", "never"]] {
            let output = run(NOWHERE, more, &[command]);
            assert_eq!(output.status.code(), Some(status), "{command}");
            assert!(text(&output.stderr).starts_with(&format!("workspace-agent: {command}: ")), "{output:?}");
        }
    }
}

#[test]
fn command_that_a_signal_ended_ends_the_step_by_that_signal() {
    for signal in [2, 6, 9, 11, 13, 15] {
        let output = run(NOWHERE, &[], &["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!((output.status.signal(), output.status.code()), (Some(signal), None), "{output:?}");
    }
}

#[test]
fn script_that_names_no_interpreter_is_run_by_the_shell() {
    let folder = folder();
    let script = folder.path().join("plain-script");
    // Written by a process of its own: one that a test beside this one begins meanwhile would inherit the file from this process
    // as it is being written, and what is being written cannot be run.
    let write = r#"echo 'echo "$1"; exit 7' >"$1" && chmod 755 "$1""#;
    let status = Command::new("sh").args(["-c", write, "-"]).arg(&script).status().expect("a shell");
    assert!(status.success());
    for more in [&[][..], &["--on", "never"]] {
        for command in [script.to_str().unwrap(), "plain-script"] {
            let mut wrapped = wrap(NOWHERE, more, &[command, "a b"]);
            wrapped.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
            let output = wrapped.stdin(Stdio::null()).output().expect("it runs");
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "a b\n"), "{output:?}");
        }
    }
}

#[test]
fn bytes_of_a_command_are_its_own() {
    let folder = folder();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut child = wrap(NOWHERE, &[], &["sh", "-c", "cat; echo done >&2; echo three >&3"]);
    // A file that only the command knows of, as the job servers of builds are.
    let three = folder.path().join("three");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 3>\"$THREE\"", "-"]).env("THREE", &three);
    shell.arg(child.get_program()).args(child.get_args());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child = shell;
    let mut child = child.env("WORKSPACE_GATEWAY_TOKEN", "x").spawn().expect("it runs");
    let mut input = child.stdin.take().expect("a pipe");
    let written = bytes.clone();
    let writing = std::thread::spawn(move || input.write_all(&written));
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("no panic").expect("written");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    assert_eq!(text(&output.stderr), "done\n", "nothing of ours is between them");
    assert_eq!(std::fs::read_to_string(three).expect("written"), "three\n");
}

#[test]
fn command_sees_what_it_would_see_without_us() {
    // Process group, session and terminal; ignored and blocked signals, but for SIGPIPE, which is never ignored in commands;
    // umask, limits.
    let look = "cut -d' ' -f5-8 /proc/self/stat; grep -E '^Sig(Ign|Blk)' /proc/self/status; umask; ulimit -a";
    let script = format!("trap '' INT USR1; umask 027; {look}; exec \"$@\"");
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", &script, "-"]).args(without_env(&wrap(NOWHERE, &[], &["sh", "-c", look])));
    let output = wrapped.env("WORKSPACE_GATEWAY_TOKEN", "x").stdin(Stdio::null()).output().expect("it runs");
    let said = text(&output.stdout);
    let (before, within) = said.split_at(said.len() / 2);
    assert_eq!(before, within);
    assert!(within.contains("SigIgn"), "{said}");
}

#[test]
fn status_is_found_out_even_where_nobody_wants_to_know_of_children() {
    let mut wrapped = Command::new("sh");
    let inner = wrap(NOWHERE, &["--on", "always"], &["sh", "-c", "exit 3"]);
    wrapped.args(["-c", "trap '' CHLD; exec \"$@\"", "-"]).args(without_env(&inner));
    let output = wrapped.env("WORKSPACE_GATEWAY_TOKEN", "x").stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn token_is_not_the_commands() {
    let print = ["sh", "-c", "env; echo arguments: $0 $*"];
    let output = run(NOWHERE, &[], &print);
    assert!(text(&output.stdout).contains("PATH=") && !text(&output.stdout).contains("gwa_"), "{output:?}");
    let never = run(NOWHERE, &["--on", "never"], &print);
    assert!(never.status.success() && !text(&never.stdout).contains("gwa_"), "{never:?}");
    let named =
        wrap(NOWHERE, &["--token-env", "MY_TOKEN"], &print).env("MY_TOKEN", "gwa_mine").output().expect("it runs");
    assert!(!text(&named.stdout).contains("gwa_mine"), "{named:?}");
}

#[test]
fn signal_to_the_wrapper_alone_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n+1)); echo hit' USR1; trap 'echo resized' WINCH; trap 'echo ends $n; exit 7' TERM; \
                  echo ready; while :; do sleep 0.02; done";
    let (mut child, mut output) = start_ready(&mut wrap(NOWHERE, &[], &["sh", "-c", script]));
    for (signal, said) in [(Signal::USR1, "hit\n"), (Signal::WINCH, "resized\n")] {
        kill_process(id(&child), signal).expect("it runs");
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, said);
    }
    kill_process(id(&child), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "ends 1\n");
    let mut complaint = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut complaint).expect("text");
    assert_eq!(
        (child.wait().expect("it ends").code(), complaint.as_str()),
        (Some(7), ""),
        "whoever ends it wants no hold"
    );
}

/// As below `nohup`: whoever started the job decided which signals end it, for everything in it.
#[test]
fn signal_that_is_ignored_at_the_start_stays_so_for_the_job_and_others_end_it() {
    let script =
        "trap 'echo ends; exit 7' TERM; grep SigIgn /proc/self/status >&2; echo ready; while :; do sleep 0.02; done";
    let inner = wrap(NOWHERE, &[], &["sh", "-c", script]);
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", "trap '' HUP INT; exec \"$@\"", "-"]).args(without_env(&inner));
    wrapped.env("WORKSPACE_GATEWAY_TOKEN", "gwa_not-a-token");
    let (mut child, mut output) = start_ready(&mut wrapped);
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        kill_process(id(&child), signal).expect("it runs");
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!((rest.as_str(), child.wait().expect("it ends").code()), ("ends\n", Some(7)));
    let mut ignored = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut ignored).expect("text");
    let mask = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
    assert_eq!(u64::from_str_radix(mask, 16).map(|mask| mask & 0b11), Ok(0b11), "{ignored}");
}

#[test]
fn signal_to_the_whole_group_reaches_the_command_once() {
    let script =
        "n=0; trap 'n=$((n+1))' INT; trap 'echo ends $n; exit 7' TERM; echo ready; while :; do sleep 0.02; done";
    let mut wrapped = wrap(NOWHERE, &[], &["sh", "-c", script]);
    let (mut child, mut output) = start_ready(wrapped.process_group(0));
    until_witnessed(&child);
    kill_process_group(id(&child), Signal::INT).expect("it runs");
    // Handed on after the first one, if that is.
    kill_process(id(&child), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "ends 1\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

/// Returns whether a process runs. One that has ended takes signals until somebody takes note of its end.
fn runs(id: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// How long the processes sleep that are to be killed, as the script says it.
const SLEEP: Duration = Duration::from_secs(60);

#[test]
fn command_does_not_outlive_a_wrapper_that_is_killed_and_what_is_not_its_own_does() {
    // A neighbour of the same group that somebody else started, one that left the group, and one of the command's.
    let folder = folder();
    // The one that left says so itself: until it has, it is of the group and of the command.
    let script = "setsid sh -c 'echo $$ >apart; exec sleep 60' >/dev/null 2>&1 & \
                  until [ -s apart ]; do sleep 0.01; done; trap 'echo hit' USR1; sleep 60 & echo ready; wait; wait";
    let inner = wrap(NOWHERE, &[], &["sh", "-c", script]);
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", "sleep 60 >/dev/null 2>&1 & echo $! >beside; exec \"$@\"", "-"]).current_dir(folder.path());
    wrapped.arg(inner.get_program()).args(inner.get_args()).env("WORKSPACE_GATEWAY_TOKEN", "x");
    let (mut child, mut output) = start_ready(wrapped.process_group(0));
    // Handed on, so the wrapper has begun to watch.
    kill_process(id(&child), Signal::USR1).expect("it runs");
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "hit\n");
    let began = Instant::now();
    kill_process(id(&child), Signal::KILL).expect("it runs");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert!(began.elapsed() < SLEEP / 2, "something of the command has its output still");
    for name in ["apart", "beside"] {
        let number = std::fs::read_to_string(folder.path().join(name)).expect("a number");
        let number = number.trim().parse().ok().and_then(Pid::from_raw).expect("a number");
        assert!(runs(number), "{name} was killed too");
        kill_process(number, Signal::KILL).expect("it runs");
    }
}

/// A wrapper's files are closed before it is gone; on a machine that stands still, long before.
#[test]
fn command_is_not_killed_before_its_wrapper_is_gone() {
    let mut command = Command::new("sleep").arg("60").spawn().expect("a process");
    let mut witness =
        Command::new(PROGRAM).arg("ci-witness").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a witness");
    let mut tells = witness.stdin.take().expect("a pipe");
    let ids = [command.id(), std::process::id()].map(u32::to_be_bytes);
    tells.write_all(ids.as_flattened()).expect("it reads");
    drop(tells);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(command.try_wait().expect("a child"), None);
    assert_eq!(witness.try_wait().expect("a child"), None);
    // It ends by itself only once this test is gone.
    witness.kill().expect("it runs");
    witness.wait().expect("a child");
    command.kill().expect("it runs");
    command.wait().expect("a child");
}

#[test]
fn gateway_that_is_not_there_is_one_line_and_nothing_else() {
    let began = Instant::now();
    let output = run(NOWHERE, &[], &["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "out\n"));
    let said: Vec<_> = text(&output.stderr).lines().collect();
    assert!(
        matches!(said[..], ["err", line] if line.starts_with("workspace-agent: this job is not held open: ")),
        "{said:?}"
    );
    assert!(began.elapsed() < KEPT_MAX, "{:?}", began.elapsed());
}

#[test]
fn gateway_that_takes_connections_and_says_nothing_keeps_a_job_no_longer_than_it_may() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let gateway = format!("http://{}", listener.local_addr().expect("bound"));
    let began = Instant::now();
    let output = run(&gateway, &[], &["sh", "-c", "exit 3"]);
    let kept = began.elapsed();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
    assert!(kept >= Duration::from_secs(1) && kept < KEPT_MAX, "{kept:?}");
}

#[test]
fn gateway_is_not_asked_for_a_job_that_passes() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let gateway = format!("http://{}", listener.local_addr().expect("bound"));
    let output = run(&gateway, &[], &["true"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn token_that_is_shown_is_noted_before_and_one_that_is_not_stays_good() {
    let folder = folder();
    let file = folder.path().join("spent");
    let path = file.display().to_string();
    for (command, is_spent) in [("true", false), ("false", true)] {
        run(NOWHERE, &["--spent-file", &path], &[command]);
        assert_eq!(file.exists(), is_spent, "{command}");
    }
    let output = run(NOWHERE, &["--spent-file", "/nonexistent/spent"], &["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn settings_that_cannot_work_cost_a_job_nothing() {
    let unset = |more: &[&str]| {
        let mut wrapped = wrap(NOWHERE, more, &["sh", "-c", "exit 3"]);
        wrapped.env_remove("WORKSPACE_GATEWAY_TOKEN").output().expect("it runs")
    };
    for (output, wrong) in [
        (unset(&[]), "there is no token"),
        (unset(&["--token-file", "/no/such/file"]), "/no/such/file"),
        (run("", &[], &["sh", "-c", "exit 3"]), "--gateway"),
        (run("ftp://localhost", &[], &["sh", "-c", "exit 3"]), "--gateway"),
        (run("https://127.0.0.1:1", &["--ca-file", "/no/such/file"], &["sh", "-c", "exit 3"]), "/no/such/file"),
    ] {
        let said: Vec<_> = text(&output.stderr).lines().collect();
        assert_eq!((output.status.code(), said.len()), (Some(3), 1), "{output:?}");
        assert!(said[0].starts_with("workspace-agent: this job ") && said[0].contains(wrong), "{said:?}");
    }
}
