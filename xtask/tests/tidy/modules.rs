//! Which file is which module: follows `mod` from each crate's roots.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{Token, after_group, lex, text_of};
use super::repository::{Repository, is_generated};
use super::source::attribute;

/// A file that is compiled, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// From the top of the repository.
    pub(crate) file: String,
    /// Names from the crate's root, without the crate; the root itself has none.
    pub(crate) names: Vec<String>,
    /// It belongs to the program and not to the library of the same folder.
    pub(crate) is_program: bool,
    /// It is compiled for tests only.
    pub(crate) is_test: bool,
}

/// A `mod name;` and how it is reached.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    /// Modules written out in the same file around it, and its own name.
    names: Vec<String>,
    /// What its `path` attribute says.
    path: Option<String>,
    is_test: bool,
}

/// Returns the modules of the crate in a folder.
pub(crate) fn walk(repository: &Repository, folder: &str) -> Vec<Module> {
    let mut modules = Vec::new();
    for root in roots(repository, folder) {
        let (is_program, is_test) = (!root.ends_with("src/lib.rs"), !format!("/{root}").contains("/src/"));
        let mut waiting = vec![(Module { file: root, names: Vec::new(), is_program, is_test }, true)];
        while let Some((module, owns_folder)) = waiting.pop() {
            let text = repository.read(&module.file);
            let tokens = lex(&text);
            let own_folder = if owns_folder || module.file.ends_with("/mod.rs") {
                parent(&module.file).to_owned()
            } else {
                module.file.trim_end_matches(".rs").to_owned()
            };
            for declaration in declarations(&tokens) {
                let candidates = candidates(&module.file, &own_folder, &declaration);
                // One that is missing does not compile, or is for another system: no matter for this test.
                let Some(file) = candidates.into_iter().find(|file| repository.has(file)) else {
                    continue;
                };
                // A file that an attribute names is like a `mod.rs` to what is inside.
                let owns_folder = declaration.path.is_some();
                let names = module.names.iter().cloned().chain(declaration.names).collect();
                let is_test = module.is_test || declaration.is_test;
                waiting.push((Module { file, names, is_program, is_test }, owns_folder));
            }
            for file in included(&module.file, &tokens) {
                modules.push(Module { file, ..module.clone() });
            }
            modules.push(module);
        }
    }
    modules
}

/// Finds Rust files that no crate compiles.
pub(crate) fn dead_files(repository: &Repository) -> Vec<String> {
    let manifests = repository.files().filter_map(|file| file.strip_suffix("Cargo.toml"));
    let folders: BTreeSet<_> = manifests.map(|folder| folder.trim_end_matches('/')).collect();
    let walked = folders.iter().flat_map(|folder| walk(repository, folder));
    let live: BTreeSet<_> = walked.map(|module| module.file).collect();
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
    // Modules that are open: where they end, their name, and whether they are for tests.
    let mut open: Vec<(usize, &str, bool)> = Vec::new();
    let (mut path, mut is_test) = (None, false);
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        open.retain(|(end, ..)| *end > index);
        if let Some(attribute) = attribute(tokens, index) {
            path = attribute.path().map(str::to_owned).or(path);
            is_test |= attribute.is_test();
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
            let is_test = is_test || open.iter().any(|(_, _, is_test)| *is_test);
            if next.is(";") {
                let names = open.iter().map(|(_, name, _)| *name).chain([name.text]);
                found.push(Declaration { names: names.map(str::to_owned).collect(), path: path.take(), is_test });
            } else if next.is("{") {
                open.push((after_group(tokens, index + 2), name.text, is_test));
            }
        }
        // A visibility may stand between the attributes and `mod`.
        let is_visibility = ["pub", "(", "crate", "super", "in", ":", ")"].iter().any(|part| token.is(part));
        if !is_visibility {
            (path, is_test) = (None, false);
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

/// Returns the modules of the library by name, for finding what a path leads to.
pub(crate) fn by_name(modules: &[Module]) -> BTreeMap<String, &Module> {
    let library = modules.iter().filter(|module| !module.is_program && !module.is_test);
    library.map(|module| (module.names.join("::"), module)).collect()
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

        let modules = walk(&repository, "a");
        let names: Vec<_> = by_name(&modules).into_keys().collect();
        assert_eq!(names, ["", "b", "b::c", "g::h"]);
        let tests = modules.iter().filter(|module| module.is_test && module.file.contains("/src/"));
        assert_eq!(tests.count(), 3);
    }
}
