//! Report as one page that needs nothing else: style and charts are in it.

use super::chart::{Axis, Series, lines};
use super::words::{self, Table};
use crate::clock::float;
use crate::outcome::{Latency, RunOutcome, Second};
use crate::units::{show_bytes, show_count, show_micros};

const STYLE: &str = include_str!("report.css");

/// Most runs that are shown open; more are folded.
const OPEN_MAX: usize = 3;

/// Points of a curve.
const POINTS: u32 = 160;

/// Escapes a text for any place in the page.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            other => out.push(other),
        }
    }
    out
}

fn table(out: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    // A table wider than the page can be scrolled by keyboard too.
    let first = escape(table.head.first().copied().unwrap_or_default());
    out.push_str(&format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"Table: {first}\" tabindex=\"0\"><table>\n<thead><tr>"
    ));
    for name in &table.head {
        // A header cell without words would be announced as one.
        let cell =
            if name.is_empty() { "<td></td>".to_owned() } else { format!("<th scope=\"col\">{}</th>", escape(name)) };
        *out += &cell;
    }
    *out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        *out += "<tr>";
        for cell in row {
            out.push_str(&format!("<td>{}</td>", escape(cell)));
        }
        *out += "</tr>\n";
    }
    *out += "</tbody></table></div>\n";
}

/// Writes the report.
#[must_use]
pub fn page(outcomes: &[RunOutcome]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>Load report</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>Load report</h1>\n"
    );
    if let Some(first) = outcomes.first() {
        let (date, machine) = (words::date(first), words::machine(first));
        out.push_str(&format!("<p class=\"quiet\">{}. {}.</p>\n", escape(&date), escape(&machine)));
    }
    comparison(&mut out, outcomes);
    for outcome in outcomes {
        let name = escape(&words::name(outcome));
        let judgement = words::judgement(outcome.verdict.judgement);
        let class = words::class(outcome.verdict.judgement);
        let open = if outcomes.len() <= OPEN_MAX { " open" } else { "" };
        out.push_str(&format!(
            "<details{open}>\n<summary><h2>{name}</h2> <strong class=\"{class}\">{judgement}</strong></summary>\n"
        ));
        section(&mut out, outcome);
        out += "</details>\n";
    }
    out + "</main>\n</body>\n</html>\n"
}

fn comparison(out: &mut String, outcomes: &[RunOutcome]) {
    let ratios = words::comparison(outcomes);
    if ratios.rows.is_empty() {
        return;
    }
    *out += "<h2>Ratios</h2>\n<p class=\"quiet\">Median of rounds (smallest–largest). Above 1 is better for carried and bytes, \
             below 1 for latency and CPU.</p>\n";
    table(out, &ratios);
}

fn section(out: &mut String, outcome: &RunOutcome) {
    *out += "<dl class=\"tiles\">\n";
    for (name, value) in words::headline(outcome) {
        out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(&value)));
    }
    *out += "</dl>\n";
    for warning in &outcome.verdict.warnings {
        out.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(warning)));
    }
    for note in &outcome.notes {
        out.push_str(&format!("<p>{}</p>\n", escape(note)));
    }
    let checks = outcome.verdict.checks.iter().map(|check| {
        let kept = if check.passed { "✓ kept" } else { "✗ missed" };
        vec![check.name.clone(), check.bound.clone(), check.measured.clone(), kept.to_owned()]
    });
    table(out, &Table { head: vec!["objective", "bound", "measured", ""], rows: checks.collect() });
    *out += "<div class=\"charts\">\n";
    *out += &percentile_chart(outcome);
    *out += &rate_chart(outcome);
    *out += &latency_chart(whole(outcome));
    *out += "</div>\n";
    for part in words::details(outcome) {
        table(out, &part);
    }
}

