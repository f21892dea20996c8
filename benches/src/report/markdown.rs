//! The report in Markdown.

use super::{ratios, words};
use crate::outcome::Outcome;

/// Lets a text stand in a cell or a line.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => out.extend(['\\', character]),
            '<' => out += "&lt;",
            '&' => out += "&amp;",
            '\n' | '\r' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

fn table(out: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return;
    }
    out.push_str(&format!("\n| {} |\n", head.join(" | ")));
    out.push_str(&format!("|{}\n", " --- |".repeat(head.len())));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

/// Writes the report.
#[must_use]
pub fn page(outcomes: &[Outcome]) -> String {
    let mut out = "# Load report\n".to_owned();
    if let Some(first) = outcomes.first() {
        out.push_str(&format!(
            "\n{}. {}.\n",
            escape(&words::date(first.started_unix_ms)),
            escape(&words::machine(first))
        ));
    }
    let ratios = ratios::rows(outcomes).into_iter().map(|row| {
        let spreads = [row.carried, row.bytes, row.p50, row.p99, row.cpu].map(ratios::show);
        [vec![row.profile.to_owned(), format!("{} / {}", row.subject, row.other)], spreads.to_vec()].concat()
    });
    let head = ["profile", "ratio of", "carried/s", "bytes/s", "p50", "p99", "CPU per exchange"];
    table(&mut out, &head, ratios);
    for outcome in outcomes {
        section(&mut out, outcome);
    }
    out
}

fn section(out: &mut String, outcome: &Outcome) {
    out.push_str(&format!("\n## {}: {}\n", escape(&words::name(outcome)), words::judgement(outcome.verdict.judgement)));
    let checks = outcome.verdict.checks.iter().map(|check| {
        let kept = if check.passed { "kept" } else { "**missed**" };
        (vec![check.name.clone(), check.bound.clone(), check.measured.clone()], kept)
    });
    out.push_str("\n| objective | bound | measured | |\n| --- | --- | --- | --- |\n");
    for (cells, kept) in checks {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        out.push_str(&format!("| {} | {kept} |\n", cells.join(" | ")));
    }
    for warning in outcome.verdict.warnings.iter().chain(&outcome.notes) {
        out.push_str(&format!("\n> {}\n", escape(warning)));
    }
    let latencies = words::latencies(outcome);
    let head: Vec<&str> = std::iter::once("latency").chain(words::PERCENTILES).collect();
    table(
        out,
        &head,
        latencies
            .iter()
            .map(|(name, latency)| [vec![(*name).to_owned()], words::percentiles(latency).to_vec()].concat()),
    );
    let pair = |(name, value): (&str, String)| vec![name.to_owned(), value];
    table(out, &["result", ""], words::headline(outcome).into_iter().map(pair));
    table(out, &["failed", "count"], outcome.failed.iter().map(|(why, count)| vec![why.clone(), count.to_string()]));
    let figures = outcome.figures.iter();
    table(out, &["figure", ""], figures.map(|(key, value)| vec![words::figure_name(key), words::figure(*value)]));
    table(out, &["used", ""], words::usage(outcome).into_iter().map(|(name, value)| vec![name, value]));
    table(out, &["load", ""], words::load(outcome).into_iter().map(pair));
}
