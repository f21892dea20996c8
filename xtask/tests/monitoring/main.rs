//! What Prometheus and Grafana are given: rules, their tests, the dashboard, and a runbook for each alert. They are made of
//! `deploy/monitoring/alerts.toml` and `questions.toml`, and of the list of metrics in `docs/reference/metrics.md`, which is made of a
//! started gateway: no expression names a metric that is not there, and no metric is missing from the dashboard.
//!
//! `UPDATE_MONITORING=1 cargo test -p xtask --test monitoring` writes them anew.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation is how a test fails"
)]

mod dashboard;
mod references;
mod rules;
mod runbooks;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use self::source::{Metric, Source};

/// Set to write the files anew.
const UPDATE: &str = "UPDATE_MONITORING";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn check(file: &str, expected: &str) {
    let path = root().join(file);
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).expect("written");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == expected, "{file} is not current: {UPDATE}=1 writes it anew");
}

#[test]
fn rules_and_their_tests_are_current() {
    let source = Source::read();
    check("deploy/monitoring/rules.yaml", &rules::rules(&source));
    check("deploy/monitoring/rules_test.yaml", &rules::tests(&source));
}

#[test]
fn dashboard_is_current() {
    check("deploy/monitoring/dashboard.json", &dashboard::json(&Source::read()));
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let source = Source::read();
    let mut names = BTreeSet::from(["README.md".to_owned()]);
    check("docs/runbooks/README.md", &runbooks::list(&source));
    for alert in &source.alerts {
        let file = format!("{}.md", alert.name);
        check(&format!("docs/runbooks/{file}"), &runbooks::page(alert));
        names.insert(file);
    }
    let present: BTreeSet<String> = fs::read_dir(root().join("docs/runbooks"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(present, names);
}

/// Returns the names in an expression that could be metrics.
fn names(expression: &str) -> BTreeSet<&str> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let words = expression.split(|character| !is_word(character));
    words.filter(|word| word.starts_with("gateway_") || word.starts_with("process_") || word.contains(':')).collect()
}

#[test]
fn every_expression_names_metrics_that_a_gateway_has() {
    let source = Source::read();
    let records: BTreeSet<String> = rules::records(&source).into_iter().map(|record| record.name).collect();
    let is_there = |name: &str| records.contains(name) || source.metrics.iter().any(|metric| metric.has(name));
    let of_alerts = source.alerts.iter().map(|alert| &alert.expr);
    let of_questions = source.questions.iter().map(|question| &question.query);
    let of_records = rules::records(&source);
    let expressions: Vec<&String> = of_alerts.chain(of_questions).chain(of_records.iter().map(|of| &of.expr)).collect();
    assert!(expressions.len() > 30, "they were not found: {expressions:?}");
    for expression in expressions {
        let missing: Vec<&str> = names(expression).into_iter().filter(|name| !is_there(name)).collect();
        assert!(missing.is_empty(), "no gateway has {missing:?}: {expression}");
    }
}

#[test]
fn every_runbook_names_commands_keys_and_metrics_that_are_there() {
    let source = Source::read();
    let references = references::References::read(&source);
    let is_there = |name: &str| source.metrics.iter().any(|metric| metric.has(name));
    for alert in &source.alerts {
        let missing = references.missing(alert);
        assert!(missing.is_empty(), "the runbook of {} names what no reference has: {missing:?}", alert.name);
        let steps = alert.check.iter().chain(&alert.mend);
        let quoted =
            steps.flat_map(|step| step.split('`').skip(1).step_by(2)).filter(|text| !text.starts_with("curl "));
        let unknown: Vec<&str> = quoted.flat_map(names).filter(|name| !is_there(name)).collect();
        assert!(unknown.is_empty(), "the runbook of {} names metrics that no gateway has: {unknown:?}", alert.name);
    }
}

#[test]
fn name_of_no_metric_is_found_missing() {
    let metric = Metric { name: "gateway_spans_total".to_owned(), kind: "counter".to_owned(), help: String::new() };
    assert!(metric.has("gateway_spans_total") && !metric.has("gateway_spans"));
    let durations = Metric { name: "gateway_x_seconds".to_owned(), kind: "histogram".to_owned(), help: String::new() };
    assert!(durations.has("gateway_x_seconds_bucket") && !durations.has("gateway_x_seconds_total"));
    assert_eq!(names("rate(gateway_a[5m]) / time() > a:b:c"), BTreeSet::from(["gateway_a", "a:b:c"]));
}
