//! Writes `RESULTS.md`: the table, and a section for each of its rows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter;

use super::accounts::Accounts;
use super::book::{ResultsBook, Section};
use super::rows::{FigureLine, OURS, OURS_TLS, OURS_TLS_BOTH, ROWS, ResultRow, SHAPE, title};

/// The command that writes the page.
const COMMAND: &str = "loadlab results";

/// Writes the page from the measured figures and the hand-written accounts.
#[must_use]
pub fn page(book: &ResultsBook, accounts: &Accounts) -> String {
    let mut out = String::from("# Results\n\n");
    push(&mut out, &introduction(book));
    push(&mut out, &summary(book, accounts));
    for row in ROWS {
        push(&mut out, &row_section(row, book.sections.get(row.section), accounts));
    }
    push(&mut out, &runs(book));
    let keys: Vec<_> = ROWS.iter().map(|row| row.key).collect();
    for key in accounts.others(&keys) {
        push(&mut out, &format!("## {key} (no row of the table)\n\n{}", accounts.marked(key)));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn push(out: &mut String, part: &str) {
    out.push_str(part.trim_end());
    out.push_str("\n\n");
}

fn introduction(book: &ResultsBook) -> String {
    let mut text = format!(
        "Written by `{COMMAND}`; the figures are kept in `results.json` beside this page, and one part is measured again \
         with `{COMMAND} --only SECTION`. What stands between `account` markers is written by people and is kept.\n\n\
         A figure is the median over the rounds with (smallest–largest). A ratio is taken between two subjects within each \
         round and only then over the rounds, because the same program differs by 15 to 40 % between hours on a shared \
         machine; figures of different runs are not to be compared. `{OURS}` has a plain link between gateway and agent, \
         `{OURS_TLS}` one with TLS 1.3; users are plain with both, as they are with peers, and only `{OURS_TLS_BOTH}` encrypts \
         their side too. Everything runs on one machine: load, gateway, agent and app share its processors."
    );
    if book.sections.values().any(|section| section.quick) {
        text.push_str("\n\n**Sections marked «quick» come from a short run: they show that everything works, not how fast it is.**");
    }
    text
}

fn summary(book: &ResultsBook, accounts: &Accounts) -> String {
    let mut text = String::from("| figure | target | measured | met |\n| --- | --- | --- | --- |\n");
    for row in ROWS {
        let section = book.sections.get(row.section);
        let Some(section) = section else {
            line(&mut text, &[&link(row), row.target, "not measured", "–"]);
            continue;
        };
        let lines = (row.judge)(section);
        let measured: Vec<_> = lines.iter().map(|line| format!("{}: {}", line.what, line.measured)).collect();
        line(&mut text, &[&link(row), row.target, &measured.join("<br>"), &verdict(row, section, &lines, accounts)]);
    }
    text
}

fn link(row: &ResultRow) -> String {
    format!("[{}](#{})", row.figure, row.key)
}

fn verdict(row: &ResultRow, section: &Section, lines: &[FigureLine], accounts: &Accounts) -> String {
    let count = |met| lines.iter().filter(|line| line.met == met).count();
    let (met, missed, absent) = (count(Some(true)), count(Some(false)), count(None));
    let mut words = match (met, missed, absent) {
        (_, 0, 0) => "yes".to_owned(),
        (0, 0, _) => "–".to_owned(),
        (_, 0, _) => format!("yes, {absent} not measured"),
        (0, _, 0) => "**no**".to_owned(),
        (_, _, 0) => format!("**no** ({missed} of {})", lines.len()),
        _ => format!("**no** ({missed} of {}, {absent} not measured)", lines.len()),
    };
    if missed > 0 {
        words.push_str(if accounts.text(row.key).is_empty() { "; account missing" } else { "; account below" });
    }
    if section.quick {
        words.push_str(" «quick»");
    }
    words
}

fn row_section(row: &ResultRow, section: Option<&Section>, accounts: &Accounts) -> String {
    let mut text = format!("<a id=\"{}\"></a>\n## {}\n\nTarget: {}.\n\n", row.key, capital(row.figure), row.target);
    match section {
        None => push(&mut text, &format!("Not measured yet: `{COMMAND} --only {}`.", row.section)),
        Some(section) => {
            push(&mut text, &judged(&(row.judge)(section)));
            push(&mut text, &format!("{}.", conditions(section)));
            for load in section.loads() {
                if row.loads.is_empty() && row.section == "throughput" {
                    break;
                }
                if row.loads.is_empty() || row.loads.contains(&load) {
                    push(&mut text, &raw(section, load));
                }
            }
        }
    }
    text.push_str(&accounts.marked(row.key));
    text
}

fn judged(lines: &[FigureLine]) -> String {
    let mut text = String::from("| | measured | met |\n| --- | --- | --- |\n");
    for part in lines {
        let met = match part.met {
            Some(true) if !part.judged => "(no target)",
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        line(&mut text, &[&part.what, &part.measured, met]);
    }
    text
}

fn conditions(section: &Section) -> String {
    let rounds: BTreeSet<_> = section.samples.iter().map(|sample| sample.round).collect();
    let quick = if section.quick { ", «quick»" } else { "" };
    let plural = if rounds.len() == 1 { "" } else { "s" };
    let Section { command, date, conditions, .. } = section;
    format!("`{command}`, {date}, {} round{plural}{quick}, {}", rounds.len(), conditions.machine)
}

/// Writes the figures of each subject under one load: a line for each subject, or, if that would be too wide to read,
/// for each figure.
fn raw(section: &Section, load: &str) -> String {
    let of_load = || section.samples.iter().filter(|sample| sample.load == load);
    let mut figures: Vec<&str> = of_load()
        .flat_map(|sample| sample.values.keys())
        .map(String::as_str)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    figures.sort_by_key(|figure| COLUMNS.iter().position(|(key, _)| key == figure).unwrap_or(COLUMNS.len()));
    let subjects = section.subjects(load);
    let cell = |subject: &str, value: &str| {
        section.spread(load, subject, value).map_or_else(|| "–".to_owned(), |spread| spread.to_string())
    };
    let mut table: Vec<Vec<String>> =
        vec![iter::once(String::new()).chain(figures.iter().map(|key| heading(key))).collect()];
    for subject in &subjects {
        let cells = figures.iter().map(|value| cell(subject, value));
        table.push(iter::once((*subject).to_owned()).chain(cells).collect());
    }
    if let (Some(main), true) = (figures.first(), subjects.contains(&SHAPE)) {
        let ratio = |subject: &str| {
            let ratio = section.ratio(load, main, [subject, SHAPE]);
            ratio.map_or_else(|| "–".to_owned(), |ratio| ratio.to_string())
        };
        let column = iter::once("of nginx to nginx".to_owned()).chain(subjects.iter().map(|subject| ratio(subject)));
        for (row, cell) in table.iter_mut().zip(column) {
            row.push(cell);
        }
    }
    if figures.len() > COLUMNS_MAX {
        table = transposed(&table);
    }
    let mut text = format!("**{}**\n\n", capital(title(load)));
    for (number, row) in table.iter().enumerate() {
        line(&mut text, &row.iter().map(String::as_str).collect::<Vec<_>>());
        if number == 0 {
            text.push_str(&"| --- ".repeat(row.len()));
            text.push_str("|\n");
        }
    }
    text
}

fn transposed(table: &[Vec<String>]) -> Vec<Vec<String>> {
    let width = table.first().map_or(0, Vec::len);
    (0..width).map(|column| table.iter().filter_map(|row| row.get(column).cloned()).collect()).collect()
}

/// Most columns of a table that are read on a screen.
const COLUMNS_MAX: usize = 7;

/// Known figures in the order of their columns; the first one that a load has is its main figure.
const COLUMNS: [(&str, &str); 12] = [
    ("per_s", "per s"),
    ("mb_s", "MB/s"),
    ("p50_us", "p50, µs"),
    ("p99_us", "p99, µs"),
    ("p999_us", "p99.9, µs"),
    ("cpu_s_per_100k", "CPU s per 100,000"),
    ("cpu_s_per_gib", "CPU s per GiB"),
    ("server_cpu_s", "CPU s, user side"),
    ("agent_cpu_s", "CPU s, app side"),
    ("gateway_kib_each", "KiB each, user side"),
    ("agent_kib_each", "KiB each, app side"),
    ("failed", "failed"),
];

fn heading(column: &str) -> String {
    let known = COLUMNS.iter().find(|(key, _)| *key == column);
    known.map_or_else(|| column.replace('_', " "), |(_, heading)| (*heading).to_owned())
}

fn runs(book: &ResultsBook) -> String {
    let mut text = String::from("## Runs\n");
    for (key, section) in &book.sections {
        let Section { conditions: on, versions, failures, notes, .. } = section;
        write!(text, "\n### {key}\n\n- {}\n- Network: {}\n", conditions(section), on.network).ok();
        if !on.revision.is_empty() {
            writeln!(text, "- Revision: {}", on.revision).ok();
        }
        let versions: Vec<_> = versions.iter().map(|(peer, version)| format!("{peer} ({version})")).collect();
        if !versions.is_empty() {
            writeln!(text, "- Peers: {}", versions.join("; ")).ok();
        }
        for (word, lines) in [("Note", notes), ("Not measured", failures)] {
            for one in lines {
                writeln!(text, "- {word}: {}", one.replace('\n', " ")).ok();
            }
        }
    }
    text
}

fn line(text: &mut String, cells: &[&str]) {
    for cell in cells {
        write!(text, "| {} ", cell.replace('|', "\\|")).ok();
    }
    text.push_str("|\n");
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn book() -> ResultsBook {
        let mut section =
            Section { command: "loadlab results".into(), date: "2026-01-31".into(), ..Section::default() };
        for (subject, per_s) in [("nginx-nginx", 50_000.0), ("gateway", 40_000.0)] {
            for load in ["keep128", "keep10k"] {
                let values = BTreeMap::from([("per_s".to_owned(), per_s), ("p99_us".to_owned(), 2_000.0)]);
                section.add(0, subject, load, values);
            }
        }
        ResultsBook { sections: BTreeMap::from([("throughput".to_owned(), section)]) }
    }

    #[test]
    fn page_shows_each_row_once_and_keeps_accounts() {
        let accounts = Accounts::read("<!-- account: requests -->\nThe copy in X.\n<!-- end -->\n").unwrap();
        let text = page(&book(), &accounts);
        for row in ROWS {
            assert_eq!(text.matches(&format!("<a id=\"{}\">", row.key)).count(), 1, "{}", row.key);
        }
        assert!(text.contains("gateway / nginx-nginx: 0.80"), "{text}");
        assert!(text.contains("| **no**; account below |"), "{text}");
        assert!(text.contains("| gateway | 40,000 | 2,000 | 0.80 |"), "{text}");
        assert_eq!(Accounts::read(&text).unwrap().text("requests"), "The copy in X.");
        let again = page(&book(), &Accounts::read(&text).unwrap());
        assert_eq!(again, text);
    }

    #[test]
    fn missed_target_without_account_is_said() {
        let text = page(&book(), &Accounts::default());
        assert!(text.contains("account missing"), "{text}");
    }

    #[test]
    fn account_without_a_row_is_kept() {
        let accounts = Accounts::read("<!-- account: gone -->\nkept text\n<!-- end -->\n").unwrap();
        let text = page(&ResultsBook::default(), &accounts);
        assert_eq!(Accounts::read(&text).unwrap().text("gone"), "kept text");
    }
}
