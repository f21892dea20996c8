//! The agent goes on, whatever becomes of the lines that it writes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails, and other processes are waited for"
)]

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_workspace-agent-slim");

/// Only against hanging: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream that takes nothing more, and its other end, which nobody reads.
fn filled() -> (OwnedFd, UnixStream) {
    let (mut stream, reader) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.write(&[b'.'; 1024]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    (stream.into(), reader)
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_lowercase();
        if ["workspace_", "ci_job_"].iter().any(|begin| text.starts_with(begin)) || text.ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("WORKSPACE_GATEWAY_TOKEN", "gwa_not-a-token").stdin(Stdio::null());
    command
}

fn wait(mut child: Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended;
        }
        if began.elapsed() > PATIENCE {
            child.kill().ok();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn agent_dials_on_whatever_becomes_of_its_log() {
    let (stopped, _reader) = filled();
    for err in [stopped.into(), full_disk(), closed_pipe()] {
        let gateway = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        gateway.set_nonblocking(true).unwrap();
        let url = format!("http://{}", gateway.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "gwa_not-a-token\n").unwrap();
        let mut command = program(&["run", "--gateway", &url, "--token-file", token.to_str().unwrap()]);
        let child = command.env("WORKSPACE_AGENT_LOG", "trace").stdout(Stdio::null()).stderr(err).spawn().unwrap();
        // Each link that ends at once is at least a line.
        let (began, mut dials) = (Instant::now(), 0);
        while dials < 3 {
            match gateway.accept() {
                Ok(_) => dials += 1,
                Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => {
                    kill_process(Pid::from_child(&child), Signal::KILL).ok();
                    panic!("{dials} dials and no more");
                }
            }
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        wait(child);
    }
}

#[test]
fn job_ends_as_its_command_whatever_becomes_of_its_log() {
    let (stopped, _reader) = filled();
    for err in [stopped.into(), full_disk(), closed_pipe()] {
        let arguments = ["ci", "--gateway", "http://127.0.0.1:1", "--patience", "1s", "--", "sh", "-c", "exit 7"];
        let child = program(&arguments).stdout(Stdio::null()).stderr(err).spawn().unwrap();
        assert_eq!(wait(child).code(), Some(7));
    }
}

#[test]
fn usage_and_errors_end_it_whatever_becomes_of_its_log() {
    let (stopped, _reader) = filled();
    for err in [stopped.into(), full_disk(), closed_pipe()] {
        let child = program(&["run", "--gateway", "nonsense", "--token-file", "/nowhere"]).stderr(err).spawn().unwrap();
        assert!(!wait(child).success());
    }
}
