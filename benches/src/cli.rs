//! Command line.

pub mod address;
mod agents;
mod app;
mod list;
mod report;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;

pub use run::RunArgs;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is good.
    Passed,
    /// A bound was missed, or something went wrong.
    Failed,
    /// A file or variable that was named cannot be used.
    BadConfig,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Passed => 0,
            // Wrong usage is 2; clap ends the program with it.
            Exit::Failed => 1,
            Exit::BadConfig => 64,
        })
    }
}

/// A mistake in a file or variable, as opposed to something that went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadConfig(pub String);

/// Load for gateways, and what it does to them.
#[derive(Debug, Parser)]
#[command(
    name = "loadlab",
    version,
    about = "Measures a gateway as its users feel it: open-loop load, faults, peers, a verdict and a report",
    max_term_width = 110,
    after_help = "Examples:
  A deployment. In the workspace: `loadlab app --listen 127.0.0.1:3000`. Then from outside:
    loadlab run http --workspace-url https://3000-my-app.ws.example.com --token-file token --rate 2000 --report out.html
  On this machine alone, with a gateway, agent and app of its own:
    loadlab run ws --self --rate 1000 --duration 10s
  Against others, in turn, as ratios:
    loadlab run http --self --rate max --peer nginx-nginx --peer rathole --rounds 5

Exit status: 0 passed, 1 failed or a bound was missed, 2 wrong usage, 64 a named file or variable is no good."
)]
pub struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run a profile and judge what was measured
    Run(Box<RunArgs>),
    /// Profiles and peers, and which are here
    List(list::ListArgs),
    /// The app behind the tunnel
    App(app::AppArgs),
    /// Many agents for a gateway, and how long each was without a session
    Agents(agents::AgentsArgs),
    /// A link with delay, rate and faults, for anything that speaks TCP
    Relay(crate::relay::RelayArgs),
    /// Make reports of recorded runs
    Report(report::ReportArgs),
    /// Measure everything that RESULTS.md shows
    Results(crate::results::ResultsArgs),
}

impl LabCli {
    /// Returns how many threads the command's runtime needs; `None` for as many as there are processors.
    #[must_use]
    pub const fn threads(&self) -> Option<usize> {
        match &self.command {
            // The load has threads of its own; these only watch.
            LabCommand::Run(arguments) if !arguments.needs_relay() => Some(1),
            LabCommand::App(_) | LabCommand::List(_) | LabCommand::Report(_) => Some(1),
            LabCommand::Agents(_) | LabCommand::Run(_) | LabCommand::Relay(_) | LabCommand::Results(_) => None,
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// It could not do its work; a missed bound is no error.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<Exit> {
        match self.command {
            LabCommand::Run(arguments) => Box::pin(run::run(*arguments, stop)).await,
            LabCommand::List(arguments) => list::run(&arguments),
            LabCommand::App(arguments) => app::run(&arguments, stop).await,
            LabCommand::Agents(arguments) => Box::pin(agents::run(arguments, stop)).await,
            LabCommand::Relay(arguments) => Box::pin(crate::relay::run(arguments, stop)).await.map(|()| Exit::Passed),
            LabCommand::Report(arguments) => report::run(&arguments),
            LabCommand::Results(arguments) => {
                Box::pin(crate::results::run(arguments, stop)).await.map(|()| Exit::Passed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        LabCli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_told_apart() {
        for line in [
            "loadlab run http",
            "loadlab run nothing --self",
            "loadlab run http --self --rate 0",
            "loadlab run http --self --gateway http://a",
            "loadlab run http --gateway http://a --tls",
            "loadlab run http --self --tls=nobody",
            "loadlab run http --gateway http://a --peer nginx",
            "loadlab run http --self --duration 30",
            "loadlab run http --self --report out.pdf",
            "loadlab run http --gateway ftp://a",
        ] {
            let error = LabCli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn usual_lines_are_understood() {
        for line in [
            "loadlab run http --gateway http://127.0.0.1:8080 --host 3000-a.localhost:8080 --token-file t --rate 100",
            "loadlab run sse --workspace-url https://3000-a.ws.example.com --set agents=5 --output json",
            "loadlab run http --self --tls --lanes 2 --link rate=20mbit,delay=20ms,loss=1% --rate max --peer nginx-nginx --rounds 5",
            "loadlab run kill --self --report a.html --report b.md --jsonl c.jsonl --slo-p99 1s --slo-failed 5% --slo-carried 0.5",
            "loadlab app",
            "loadlab list",
            "loadlab report a.jsonl --html a.html --markdown a.md",
            "loadlab results --quick",
        ] {
            if let Err(error) = LabCli::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
    }
}
