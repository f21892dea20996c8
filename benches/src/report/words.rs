//! What all kinds of reports say, before it is dressed.

use crate::clock::float;
use crate::outcome::{Latency, Outcome};
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

/// Returns what a run is called.
pub(super) fn name(outcome: &Outcome) -> String {
    format!("{}, {}", outcome.profile.as_str(), outcome.subject)
}

/// Returns the few figures that a reader looks at first.
pub(super) fn headline(outcome: &Outcome) -> Vec<(&'static str, String)> {
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

/// Returns what was asked for.
pub(super) fn load(outcome: &Outcome) -> Vec<(&'static str, String)> {
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

/// Returns where the load was made.
pub(super) fn machine(outcome: &Outcome) -> String {
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
pub(super) fn latencies(outcome: &Outcome) -> Vec<(&'static str, &Latency)> {
    let all = [
        ("from intended start", &outcome.latency),
        ("from actual send", &outcome.service),
        ("the generator's own delay", &outcome.generator_late),
    ];
    all.into_iter().filter(|(_, latency)| latency.count > 0).collect()
}

/// Returns the percentiles of a distribution in columns.
pub(super) fn percentiles(latency: &Latency) -> [String; 7] {
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
pub(super) const PERCENTILES: [&str; 7] = ["count", "p50", "p90", "p99", "p99.9", "max", "mean"];

/// Returns what the subject's processes used.
pub(super) fn usage(outcome: &Outcome) -> Vec<(String, String)> {
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

/// Returns a figure with at most four digits that mean something.
pub(super) fn figure(value: f64) -> String {
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
pub(super) fn figure_name(key: &str) -> String {
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

/// Returns a date and time of the world's clock.
pub(super) fn date(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", in_day / 3600, in_day / 60 % 60)
}

/// Returns the summary for a terminal.
pub(super) fn text(outcome: &Outcome) -> String {
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
    fn date_is_that_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (1_795_219_200, "2026-11-21 00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1000), expected);
        }
    }

    #[test]
    fn figure_name_tells_the_unit_apart() {
        assert_eq!(figure_name("added_p99_ms"), "added p99, ms");
        assert_eq!(figure_name("mb_per_s"), "mb/s");
        assert_eq!(figure_name("resumes_per_s"), "resumes, per s");
        assert_eq!(figure_name("cuts"), "cuts");
    }
}
