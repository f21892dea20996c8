//! Files and crates that decide and do nothing else: time, chance and bytes are their arguments.

use std::path::Path;
use std::process::Command;

use super::lex::{Token, lex};
use super::paths::paths;
use super::repository::Repository;
use super::source::without_tests;

/// Paths that bring in what a pure file must not touch, up to their last name here.
const FORBIDDEN: [&[&str]; 27] = [
    &["tokio"],
    &["tokio_util"],
    &["mio"],
    &["socket2"],
    &["rand"],
    &["getrandom"],
    &["fastrand"],
    &["aws_lc_rs", "rand"],
    &["tracing"],
    &["sqlx"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "net", "TcpStream"],
    &["std", "net", "TcpListener"],
    &["std", "net", "UdpSocket"],
    &["std", "net", "ToSocketAddrs"],
    &["std", "net", "*"],
    &["std", "os"],
    &["std", "time", "SystemTime"],
    &["std", "collections", "hash_map", "RandomState"],
    &["Instant", "now"],
    &["SystemTime"],
];

/// Crates that bring sockets, a clock, chance or a runtime along.
const FORBIDDEN_CRATES: [&str; 20] = [
    "tokio",
    "tokio-util",
    "mio",
    "socket2",
    "async-io",
    "smol",
    "hyper",
    "hyper-util",
    "h2",
    "tonic",
    "tower",
    "rustls",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "time",
    "chrono",
    "tracing",
    "log",
];

/// The list, from the top of the repository.
pub(crate) const PATH: &str = "xtask/pure.txt";

/// Checks the files of a list; an entry that ends in `/` is a folder, a line that begins with `#` a comment.
pub(crate) fn check_files(list: &str, repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    for entry in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let inside = |file: &&str| **file == *entry || (entry.ends_with('/') && file.starts_with(entry));
        let files: Vec<_> = repository.files().filter(inside).filter(|file| file.ends_with(".rs")).collect();
        if files.is_empty() {
            problems.push(format!("the list of pure files names {entry}, which is no file"));
        }
        // Test modules may ask for the time: only differences matter there.
        let files = files.into_iter().filter(|file| !file.ends_with("tests.rs") && !file.contains("/tests/"));
        problems.extend(files.flat_map(|file| check_source(file, &repository.read(file))));
    }
    problems
}

fn check_source(file: &str, text: &str) -> Vec<String> {
    let tokens = without_tests(&lex(text));
    let mut problems = Vec::new();
    for path in paths(&tokens) {
        let is = |forbidden: &&[&str]| path.names.starts_with(forbidden);
        let clock = path.names.windows(2).any(|pair| matches!(pair, ["Instant" | "SystemTime", "now"]));
        if clock || FORBIDDEN.iter().any(is) {
            problems.push(format!("{file}:{}: {} in a pure file", path.line, path.names.join("::")));
        }
    }
    let methods = tokens.windows(3).filter(|three| reads_clock(three));
    problems.extend(methods.filter_map(|three| {
        let line = three.first()?.line;
        Some(format!("{file}:{line}: elapsed() reads the clock, in a pure file"))
    }));
    problems
}

fn reads_clock(three: &[Token<'_>]) -> bool {
    match three {
        [dot, name, open] => dot.is(".") && name.is("elapsed") && open.is("("),
        _ => false,
    }
}

/// Asks Cargo what a crate of the workspace depends on, without its tests, on the machine at hand.
///
/// # Errors
/// What Cargo says.
pub(crate) fn dependency_tree(root: &Path, package: &str) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--package", package])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Finds crates in a dependency tree that a pure crate must not have.
pub(crate) fn check_tree(package: &str, tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let forbidden = names.filter(|name| FORBIDDEN_CRATES.contains(name));
    forbidden.map(|name| format!("{package} is pure and depends on {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::Scratch;
    use super::*;

    #[track_caller]
    fn check_impure(source: &str) {
        assert_eq!(check_source("a.rs", source).len(), 1, "{source}");
    }

    #[test]
    fn impure_source_is_found() {
        check_impure("use tokio::time::Instant;");
        check_impure("fn f() { let x = std::time::Instant::now(); }");
        check_impure("use std::time::Instant; fn f() { Instant::now(); }");
        check_impure("use std::time::{Duration, SystemTime};");
        check_impure("fn f() { std::env::var(\"X\"); }");
        check_impure("use std::{fs, fmt};");
        check_impure("use std::net::{IpAddr, TcpStream};");
        check_impure("fn f() -> u8 { rand::random() }");
        check_impure("use aws_lc_rs::rand::SystemRandom;");
        check_impure("fn f(since: Instant) { since.elapsed(); }");
    }

    #[test]
    fn pure_source_is_free() {
        let source = "
            //! tokio::time::Instant::now()
            use std::net::{IpAddr, SocketAddr};
            use std::time::{Duration, Instant};
            use aws_lc_rs::digest;
            fn f(now: Instant, elapsed: Duration) -> bool { now + elapsed > now && \"std::fs\" != \"\" }
            #[cfg(test)] mod tests { use tokio::time; fn now() { std::time::Instant::now(); } }";
        assert_eq!(check_source("a.rs", source), [""; 0]);
    }

    #[test]
    fn list_of_pure_files_must_name_files() {
        let scratch = Scratch::new("pure", &[("a/src/x.rs", "use std::fs;"), ("a/src/y/z.rs", "use std::env;")]);
        let repository = scratch.open();
        assert_eq!(check_files("# a list\na/src/x.rs\n", &repository).len(), 1);
        assert_eq!(check_files("a/src/", &repository).len(), 2);
        assert_eq!(check_files("a/src/gone.rs", &repository).len(), 1);
    }

    #[test]
    fn crate_with_a_runtime_is_found_in_a_tree() {
        assert_eq!(check_tree("x", "tunnel-proto v0.1.0 (x)\nbytes v1.12.1\nprost v0.14.4 (*)"), [""; 0]);
        assert_eq!(check_tree("x", "a v1.0.0\ntokio v1.54.1\ngetrandom v0.3.4 (*)").len(), 2);
        let tree = dependency_tree(super::super::repository::root(), "tunnel-link").expect("cargo tree");
        assert!(!check_tree("x", &tree).is_empty(), "the link has a runtime, and the check must see it: {tree}");
    }
}
