//! `loadlab run`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use gateway_types::Scheme;
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::{BadConfig, Exit};
use crate::lab::{Lab, LabSpec};
use crate::live::ProgressReporter;
use crate::load::{Arrivals, LoadSpec};
use crate::outcome::RunOutcome;
use crate::peer::compare::{ComparePlan, Generator, Work, compare};
use crate::peer::meter::Trees;
use crate::peer::subject::Subject;
use crate::profile::{self, Context, ProfileName, idle};
use crate::relay::LinkSpec;
use crate::report;
use crate::target::{LoadTarget, TlsClient};
use crate::units::{self, ArrivalRate};

/// Variable with the user's token.
const TOKEN_VARIABLE: &str = "LOADLAB_TOKEN";

/// Agents of a storm, unless told otherwise.
const STORM_AGENTS: usize = 1000;

/// Longest wait of a comparison for an idle machine before each subject.
const PATIENCE: Duration = Duration::from_secs(30);

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RunOutput {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Sides of the lab's own gateway that speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encrypted {
    /// Towards users and towards agents.
    Both,
    /// Towards agents.
    Link,
    /// Towards users.
    Users,
}

/// Flags of `loadlab run`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("where").required(true).multiple(true).args(["gateway", "workspace_url", "own"]),
    after_help = "Examples:
  loadlab run http --workspace-url http://3000-my-app.localhost:8080 --gateway http://127.0.0.1:8080 --token-file token
  loadlab run http --gateway http://127.0.0.1:3000              the app itself, without a tunnel
  loadlab run ws --self --rate 2k --duration 10s --report ws.html
  loadlab run tcp --self --link rate=20mbit,delay=20ms          a keystroke over a long, narrow link
  loadlab run http --self --rate max --peer nginx-nginx --peer rathole --rounds 5

Ctrl-C ends a run early, with a report of what was measured until then.
Latency is counted from when an exchange was to start, whatever happened to those before it; --rate max waits for each
answer before the next exchange, as wrk does, and says nothing about latency under load.

Exit status: 0 passed, 1 failed or a bound was missed, 2 wrong usage, 64 a named file or variable is no good."
)]
pub struct RunArgs {
    /// Kind of load; `loadlab list` describes them
    #[arg(value_enum)]
    profile: ProfileName,

    /// Address to connect to; without --host or --workspace-url, the app itself
    #[arg(long, value_name = "URL", help_heading = "Where")]
    gateway: Option<Address>,
    /// The app's URL as a browser has it: its host names workspace and port
    #[arg(long, value_name = "URL", conflicts_with = "host", help_heading = "Where")]
    workspace_url: Option<Address>,
    /// The same as a `Host` header alone
    #[arg(long, requires = "gateway", help_heading = "Where")]
    host: Option<String>,
    /// File with a user's token; or the variable LOADLAB_TOKEN
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file instead of the machine's
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    ca_file: Option<PathBuf>,

    /// Start a gateway, an agent and the app for this run
    #[arg(long = "self", id = "own", conflicts_with_all = ["gateway", "workspace_url", "token_file", "ca_file"], help_heading = "Own gateway")]
    own: bool,
    /// With TLS for users and agents; `link` is what peers with an encrypted link do
    #[arg(long, requires = "own", conflicts_with_all = ["gateway", "workspace_url"], value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "both", value_name = "WHERE", help_heading = "Own gateway")]
    tls: Option<Encrypted>,
    /// Parallel links of the agent's session
    #[arg(long, requires = "own", conflicts_with_all = ["gateway", "workspace_url"], default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16), help_heading = "Own gateway")]
    lanes: u16,
    /// Link between agent and gateway: rate=20mbit,delay=20ms,jitter=2ms,loss=1%
    #[arg(long, requires = "own", conflicts_with_all = ["gateway", "workspace_url"], value_name = "LINK", help_heading = "Own gateway")]
    link: Option<LinkSpec>,
    /// A variable of the gateway: GATEWAY_LOG__LEVEL=debug. Repeatable
    #[arg(long, requires = "own", conflicts_with_all = ["gateway", "workspace_url"], value_name = "KEY=VALUE", value_parser = pair, help_heading = "Own gateway")]
    config: Vec<(String, String)>,
    /// Run the same against a peer, in turn; `all` for every one that is here. Repeatable
    #[arg(long, requires = "own", conflicts_with_all = ["gateway", "workspace_url"], value_name = "NAME", help_heading = "Own gateway")]
    peer: Vec<String>,
    /// Measurements of each subject in a comparison
    #[arg(long, requires = "peer", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Own gateway")]
    rounds: u32,

