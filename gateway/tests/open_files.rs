//! The program's limit of open files, as the system sees it, and what happens when it is reached.

#![allow(clippy::expect_used, clippy::panic, reason = "a failed expectation is how a test fails")]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// A gateway that is killed in the end, whatever happens, and what it goes on to log.
struct Gateway(Child, Lines<BufReader<ChildStderr>>);

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts the program under limits of open files, and returns it with what it logs until it is up.
fn start(soft: u32, hard: u32) -> (Gateway, String) {
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" serve --admin-listen off");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_gateway")])
        .env("GATEWAY_LISTEN__PUBLIC", "127.0.0.1:0")
        .env("GATEWAY_LISTEN__AGENTS", "127.0.0.1:0")
        .env("GATEWAY_STORE__URL", "sqlite::memory:")
        .env("GATEWAY_LIMITS__CONNECTIONS", "300")
        .env("GATEWAY_LIMITS__SESSIONS", "200")
        .env("GATEWAY_LIMITS__HANDSHAKES", "10")
        .env("NO_COLOR", "1")
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut gateway = Gateway(child, lines);
    let log = gateway.logged("gateway is up");
    (gateway, log)
}

impl Gateway {
    /// Reads the log up to a line that has these words.
    fn logged(&mut self, words: &str) -> String {
        let mut log = String::new();
        for line in &mut self.1 {
            log += &line.expect("text");
            log.push('\n');
            if log.lines().next_back().is_some_and(|line| line.contains(words)) {
                return log;
            }
        }
        panic!("it never said `{words}`: {log}");
    }
}

/// Returns the soft limit of open files that a process has.
fn soft_limit(gateway: &Gateway) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.0.id())).expect("it runs");
    let row = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a row");
    row.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn limit_of_open_files_is_raised_and_one_that_is_too_low_is_named() {
    let (enough, log) = start(256, 2_000);
    assert_eq!(soft_limit(&enough), "2000");
    assert!(!log.contains("open files"), "{log}");
    let (short, log) = start(256, 1_000);
    assert_eq!(soft_limit(&short), "1000");
    let warning = log.lines().find(|line| line.contains("too few open files")).unwrap_or_else(|| panic!("{log}"));
    for part in ["WARN", "1000", "1022", "limits.connections", "limits.sessions"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

/// Returns the first line of an answer.
fn ask(address: &str) -> std::io::Result<String> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(Duration::from_secs(20)))?;
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn listener_survives_that_there_are_no_more_files() {
    // Each core has a runtime of its own, with files of its own.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let files = u32::try_from(64 + 4 * cores).expect("a number");
    let (mut gateway, log) = start(files, files);
    let address = log.split("users=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
    assert_eq!(ask(address).expect("an answer"), "HTTP/1.1 401 Unauthorized");
    let crowd: Vec<_> = (0..files + 64).map(|_| TcpStream::connect(address).expect("the kernel takes it")).collect();
    // More than once: it goes on trying, with pauses, and not in a loop that burns a core.
    let errors = gateway.logged("accept failed") + &gateway.logged("accept failed");
    assert!(errors.lines().count() < 50, "{errors}");
    drop(crowd);
    assert_eq!(ask(address).expect("an answer"), "HTTP/1.1 401 Unauthorized");
}
