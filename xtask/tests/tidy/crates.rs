//! Crates of ours: which may use which, by the table in ARCHITECTURE.md, and how large they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::lex::lex;
use super::repository::{Repository, is_generated};
use super::source::without_tests;
use super::table::{list, rows};

/// Most lines of a crate of the product, without its tests.
const LINES_MAX: usize = 12_000;

/// Longest chain of crates below `gateway`, in percent of the lines of all of them: a change at its foot compiles it all. The dashboard
/// calls the API, so both are in it.
const CHAIN_PERCENT_MAX: usize = 57;

/// Libraries that one crate of the gateway, or few, may use directly: the rest goes through these.
const HOMES: [(&str, &[&str]); 5] = [
    ("sqlx", &["gateway-store"]),
    ("rustls", &["gateway-net"]),
    ("jsonwebtoken", &["gateway-auth"]),
    ("clap", &["gateway-cli", "gateway"]),
    // The public host, the operator's pages, and the sample app of the demo.
    ("axum", &["gateway-api", "gateway-dashboard", "gateway-site", "gateway-edge", "gateway"]),
];

/// The table of crates: for each, the crates that it uses, and those that its tests use beside them.
#[derive(Debug)]
pub(crate) struct Table {
    rows: BTreeMap<String, [BTreeSet<String>; 2]>,
}

/// A crate of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crate {
    name: String,
    /// From the top of the repository.
    folder: String,
    /// All dependencies of its programs and libraries.
    dependencies: BTreeSet<String>,
    /// Those of its tests, benches and examples.
    test_dependencies: BTreeSet<String>,
}

impl Table {
    /// Reads the table.
    ///
    /// # Errors
    /// Names the missing part.
    pub(crate) fn parse(document: &str) -> Result<Self, String> {
        let rows = rows(document, "crates")?;
        let read = |row: &super::table::Row| {
            let name = row.first().cloned().unwrap_or_default();
            (name, [list(row, 2).into_iter().collect(), list(row, 3).into_iter().collect()])
        };
        Ok(Self { rows: rows.iter().map(read).collect() })
    }
}

/// Asks Cargo for the crates of the workspace.
///
/// # Errors
/// Output of Cargo, if it fails.
pub(crate) fn workspace(root: &Path) -> Result<Vec<Crate>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(parse(&document, root))
}

fn parse(document: &Value, root: &Path) -> Vec<Crate> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = document["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let read = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
        let mut found = Crate {
            name: text(&package["name"]),
            folder: folder.map(|folder| folder.display().to_string()).unwrap_or_default(),
            ..Crate::default()
        };
        for dependency in package["dependencies"].as_array().map_or(&[][..], Vec::as_slice) {
            let is_test = dependency["kind"] == "dev";
            let set = if is_test { &mut found.test_dependencies } else { &mut found.dependencies };
            set.insert(text(&dependency["name"]));
        }
        found
    };
    packages.iter().map(read).collect()
}

/// Compares the crates with the table, in both directions, and libraries with their homes.
pub(crate) fn check(table: &Table, crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    let ours: BTreeSet<&String> = crates.iter().map(|one| &one.name).collect();
    for Crate { name, dependencies, test_dependencies, .. } in crates {
        let Some([programs, tests]) = table.rows.get(name) else {
            problems.push(format!("the table has no row for the crate {name}"));
            continue;
        };
        let used: BTreeSet<&String> = dependencies.iter().filter(|other| ours.contains(other)).collect();
        problems.extend(
            used.iter().filter(|other| !programs.contains(**other)).map(|other| format!("{name} may not use {other}")),
        );
        let unused = programs.iter().filter(|other| !used.contains(other));
        problems.extend(unused.map(|other| format!("the table says that {name} uses {other}: it does not")));
        // A crate's tests may use the crate itself with other features.
        let free = |other: &&String| *other == name || programs.contains(*other) || tests.contains(*other);
        let wrong = test_dependencies.iter().filter(|other| ours.contains(other) && !free(other));
        problems.extend(wrong.map(|other| format!("{name}'s tests may not use {other}")));
        for (library, homes) in HOMES {
            let is_ours = name == "gateway" || name.starts_with("gateway-");
            if is_ours && dependencies.contains(library) && !homes.contains(&name.as_str()) {
                problems.push(format!("{name} uses {library}, which belongs to {}", homes.join(", ")));
            }
        }
    }
    let gone = table.rows.keys().filter(|name| !ours.contains(name));
    problems.extend(gone.map(|name| format!("the table has a row for {name}, which is no crate")));
    problems
}

