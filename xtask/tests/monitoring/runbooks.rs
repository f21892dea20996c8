//! A page for each alert: what it means, what to look at, what to do.

use std::fmt::Write as _;

use super::source::{Alert, Source};

const HEAD: &str = "This page is made of [alerts.toml](../../deploy/monitoring/alerts.toml).";

fn list_of(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "* {line}").expect("a text");
        text
    })
}

/// Writes the runbook of an alert.
pub(crate) fn page(alert: &Alert) -> String {
    let Alert { name, severity, r#for, expr, summary, meaning, check, mend, .. } = alert;
    let calls = match severity.as_str() {
        "page" => "It calls a person at once.",
        "ticket" => "It can wait for the next working day.",
        other => panic!("{name}: {other}"),
    };
    format!(
        "# {name}\n\n{summary} {calls}\n\n## What it means\n\n{meaning}\n\n```promql\n{expr}\n```\n\nfor {}.\n\n## What to check\n\n{}\n\
         ## How to mend it\n\n{}\n{HEAD}\n",
        r#for,
        list_of(check),
        list_of(mend)
    )
}

/// Writes the list of runbooks.
pub(crate) fn list(source: &Source) -> String {
    let rows = source.alerts.iter().fold(String::new(), |mut rows, alert| {
        let Alert { name, severity, summary, .. } = alert;
        writeln!(rows, "| [{name}]({name}.md) | {severity} | {summary} |").expect("a text");
        rows
    });
    format!(
        "# Runbooks\n\nOne for each alert of [rules.yaml](../../deploy/monitoring/rules.yaml).\n\n| alert | calls | because |\n\
         | --- | --- | --- |\n{rows}"
    )
}
