//! Arguments of `ci`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::Args;

use super::gateway;
use crate::ci::{self, CiOptions, CommandLine, HoldCondition, Length};
use crate::dial::Transport;
use crate::ports::Ports;
use crate::{MEMORY_BUDGET_BYTES, Options, TokenSource};

/// Range of the time that a job is held.
const HOLD: RangeInclusive<Length> = Length::seconds(1)..=Length::seconds(24 * 3600);

/// Range of the time that a gateway is waited for.
const PATIENCE: RangeInclusive<Length> = Length::seconds(1)..=Length::seconds(300);

/// Arguments of `ci`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Keep a job open for its owner when its tests fail (GitLab CI; WORKSPACE_GATEWAY_TOKEN is one of the job's id_tokens):
    workspace-agent ci --gateway https://agents.example.com -- make test

  For two hours, whatever comes out, with a token from a file:
    workspace-agent ci --gateway https://agents.example.com --token-file token --on always --hold 2h -- ./build.sh

COMMAND runs as if this program were not there: with its files, its terminal and its process group; signals reach it, and \
how it ends is how this program ends. When the job is held, one link is printed on standard error. It leads the job's owner, \
and those they share it with, to a terminal in the job, and to its ports. There, Continue ends the job as passed, and \
Fail now as COMMAND did, or with status 1 if it passed. Without a choice, or when the gateway stays away for five minutes, \
the job ends as COMMAND did.

Whatever is wrong with the gateway, the token or the way between, changes nothing: a line says so, and the job ends as \
COMMAND did, at most --patience later if it failed. Without a token, COMMAND is run and nothing else.

Exit status: COMMAND's own (126 cannot be run, 127 not found), 0 after Continue, 2 wrong usage. A COMMAND that a signal ended \
ends this program with that signal. Its line is shown to all viewers of the job's page. WORKSPACE_AGENT_LOG (error, warn, info, debug) makes it log; else it does not.")]
pub struct CiArguments {
    /// URL of the gateway's listener for agents.
    #[arg(long, value_name = "URL", env = "WORKSPACE_AGENT_GATEWAY")]
    pub gateway: Option<String>,

    /// Longest time that the job is held: 90s, 30m, 2h. Shorter where the job's own time ends before, which GitLab reports;
    /// elsewhere the CI system's time limit ends it without a warning.
    #[arg(long, value_name = "TIME", default_value = "30m", env = "WORKSPACE_AGENT_CI_HOLD")]
    pub hold: String,

    /// Condition for holding the job.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, env = "WORKSPACE_AGENT_CI_ON")]
    pub on: HoldCondition,

    /// File that holds the job's id_token, or a token of the gateway for one workspace.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Variable that holds it, if there is no file. COMMAND does not get that variable.
    #[arg(long, value_name = "NAME", default_value = "WORKSPACE_GATEWAY_TOKEN")]
    pub token_env: OsString,

    /// File that is made before the token is shown to the gateway: one that is good for one process is used up then.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CI_SPENT_FILE")]
    pub spent_file: Option<PathBuf>,

    /// Longest time for the gateway to make a held job reachable.
    #[arg(long, value_name = "TIME", default_value = "10s", env = "WORKSPACE_AGENT_CI_PATIENCE")]
    pub patience: String,

