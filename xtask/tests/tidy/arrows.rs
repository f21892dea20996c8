//! Which module of the gateway may use which: the table in ARCHITECTURE.md against the paths in the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::lex;
use super::modules::{Module, by_name};
use super::paths::paths;
use super::repository::Repository;
use super::source::without_tests;
use super::table::{Row, list, rows};

/// May use every row of a lower layer.
const EVERYTHING: &str = "everything below";

/// The table of modules.
#[derive(Debug)]
pub(crate) struct Table {
    rows: BTreeMap<String, Rule>,
}

/// What one row says.
#[derive(Debug, Default)]
struct Rule {
    layer: u32,
    /// Modules that it may use, each with what is inside.
    may_use: Vec<String>,
    /// Crates that only this row may use.
    reserved: Vec<String>,
}

impl Table {
    /// Reads the table: layer, module, what it may use, crates that are its alone.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) fn parse(document: &str) -> Result<Self, String> {
        let rows = rows(document, "modules")?;
        let read = |row: &Row| {
            let cell = |column: usize| row.get(column).cloned().ok_or_else(|| format!("too few cells: {row:?}"));
            let layer = cell(0)?.parse().map_err(|_| format!("not a layer: {row:?}"))?;
            Ok::<_, String>((cell(1)?, Rule { layer, may_use: list(row, 2), reserved: list(row, 3) }))
        };
        Ok(Self { rows: rows.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Returns the row that a module belongs to: the longest name that it begins with.
    fn row_of(&self, names: &[String]) -> Option<(&str, &Rule)> {
        let mut length = names.len();
        while length > 0 {
            let name = names.get(..length)?.join("::");
            if let Some((name, rule)) = self.rows.get_key_value(&name) {
                return Some((name, rule));
            }
            length -= 1;
        }
        None
    }

    /// Finds what is wrong with the table itself: arrows that do not point down.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, rule) in &self.rows {
            for target in rule.may_use.iter().filter(|target| *target != EVERYTHING) {
                let names: Vec<String> = target.split("::").map(str::to_owned).collect();
                match self.row_of(&names) {
                    None => problems.push(format!("the table's row {name} names {target}, which has no row")),
                    Some((_, to)) if to.layer >= rule.layer => {
                        problems.push(format!("the table lets {name} use {target}, which is not below it"));
                    }
                    Some(_) => {}
                }
            }
        }
        problems
    }

    /// Returns whether a row may use a module, and the rule that says so.
    fn allows(&self, rule: &Rule, to: &[String]) -> bool {
        let name = to.join("::");
        let inside = |target: &String| name == *target || name.starts_with(&format!("{target}::"));
        let is_below = || self.row_of(to).is_some_and(|(_, to)| to.layer < rule.layer);
        rule.may_use.iter().any(|target| if target == EVERYTHING { is_below() } else { inside(target) })
    }
}

/// Compares the sources with the table.
pub(crate) fn check(table: &Table, modules: &[Module], repository: &Repository) -> Vec<String> {
    let known = by_name(modules);
    let mut problems = Vec::new();
    for module in modules.iter().filter(|module| !module.is_test) {
        // The library's root only lists its modules; the program's root is `main`.
        let from = if module.is_program { vec!["main".to_owned()] } else { module.names.clone() };
        if from.is_empty() {
            continue;
        }
        let Some((row, rule)) = table.row_of(&from) else {
            problems.push(format!("{}: the table has no row for {}", module.file, from.join("::")));
            continue;
        };
        let text = repository.read(&module.file);
        let tokens = without_tests(&lex(&text));
        for path in paths(&tokens) {
            let place = format!("{}:{}", module.file, path.line);
            if let Some(owner) = reserved_by_another(table, row, path.names.first().copied().unwrap_or_default()) {
                problems.push(format!("{place}: {} is for {owner} alone", path.names.join("::")));
            }
            let Some(to) = target(module, &path.names, &known) else {
                continue;
            };
            let is_own = table.row_of(&to).is_none_or(|(to_row, _)| to_row == row);
            if !is_own && !table.allows(rule, &to) {
                problems.push(format!("{place}: {row} may not use {}", to.join("::")));
            }
        }
    }
    for row in table.rows.keys().filter(|row| *row != "main" && !known.contains_key(*row)) {
        problems.push(format!("the table has a row for {row}, which is no module"));
    }
    problems
}

fn reserved_by_another<'t>(table: &'t Table, row: &str, crate_name: &str) -> Option<&'t str> {
    let owners: BTreeSet<&str> = table
        .rows
        .iter()
        .filter(|(_, rule)| rule.reserved.iter().any(|reserved| reserved == crate_name))
        .map(|(name, _)| name.as_str())
        .collect();
    if owners.contains(row) { None } else { owners.into_iter().next() }
}

/// Returns the module of the library that a path leads to, if it leads to one.
fn target(from: &Module, path: &[&str], known: &BTreeMap<String, &Module>) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut names = match (*first, from.is_program) {
        ("crate", false) | ("gateway", true) => Vec::new(),
        ("self" | "super", false) => from.names.clone(),
        _ => return None,
    };
    let mut rest = rest;
    if *first == "super" {
        names.pop();
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (*first, after)) {
            names.pop();
            rest = after;
        }
    }
    names.extend(rest.iter().map(|name| (*name).to_owned()));
    // What follows the module is something inside it.
    while !names.is_empty() && !known.contains_key(&names.join("::")) {
        names.pop();
    }
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::super::modules::walk;
    use super::super::repository::Scratch;
    use super::*;

    const DOCUMENT: &str = "<!-- tidy: modules -->
