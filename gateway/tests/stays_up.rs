//! The program goes on, whatever becomes of the lines that it writes: their disk is full, their pipe is closed, their reader
//! has stopped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails, and other processes are waited for"
)]

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Only against hanging: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests that are answered whatever becomes of the lines about them.
const REQUESTS: usize = 300;

struct Running {
    child: Child,
    users: SocketAddr,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Addresses of one program's three listeners, on a loopback address that no other program or test uses: between the moment
/// that a port is found free and the program's bind, a client or test on 127.0.0.1 could take it.
fn addresses() -> [SocketAddr; 3] {
    static PROGRAMS: AtomicU32 = AtomicU32::new(1);
    let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
    assert!(number < 16, "more programs than this process has addresses for");
    let host = Ipv4Addr::from_bits(0x7f00_0000 | (std::process::id() << 4) & 0x00ff_fff0 | number);
    let listeners = [(); 3].map(|()| TcpListener::bind((host, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("bound"))
}

/// A stream that takes nothing more, and its other end, which nobody reads.
fn filled() -> (OwnedFd, UnixStream) {
    let (mut stream, reader) = UnixStream::pair().expect("a pair");
    stream.set_nonblocking(true).expect("a socket");
    loop {
        match stream.write(&[b'.'; 1024]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket");
    (stream.into(), reader)
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").expect("/dev/full").into()
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn start(command: &str, out: Stdio, err: Stdio) -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let [users, agents, admin] = addresses();
    let mut program = Command::new(env!("CARGO_BIN_EXE_gateway"));
    program.arg(command);
    if command == "demo" {
        program.args(["--app-listen", "127.0.0.1:0"]);
    }
    let child = program
        .env("GATEWAY_LISTEN__PUBLIC", users.to_string())
        .env("GATEWAY_LISTEN__AGENTS", agents.to_string())
        .env("GATEWAY_LISTEN__ADMIN", admin.to_string())
        .env("GATEWAY_STORE__URL", format!("sqlite://{}", folder.path().join("gateway.db").display()))
        // Each request is a line, not only the first of them in a second.
        .env("GATEWAY_LOG", "debug")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .expect("the program");
    Running { child, users, admin, _folder: folder }
}

impl Running {
    /// Asks once; `None` where nobody answers.
    fn asks(address: SocketAddr, host: &str, path: &str) -> Option<String> {
        let mut client = TcpStream::connect(address).ok()?;
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.starts_with("HTTP/1.1 ").then_some(answer)
    }

    fn until_up(&mut self) {
        let began = Instant::now();
        while Self::asks(self.users, "nope.example", "/").is_none() {
            assert!(began.elapsed() < PATIENCE, "it never answers");
            if let Some(ended) = self.child.try_wait().expect("a child") {
                panic!("it ended instead: {ended}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers_everybody(&mut self) {
        for number in 0..REQUESTS {
            let answer = Self::asks(self.users, &format!("80-w{number}.localhost"), "/");
            let ended = self.child.try_wait().expect("a child");
            assert!(answer.is_some(), "request {number} has no answer, the program: {ended:?}");
        }
    }

    fn lost_lines(&self) -> u64 {
        let metrics = Self::asks(self.admin, "localhost", "/metrics").expect("an answer");
        let line = metrics.lines().find_map(|line| line.strip_prefix("gateway_log_lost_lines")).expect("the metric");
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Asks it to end, and waits.
    fn ends(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        let began = Instant::now();
        loop {
            if let Some(ended) = self.child.try_wait().expect("a child") {
                return ended;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn full_disk_below_the_log_ends_nothing() {
    let mut gateway = start("serve", full_disk(), full_disk());
    gateway.until_up();
    gateway.answers_everybody();
    assert!(gateway.lost_lines() > 0);
    assert!(gateway.ends().success());
}

#[test]
fn reader_of_the_log_that_is_gone_ends_nothing() {
    let mut gateway = start("serve", closed_pipe(), closed_pipe());
    gateway.until_up();
    gateway.answers_everybody();
    assert!(gateway.lost_lines() > 0);
    assert!(gateway.ends().success());
}

#[test]
fn reader_of_the_log_that_stopped_makes_nobody_wait_and_reads_on_where_it_was() {
    let (out, _stopped_too) = filled();
    let (err, mut reader) = filled();
    let mut gateway = start("serve", out.into(), err.into());
    gateway.until_up();
    gateway.answers_everybody();
    // What it did not read is there for it still, up to the bound.
    reader.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut text = Vec::new();
    let mut some = [0; 64 * 1024];
    while !String::from_utf8_lossy(&text).contains("request failed") {
        let count = reader.read(&mut some).expect("lines");
        text.extend_from_slice(some.get(..count).expect("in bounds"));
    }
    drop(reader);
    assert!(gateway.ends().success());
}

#[test]
fn stopped_reader_does_not_keep_the_program_from_ending() {
    let (out, _out_reader) = filled();
    let (err, _err_reader) = filled();
    let mut gateway = start("serve", out.into(), err.into());
    gateway.until_up();
    gateway.answers_everybody();
    assert!(gateway.ends().success());
}

#[test]
fn demo_goes_on_where_neither_its_link_nor_its_log_can_be_written() {
    for (out, err) in [(full_disk(), full_disk()), (closed_pipe(), closed_pipe())] {
        let mut demo = start("demo", out, err);
        demo.until_up();
        demo.answers_everybody();
        assert!(demo.ends().success());
    }
    let ((out, _out_reader), (err, _err_reader)) = (filled(), filled());
    let mut demo = start("demo", out.into(), err.into());
    demo.until_up();
    demo.answers_everybody();
    assert!(demo.ends().success());
}

#[test]
fn audit_log_on_a_full_disk_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
    let [users, agents, admin] = addresses();
    let child = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .arg("serve")
        .env("GATEWAY_LISTEN__PUBLIC", users.to_string())
        .env("GATEWAY_LISTEN__AGENTS", agents.to_string())
        .env("GATEWAY_LISTEN__ADMIN", admin.to_string())
        .env("GATEWAY_AUDIT__PATH", &path)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(full_disk())
        .spawn()
        .expect("the program");
    let mut gateway = Running { child, users, admin, _folder: folder };
    gateway.until_up();
    gateway.answers_everybody();
    let metrics = Running::asks(admin, "localhost", "/metrics").expect("an answer");
    assert!(!metrics.contains("gateway_audit_lost_total 0\n"), "{metrics}");
    assert!(gateway.ends().success());
}
