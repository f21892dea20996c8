//! The Helm charts of `deploy/`: what they share with other files of the repository is equal there. Helm itself is run by
//! `tests/real/suites/chart.sh`.
//!
//! `UPDATE_CHARTS=1 cargo test -p xtask --test charts` copies the files anew.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation is how a test fails"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Set to copy the files anew.
const UPDATE: &str = "UPDATE_CHARTS";

const CHARTS: [&str; 2] = ["deploy/chart", "deploy/chart-cluster-agent"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the names of the files in a folder.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn files_of_the_charts_are_those_beside_them() {
    let copies = [
        ("deploy/chart/files", "deploy/monitoring", &["dashboard.json", "rules.yaml"][..]),
        (
            "deploy/chart-cluster-agent/files",
            "deploy/rbac",
            &["environments-agent.yaml", "environments-ci-job.yaml", "shared.yaml", "unique.yaml"][..],
        ),
    ];
    for (copy, original, files) in copies {
        for file in files {
            let text = read(&format!("{original}/{file}"));
            if std::env::var_os(UPDATE).is_some() {
                fs::write(root().join(copy).join(file), &text).expect("written");
            }
            let current = read(&format!("{copy}/{file}")) == text;
            assert!(current, "{copy}/{file} is not {original}/{file}: {UPDATE}=1 copies it");
        }
        let wanted: BTreeSet<String> = files.iter().map(|file| (*file).to_owned()).collect();
        assert_eq!(names(copy), wanted, "{copy}");
    }
}

#[test]
fn charts_have_the_version_of_the_programs() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let version = manifest["workspace"]["package"]["version"].as_str().expect("a version");
    for chart in CHARTS {
        let text = read(&format!("{chart}/Chart.yaml"));
        for key in ["version", "appVersion"] {
            assert!(text.lines().any(|line| line == format!("{key}: {version}")), "{chart}: {key} is not {version}");
        }
    }
}

#[test]
fn every_set_of_values_has_a_golden_file_and_every_golden_file_a_set() {
    for chart in CHARTS {
        let sets: BTreeSet<String> = names(&format!("{chart}/ci"))
            .into_iter()
            .map(|name| name.strip_prefix("values-").expect("named values-….yaml").to_owned())
            .collect();
        assert!(sets.len() > 2, "{chart}: {sets:?}");
        assert_eq!(sets, names(&format!("{chart}/golden")), "{chart}");
    }
}

/// Collects each object of a schema that does not say which keys it takes.
fn open_objects(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        found.insert(path.to_owned());
    }
    for (name, property) in properties {
        open_objects(property, &format!("{path}.{name}"), found);
    }
}

#[test]
fn schemas_of_values_take_no_unknown_key() {
    for chart in CHARTS {
        let schema: Value = serde_json::from_str(&read(&format!("{chart}/values.schema.json"))).expect("JSON");
        let mut found = BTreeSet::new();
        open_objects(&schema, "values", &mut found);
        assert!(found.is_empty(), "{chart}: {found:?}");
        // Every key that values.yaml documents is known; helm itself checks the other direction.
        let values = read(&format!("{chart}/values.yaml"));
        let tops = values.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        let tops: BTreeSet<&str> = tops.filter_map(|line| line.split_once(':').map(|(key, _)| key)).collect();
        assert!(tops.len() > 10, "{chart}: {tops:?}");
        let known = schema["properties"].as_object().expect("an object");
        let unknown: Vec<_> = tops.iter().filter(|key| !known.contains_key(**key)).collect();
        assert!(unknown.is_empty(), "{chart}: {unknown:?}");
        let undocumented: Vec<_> =
            known.keys().filter(|key| *key != "global" && !tops.contains(key.as_str())).collect();
        assert!(undocumented.is_empty(), "{chart}: {undocumented:?}");
    }
}