| layer | module | may use | crates of its own |
| --- | --- | --- | --- |
| 9 | main | everything below | – |
| 3 | edge | store, auth::policy | – |
| 2 | store | auth::token | `sqlx` |
| 1 | auth | – | – |
<!-- tidy: end -->";

    #[track_caller]
    fn check_finds(name: &str, file: &str, source: &str, expected: &[&str]) {
        let mut files = vec![
            ("Cargo.toml", ""),
            ("gateway/Cargo.toml", "[package]"),
            ("gateway/src/lib.rs", "pub mod auth; pub mod edge; pub mod store;"),
            ("gateway/src/main.rs", "use gateway::edge::x; use sqlx::y;"),
            ("gateway/src/auth.rs", "pub mod policy; pub mod token;"),
            ("gateway/src/auth/policy.rs", ""),
            ("gateway/src/auth/token.rs", ""),
            ("gateway/src/edge.rs", ""),
            ("gateway/src/store.rs", ""),
        ];
        files.retain(|(path, _)| *path != file);
        files.push((file, source));
        let scratch = Scratch::new(name, &files);
        let repository = scratch.open();
        let table = Table::parse(DOCUMENT).expect("a table");
        let mut found = check(&table, &walk(&repository, "gateway"), &repository);
        found.retain(|problem| !problem.contains("main.rs"));
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn arrow_that_the_table_has_not_is_found() {
        check_finds(
            "up",
            "gateway/src/auth/token.rs",
            "\nuse crate::store::Store;",
            &["gateway/src/auth/token.rs:2: auth may not use store"],
        );
        check_finds(
            "super",
            "gateway/src/auth/policy.rs",
            "use super::super::edge::X;",
            &["gateway/src/auth/policy.rs:1: auth may not use edge"],
        );
        check_finds(
            "code",
            "gateway/src/store.rs",
            "fn f() -> crate::auth::policy::Grant {}",
            &["gateway/src/store.rs:1: store may not use auth::policy"],
        );
        check_finds(
            "group",
            "gateway/src/edge.rs",
            "use crate::{store, auth::{policy::P, token::T}};",
            &["gateway/src/edge.rs:1: edge may not use auth::token"],
        );
        check_finds(
            "crate",
            "gateway/src/edge.rs",
            "use sqlx::query;",
            &["gateway/src/edge.rs:1: sqlx::query is for store alone"],
        );
    }

    #[test]
    fn arrows_of_the_table_of_tests_and_within_a_row_are_free() {
        check_finds("down", "gateway/src/edge.rs", "use crate::store::S; use crate::auth::policy;", &[]);
        check_finds("inside", "gateway/src/auth/policy.rs", "use super::token::T; use crate::auth::token;", &[]);
        check_finds(
            "tests",
            "gateway/src/auth.rs",
            "pub mod policy; pub mod token; #[cfg(test)] mod tests { use crate::edge::X; }",
            &[],
        );
        check_finds("comment", "gateway/src/auth.rs", "//! [`crate::edge`]\npub mod policy; pub mod token;", &[]);
    }

    #[test]
    fn module_without_a_row_and_row_without_a_module_are_found() {
        let source = "pub mod auth; pub mod edge; pub mod other;";
        let scratch = Scratch::new(
            "rows",
            &[
                ("Cargo.toml", ""),
                ("gateway/Cargo.toml", "[package]"),
                ("gateway/src/lib.rs", source),
                ("gateway/src/auth.rs", ""),
                ("gateway/src/edge.rs", ""),
                ("gateway/src/other.rs", ""),
            ],
        );
        let repository = scratch.open();
        let table = Table::parse(DOCUMENT).expect("a table");
        let found = check(&table, &walk(&repository, "gateway"), &repository);
        assert_eq!(
            found,
            [
                "gateway/src/other.rs: the table has no row for other",
                "the table has a row for store, which is no module",
            ]
        );
    }

    #[test]
    fn program_is_checked_too() {
        let document = DOCUMENT.replace("everything below", "store");
        let table = Table::parse(&document).expect("a table");
        let scratch = Scratch::new(
            "main",
            &[
                ("gateway/Cargo.toml", "[package]"),
                ("gateway/src/lib.rs", "pub mod auth; pub mod edge; pub mod store;"),
                ("gateway/src/main.rs", "use gateway::{edge, store};"),
                ("gateway/src/auth.rs", ""),
                ("gateway/src/edge.rs", ""),
                ("gateway/src/store.rs", ""),
            ],
        );
        let repository = scratch.open();
        let found = check(&table, &walk(&repository, "gateway"), &repository);
        assert_eq!(found, ["gateway/src/main.rs:1: main may not use edge"]);
    }

    #[test]
    fn table_whose_arrows_point_up_or_nowhere_is_refused() {
        let problems = |document: String| Table::parse(&document).expect("a table").problems();
        assert_eq!(problems(DOCUMENT.to_owned()), [""; 0]);
        assert_eq!(problems(DOCUMENT.replace("| auth::token |", "| edge |")).len(), 1);
        assert_eq!(problems(DOCUMENT.replace("| auth::token |", "| nowhere |")).len(), 1);
        assert!(Table::parse(&DOCUMENT.replace("| 3 |", "| x |")).is_err());
    }
}
