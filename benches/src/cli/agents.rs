//! `loadlab agents`.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use workspace_agent::Ports;

use super::{BadConfig, Exit};
use crate::clock::unix_time;
use crate::fleet::{Fleet, FleetOptions, Gap};
use crate::profile::idle::ensure_files;
use crate::units;

/// Interval of lines about the fleet.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for agents that close their sessions.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Flags of `loadlab agents`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  loadlab agents --gateway https://agents.example.com --tokens tokens             one agent for each line of the file
  loadlab agents --gateway http://127.0.0.1:8081 --tokens tokens --gaps gaps      and how long each had no session

A line `UP of AGENTS up` is printed whenever that has changed, at most once a second. Each line of --gaps is the time at which an
agent had a session again (milliseconds since 1970), its line in the file of tokens, and how long it had none (milliseconds).
Kill, drain or cut off a gateway meanwhile. Ctrl-C ends the agents.")]
pub(super) struct AgentsArgs {
    /// URL of the gateway's port for agents
    #[arg(long, value_name = "URL")]
    gateway: String,
    /// File with a token of an agent in each line
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// PEM file of certificates to trust besides the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Time over which the first dials are spread
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = units::duration)]
    spread: Duration,
    /// File for the times in which agents had no session
    #[arg(long, value_name = "FILE")]
    gaps: Option<PathBuf>,
}

/// Runs the agents until the program is stopped, and says how many have a session.
pub(super) async fn run(arguments: AgentsArgs, stop: CancellationToken) -> anyhow::Result<Exit> {
    let tokens = tokens_in(&arguments.tokens)?;
    ensure_files(tokens.len())?;
    let create = |path: &PathBuf| {
        File::create(path).map_err(|error| BadConfig(format!("the file of gaps {}: {error}", path.display())))
    };
    let mut gaps = arguments.gaps.as_ref().map(create).transpose()?;
    let options = FleetOptions {
        ports: Ports::default(),
        ca_file: arguments.ca_file,
        spread: arguments.spread,
        keeps_gaps: gaps.is_some(),
    };
    let (fleet, mut reported) = (Fleet::start(&arguments.gateway, tokens, &options)?, None);
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_stopped = stop.run_until_cancelled(ticks.tick()).await.is_none();
        let counts = fleet.counts();
        if reported != Some((counts.up, counts.ended.len())) {
            reported = Some((counts.up, counts.ended.len()));
            let ended = counts.ended.iter().map(|(reason, count)| format!(", {count} ended: {reason}"));
            program_log::stdout().say(format!("{} of {} up{}", counts.up, counts.agents, ended.collect::<String>()));
        }
        if let Some(file) = &mut gaps {
            write(file, &fleet.take_gaps()).context("writing the gaps")?;
        }
        if is_stopped {
            break;
        }
    }
    fleet.stop(STOP_PATIENCE).await;
    Ok(Exit::Passed)
}

fn tokens_in(path: &Path) -> Result<Vec<String>, BadConfig> {
    let bad = |why: String| BadConfig(format!("the file of tokens {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let tokens: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    if tokens.is_empty() { Err(bad("no token is in it".to_owned())) } else { Ok(tokens) }
}

/// Writes a line for each gap, at once: programs may follow the file.
fn write(file: &mut File, gaps: &[Gap]) -> std::io::Result<()> {
    let (now, wall) = (Instant::now(), unix_time());
    let mut lines = String::new();
    for gap in gaps {
        let ended = wall.saturating_sub(now.saturating_duration_since(gap.ended));
        lines.push_str(&format!("{} {} {}\n", ended.as_millis(), gap.agent + 1, gap.lasted.as_millis()));
    }
    file.write_all(lines.as_bytes())
}
