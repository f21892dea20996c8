//! The program's limit of open files, as the system sees it.

#![allow(clippy::expect_used, clippy::panic, reason = "a failed expectation is how a test fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A gateway that is killed in the end, whatever happens.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts the program under limits of open files, and returns it with what it logs until it is up.
fn start(soft: u32, hard: u32) -> (Gateway, String) {
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" serve --admin-listen off");
    let child = Command::new("sh")
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
    let mut gateway = Gateway(child);
    let mut log = String::new();
    for line in BufReader::new(gateway.0.stderr.take().expect("piped")).lines() {
        let line = line.expect("text");
        log += &line;
        log.push('\n');
        if line.contains("gateway is up") {
            return (gateway, log);
        }
    }
    panic!("it did not come up: {log}");
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
