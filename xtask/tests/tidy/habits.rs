//! What the programs never do, and which libraries they never go back to.

use super::lex::lex;
use super::paths::paths;
use super::repository::Repository;
use super::source::without_tests;

/// Where the sources of the programs are.
const PROGRAMS: [&str; 6] = [
    "program-log/src/",
    "proto/src/",
    "proto/link/src/",
    "gateway/src/",
    "workspace-agent/src/",
    "workspace-agent/cluster/src/",
];

/// Queues without a bound: memory that a slow reader makes grow.
const UNBOUNDED: [&str; 4] = ["unbounded_channel", "UnboundedSender", "UnboundedReceiver", "unbounded_send"];

/// Copying with the runtime's own buffers of 8 KiB, and without an end for each direction of its own.
const COPYING: [&str; 4] = ["copy_bidirectional", "copy_bidirectional_with_sizes", "copy_buf", "copy"];

/// Libraries that had holes, and the versions that closed them.
const FIXED: [(&str, [u32; 3]); 6] = [
    // RUSTSEC-2024-0003 (reset queue) and RUSTSEC-2024-0332 (CONTINUATION).
    ("h2", [0, 4, 4]),
    // CVE-2021-32714 and CVE-2021-21299 (smuggling).
    ("hyper", [1, 0, 0]),
    // RUSTSEC-2024-0376 (the accept loop ended with a bad handshake).
    ("tonic", [0, 12, 3]),
    // CVE-2023-43669 (headers without end in a handshake).
    ("tungstenite", [0, 20, 1]),
    // RUSTSEC-2024-0336 (a loop without end after an alert).
    ("rustls", [0, 23, 5]),
    // RUSTSEC-2025-0055 (terminal codes in logs).
    ("tracing-subscriber", [0, 3, 20]),
];

/// Returns what the sources of the programs do that they should not.
pub(crate) fn check_sources(repository: &Repository) -> Vec<String> {
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let is_program = |path: &str| PROGRAMS.iter().any(|folder| path.starts_with(folder)) && !is_test(path);
    repository.check_sources(|path, text| if is_program(path) { in_source(path, text) } else { Vec::new() })
}

fn in_source(path: &str, text: &str) -> Vec<String> {
    let tokens = without_tests(&lex(text));
    let queues = tokens.iter().filter(|token| UNBOUNDED.iter().any(|name| token.is(name)));
    let mut problems: Vec<_> =
        queues.map(|token| format!("{path}:{}: {} has no bound", token.line, token.text)).collect();
    for found in paths(&tokens) {
        if let [.., "io", last] = found.names.as_slice()
            && COPYING.contains(last)
        {
            problems.push(format!("{path}:{}: {last} copies with small buffers", found.line));
        }
    }
    problems
}

/// Returns what in the manifest would make one panic the end of the process.
pub(crate) fn check_panics(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().map(|line| line.replace(' ', ""));
    let said: Vec<_> = lines.filter(|line| ["panic=\"unwind\"", "panic=\"abort\""].contains(&line.as_str())).collect();
    if said == ["panic=\"unwind\""] { Vec::new() } else { vec![format!("Cargo.toml: panics do not unwind: {said:?}")] }
}

/// Returns the libraries in the lock file that are older than the fix of their last known hole.
pub(crate) fn check_versions(lock: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (library, fixed) in FIXED {
        let entry = format!("name = \"{library}\"\nversion = \"");
        let versions: Vec<_> = lock.split(&entry).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        if versions.is_empty() {
            problems.push(format!("{library} is not used any more: take it off the list"));
        }
        for version in versions {
            let parts: Vec<u32> = version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).take(3).collect();
            if parts.as_slice() < fixed.as_slice() {
                problems.push(format!("{library} {version} is older than its fix, {fixed:?}"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_without_a_bound_and_small_copies_are_found() {
        let check = |source: &str| in_source("a.rs", source).len();
        assert_eq!(check("let (a, b) = tokio::sync::mpsc::unbounded_channel();"), 1);
        assert_eq!(check("fn f(a: mpsc::UnboundedSender<u8>) {}"), 1);
        assert_eq!(check("use tokio::io::{AsyncRead, copy};"), 1);
        assert_eq!(check("tokio::io::copy_bidirectional(&mut a, &mut b).await"), 1);
        assert_eq!(check("#[cfg(test)] mod tests { use tokio::io::copy; } // unbounded_channel"), 0);
        assert_eq!(check("Pace::unbounded(); std::fs::copy(a, b); mpsc::channel(8)"), 0);
    }

    #[test]
    fn panics_that_end_the_process_are_found() {
        assert_eq!(check_panics("panic = \"warn\"\n[profile.release]\npanic = \"unwind\"\n"), [""; 0]);
        assert_eq!(check_panics("[profile.release]\npanic = \"abort\"\n").len(), 1);
        assert_eq!(check_panics("[profile.release]\nlto = true\n").len(), 1);
    }

    #[test]
    fn libraries_older_than_their_fixes_are_found() {
        let lock = |h2: &str| {
            let good = |(name, version): (&str, [u32; 3])| {
                let [a, b, c] = version;
                format!("[[package]]\nname = \"{name}\"\nversion = \"{a}.{b}.{c}\"\n")
            };
            let others: String = FIXED.into_iter().filter(|(name, _)| *name != "h2").map(good).collect();
            format!("{others}[[package]]\nname = \"h2\"\nversion = \"{h2}\"\n")
        };
        assert_eq!(check_versions(&lock("0.4.20")), [""; 0]);
        assert_eq!(check_versions(&lock("1.0.0-rc.1")), [""; 0]);
        assert_eq!(check_versions(&lock("0.4.3")).len(), 1);
        assert_eq!(check_versions(&lock("0.3.99")).len(), 1);
        assert_eq!(check_versions("").len(), FIXED.len());
    }
}
