//! The program as it is called: what it says when something is missing. (Tests of whole programs also have Cargo build it for the suites.)

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

use std::process::Command;

#[track_caller]
fn refused(arguments: &[&str], reason: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
}

#[test]
fn what_is_missing_is_named() {
    refused(&["image", "gateway", "--programs", "/none"], "there is no /none/gateway");
    refused(&["deb", "--programs", "/none", "--out", env!("CARGO_TARGET_TMPDIR")], "there is no /none/gateway");
    refused(&["image", "--target", "mips"], "programs are made for x86_64-unknown-linux-gnu");
    refused(&["image", "tools"], "--base");
}