    /// PEM file of certificates to trust besides the system's.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// Transport to the gateway: auto takes HTTP/2, and a WebSocket where HTTP/2 cannot pass.
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "WORKSPACE_AGENT_TRANSPORT")]
    pub transport: Transport,

    /// Port never to expose. Repeatable.
    #[arg(long = "deny-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub denied_ports: Vec<u16>,

    /// The command to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl CiArguments {
    /// Splits off the command, which is run whatever becomes of the rest: `None` if it is to be run and nothing else.
    ///
    /// # Errors
    /// Beside the command, the reason why the job cannot be held.
    pub fn options(self) -> (CommandLine, anyhow::Result<Option<CiOptions>>) {
        let mut words = self.command.clone().into_iter();
        let command = CommandLine {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            hidden_variable: Some(self.token_env.clone()),
        };
        let options = match self.on {
            HoldCondition::Never => Ok(None),
            HoldCondition::Failure | HoldCondition::Always => self.held(command.clone()).map(Some),
        };
        (command, options)
    }

    fn held(self, command: CommandLine) -> anyhow::Result<CiOptions> {
        let token = match self.token_file {
            Some(file) => TokenSource::File(file),
            None => match std::env::var(&self.token_env) {
                Ok(token) if !token.trim().is_empty() => TokenSource::Value(token.trim().into()),
                Ok(_) | Err(_) => bail!("there is no token: neither --token-file nor ${}", self.token_env.display()),
            },
        };
        let ports = Ports { denied: self.denied_ports.into_iter().collect(), ..Ports::default() };
        let Some(url) = self.gateway else { bail!("there is no --gateway") };
        // Read here and not with the arguments: most of them come from variables of the CI system, which must not stop a command.
        let length = |name: &str, text: &str, within| {
            Length::parse_within(text, within).map_err(|error| anyhow!("{name} {text}: {error}"))
        };
        let (hold, patience) = (length("--hold", &self.hold, &HOLD)?, length("--patience", &self.patience, &PATIENCE)?);
        let agent = Options {
            gateway: gateway(&url, self.ca_file.as_deref())?,
            transport: self.transport,
            token,
            ports: Arc::new(ports),
            lanes: 1,
            memory_budget: MEMORY_BUDGET_BYTES,
            // Set once there is a job.
            terminal: None,
            ssh: None,
            inspector: None,
            logs: None,
        };
        let given = |name| std::env::var(name).ok();
        let ends_at = given("CI_JOB_STARTED_AT").zip(given("CI_JOB_TIMEOUT"));
        let ends_at = ends_at.and_then(|(started_at, timeout)| ci::ends_at(&started_at, &timeout));
        let (spent_file, witness) = (self.spent_file, std::env::current_exe().ok());
        Ok(CiOptions { command, on: self.on, hold, ends_at, patience, agent, spent_file, witness })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{AgentCli, WorkspaceCommand};
    use super::*;

    /// Any file will do: it is read when the agent dials.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

    fn arguments(more: &[&str]) -> Result<CiArguments, String> {
        let fixed = ["workspace-agent", "ci", "--gateway", "http://localhost:8081"];
        let cli = AgentCli::<WorkspaceCommand>::try_parse_from(fixed.iter().chain(more))
            .map_err(|error| error.to_string())?;
        match cli.command {
            WorkspaceCommand::Ci(arguments) => Ok(arguments),
            WorkspaceCommand::Run(_)
            | WorkspaceCommand::GitCredential(_)
            | WorkspaceCommand::Busy(_)
            | WorkspaceCommand::Doctor(_)
            | WorkspaceCommand::CiWitness => {
                panic!("another command")
            }
        }
    }

    #[test]
    fn everything_after_two_dashes_is_the_commands() {
        let (command, options) = arguments(&["--token-file", FILE, "--", "make", "--hold", "2h", "--", "test"])
            .expect("arguments")
            .options();
        assert_eq!((command.program.to_str(), command.arguments.len()), (Some("make"), 4));
        let options = options.expect("good").expect("held");
        assert_eq!((options.on, options.hold.to_string().as_str()), (HoldCondition::Failure, "30m"));
        assert!(options.agent.ports.exposed.is_empty(), "every loopback port of the job");
        assert_eq!(command.hidden_variable.as_deref(), Some("WORKSPACE_GATEWAY_TOKEN".as_ref()));
        for missing in [&["--token-file", FILE][..], &["--token-file", FILE, "--"], &["make", "test"]] {
            assert!(arguments(missing).is_err(), "{missing:?}");
        }
    }

    #[test]
    fn command_is_there_whatever_is_wrong_with_the_rest() {
        for (more, wrong) in [
            (&["--token-env", "NO_SUCH_VARIABLE_HERE"][..], "$NO_SUCH_VARIABLE_HERE"),
            (&["--token-file", FILE, "--gateway", ""], "--gateway"),
            (&["--token-file", FILE, "--hold", ""], "--hold"),
            (&["--token-file", FILE, "--hold", "25h"], "must be from"),
            (&["--token-file", FILE, "--hold", "0s"], "must be from"),
            (&["--token-file", FILE, "--patience", "10m"], "must be from"),
            (&["--token-file", FILE, "--gateway", "https://localhost", "--ca-file", "/no/such/file"], "/no/such/file"),
        ] {
            // The last --gateway counts; clap would refuse a second one.
            let fixed = ["workspace-agent", "ci", "--gateway", "http://localhost:8081"];
            let fixed = if more.contains(&"--gateway") { &fixed[..2] } else { &fixed[..] };
            let words = fixed.iter().chain(more).chain(&["--", "make"]);
            let cli = AgentCli::<WorkspaceCommand>::try_parse_from(words).expect("arguments");
            let WorkspaceCommand::Ci(arguments) = cli.command else { panic!("another command") };
            let (command, options) = arguments.options();
            assert_eq!(command.program, "make");
            let told = format!("{:#}", options.expect_err("it cannot be held"));
            assert!(told.contains(wrong), "{told}");
        }
        let (_, options) = arguments(&["--on", "never", "--", "make"]).expect("arguments").options();
        assert!(options.expect("no token is needed").is_none());
    }

    #[test]
    fn command_needs_no_gateway_to_be_run() {
        let words = ["workspace-agent", "ci", "--token-file", FILE, "--", "make"];
        let cli = AgentCli::<WorkspaceCommand>::try_parse_from(words).expect("arguments");
        let WorkspaceCommand::Ci(arguments) = cli.command else { panic!("another command") };
        let (command, options) = arguments.options();
        assert_eq!(command.program, "make");
        assert!(options.expect_err("there is nobody to ask").to_string().contains("--gateway"));
    }
}
