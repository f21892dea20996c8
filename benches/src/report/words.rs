//! Content of all kinds of reports, before formatting.

use std::time::Duration;

use super::ratios;
use crate::clock::{float, minute};
use crate::outcome::{Latency, RunOutcome};
use crate::units::{show_bytes, show_count, show_micros};
use crate::verdict::Judgement;

/// Returns a judgement for a heading.
pub(super) const fn judgement(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Passed => "Passed",
        Judgement::Failed => "Failed",
        Judgement::GeneratorLimited => "Not decided: the generator was the limit",
    }
}

/// Returns a class of its own for each judgement.
pub(super) const fn class(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Passed => "passed",
        Judgement::Failed => "failed",
        Judgement::GeneratorLimited => "limited",
    }
}

/// Returns the title of a run.
pub(super) fn name(outcome: &RunOutcome) -> String {
    format!("{}, {}", outcome.profile.as_str(), outcome.subject)
}

/// Returns the few figures that a reader looks at first.
pub(super) fn headline(outcome: &RunOutcome) -> Vec<(&'static str, String)> {
    let mut rows = vec![("carried", format!("{}/s", show_count(outcome.carried_per_second())))];
    if outcome.bytes_down > 0 {
        rows.push(("down", per_second(outcome.bytes_down, outcome.measured_s)));
    }
    if outcome.bytes_up > 0 {
        rows.push(("up", per_second(outcome.bytes_up, outcome.measured_s)));
    }
    if outcome.latency.count > 0 {
        rows.push(("p50", show_micros(float(outcome.latency.p50))));
        rows.push(("p99", show_micros(float(outcome.latency.p99))));
    }
    rows.push(("failed", outcome.failed_total().to_string()));
    rows
}

fn per_second(bytes: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{}/s", show_bytes(float(bytes) / seconds)) } else { "–".to_owned() }
}

/// Returns the requested load.
fn load(outcome: &RunOutcome) -> Vec<(&'static str, String)> {
    let load = &outcome.load;
    let arrivals = format!("{:?}", load.arrivals).to_lowercase();
    let mut rows = vec![
        ("rate", load.rate.to_string()),
        ("connections", load.connections.to_string()),
        ("size", show_bytes(float(load.size))),
        ("measured", format!("{:.1} s after {:.1} s of warm-up", outcome.measured_s, load.warm_up.as_secs_f64())),
        ("worker threads", load.workers.to_string()),
        ("seed", load.seed.to_string()),
    ];
    if load.rate.per_second().is_some() {
        rows.insert(1, ("arrivals", arrivals));
        rows.push(("offered", outcome.offered.to_string()));
    }
    rows.push(("carried", outcome.carried.to_string()));
    rows
}

/// Returns the time of the run's beginning.
pub(super) fn date(outcome: &RunOutcome) -> String {
    minute(Duration::from_millis(outcome.started_unix_ms))
}

/// Returns the machine that generated the load.
pub(super) fn machine(outcome: &RunOutcome) -> String {
    let machine = &outcome.machine;
    format!(
        "{} processors ({}), {}, {}, loadlab {}",
        machine.processors,
        machine.model,
        show_bytes(float(machine.memory_bytes)),
        machine.system,
        machine.loadlab
    )
}

/// Returns the three distributions with what they mean.
fn latencies(outcome: &RunOutcome) -> Vec<(&'static str, &Latency)> {
    let all = [
        ("from intended start", &outcome.latency),
        ("from actual send", &outcome.service),
        ("the generator's own delay", &outcome.generator_late),
    ];
    all.into_iter().filter(|(_, latency)| latency.count > 0).collect()
}

/// Returns the percentiles of a distribution in columns.
fn percentiles(latency: &Latency) -> [String; 7] {
    let show = |value: u64| show_micros(float(value));
    [
        latency.count.to_string(),
        show(latency.p50),
        show(latency.p90),
        show(latency.p99),
        show(latency.p999),
        show(latency.max),
        show_micros(latency.mean),
    ]
}

/// Names of the columns of [`percentiles`].
const PERCENTILES: [&str; 7] = ["count", "p50", "p90", "p99", "p99.9", "max", "mean"];

/// Table: the titles of its columns, and its rows.
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Self {
        Self { head: head.to_vec(), rows: rows.collect() }
    }

    /// Makes a table of names with a value each.
    fn pairs(what: &'static str, value: &'static str, rows: impl Iterator<Item = (String, String)>) -> Self {
        Self::new(&[what, value], rows.map(|(name, value)| vec![name, value]))
    }
}

/// Returns the ratios of the subjects of a comparison; no rows if there is only one.
pub(super) fn comparison(outcomes: &[RunOutcome]) -> Table {
    let head = ["profile", "ratio of", "carried/s", "bytes/s", "p50", "p99", "CPU per exchange"];
    let rows = ratios::rows(outcomes).into_iter().map(|row| {
        let spreads = [row.carried, row.bytes, row.p50, row.p99, row.cpu].map(ratios::show);
        [vec![row.profile.to_owned(), format!("{} / {}", row.subject, row.other)], spreads.to_vec()].concat()
    });
    Table::new(&head, rows)
}

