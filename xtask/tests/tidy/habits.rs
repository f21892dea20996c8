//! What the programs never do, and which libraries they never go back to.

use super::lex::{Token, after_group, lex};
use super::paths::paths;
use super::repository::Repository;
use super::source::without_tests;

/// Folders with the crates of the programs, each with its sources in `src/`.
const PROGRAMS: [&str; 4] = ["program-log/", "proto/", "gateway/", "workspace-agent/"];

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
    repository.check_sources(|path, text| if is_program(path) { in_source(path, text) } else { Vec::new() })
}

/// Returns the functions of the programs that take tuples apart among their parameters.
pub(crate) fn check_parameters(repository: &Repository) -> Vec<String> {
    repository.check_sources(|path, text| if is_program(path) { tuples_in(path, text) } else { Vec::new() })
}

fn is_program(path: &str) -> bool {
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    PROGRAMS.iter().any(|folder| path.starts_with(folder)) && path.contains("/src/") && !is_test
}

fn tuples_in(path: &str, text: &str) -> Vec<String> {
    let tokens = without_tests(&lex(text));
    unnamed_pairs(&tokens).map(|line| format!("{path}:{line}: a tuple as argument: name its fields")).collect()
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

/// Returns the lines of functions whose parameters take a tuple apart: values that belong together have a type with
/// named fields, and others are parameters of their own.
fn unnamed_pairs<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = usize> + 'a {
    let functions = tokens.iter().enumerate().filter(|(_, token)| token.is("fn"));
    functions.filter_map(|(at, token)| {
        let open = parameters(tokens, at + 1)?;
        let end = after_group(tokens, open);
        let mut index = open + 1;
        while index < end {
            if tokens.get(index)?.is("(") {
                let after = after_group(tokens, index);
                let begins = tokens.get(index - 1).is_some_and(|before| before.is("(") || before.is(","));
                if begins && tokens.get(after).is_some_and(|mark| mark.is(":")) {
                    return Some(token.line);
                }
                index = after;
            } else {
                index += 1;
            }
        }
        None
    })
}

/// Returns the bracket that opens the parameters of the function whose name is at `name`, behind its generics.
fn parameters(tokens: &[Token<'_>], name: usize) -> Option<usize> {
    let mut angles = 0_usize;
    let mut arrow = false;
    for (index, token) in tokens.iter().enumerate().skip(name + 1) {
        match token.text {
            "<" => angles += 1,
            ">" if !arrow => angles = angles.saturating_sub(1),
            "(" if angles == 0 => return Some(index),
            "{" | ";" => return None,
            _ => {}
        }
        arrow = token.is("-");
    }
    None
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
    fn tuples_among_the_parameters_are_found() {
        let check = |source: &str| tuples_in("a.rs", source).len();
        assert_eq!(check("fn f(a: u8, (b, c): (u8, u8)) {}"), 1);
        assert_eq!(check("async fn f<F: Fn(u8) -> (u8, u8)>((b, c): (u8, u8), a: F) {}"), 1);
        assert_eq!(check("fn f(Pair { b, c }: Pair, d: fn(u8) -> (u8, u8)) { g(|(a, b): (u8, u8)| a) }"), 0);
        assert_eq!(check("fn f(&self, pair: (u8, u8)) -> u8 { (a, b) }"), 0);
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
