//! Whole lives of jobs: the generated script is run as a runner would, with a program in the place of the agent that notes what
//! it was given, and with servers on loopback.

mod host;

use std::fs;

use self::host::{Host, NOTES};
use super::*;

fn devfile_with(line: &str, env: Value) -> Devfile {
    let command = json!({"id": "one", "exec": {"component": "main", "commandLine": line}});
    devfile_of(json!({"env": env}), Vec::new(), json!({"commands": [command], "events": {"postStart": ["one"]}}))
}

#[test]
fn job_ends_well_when_the_workspace_is_not_to_run_and_its_agent_had_what_it_needs_and_no_more() {
    let host = Host::new(&format!("{NOTES}exit 3\n"));
    let site = Site {
        variables: vec![
            VariableName { name: "SECRET".to_owned(), is_file: false, bytes: 1 },
            VariableName { name: "key.pem".to_owned(), is_file: true, bytes: 1 },
        ],
        ..Site::default()
    };
    // Base64 of `it's secret` with two line ends, and of `a key`: one in a file, one as it is.
    fs::write(host.path("value-1"), "aXQncyBzZWNyZXQKCg==").unwrap();
    let devfile = devfile_with("true", json!([{"name": "NODE_ENV", "value": "development"}]));
    let mut job = host.job(&devfile, host.settings(), &site);
    job.env("GW_VAR_1", host.path("value-1")).env("GW_VAR_2", "YSBrZXk=");
    job.env("AWS_SECRET_ACCESS_KEY", "of the project").env("CI_JOB_TOKEN", "token of the job");
    job.env("CI_PROJECT_URL", "kept").env("JAVA_HOME", "/jdk").env("CI", "true");
    let (status, log) = host.run(&mut job);
    assert_eq!(status, Some(0), "{log}");
    let environment = host.noted("environment");
    for (name, value) in [
        ("SECRET", "it's secret\n\n"),
        ("NODE_ENV", "development"),
        ("CI_PROJECT_URL", "kept"),
        ("JAVA_HOME", "/jdk"),
        ("GW_WORKSPACE", "shop"),
    ] {
        assert!(environment.contains(&format!("\0{name}={value}\0")), "{name} in {environment:?}");
    }
    for absent in ["AWS_SECRET_ACCESS_KEY", "CI_JOB_TOKEN", "GW_ID_TOKEN", "GW_VAR_", "\0CI=", "id token"] {
        assert!(!environment.contains(absent), "{absent} in {environment:?}");
    }
    assert_eq!(host.noted("key"), "a key");
    assert_eq!(host.noted("token"), "id token 1");
    let arguments = host.noted("arguments");
    assert!(arguments.starts_with("run\n--gateway\nhttps://agents.example.com\n--token-file\n"), "{arguments}");
    assert!(log.contains(&format!("{ENDING_WORDS} the workspace is not to run")), "{log}");
    assert!(!["secret", "a key", "id token", "of the"].iter().any(|it| log.contains(it)), "{log}");
    assert!(host.path("workspace-89abcdef/projects").is_dir(), "what the cache keeps");
    assert_eq!(host.leftovers(), [""; 0], "what was private");
}

#[test]
fn files_of_the_last_run_are_found_and_those_of_another_workspace_are_not() {
    let host = Host::new("exit 3\n");
    let devfile = devfile_with("true", json!([]));
    fs::create_dir_all(host.path("workspace-other123/projects")).unwrap();
    fs::write(host.path("workspace-other123/.workspace-gateway"), "").unwrap();
    fs::create_dir_all(host.path("workspace-ofproject")).unwrap();
    let (_, log) = host.run(&mut host.job(&devfile, host.settings(), &Site::default()));
    assert!(log.contains("no files of a run before"), "{log}");
    assert!(!host.path("workspace-other123").exists() && host.path("workspace-ofproject").exists());
    fs::write(host.path("workspace-89abcdef/projects/mine"), "kept").unwrap();
    let (_, log) = host.run(&mut host.job(&devfile, host.settings(), &Site::default()));
    assert!(log.contains("files of the last run are there"), "{log}");
    assert_eq!(fs::read_to_string(host.path("workspace-89abcdef/projects/mine")).unwrap(), "kept");
}

#[test]
fn agent_that_is_another_program_than_the_definition_says_is_never_run() {
    let host = Host::new(&format!("{NOTES}exit 3\n"));
    let mut settings = host.settings();
    settings.agents.iter_mut().for_each(|agent| agent.sha256 = [1; 32]);
    let (status, log) = host.run(&mut host.job(&devfile_with("true", json!([])), settings, &Site::default()));
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("what came is not what was to come"), "{log}");
    assert!(!host.path("notes/arguments").exists());
}

#[test]
fn agent_that_is_killed_comes_back_with_the_next_token() {
    let host =
        Host::new(&format!("{NOTES}[ \"$(cat \"$notes/token\")\" != 'id token 1' ] || kill -s KILL \"$$\"\nexit 3\n"));
    let (status, log) = host.run(&mut host.job(&devfile_with("true", json!([])), host.settings(), &Site::default()));
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("the agent ended with status 137; it starts again in 1 s"), "{log}");
    assert_eq!(host.noted("token"), "id token 2");
}

#[test]
fn agent_that_does_not_take_its_arguments_ends_the_job_as_failed() {
    let host = Host::new("exit 64\n");
    let (status, log) = host.run(&mut host.job(&devfile_with("true", json!([])), host.settings(), &Site::default()));
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("does not take its arguments (status 64)"), "{log}");
}