/// Returns the findings of a run, in tables; some have no rows.
pub(super) fn details(outcome: &RunOutcome) -> Vec<Table> {
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    let latencies = latencies(outcome).into_iter();
    let latencies = latencies.map(|(name, latency)| [vec![name.to_owned()], percentiles(latency).to_vec()].concat());
    let failed = outcome.failed.iter().map(|(why, count)| (why.clone(), count.to_string()));
    let figures = outcome.figures.iter().map(|(key, value)| (figure_name(key), figure(*value)));
    vec![
        Table::new(&[&["latency"], &PERCENTILES[..]].concat(), latencies),
        Table::pairs("failed", "count", failed),
        Table::pairs("figure", "", figures),
        Table::pairs("used", "", usage(outcome).into_iter()),
        Table::pairs("load", "", load(outcome).into_iter().map(named)),
    ]
}

/// Returns the usage of the subject's processes.
fn usage(outcome: &RunOutcome) -> Vec<(String, String)> {
    let Some(usage) = &outcome.usage else {
        return Vec::new();
    };
    let mut rows = vec![
        ("processor time, gateway side".to_owned(), format!("{:.2} s", usage.gateway_cpu_s)),
        ("processor time, agent side".to_owned(), format!("{:.2} s", usage.agent_cpu_s)),
        ("processor time, app".to_owned(), format!("{:.2} s", usage.app_cpu_s)),
    ];
    let cpu = usage.gateway_cpu_s + usage.agent_cpu_s;
    if outcome.carried > 0 {
        rows.push((
            "per 100,000 exchanges, both sides".to_owned(),
            format!("{:.2} s", cpu / float(outcome.carried) * 1e5),
        ));
    }
    let gib = float(outcome.bytes_down + outcome.bytes_up) / 1_073_741_824.0;
    if gib >= 0.1 {
        rows.push(("per GiB, both sides".to_owned(), format!("{:.2} s", cpu / gib)));
    }
    let memory = [
        ("memory, gateway side", usage.gateway_rss_bytes, usage.gateway_rss_peak_bytes),
        ("memory, agent side", usage.agent_rss_bytes, usage.agent_rss_peak_bytes),
    ];
    for (name, rss, peak) in memory {
        let text = format!("{} (peak {})", show_bytes(float(rss)), show_bytes(float(peak)));
        rows.push((name.to_owned(), text));
    }
    rows
}

/// Returns a figure with at most four significant digits.
fn figure(value: f64) -> String {
    if !value.is_finite() {
        "–".to_owned()
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

/// Returns the name of a figure: `added_p99_ms` is `added p99, ms`.
fn figure_name(key: &str) -> String {
    const UNITS: [&str; 11] =
        ["ms", "us", "s", "bytes", "kib", "mib", "mb_per_s", "mbit_per_s", "per_s", "percent", "count"];
    let unit = UNITS
        .iter()
        .filter(|unit| key.len() > unit.len() && key.ends_with(&format!("_{unit}")))
        .max_by_key(|unit| unit.len());
    let whole = UNITS.iter().find(|unit| **unit == key);
    match (whole, unit) {
        (Some(unit), _) => unit.replace("_per_", "/"),
        (None, Some(unit)) => {
            let name = key.strip_suffix(&format!("_{unit}")).unwrap_or(key);
            format!("{}, {}", name.replace('_', " "), unit.replace("_per_", "/").replace("per_", "per "))
        }
        (None, None) => key.replace('_', " "),
    }
}

/// Returns the summary for a terminal.
pub(super) fn text(outcome: &RunOutcome) -> String {
    let mut lines = vec![format!("{}, {:.1} s measured", name(outcome), outcome.measured_s)];
    let headline: Vec<String> = headline(outcome).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    lines.push(format!("  {}", headline.join("   ")));
    for (name, latency) in latencies(outcome) {
        let columns = PERCENTILES.iter().zip(percentiles(latency)).skip(1);
        let columns: Vec<String> = columns.map(|(name, value)| format!("{name} {value}")).collect();
        lines.push(format!("  {name:<26} {}", columns.join("  ")));
    }
    for (why, count) in &outcome.failed {
        lines.push(format!("  failed: {why} {count}"));
    }
    for (key, value) in &outcome.figures {
        lines.push(format!("  {}: {}", figure_name(key), figure(*value)));
    }
    for (name, value) in usage(outcome) {
        lines.push(format!("  {name}: {value}"));
    }
    lines.extend(outcome.notes.iter().map(|note| format!("  note: {note}")));
    lines.extend(outcome.verdict.warnings.iter().map(|warning| format!("  warning: {warning}")));
    for check in &outcome.verdict.checks {
        let mark = if check.passed { "ok    " } else { "MISSED" };
        lines.push(format!("  {mark} {}: {} ({})", check.name, check.measured, check.bound));
    }
    lines.push(format!("  {}", judgement(outcome.verdict.judgement).to_uppercase()));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_name_tells_the_unit_apart() {
        assert_eq!(figure_name("added_p99_ms"), "added p99, ms");
        assert_eq!(figure_name("mb_per_s"), "mb/s");
        assert_eq!(figure_name("resumes_per_s"), "resumes, per s");
        assert_eq!(figure_name("cuts"), "cuts");
    }
}