/// Draws latency over percentiles: each step to the right is a tenth of what is left.
fn percentile_chart(outcome: &RunOutcome) -> String {
    let names = ["from intended start", "from actual send", "the generator's own delay"];
    let all = [&outcome.latency, &outcome.service, &outcome.generator_late];
    let all =
        || names.into_iter().zip(["one", "two", "three"]).zip(all).filter(|(_, latency)| !latency.histogram.is_empty());
    let Some(count) = all().map(|(_, latency)| latency.count).max() else {
        return String::new();
    };
    // No more nines than there are samples to tell them.
    let nines = float(count).log10().clamp(1.0, 5.0);
    let series: Vec<Series> =
        all().map(|((name, class), latency)| Series { name, class, points: curve(latency, nines) }).collect();
    // The generator's own delay is near nothing, if all is well: it does not stretch the chart.
    let told = || series.iter().filter(|line| line.class != "three" || series.len() == 1);
    let values = || told().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let ticks = [(0.0, "0"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99"), (5.0, "99.999")];
    let ticks =
        ticks.into_iter().filter(|(at, _)| *at <= nines).map(|(at, words)| (at, format!("{words} %"))).collect();
    let x = Axis { from: 0.0, to: nines, is_logarithmic: false, ticks };
    let y = Axis::logarithmic(values().fold(f64::INFINITY, f64::min), values().fold(1.0, f64::max), show_micros);
    lines("Latency by percentile", &x, &y, &series)
}

fn curve(latency: &Latency, nines: f64) -> Vec<(f64, f64)> {
    (0..=POINTS)
        .map(|point| {
            let at = nines * f64::from(point) / f64::from(POINTS);
            (at, float(latency.at(1.0 - 10_f64.powf(-at)).max(1)))
        })
        .collect()
}

/// Returns the seconds that lasted a whole second: the last of an interrupted run did not, and exchanges that ended
/// after the measured time have a row of their own.
fn whole(outcome: &RunOutcome) -> &[Second] {
    let count =
        outcome.seconds.iter().take_while(|second| float(second.at) + 1.0 <= outcome.measured_s + 0.001).count();
    outcome.seconds.get(..count.max(1)).unwrap_or(&outcome.seconds)
}

fn time(seconds: &[Second]) -> Axis {
    Axis::linear(float(seconds.last().map_or(0, |second| second.at)), |value| format!("{value:.0} s"))
}

/// Draws the offered and the carried rate, or bytes for bulk transfers.
fn rate_chart(outcome: &RunOutcome) -> String {
    let seconds = whole(outcome);
    let is_bulk = outcome.carried_per_second() < 10.0 && outcome.bytes_per_second() > 1e6;
    let line = |name, class, value: fn(&Second) -> f64| Series {
        name,
        class,
        points: seconds.iter().map(|second| (float(second.at), value(second))).collect(),
    };
    let mut series = if is_bulk {
        vec![line("bytes per second", "one", |second| float(second.bytes_down + second.bytes_up))]
    } else {
        let carried = line("carried per second", "one", |second| float(second.carried));
        vec![line("offered per second", "three", |second| float(second.offered)), carried]
    };
    if !outcome.failed.is_empty() {
        series.push(line("failed per second", "four", |second| float(second.failed)));
    }
    let largest = series.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(1.0, f64::max);
    let y = Axis::linear(largest, |value| if is_bulk { show_bytes(value) } else { show_count(value) });
    lines(if is_bulk { "Bytes over time" } else { "Rate over time" }, &time(seconds), &y, &series)
}

/// Draws percentiles of each second.
fn latency_chart(seconds: &[Second]) -> String {
    let carried = || seconds.iter().filter(|second| second.p99_us > 0);
    let line = |name, class, value: fn(&Second) -> u64| Series {
        name,
        class,
        points: carried().map(|second| (float(second.at), float(value(second).max(1)))).collect(),
    };
    let series = [
        line("p50", "two", |second| second.p50_us),
        line("p99", "one", |second| second.p99_us),
        line("max", "three", |second| second.max_us),
    ];
    let values = || series.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    if values().next().is_none() {
        return String::new();
    }
    let y = Axis::logarithmic(values().fold(f64::INFINITY, f64::min), values().fold(1.0, f64::max), show_micros);
    lines("Latency over time", &time(seconds), &y, &series)
}
