//! Runs each input of the committed fuzz corpus through the code of its fuzz target.

#![allow(clippy::expect_used, reason = "an unreadable corpus ends the test")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[allow(unreachable_pub, reason = "public for the fuzz crate, whose library this file is")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn heads_hold_for_their_corpus() {
    check("heads", fuzz::heads::run);
}

/// Replays all files of a target, in the order of their names, and names the one that fails.
#[track_caller]
fn check(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    for file in files {
        let bytes = fs::read(&file).expect("a readable input");
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&bytes)));
        assert!(outcome.is_ok(), "{} breaks a law", file.display());
    }
}
