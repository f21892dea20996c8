//! Report in Markdown.

use super::words::{self, Table};
use crate::outcome::RunOutcome;

/// Escapes a text for a cell or a line.
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

fn table(out: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    out.push_str(&format!("\n| {} |\n", table.head.join(" | ")));
    out.push_str(&format!("|{}\n", " --- |".repeat(table.head.len())));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

/// Writes the report.
#[must_use]
pub fn page(outcomes: &[RunOutcome]) -> String {
    let mut out = "# Load report\n".to_owned();
    if let Some(first) = outcomes.first() {
        out.push_str(&format!("\n{}. {}.\n", escape(&words::date(first)), escape(&words::machine(first))));
    }
    table(&mut out, &words::comparison(outcomes));
    for outcome in outcomes {
        section(&mut out, outcome);
    }
    out
}

fn section(out: &mut String, outcome: &RunOutcome) {
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
    let headline = words::headline(outcome).into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    table(out, &Table { head: vec!["result", ""], rows: headline.collect() });
    for part in words::details(outcome) {
        table(out, &part);
    }
}
