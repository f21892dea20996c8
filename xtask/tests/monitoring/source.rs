//! Reads the alerts, the questions and the list of metrics.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::root;

/// All that the files are made of.
pub(crate) struct Source {
    pub(crate) objectives: Vec<Objective>,
    /// Those of the objectives too.
    pub(crate) alerts: Vec<Alert>,
    pub(crate) questions: Vec<Question>,
    pub(crate) metrics: Vec<Metric>,
}

/// A promise, kept by a share of good events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objective {
    pub(crate) name: String,
    /// Name of the recorded shares of errors, without the window.
    pub(crate) record: String,
    pub(crate) promise: String,
    /// Share of good events that is promised.
    pub(crate) objective: f64,
    /// Counter of bad events.
    pub(crate) bad: String,
    /// Counter of good ones.
    pub(crate) good: String,
    /// Counter of events that are neither, and count in the whole.
    pub(crate) also: Option<String>,
    pub(crate) summary: String,
    pub(crate) meaning: String,
    pub(crate) check: Vec<String>,
    pub(crate) mend: Vec<String>,
    pub(crate) fires: Share,
}

/// A share of bad events at which the alerts of an objective fire.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    /// Value of the label that makes an event bad.
    pub(crate) bad: String,
    pub(crate) ratio: f64,
}

/// An alert.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alert {
    pub(crate) name: String,
    /// `page` or `ticket`.
    pub(crate) severity: String,
    pub(crate) r#for: String,
    pub(crate) expr: String,
    pub(crate) summary: String,
    pub(crate) meaning: String,
    pub(crate) check: Vec<String>,
    pub(crate) mend: Vec<String>,
    /// Series with which it fires in its test.
    pub(crate) fires: Fires,
    /// Values of the same series with which it is silent.
    pub(crate) silent: Values,
}

/// Series of a test.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fires {
    pub(crate) series: Vec<String>,
    pub(crate) values: Values,
    /// Labels of the alert beside its severity.
    pub(crate) labels: BTreeMap<String, String>,
    /// Time of the test.
    pub(crate) at: Option<String>,
}

/// Values of each series, in the notation of promtool; one for all of them.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Values {
    Same(String),
    Each(Vec<String>),
}

impl Values {
    pub(crate) fn of(&self, place: usize) -> &str {
        match self {
            Self::Same(values) => values,
            Self::Each(values) => &values[place],
        }
    }
}

/// A question of an operator.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) ask: String,
    pub(crate) query: String,
    pub(crate) unit: String,
    pub(crate) legend: Option<String>,
}

/// A family of metrics.
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) help: String,
}

impl Metric {
    /// Says whether a series of this name belongs to it.
    pub(crate) fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name.as_str());
        match self.kind.as_str() {
            "histogram" => rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest)),
            _ => rest == Some(""),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alerts {
    objective: Vec<Objective>,
    alert: Vec<Alert>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Questions {
    question: Vec<Question>,
}

impl Source {
    pub(crate) fn read() -> Self {
        let read = |file: &str| fs::read_to_string(root().join(file)).expect("a file");
        let alerts: Alerts = toml::from_str(&read("deploy/monitoring/alerts.toml")).expect("alerts");
        let questions: Questions = toml::from_str(&read("deploy/monitoring/questions.toml")).expect("questions");
        let of_objectives = alerts.objective.iter().flat_map(Objective::alerts);
        let all = of_objectives.chain(alerts.alert.iter().cloned()).collect();
        Self {
            alerts: all,
            objectives: alerts.objective,
            questions: questions.question,
            metrics: metrics(&read("docs/reference/metrics.md")),
        }
    }
}

/// Reads the rows of the list of metrics, and those that Prometheus itself has of a scrape.
fn metrics(page: &str) -> Vec<Metric> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let (name, kind, help) = (cells.next()?.trim_end_matches('`'), cells.next()?, cells.next()?);
        Some(Metric { name: name.to_owned(), kind: kind.to_owned(), help: help.to_owned() })
    };
    let found: Vec<Metric> = page.lines().filter_map(row).collect();
    assert!(found.len() > 40, "the metrics were not found");
    found
}