    /// Exchanges per second, or `max`: each connection as fast as it goes
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    rate: Option<ArrivalRate>,
    /// Distribution of arrivals
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, help_heading = "Load")]
    arrivals: Arrivals,
    /// Connections
    #[arg(long, value_parser = positive, help_heading = "Load")]
    connections: Option<usize>,
    /// Measured time
    #[arg(long, value_parser = units::duration, value_name = "DURATION", help_heading = "Load")]
    duration: Option<Duration>,
    /// Time before that, with the same load
    #[arg(long, value_parser = units::duration, value_name = "DURATION", help_heading = "Load")]
    warm_up: Option<Duration>,
    /// Seed of arrivals and payloads
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    seed: u64,
    /// Payload bytes: 128, 10KiB, 100MiB
    #[arg(long, value_parser = units::size, value_name = "BYTES", help_heading = "Load")]
    size: Option<u64>,
    /// Threads that make the load
    #[arg(long, value_parser = positive, help_heading = "Load")]
    workers: Option<usize>,
    /// An exchange that takes longer has failed
    #[arg(long, value_parser = units::duration, value_name = "DURATION", help_heading = "Load")]
    timeout: Option<Duration>,
    /// A setting of the profile: agents=1000. Repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair, help_heading = "Load")]
    settings: Vec<(String, String)>,

    /// Least part of the offered load that must be carried [default: 0.9]
    #[arg(long, value_parser = units::part, value_name = "PART", help_heading = "Objective")]
    slo_carried: Option<f64>,
    /// Less than this part may fail [default: 0.01]
    #[arg(long, value_parser = units::part, value_name = "PART", help_heading = "Objective")]
    slo_failed: Option<f64>,
    /// Bound of the 99th percentile of latency from intended start [default: 500ms; none for bulk]
    #[arg(long, value_parser = units::duration, value_name = "DURATION", help_heading = "Objective")]
    slo_p99: Option<Duration>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = RunOutput::Text, help_heading = "Result")]
    output: RunOutput,
    /// Append the result as JSON, one line a run
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    jsonl: Option<PathBuf>,
    /// Write a report, .html or .md. Repeatable
    #[arg(long, value_name = "FILE", value_parser = report_file, help_heading = "Result")]
    report: Vec<PathBuf>,
    /// No progress
    #[arg(long, short, help_heading = "Result")]
    quiet: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("not KEY=VALUE".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1_000_000) => Ok(number),
        Ok(_) | Err(_) => Err("not a whole number from 1 to 1000000".to_owned()),
    }
}

fn report_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm" | "md" | "markdown") => Ok(path),
        Some(_) | None => Err("a report's name ends with .html or .md".to_owned()),
    }
}

impl RunArgs {
    /// Returns whether this process carries a link besides the load.
    pub(super) const fn needs_relay(&self) -> bool {
        self.own
    }

    /// Returns the profile's load with the changes of the command line.
    fn load(&self) -> LoadSpec {
        let mut load = self.profile.load();
        load.rate = self.rate.unwrap_or(load.rate);
        load.arrivals = self.arrivals;
        load.connections = self.connections.unwrap_or(load.connections);
        load.duration = self.duration.unwrap_or(load.duration);
        load.warm_up = self.warm_up.unwrap_or(load.warm_up);
        load.seed = self.seed;
        load.size = self.size.unwrap_or(load.size);
        load.workers = self.workers.unwrap_or(load.workers);
        load.timeout = self.timeout.unwrap_or(load.timeout);
        load.slo.carried = self.slo_carried.unwrap_or(load.slo.carried);
        load.slo.failed = self.slo_failed.unwrap_or(load.slo.failed);
        load.slo.p99 = self.slo_p99.or(load.slo.p99);
        load.settings.extend(self.settings.iter().cloned());
        load
    }

    /// Returns the lab that `--self` asks for.
    fn lab(&self, load: &LoadSpec) -> anyhow::Result<LabSpec> {
        let (workspaces, mut config) = if self.profile == ProfileName::Idle {
            idle::needs(load)?
        } else {
            let agents = if self.profile == ProfileName::Storm { STORM_AGENTS } else { 0 };
            (load.setting("agents", agents)? + 1, BTreeMap::new())
        };
        config.extend(self.config.iter().cloned());
        Ok(LabSpec {
            users_tls: matches!(self.tls, Some(Encrypted::Both | Encrypted::Users)),
            link_tls: matches!(self.tls, Some(Encrypted::Both | Encrypted::Link)),
            lanes: self.lanes,
            link: self.link,
            workspaces,
            config,
        })
    }

    /// Returns the target for users of a deployment.
    fn target(&self) -> anyhow::Result<LoadTarget> {
        let Some(address) = self.gateway.as_ref().or(self.workspace_url.as_ref()) else {
            anyhow::bail!("neither --gateway nor --workspace-url");
        };
        let app = self.workspace_url.as_ref().unwrap_or(address);
        let host = self.host.clone().unwrap_or_else(|| app.host());
        // The certificate is that of the requested host, whatever address it is reached at.
        let name: Address = format!("{}://{host}", app.scheme.as_str())
            .parse()
            .map_err(|error| BadConfig(format!("{host} is no host: {error}")))?;
        let tls = match address.scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let client = TlsClient::trusting(self.ca_file.as_deref(), name.certified());
                Some(client.map_err(|error| BadConfig(format!("{error:#}")))?)
            }
        };
        Ok(LoadTarget {
            address: address.dialed(),
            tls,
            host,
            token: token(self.token_file.as_deref())?,
            scheme: app.scheme,
        })
    }
}

