//! `loadlab results`: measures everything that `RESULTS.md` shows and writes the page.
//!
//! The figures are kept beside the page as JSON; one section can be measured again without the others. What people
//! wrote on the page, between `account` markers, is kept.

pub mod accounts;
pub mod book;
pub mod idle;
pub mod network;
pub mod page;
pub mod rows;
pub mod sections;
pub mod spread;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::clock::{day, unix_time};
use crate::live::ProgressReporter;
use crate::machine::MachineFacts;
use crate::peer::compare::Generator;
use crate::units;
use accounts::Accounts;
use book::{Conditions, ResultsBook, Section};
use network::LabNetwork;
use sections::{Effort, SectionName};

/// Flags of `loadlab results`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  loadlab results                                    everything; two to three hours on two processors
  loadlab results --only throughput --rounds 7       one section again
  loadlab results --quick --out /tmp/RESULTS.md      a few minutes: does everything work?
  loadlab results --page-only                        write the page again from the figures that are there")]
pub struct ResultsArgs {
    /// The page; the figures go beside it, with the ending .json
    #[arg(long, default_value = "benches/RESULTS.md", value_name = "FILE")]
    pub out: PathBuf,
    /// Measure only these sections
    #[arg(long, value_name = "SECTION")]
    pub only: Vec<SectionName>,
    /// Measurements of each subject
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Duration of each load
    #[arg(long, default_value = "4s", value_parser = units::duration, value_name = "DURATION")]
    pub seconds: Duration,
    /// One short round: shows that everything works, not how fast it is
    #[arg(long)]
    pub quick: bool,
    /// Peers to measure as well; `all` for every one that is here
    #[arg(long, value_name = "NAME")]
    pub peer: Vec<String>,
    /// Generator of requests in a closed loop
    #[arg(long, value_enum, default_value_t = Generator::Lab)]
    pub generator: Generator,
    /// Network to measure in: a network namespace of its own (needs root), or the machine's loopback
    #[arg(long, value_enum, default_value_t = LabNetwork::Auto)]
    pub network: LabNetwork,
    /// Longest wait for an idle machine before each subject
    #[arg(long, default_value = "60s", value_parser = units::duration, value_name = "DURATION")]
    pub patience: Duration,
    /// Measure nothing; write the page from the figures that are there
    #[arg(long)]
    pub page_only: bool,
}

