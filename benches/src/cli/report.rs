//! `loadlab report`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::outcome::RunOutcome;
use crate::report;

/// Flags of `loadlab report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  loadlab run http --self --jsonl runs.jsonl
  loadlab report runs.jsonl --html report.html
  loadlab report runs.jsonl --markdown -            on standard output")]
pub(super) struct ReportArgs {
    /// Records of `loadlab run --jsonl`
    file: PathBuf,
    /// Write a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Makes a report of runs.
type ReportCommand = fn(&[RunOutcome]) -> String;

/// Makes reports; without a file to write, prints a summary of each run.
pub(super) fn run(arguments: &ReportArgs) -> anyhow::Result<Exit> {
    let outcomes = report::read(&arguments.file)?;
    let mut out = std::io::stdout().lock();
    let forms: [(_, ReportCommand); 2] =
        [(&arguments.html, report::html::page), (&arguments.markdown, report::markdown::page)];
    for (path, page) in forms {
        match path {
            Some(path) if path.as_os_str() == "-" => out.write_all(page(&outcomes).as_bytes())?,
            Some(path) => std::fs::write(path, page(&outcomes))
                .map_err(|error| anyhow::anyhow!("writing {}: {error}", path.display()))?,
            None => {}
        }
    }
    if arguments.html.is_none() && arguments.markdown.is_none() {
        for outcome in &outcomes {
            writeln!(out, "{}", report::text(outcome))?;
        }
    }
    Ok(Exit::Passed)
}
