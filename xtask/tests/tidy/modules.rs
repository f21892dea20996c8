//! Files that are compiled: follows `mod` from each crate's roots.

use std::collections::BTreeSet;

use super::lex::{Token, after_group, lex, text_of};
use super::repository::{Repository, is_generated};
use super::source::attribute;

/// A `mod name;` and how it is reached.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    /// Modules written out in the same file around it, and its own name.
    names: Vec<String>,
    /// What its `path` attribute says.
    path: Option<String>,
}

/// Returns the files of the crate in a folder that the compiler reads.
fn walk(repository: &Repository, folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for root in roots(repository, folder) {
        let mut waiting = vec![(root, true)];
        while let Some((file, owns_folder)) = waiting.pop() {
            let text = repository.read(&file);
            let tokens = lex(&text);
            let own_folder = if owns_folder || file.ends_with("/mod.rs") {
                parent(&file).to_owned()
            } else {
                file.trim_end_matches(".rs").to_owned()
            };
            for declaration in declarations(&tokens) {
                let candidates = candidates(&file, &own_folder, &declaration);
                // One that is missing does not compile, or is for another system: no matter for this test.
                let Some(file) = candidates.into_iter().find(|file| repository.has(file)) else {
                    continue;
                };
                // A file that an attribute names is like a `mod.rs` to what is inside.
                waiting.push((file, declaration.path.is_some()));
            }
            files.extend(included(&file, &tokens));
            files.push(file);
        }
    }
    files
}

/// Finds Rust files that no crate compiles.
pub(crate) fn dead_files(repository: &Repository) -> Vec<String> {
    let manifests = repository.files().filter_map(|file| file.strip_suffix("Cargo.toml"));
    let folders: BTreeSet<_> = manifests.map(|folder| folder.trim_end_matches('/')).collect();
    let live: BTreeSet<_> = folders.iter().flat_map(|folder| walk(repository, folder)).collect();
    let sources = repository.files().filter(|file| file.ends_with(".rs") && !is_generated(file));
    let dead = sources.filter(|file| !live.contains(*file));
    dead.map(|file| format!("{file} is in no crate: no `mod` leads to it")).collect()
}

/// Returns the files from which the compiler starts: Cargo's own places, and those that the manifest names.
fn roots(repository: &Repository, folder: &str) -> Vec<String> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let manifest = repository.read(&format!("{prefix}Cargo.toml"));
    if !manifest.contains("[package]") {
        return Vec::new();
    }
    let named: BTreeSet<String> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path"))
        .filter_map(|rest| rest.trim_start().strip_prefix('='))
        .map(|value| format!("{prefix}{}", value.trim().trim_matches('"')))
        .collect();
    let is_root = |file: &&str| {
        let Some(inside) = file.strip_prefix(&prefix) else {
            return false;
        };
        let Some(stem) = inside.strip_suffix(".rs") else {
            return false;
        };
        match stem.split('/').collect::<Vec<_>>().as_slice() {
            ["build"] | ["src", "lib" | "main"] => true,
            ["tests" | "benches" | "examples", _] | ["src", "bin", _] => true,
            ["tests" | "benches" | "examples", _, "main"] | ["src", "bin", _, "main"] => true,
            _ => named.contains(*file),
        }
    };
    repository.files().filter(is_root).map(str::to_owned).collect()
}

fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns where the compiler looks for a module's file.
fn candidates(file: &str, own_folder: &str, declaration: &Declaration) -> Vec<String> {
    let around = declaration.names.split_last().map_or(&[][..], |(_, around)| around);
    let folder: Vec<&str> = std::iter::once(own_folder).chain(around.iter().map(String::as_str)).collect();
    let folder = folder.join("/");
    match (&declaration.path, declaration.names.last()) {
        // On a module that stands on its own, the path starts at the file; inside another one, at that one's folder.
        (Some(path), _) if around.is_empty() => vec![normal(&format!("{}/{path}", parent(file)))],
        (Some(path), _) => vec![normal(&format!("{folder}/{path}"))],
        (None, Some(name)) => {
            vec![normal(&format!("{folder}/{name}.rs")), normal(&format!("{folder}/{name}/mod.rs"))]
        }
        (None, None) => Vec::new(),
    }
}

/// Resolves `..` in a path.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Finds `mod name;` in a file, also inside modules that are written out.
fn declarations(tokens: &[Token<'_>]) -> Vec<Declaration> {
    let mut found = Vec::new();
    // Modules that are open: where they end, and their name.
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut path = None;
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        open.retain(|(end, _)| *end > index);
        if let Some(attribute) = attribute(tokens, index) {
            path = attribute.path().map(str::to_owned).or(path);
            if attribute.is_inner && attribute.is_test() {
                return Vec::new();
            }
            index = attribute.end;
            continue;
        }
        let (name, next) = (tokens.get(index + 1), tokens.get(index + 2));
        if token.is("mod")
            && let (Some(name), Some(next)) = (name, next)
        {
            if next.is(";") {
                let names = open.iter().map(|(_, name)| *name).chain([name.text]);
                found.push(Declaration { names: names.map(str::to_owned).collect(), path: path.take() });
            } else if next.is("{") {
                open.push((after_group(tokens, index + 2), name.text));
            }
        }
        // A visibility may stand between the attributes and `mod`.
        let is_visibility = ["pub", "(", "crate", "super", "in", ":", ")"].iter().any(|part| token.is(part));
        if !is_visibility {
            path = None;
        }
        index += 1;
    }
    found
}

/// Finds the files that `include!` takes in.
fn included(file: &str, tokens: &[Token<'_>]) -> Vec<String> {
    let calls = tokens.windows(4).filter_map(|four| match four {
        [name, bang, open, value] if name.is("include") && bang.is("!") && open.is("(") => text_of(value),
        _ => None,
    });
    calls.map(|path| normal(&format!("{}/{path}", parent(file)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::Scratch;
    use super::*;

    #[test]
    fn modules_are_found_in_all_their_places() {
        let scratch = Scratch::new(
            "modules",
            &[
                ("Cargo.toml", ""),
                ("a/Cargo.toml", "[package]\n[[bin]]\npath = \"fuzz/one.rs\""),
                ("a/src/lib.rs", "mod b; pub(crate) mod g { mod h; }\n#[cfg(test)] mod t;"),
                ("a/src/main.rs", "fn main() {}"),
                ("a/src/b.rs", "mod c; #[cfg(test)] #[path = \"b_tests.rs\"] mod tests; include!(\"b/made.rs\");"),
                ("a/src/b/c.rs", "fn f() { mod_; }"),
                ("a/src/b/made.rs", ""),
                ("a/src/b_tests.rs", ""),
                ("a/src/g/h.rs", ""),
                ("a/src/t/mod.rs", "mod u;"),
                ("a/src/t/u.rs", ""),
                ("a/tests/whole.rs", "#[path = \"whole/part.rs\"] mod part;"),
                ("a/tests/whole/part.rs", "mod piece;"),
                ("a/tests/whole/piece.rs", ""),
                ("a/fuzz/one.rs", ""),
                ("a/src/dead.rs", ""),
                ("a/tests/whole/dead.rs", ""),
            ],
        );
        let repository = scratch.open();
        let dead = dead_files(&repository);
        assert_eq!(dead.len(), 2, "{dead:?}");
        assert!(dead.iter().all(|line| line.contains("dead.rs")), "{dead:?}");
    }
}
