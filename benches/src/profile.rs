//! Profiles: the kinds of load.

pub mod churn;
pub mod download;
pub mod hostile;
pub mod http;
pub mod idle;
pub mod kill;
pub mod link_cut;
pub mod noisy_neighbour;
pub mod slow_reader;
pub mod sse;
pub mod storm;
pub mod tcp;
pub mod upload;
pub mod ws;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clock::{millis, unix_time};
use crate::lab::Lab;
use crate::live::ProgressReporter;
use crate::load::{Arrivals, LoadSpec, Slo};
use crate::machine::MachineFacts;
use crate::outcome::RunOutcome;
use crate::peer::meter::Trees;
use crate::stats::CollectedStats;
use crate::target::LoadTarget;
use crate::units::ArrivalRate;
use crate::verdict;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileName {
    /// Requests over kept-alive connections.
    Http,
    /// WebSocket messages, echoed.
    Ws,
    /// Server-sent events: delay of each.
    Sse,
    /// Large request bodies.
    Upload,
    /// Large response bodies.
    Download,
    /// Small messages over raw byte streams, echoed: what a keystroke feels like.
    Tcp,
    /// A new connection for each request.
    Churn,
    /// Agents and WebSockets that do nothing: memory.
    Idle,
    /// Many agents that connect at once.
    Storm,
    /// Readers that stop reading.
    SlowReader,
    /// A quiet channel beside bulk transfers.
    NoisyNeighbour,
    /// Honest users beside an attack.
    Hostile,
    /// The link breaks again and again under what goes on.
    LinkCut,
    /// The gateway is killed and started again.
    Kill,
}

impl ProfileName {
    /// Returns the name as it is written on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ws => "ws",
            Self::Sse => "sse",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Tcp => "tcp",
            Self::Churn => "churn",
            Self::Idle => "idle",
            Self::Storm => "storm",
            Self::SlowReader => "slow-reader",
            Self::NoisyNeighbour => "noisy-neighbour",
            Self::Hostile => "hostile",
            Self::LinkCut => "link-cut",
            Self::Kill => "kill",
        }
    }

    /// Returns the profile's description, in one line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Http => "requests over kept-alive connections",
            Self::Ws => "WebSocket messages, echoed",
            Self::Sse => "server-sent events: the delay of each",
            Self::Upload => "large request bodies: bytes per second",
            Self::Download => "large response bodies: bytes per second",
            Self::Tcp => "small messages over raw byte streams, echoed: what a keystroke feels like",
            Self::Churn => "a new connection for each request",
            Self::Idle => "agents and WebSockets that do nothing: memory of each",
            Self::Storm => "many agents that connect at once",
            Self::SlowReader => "readers that stop reading: memory, and what others feel",
            Self::NoisyNeighbour => "a quiet channel beside bulk transfers",
            Self::Hostile => "honest users beside a thousand hostile requests a second: latency, memory",
            Self::LinkCut => "the link is cut again and again: no byte lost, no connection dropped",
            Self::Kill => "the gateway is killed and started again",
        }
    }

    /// Returns whether the profile needs the lab's own gateway and agent (`--self`).
    #[must_use]
    pub const fn needs_lab(self) -> bool {
        match self {
            Self::Http
            | Self::Ws
            | Self::Sse
            | Self::Upload
            | Self::Download
            | Self::Tcp
            | Self::Churn
            | Self::SlowReader
            | Self::NoisyNeighbour
            | Self::Hostile => false,
            Self::Idle | Self::Storm | Self::LinkCut | Self::Kill => true,
        }
    }

    /// Returns the profile's default load.
    #[must_use]
    pub fn load(self) -> LoadSpec {
        let (rate, connections, size) = match self {
            Self::Http | Self::Ws | Self::Idle | Self::Storm | Self::Kill | Self::Hostile => {
                (ArrivalRate::PerSecond(500.0), 64, 128)
            }
            Self::Sse => (ArrivalRate::PerSecond(500.0), 50, 0),
            Self::Upload | Self::Download => (ArrivalRate::Max, 8, 100 << 20),
            Self::Tcp => (ArrivalRate::PerSecond(200.0), 16, 64),
            Self::Churn => (ArrivalRate::PerSecond(200.0), 64, 128),
            Self::SlowReader | Self::NoisyNeighbour | Self::LinkCut => (ArrivalRate::PerSecond(100.0), 8, 64),
        };
        // The time of a transfer depends on its size.
        let is_bulk = matches!(self, Self::Upload | Self::Download);
        LoadSpec {
            rate,
            arrivals: Arrivals::Poisson,
            connections,
            duration: Duration::from_secs(30),
            warm_up: Duration::from_secs(3),
            seed: 1,
            size,
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            timeout: Duration::from_secs(30),
            slo: Slo { p99: if is_bulk { None } else { Slo::default().p99 }, ..Slo::default() },
            settings: BTreeMap::new(),
        }
    }
}