#[test]
fn job_that_is_told_to_end_ends_all_that_it_began_and_keeps_the_files() {
    let host = Host::new("exec sleep 1000\n");
    host.fifo("begun");
    // A program of a person's that went into the background, and one that does not want to end.
    let begun = host.path("begun");
    // What is within its `exec` has no mark for a moment.
    let line = format!(
        "sleep 1001 &\necho $! >daemon; until grep -qs ^sleep \"/proc/$!/cmdline\"; do sleep 0.1; done\n\
         trap '' TERM; echo yes >'{}'\nsleep 1002",
        begun.display()
    );
    let mut job =
        host.job_of(&["sh"], &devfile_with(&line, json!([])), host.settings(), &Site::default()).spawn().unwrap();
    assert_eq!(fs::read_to_string(&begun).unwrap(), "yes\n");
    let daemon = fs::read_to_string(host.path("workspace-89abcdef/projects/daemon")).unwrap();
    assert!(Path::new("/proc").join(daemon.trim()).exists());
    let id = rustix::process::Pid::from_child(&job);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(0));
    assert!(!Path::new("/proc").join(daemon.trim()).exists());
    assert_eq!(host.leftovers(), [""; 0]);
}

/// As a shell does that gets the signal between its beginning and the end of its parent's traps.
const DEAF: &str = r#"sh -c 'trap "trap - TERM" TERM; echo >begun; i=0; while [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done; echo survived'"#;

/// Runs lines of a job's own shell, in a folder of their own; returns what they print, with all that they leave behind.
fn ran_in_a_job(lines: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("gw_job='{}' gw_steps='' gw_child='' gw_stopping='' gw_status=0", folder.path().display());
    let script = format!("{state}\n{}\nmkfifo begun\n{lines}", include_str!("../scripts/common.sh"));
    let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn job_that_is_told_to_end_ends_also_what_does_not_hear_it_the_first_time() {
    let told = format!(
        "trap 'stop \"it was told to\"' TERM\n{DEAF} &\nread -r gw_line <begun\nkill -s TERM \"$$\"\nawait\n\
         echo \"$gw_ended\""
    );
    assert_eq!(ran_in_a_job(&told), "143\n");
}

#[test]
fn job_that_ends_leaves_no_step_that_does_not_hear_it_the_first_time() {
    for kept in ["gw_steps=$!", "gw_child=$!"] {
        let ends = format!("{DEAF} &\n{kept}\nread -r gw_line <begun\nfinish 'the end'");
        assert_eq!(ran_in_a_job(&ends), "workspace: ends, since the end\n");
    }
}

#[test]
fn job_that_ends_leaves_alone_who_has_the_number_of_a_step_that_ended_long_ago() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    ran_in_a_job(&format!("gw_steps={}\nfinish 'the end'", other.id()));
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn job_whose_time_is_over_ends_well_by_itself_and_keeps_the_files() {
    let host = Host::new("echo begun >\"$notes/begun\"\nexec sleep 1000\n");
    // As little time as there can be, and none of it is left.
    let settings = PipelineSettings { job_timeout: Duration::from_secs(600), ..host.settings() };
    let mut job = host.job(&devfile_with("true", json!([])), settings, &Site::default());
    let script = fs::read_to_string(host.path("script")).unwrap();
    let given = "gw_seconds='\\''525'\\''";
    assert!(script.contains(given), "{script}");
    fs::write(host.path("script"), script.replace(given, "gw_seconds=1")).unwrap();
    let (status, log) = host.run(&mut job);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains(&format!("{ENDING_WORDS} its time is over")), "{log}");
    assert!(host.path("workspace-89abcdef/projects").is_dir(), "what the cache keeps");
    assert_eq!(host.leftovers(), [""; 0], "what was private");
}

#[test]
fn project_is_cloned_with_the_jobs_token_for_its_own_server_alone() {
    let host = Host::new("read -r done <\"$notes/../cloned\"\nexit 3\n");
    host.fifo("cloned");
    host.repository("group/shop.git");
    let line = format!("echo yes >'{}'", host.path("cloned").display());
    let devfile = devfile_with(&line, json!([]));
    let site =
        Site { project: Some(Project { url: host.url("private/group/shop.git"), reference: None }), ..Site::default() };
    let mut job = host.job(&devfile, host.settings(), &site);
    let (_, log) = host.run(job.env("CI_JOB_TOKEN", "job-token").env("CI_SERVER_URL", "https://gitlab.example.com"));
    assert!(log.contains("shop could not be cloned"), "{log}");
    assert!(host.seen().iter().all(|head| !head.contains("uthorization")), "{:?}", host.seen());
    let mut job = host.job(&devfile, host.settings(), &site);
    let (status, log) = host.run(job.env("CI_JOB_TOKEN", "job-token").env("CI_SERVER_URL", host.url("")));
    assert!(status == Some(0) && log.contains("shop is cloned"), "{log}");
    assert_eq!(fs::read_to_string(host.path("workspace-89abcdef/projects/shop/README")).unwrap(), "hello\n");
    let config = fs::read_to_string(host.path("workspace-89abcdef/projects/shop/.git/config")).unwrap();
    assert!(!config.contains("token") && !log.contains("job-token"), "{config}");
    let mut job = host.job(&devfile, host.settings(), &site);
    assert!(host.run(&mut job).1.contains("shop is as it was left"));
}