/// Measures and writes the page.
///
/// # Errors
/// Fails if the page or its figures cannot be read or written, or if a section could not be measured; sections
/// measured before are kept.
pub async fn run(arguments: ResultsArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let figures = arguments.out.with_extension("json");
    // Before hours of measuring: a page that cannot be kept is refused at once.
    let mut book = ResultsBook::read(&figures)?;
    read_accounts(&arguments.out)?;
    if arguments.page_only {
        return write_page(&arguments.out, &book);
    }
    anyhow::ensure!(
        arguments.quick || !cfg!(debug_assertions),
        "this program is built without optimisation; build it, the gateway and the agent with --release, or use --quick"
    );
    if network::enter(arguments.network).await? == network::NamespaceEntry::Elsewhere {
        return Ok(());
    }
    let names = if arguments.only.is_empty() { SectionName::ALL.to_vec() } else { arguments.only.clone() };
    let effort = effort(&arguments, &stop);
    let mut failed = Vec::new();
    for name in names {
        if stop.is_cancelled() {
            break;
        }
        match Box::pin(sections::measure(name, &effort)).await {
            Ok(section) => {
                let section = describe(section, name, &arguments).await;
                book.sections.insert(name.as_str().to_owned(), section);
                book.write(&figures)?;
                write_page(&arguments.out, &book)?;
            }
            Err(error) => {
                effort.live.note(&format!("{}: {error:#}", name.as_str()));
                failed.push(format!("{}: {error:#}", name.as_str()));
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "not every section was measured:\n  {}", failed.join("\n  "));
    anyhow::ensure!(!stop.is_cancelled(), "interrupted; sections measured until then are kept");
    Ok(())
}

fn effort(arguments: &ResultsArgs, stop: &CancellationToken) -> Effort {
    let quick = arguments.quick;
    Effort {
        rounds: if quick { 1 } else { arguments.rounds },
        lasts: if quick { Duration::from_secs(1) } else { arguments.seconds },
        quick,
        patience: if quick { Duration::ZERO } else { arguments.patience },
        generator: arguments.generator,
        peers: arguments.peer.clone(),
        live: ProgressReporter::on_stderr("results"),
        stop: stop.clone(),
    }
}

/// Adds to a section the circumstances of its measurement.
async fn describe(mut section: Section, name: SectionName, arguments: &ResultsArgs) -> Section {
    section.command = command(name, arguments);
    section.date = day(unix_time());
    section.quick = arguments.quick;
    section.conditions = Conditions {
        machine: describe_machine(&MachineFacts::here()),
        network: network::describe(),
        revision: revision().await,
    };
    section
}

fn command(name: SectionName, arguments: &ResultsArgs) -> String {
    let mut command = format!("loadlab results --only {}", name.as_str());
    if arguments.quick {
        command.push_str(" --quick");
    } else {
        command.push_str(&format!(" --rounds {} --seconds {:?}", arguments.rounds, arguments.seconds));
    }
    if arguments.generator == Generator::Wrk {
        command.push_str(" --generator wrk");
    }
    for peer in &arguments.peer {
        command.push_str(&format!(" --peer {peer}"));
    }
    command
}

fn describe_machine(machine: &MachineFacts) -> String {
    let gib = machine.memory_bytes.div_ceil(1 << 30);
    format!("{} × {}, {gib} GiB, {}", machine.processors, machine.model, machine.system)
}

/// Asks git for the revision; empty outside of a repository.
async fn revision() -> String {
    let ask = |arguments: &[&str]| Command::new("git").args(arguments).kill_on_drop(true).output();
    let Ok(head) = ask(&["rev-parse", "--short", "HEAD"]).await else { return String::new() };
    if !head.status.success() {
        return String::new();
    }
    let clean = ask(&["diff", "--quiet", "HEAD"]).await.is_ok_and(|output| output.status.success());
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    if clean { head } else { format!("{head} with changes") }
}

fn read_accounts(page: &Path) -> anyhow::Result<Accounts> {
    let text = match std::fs::read_to_string(page) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", page.display())),
    };
    Accounts::read(&text).with_context(|| format!("{} would lose text", page.display()))
}

/// Writes the page. Accounts are read at the last moment: one may have been written during hours of measuring.
fn write_page(path: &Path, book: &ResultsBook) -> anyhow::Result<()> {
    let text = page::page(book, &read_accounts(path)?);
    let unfinished = path.with_extension("md.new");
    std::fs::write(&unfinished, text).with_context(|| format!("writing {}", unfinished.display()))?;
    std::fs::rename(&unfinished, path).with_context(|| format!("writing {}", path.display()))
}

/// Returns each peer with its description and the reason that it is missing.
#[must_use]
pub fn peers() -> BTreeMap<&'static str, (&'static str, Option<String>)> {
    crate::peer::PEERS.iter().map(|peer| (peer.name, (peer.about, peer.missing()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_with_an_open_account_is_refused_before_measuring() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("RESULTS.md");
        std::fs::write(&page, "<!-- account: cpu -->\ntext").unwrap();
        let error = format!("{:#}", read_accounts(&page).unwrap_err());
        assert!(error.contains("would lose text") && error.contains("line 1"), "{error}");
    }

    #[test]
    fn account_written_by_hand_survives_a_new_page() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("RESULTS.md");
        write_page(&page, &ResultsBook::default()).unwrap();
        let empty = std::fs::read_to_string(&page).unwrap();
        let written = empty.replace("<!-- account: cpu -->\n", "<!-- account: cpu -->\nThe allocator.\n");
        assert_ne!(written, empty);
        std::fs::write(&page, &written).unwrap();

        write_page(&page, &ResultsBook::default()).unwrap();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), written);
    }
}
