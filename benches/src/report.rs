//! Reports: one page of HTML that needs nothing else, and the same in Markdown; records as JSON lines.

pub mod chart;
pub mod html;
pub mod markdown;
pub mod ratios;
mod words;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::outcome::RunOutcome;

/// Writes a report; the ending of its name says which kind.
///
/// # Errors
/// Neither `.html` nor `.md`, or it cannot be written.
pub fn write(path: &Path, outcomes: &[RunOutcome]) -> anyhow::Result<()> {
    let text = match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => html::page(outcomes),
        Some("md" | "markdown") => markdown::page(outcomes),
        _ => anyhow::bail!("{}: a report's name ends with .html or .md", path.display()),
    };
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Appends records to a file, one JSON document per line.
///
/// # Errors
/// It cannot be written.
pub fn append(path: &Path, outcomes: &[RunOutcome]) -> anyhow::Result<()> {
    let mut text = String::new();
    for outcome in outcomes {
        text += &serde_json::to_string(outcome)?;
        text.push('\n');
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    // One write: two programs that append to one file do not mix their lines.
    file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
}

/// Reads records that [`append`] wrote.
///
/// # Errors
/// It cannot be read, a line is no record, or there is none.
pub fn read(path: &Path) -> anyhow::Result<Vec<RunOutcome>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut outcomes = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let outcome = serde_json::from_str(line);
        outcomes.push(outcome.with_context(|| format!("{}:{}: no record", path.display(), number + 1))?);
    }
    anyhow::ensure!(!outcomes.is_empty(), "{}: no records", path.display());
    Ok(outcomes)
}

/// Returns the summary for a terminal.
#[must_use]
pub fn text(outcome: &RunOutcome) -> String {
    words::text(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Second, Usage};
    use crate::verdict;
    use crate::verdict::tests::good;

    fn hostile() -> RunOutcome {
        let mut outcome = good();
        outcome.subject = "<script>alert(1)</script>|\"&'".to_owned();
        outcome.machine.model = "</svg><img src=x onerror=alert(1)>".to_owned();
        outcome.notes.push("a | b\n# c <b>`d`".to_owned());
        outcome.failed.insert("<i>".to_owned(), 3);
        outcome.figures.insert("added_p99_ms".to_owned(), 1.5);
        outcome.figures.insert("<u>".to_owned(), f64::NAN);
        outcome.usage = Some(Usage { gateway_cpu_s: 1.0, ..Usage::default() });
        outcome.seconds =
            (0..10).map(|at| Second { at, offered: 100, carried: 100, p99_us: 900, ..Second::default() }).collect();
        outcome.verdict = verdict::judge(&outcome);
        outcome
    }

    #[test]
    fn html_escapes_what_comes_from_outside() {
        let page = html::page(&[hostile()]);
        for text in ["<script>alert", "<img", "</svg><", "<i>", "<u>", "<b>"] {
            assert!(!page.contains(text), "{text}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn html_needs_nothing_from_elsewhere() {
        let page = html::page(&[good(), hostile()]);
        for text in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<link", "<script", "<iframe"] {
            assert!(!page.contains(text), "{text}");
        }
        for text in ["<!doctype html>", "name=\"viewport\"", "prefers-color-scheme", "<svg", "Passed"] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn html_is_well_formed() {
        let page = html::page(&[good(), hostile()]);
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap();
            let name = tag.trim_end_matches('/').split([' ', '\n']).next().unwrap();
            if let Some(name) = name.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !name.starts_with('!') && name != "meta" && !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn markdown_keeps_its_tables_whole() {
        let page = markdown::page(&[good(), hostile()]);
        assert!(!page.contains("<script>") && !page.contains("<b>"));
        let mut columns = None;
        for line in page.lines() {
            let cells = line.replace("\\|", "").matches('|').count();
            if !line.starts_with('|') {
                columns = None;
                assert_eq!(cells, 0, "{line}");
                continue;
            }
            assert_eq!(*columns.get_or_insert(cells), cells, "{line}");
        }
    }

    #[test]
    fn records_survive_writing_and_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut outcome = hostile();
        // JSON has no number for this; it is written as null and is no record then.
        outcome.figures.remove("<u>");
        append(&path, &[good(), outcome.clone()]).unwrap();
        append(&path, &[outcome.clone()]).unwrap();
        assert_eq!(read(&path).unwrap(), [good(), outcome.clone(), outcome]);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("runs.jsonl:1"));
    }

    #[test]
    fn report_of_another_kind_is_refused() {
        assert!(write(Path::new("report.pdf"), &[good()]).unwrap_err().to_string().contains(".html or .md"));
    }

    #[test]
    fn terminal_summary_says_the_verdict_and_why() {
        let mut outcome = good();
        outcome.latency.p99 = 900_000;
        outcome.verdict = verdict::judge(&outcome);
        let text = text(&outcome);
        assert!(text.contains("FAILED") && text.contains("900 ms") && text.contains("500 ms"), "{text}");
    }
}