/// Lines of the crates below `gateway`, without tests, and what each of them stands on.
#[derive(Debug)]
pub(crate) struct Sizes {
    lines: BTreeMap<String, usize>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Sizes {
    /// Counts the lines of the gateway's crates that have code outside of tests.
    pub(crate) fn count(crates: &[Crate], repository: &Repository) -> Self {
        let ours: Vec<_> = crates.iter().filter(|one| one.folder.split('/').next() == Some("gateway")).collect();
        let folders: Vec<_> = ours.iter().map(|one| format!("{}/src/", one.folder)).collect();
        let lines = ours.iter().zip(&folders).map(|(one, folder)| {
            let is_source = |path: &&str| path.starts_with(folder.as_str()) && path.ends_with(".rs");
            let is_product = |path: &&str| !path.contains("tests") && !is_generated(path);
            let files = repository.files().filter(is_source).filter(is_product);
            (one.name.clone(), files.map(|path| lines_of(&repository.read(path))).sum())
        });
        let uses = ours.iter().map(|one| (one.name.clone(), one.dependencies.clone()));
        Self { lines: lines.collect(), uses: uses.collect() }
    }

    /// Returns the most lines that one change at the foot of a chain has compiled, up to and with the crate.
    fn chain(&self, name: &str) -> usize {
        let below = self.uses.get(name).into_iter().flatten().filter(|other| self.lines.contains_key(*other));
        let own = self.lines.get(name).copied().unwrap_or_default();
        own + below.map(|other| self.chain(other)).max().unwrap_or_default()
    }

    fn total(&self) -> usize {
        self.lines.values().sum()
    }

    fn longest(&self) -> usize {
        self.lines.keys().map(|name| self.chain(name)).max().unwrap_or_default()
    }

    /// Compares the sizes with the bounds.
    pub(crate) fn problems(&self) -> Vec<String> {
        let large = self.lines.iter().filter(|(_, lines)| **lines > LINES_MAX);
        let mut problems: Vec<_> =
            large.map(|(name, lines)| format!("{name} has {lines} lines: more than {LINES_MAX}")).collect();
        let (longest, total) = (self.longest(), self.total());
        if longest * 100 > total * CHAIN_PERCENT_MAX {
            problems.push(format!(
                "the longest chain of crates has {longest} of {total} lines: more than {CHAIN_PERCENT_MAX} %"
            ));
        }
        problems
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, total) = (self.longest(), self.total());
        let percent = longest * 100 / total.max(1);
        write!(formatter, "longest chain of crates: {longest} of {total} lines, {percent} %;")?;
        self.lines.iter().try_for_each(|(name, lines)| write!(formatter, " {name} {lines}"))
    }
}

/// Counts the lines of a source that have something outside of tests and comments.
fn lines_of(source: &str) -> usize {
    let tokens = lex(source);
    without_tests(&tokens).iter().map(|token| token.line).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::repository::Scratch;
    use super::*;

    const DOCUMENT: &str = "<!-- tidy: crates -->
| crate | holds | uses | its tests also |
| --- | --- | --- | --- |
| low | the foot | – | – |
| gateway-high | the head | low | – |
| checks | – | – | low, gateway-high |
<!-- tidy: end -->";

    fn one(name: &str, uses: &[&str], tests: &[&str]) -> Crate {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let folder = format!("gateway/{name}");
        Crate { name: name.to_owned(), folder, dependencies: set(uses), test_dependencies: set(tests) }
    }

    #[track_caller]
    fn check_finds(crates: &[Crate], expected: &[&str]) {
        assert_eq!(check(&Table::parse(DOCUMENT).expect("a table"), crates), expected);
    }

    #[test]
    fn dependencies_of_the_table_are_free_and_others_are_found() {
        let (low, high) = (one("low", &["bytes"], &[]), one("gateway-high", &["low"], &[]));
        let checks = one("checks", &[], &["gateway-high", "checks"]);
        check_finds(&[low.clone(), high.clone(), checks.clone()], &[]);
        let up = one("low", &["gateway-high"], &[]);
        check_finds(&[up, high.clone(), checks.clone()], &["low may not use gateway-high"]);
        let up = one("low", &[], &["gateway-high"]);
        check_finds(&[up, high, checks.clone()], &["low's tests may not use gateway-high"]);
        let idle = one("gateway-high", &[], &[]);
        check_finds(&[low, idle, checks], &["the table says that gateway-high uses low: it does not"]);
    }

    #[test]
    fn library_outside_of_its_home_is_found() {
        let crates = [one("low", &[], &[]), one("gateway-high", &["low", "sqlx"], &[]), one("checks", &[], &[])];
        check_finds(&crates, &["gateway-high uses sqlx, which belongs to gateway-store"]);
    }

    #[test]
    fn crate_without_a_row_and_row_without_a_crate_are_found() {
        let crates = [one("low", &[], &[]), one("gateway-high", &["low"], &[]), one("other", &[], &[])];
        check_finds(
            &crates,
            &["the table has no row for the crate other", "the table has a row for checks, which is no crate"],
        );
    }

    #[test]
    fn crates_are_read_from_what_cargo_says() {
        let document = json!({ "packages": [{
            "name": "a", "manifest_path": "/x/gateway/a/Cargo.toml", "dependencies": [
                { "name": "b", "kind": null }, { "name": "c", "kind": "build" }, { "name": "d", "kind": "dev" },
            ],
        }]});
        assert_eq!(parse(&document, Path::new("/x")), [one("a", &["b", "c"], &["d"])]);
    }

    #[test]
    fn large_crates_and_long_chains_are_found() {
        let line = "const A: u8 = 1;\n";
        let scratch = Scratch::new(
            "sizes",
            &[
                ("Cargo.toml", ""),
                ("gateway/low/src/lib.rs", &format!("// a comment\n{}", line.repeat(LINES_MAX))),
                ("gateway/low/src/tests.rs", &line.repeat(10)),
                ("gateway/high/src/lib.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n  fn g() {}\n}\n"),
            ],
        );
        let count = |crates: &[Crate]| Sizes::count(crates, &scratch.open());
        let sizes = count(&[one("low", &[], &[]), one("high", &["low"], &[])]);
        assert_eq!((sizes.lines["low"], sizes.lines["high"], sizes.longest()), (LINES_MAX, 1, LINES_MAX + 1));
        assert_eq!(sizes.problems().len(), 1, "{:?}", sizes.problems());
        let alone =
            Sizes { lines: [("a".to_owned(), LINES_MAX + 1), ("b".to_owned(), 11_000)].into(), uses: BTreeMap::new() };
        assert_eq!(alone.problems(), ["a has 12001 lines: more than 12000"]);
    }
}
