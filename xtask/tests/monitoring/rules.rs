//! Prometheus rules, and promtool's tests of them. Texts are written as JSON, which YAML reads.

use std::fmt::Write as _;

use super::source::{Alert, Fires, Objective, Source, Values};

const HEAD: &str = "# Made of alerts.toml: UPDATE_MONITORING=1 cargo test -p xtask --test monitoring\n";

/// Windows over which shares of errors are recorded.
const WINDOWS: [&str; 5] = ["5m", "30m", "1h", "6h", "3d"];

/// Speeds at which a budget of a month is used up, the windows over which that is seen, and who is called.
const BURNS: [Burn; 3] = [
    Burn { suffix: "Fast", factor: 14.4, long: "1h", short: "5m", severity: "page" },
    Burn { suffix: "", factor: 6.0, long: "6h", short: "30m", severity: "page" },
    Burn { suffix: "Slowly", factor: 1.0, long: "3d", short: "6h", severity: "ticket" },
];

struct Burn {
    suffix: &'static str,
    factor: f64,
    long: &'static str,
    short: &'static str,
    severity: &'static str,
}

/// A recorded expression.
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) expr: String,
}

impl Objective {
    /// Returns its alerts, one for each speed.
    pub(crate) fn alerts(&self) -> impl Iterator<Item = Alert> + '_ {
        BURNS.iter().map(|burn| {
            let share = |window: &str| format!("{}:ratio_rate{window}", self.record);
            let bound = format!("{} * {:.4}", burn.factor, 1.0 - self.objective);
            let good = 1.0 - self.fires.ratio;
            let bad = self.fires.ratio;
            // Two series: what is good, and what is bad, a thousand events in a minute.
            let steps = |share: f64| format!("0+{}x400", (share * 1000.0).round());
            let bad_series = self.bad.replace("=~", "=");
            let value = bad_series.split('"').nth(1).expect("a label").to_owned();
            Alert {
                name: format!("{}{}", self.name, burn.suffix),
                severity: burn.severity.to_owned(),
                r#for: "2m".to_owned(),
                expr: format!("{} > {bound} and {} > {bound}", share(burn.long), share(burn.short)),
                summary: self.summary.clone(),
                meaning: format!("{} {}", self.promise, self.meaning),
                check: self.check.clone(),
                mend: self.mend.clone(),
                fires: Fires {
                    series: vec![self.good.clone(), bad_series.replace(&value, &self.fires.bad)],
                    values: Values::Each(vec![steps(good), steps(bad)]),
                    labels: std::collections::BTreeMap::default(),
                    at: Some("400m".to_owned()),
                },
                silent: Values::Each(vec!["0+1000x400".to_owned(), "0x400".to_owned()]),
            }
        })
    }
}

/// Returns the shares of errors that are recorded.
pub(crate) fn records(source: &Source) -> Vec<Record> {
    let record = |objective: &Objective, window: &str| {
        let Objective { record, bad, good, also, .. } = objective;
        let sum = |of: &str| format!("sum(rate({of}[{window}]))");
        // A counter that is not there yet counts nothing.
        let parts = [Some(good), Some(bad), also.as_ref()].into_iter().flatten();
        let all: Vec<String> = parts.map(|of| format!("({} or vector(0))", sum(of))).collect();
        Record {
            name: format!("{record}:ratio_rate{window}"),
            expr: format!("({} or vector(0)) / ({})", sum(bad), all.join(" + ")),
        }
    };
    source.objectives.iter().flat_map(|of| WINDOWS.iter().map(move |window| record(of, window))).collect()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn runbook(alert: &Alert) -> String {
    format!("docs/runbooks/{}.md", alert.name)
}

/// Writes the rules.
pub(crate) fn rules(source: &Source) -> String {
    let mut text = format!("{HEAD}groups:\n  - name: gateway-objectives\n    rules:\n");
    for Record { name, expr } in records(source) {
        write!(text, "      - record: {name}\n        expr: {}\n", quoted(&expr)).expect("a text");
    }
    text.push_str("  - name: gateway-alerts\n    rules:\n");
    for alert in &source.alerts {
        let Alert { name, severity, r#for, expr, summary, .. } = alert;
        write!(
            text,
            "      - alert: {name}\n        expr: {}\n        for: {}\n        labels:\n          severity: {severity}\n        \
             annotations:\n          summary: {}\n          runbook_url: {}\n",
            quoted(expr),
            r#for,
            quoted(summary),
            quoted(&runbook(alert))
        )
        .expect("a text");
    }
    text
}

/// Writes a test with these values, and the alert that is expected if there is one.
fn test(text: &mut String, alert: &Alert, values: &Values, fires: bool) {
    let word = if fires { "fires" } else { "is silent" };
    write!(text, "  - name: {}\n    interval: 1m\n    input_series:\n", quoted(&format!("{} {word}", alert.name)))
        .expect("a text");
    for (place, series) in alert.fires.series.iter().enumerate() {
        write!(text, "      - series: {}\n        values: {}\n", quoted(series), quoted(values.of(place)))
            .expect("a text");
    }
    let at = alert.fires.at.as_deref().unwrap_or("20m");
    write!(text, "    alert_rule_test:\n      - eval_time: {at}\n        alertname: {}\n", alert.name).expect("a text");
    if !fires {
        text.push_str("        exp_alerts: []\n");
        return;
    }
    write!(text, "        exp_alerts:\n          - exp_labels:\n              severity: {}\n", alert.severity)
        .expect("a text");
    for (label, value) in &alert.fires.labels {
        writeln!(text, "              {label}: {}", quoted(value)).expect("a text");
    }
    let (summary, runbook) = (quoted(&alert.summary), quoted(&runbook(alert)));
    write!(
        text,
        "            exp_annotations:\n              summary: {summary}\n              runbook_url: {runbook}\n"
    )
    .expect("a text");
}

/// Writes the tests: each alert fires with its fault, and is silent without.
pub(crate) fn tests(source: &Source) -> String {
    let mut text = format!("{HEAD}rule_files:\n  - rules.yaml\nevaluation_interval: 5m\ntests:\n");
    for alert in &source.alerts {
        test(&mut text, alert, &alert.fires.values, true);
        test(&mut text, alert, &alert.silent, false);
    }
    text
}
