//! Which crate of ours may depend on which: the table in ARCHITECTURE.md against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::Repository;
use super::table::{list, rows};

/// The table of crates: for each, what it may depend on, and what its tests may beside that.
#[derive(Debug)]
pub(crate) struct Table {
    rows: BTreeMap<String, [BTreeSet<String>; 2]>,
}

/// What a manifest says: the crate's name, and its dependencies in programs and in tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    name: String,
    dependencies: BTreeSet<String>,
    test_dependencies: BTreeSet<String>,
}

impl Table {
    /// Reads the table.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) fn parse(document: &str) -> Result<Self, String> {
        let rows = rows(document, "crates")?;
        let read = |row: &super::table::Row| {
            let name = row.first().cloned().unwrap_or_default();
            (name, [list(row, 1).into_iter().collect(), list(row, 2).into_iter().collect()])
        };
        Ok(Self { rows: rows.iter().map(read).collect() })
    }
}

/// Reads the manifests of all crates.
pub(crate) fn manifests(repository: &Repository) -> Vec<Manifest> {
    let files = repository.files().filter(|file| file.ends_with("/Cargo.toml"));
    files.map(|file| parse(&repository.read(file))).filter(|manifest| !manifest.name.is_empty()).collect()
}

/// Reads what this check needs of a manifest: names, not versions.
fn parse(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut section = String::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            // `[dependencies.x]` and `[target.'…'.dependencies.x]`
            if let Some((table, name)) = name.rsplit_once('.') {
                manifest.add(table, name);
            }
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            if section == "package" && key == "name" {
                value.trim().trim_matches('"').clone_into(&mut manifest.name);
            }
            manifest.add(&section, key);
        }
    }
    manifest
}

impl Manifest {
    fn add(&mut self, section: &str, name: &str) {
        let set = match section.rsplit('.').next() {
            Some("dependencies" | "build-dependencies") if !section.starts_with("workspace") => &mut self.dependencies,
            Some("dev-dependencies") => &mut self.test_dependencies,
            Some(_) | None => return,
        };
        set.insert(name.to_owned());
    }
}

/// Compares the manifests with the table.
pub(crate) fn check(table: &Table, manifests: &[Manifest]) -> Vec<String> {
    let mut problems = Vec::new();
    let ours: BTreeSet<&String> = manifests.iter().map(|manifest| &manifest.name).collect();
    for manifest in manifests {
        let name = &manifest.name;
        let Some([programs, tests]) = table.rows.get(name) else {
            problems.push(format!("the table has no row for the crate {name}"));
            continue;
        };
        let wrong = manifest.dependencies.iter().filter(|other| ours.contains(other) && !programs.contains(*other));
        problems.extend(wrong.map(|other| format!("{name} may not depend on {other}")));
        // A crate's tests may see the crate itself with other features.
        let allowed = |other: &&String| *other == name || programs.contains(*other) || tests.contains(*other);
        let wrong = manifest.test_dependencies.iter().filter(|other| ours.contains(other) && !allowed(other));
        problems.extend(wrong.map(|other| format!("{name}'s tests may not depend on {other}")));
    }
    let gone = table.rows.keys().filter(|name| !ours.contains(name));
    problems.extend(gone.map(|name| format!("the table has a row for {name}, which is no crate")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<!-- tidy: crates -->
| crate | may depend on | its tests also on |
| --- | --- | --- |
| low | – | – |
| high | low | – |
| checks | – | low, high |
<!-- tidy: end -->";

    #[track_caller]
    fn check_finds(manifests: &[&str], expected: &[&str]) {
        let table = Table::parse(DOCUMENT).expect("a table");
        let manifests: Vec<_> = manifests.iter().map(|text| parse(text)).collect();
        assert_eq!(check(&table, &manifests), expected);
    }

    const LOW: &str = "[package]\nname = \"low\"\n[dependencies]\nbytes = \"1\"";
    const HIGH: &str = "[package]\nname = \"high\"\n[dependencies]\nlow.workspace = true";
    const CHECKS: &str = "[package]\nname = \"checks\"\n[dev-dependencies]\nhigh = { path = \"..\" }";

    #[test]
    fn dependencies_of_the_table_are_free() {
        check_finds(&[LOW, HIGH, CHECKS], &[]);
    }

    #[test]
    fn dependency_that_the_table_has_not_is_found_however_it_is_written() {
        for line in [
            "[dependencies]\nhigh.workspace = true",
            "[dependencies]\nhigh = { path = \"../high\" }",
            "[dependencies.high]\npath = \"../high\"",
            "[build-dependencies]\nhigh = \"1\"",
            "[target.'cfg(unix)'.dependencies]\nhigh = \"1\"",
        ] {
            let low = format!("[package]\nname = \"low\"\n{line}");
            check_finds(&[&low, HIGH, CHECKS], &["low may not depend on high"]);
        }
        let low = "[package]\nname = \"low\"\n[dev-dependencies]\nhigh.workspace = true";
        check_finds(&[low, HIGH, CHECKS], &["low's tests may not depend on high"]);
    }

    #[test]
    fn crate_without_a_row_and_row_without_a_crate_are_found() {
        let other = "[package]\nname = \"other\"";
        check_finds(
            &[LOW, HIGH, other],
            &["the table has no row for the crate other", "the table has a row for checks, which is no crate"],
        );
    }
}