/// Largest default number of worker threads: more are rarely needed and disturb the measurement.
const WORKERS_MAX: usize = 8;

/// Parameters of a profile's run.
#[derive(Clone)]
pub struct Context {
    /// Profile to run.
    pub profile: ProfileName,
    /// `gateway`, or a peer's name.
    pub subject: String,
    /// Target of the load.
    pub target: LoadTarget,
    /// Load and objective.
    pub load: LoadSpec,
    /// Destination of progress.
    pub live: ProgressReporter,
    /// Cancelled on ctrl-c: the run ends early and reports its results so far.
    pub stop: CancellationToken,
    /// The lab's own gateway, agent and app (`--self`), if it has them.
    pub lab: Option<Arc<Lab>>,
    /// Subject's processes, if they run here: their usage in the measured time becomes that of the outcome.
    pub trees: Option<Trees>,
}

impl Context {
    /// Makes an outcome from a collector's parts. Figures, notes and usage can be added; then judge it with
    /// [`verdict::judge`].
    #[must_use]
    pub fn outcome(&self, parts: CollectedStats) -> RunOutcome {
        let mut outcome = RunOutcome {
            profile: self.profile,
            subject: self.subject.clone(),
            started_unix_ms: millis(unix_time().saturating_sub(parts.measured)),
            machine: MachineFacts::here(),
            load: self.load.clone(),
            measured_s: parts.measured.as_secs_f64(),
            seconds: parts.seconds,
            latency: parts.latency,
            service: parts.service,
            generator_late: parts.generator_late,
            generator_busy: 0.0,
            offered: parts.offered,
            carried: parts.carried,
            failed: parts.failed,
            bytes_down: parts.bytes_down,
            bytes_up: parts.bytes_up,
            usage: None,
            figures: BTreeMap::new(),
            notes: Vec::new(),
            verdict: verdict::Finding::default(),
        };
        if self.stop.is_cancelled() {
            outcome.notes.push("Interrupted: this is what was measured until then.".to_owned());
        }
        outcome.verdict = verdict::judge(&outcome);
        outcome
    }
}

/// Runs a profile.
///
/// # Errors
/// It could not be run at all; a run with failures is an outcome.
pub async fn run(name: ProfileName, context: &Context) -> anyhow::Result<RunOutcome> {
    match name {
        ProfileName::Http => http::run(context).await,
        ProfileName::Ws => ws::run(context).await,
        ProfileName::Sse => sse::run(context).await,
        ProfileName::Upload => upload::run(context).await,
        ProfileName::Download => download::run(context).await,
        ProfileName::Tcp => tcp::run(context).await,
        ProfileName::Churn => churn::run(context).await,
        ProfileName::Idle => idle::run(context).await,
        ProfileName::Storm => storm::run(context).await,
        ProfileName::SlowReader => slow_reader::run(context).await,
        ProfileName::NoisyNeighbour => noisy_neighbour::run(context).await,
        ProfileName::Hostile => hostile::run(context).await,
        ProfileName::LinkCut => link_cut::run(context).await,
        ProfileName::Kill => kill::run(context).await,
    }
}