/// Reads the user's token.
fn token(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let (text, from) = match path {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let from = path.display().to_string();
            (text.map_err(|error| BadConfig(format!("--token-file {from}: {error}")))?, from)
        }
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => (text, TOKEN_VARIABLE.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    // An error names the problem with it, and never its text.
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BadConfig(format!("{from} has no token")).into());
    }
    Ok(Some(token.to_owned()))
}

/// Runs the profile and reports its results.
pub(super) async fn run(arguments: RunArgs, stop: CancellationToken) -> anyhow::Result<Exit> {
    let load = arguments.load();
    check_writable(arguments.jsonl.as_deref())?;
    let name = arguments.profile.as_str();
    let live = if arguments.quiet { ProgressReporter::quiet() } else { ProgressReporter::on_stderr(name) };
    if !arguments.peer.is_empty() {
        return against_peers(&arguments, load, live, stop).await;
    }
    let mut context = Context {
        profile: arguments.profile,
        subject: "gateway".to_owned(),
        // Replaced below, once the lab runs.
        target: LoadTarget::plain(([127, 0, 0, 1], 0).into(), ""),
        load,
        live: live.clone(),
        stop: stop.clone(),
        lab: None,
        trees: None,
    };
    if arguments.own {
        live.phase("starting gateway, agent and app");
        let spec = arguments.lab(&context.load)?;
        context.subject = Subject::gateway(spec.clone()).name().to_owned();
        let Some(lab) = stop.run_until_cancelled(Box::pin(Lab::start(spec))).await else {
            anyhow::bail!("interrupted before anything was measured");
        };
        let lab = Arc::new(lab?);
        context.target = lab.target();
        context.trees = Some(Trees {
            server: vec![lab.gateway().pid()],
            agent: vec![lab.agent().pid()],
            app: vec![lab.app().pid()],
        });
        context.lab = Some(lab);
    } else {
        context.target = arguments.target()?;
    }
    let outcome = Box::pin(profile::run(arguments.profile, &context)).await;
    live.clear();
    let outcome = outcome?;
    tell(&arguments, std::slice::from_ref(&outcome))?;
    Ok(if outcome.verdict.passed() { Exit::Passed } else { Exit::Failed })
}

/// Checks before a long run that its record can be kept.
fn check_writable(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| BadConfig(format!("--jsonl {}: {error}", path.display())))?;
    Ok(())
}

async fn against_peers(
    arguments: &RunArgs,
    load: LoadSpec,
    live: ProgressReporter,
    stop: CancellationToken,
) -> anyhow::Result<Exit> {
    let mut subjects = vec![Subject::gateway(arguments.lab(&load)?)];
    for name in &arguments.peer {
        if name == "all" {
            let here = crate::peer::PEERS.iter().filter(|peer| peer.missing().is_none());
            subjects.extend(here.map(Subject::Peer));
        } else {
            subjects.push(Subject::peer(name)?);
        }
    }
    let plan = ComparePlan {
        subjects,
        works: vec![Work { key: arguments.profile.as_str().to_owned(), profile: arguments.profile, load }],
        rounds: arguments.rounds,
        link: arguments.link,
        generator: Generator::Lab,
        patience: PATIENCE,
        live: live.clone(),
        stop,
    };
    let found = Box::pin(compare(&plan)).await;
    live.clear();
    let found = found?;
    tell(arguments, &found.outcomes)?;
    if arguments.output == RunOutput::Text {
        std::io::stdout().lock().write_all(found.text().as_bytes())?;
    }
    let own = |outcome: &&RunOutcome| outcome.subject.starts_with("gateway");
    let passed = found.outcomes.iter().filter(own).all(|outcome| outcome.verdict.passed());
    Ok(if passed { Exit::Passed } else { Exit::Failed })
}

/// Prints, records and reports outcomes.
fn tell(arguments: &RunArgs, outcomes: &[RunOutcome]) -> anyhow::Result<()> {
    if let Some(path) = &arguments.jsonl {
        report::append(path, outcomes)?;
    }
    let mut out = std::io::stdout().lock();
    match (arguments.output, outcomes) {
        (RunOutput::Text, _) => {
            for outcome in outcomes {
                writeln!(out, "{}", report::text(outcome))?;
            }
        }
        (RunOutput::Json, [outcome]) => writeln!(out, "{}", serde_json::to_string(outcome)?)?,
        (RunOutput::Json, _) => writeln!(out, "{}", serde_json::to_string(outcomes)?)?,
    }
    out.flush()?;
    for path in &arguments.report {
        report::write(path, outcomes).context("the run is over, but its report is not written")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
