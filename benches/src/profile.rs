//! The profiles: what kind of load there is.

pub mod churn;
pub mod download;
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

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clock::{millis, unix_time};
use crate::lab::Lab;
use crate::live::Live;
use crate::load::LoadSpec;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::peer::meter::Trees;
use crate::stats::Parts;
use crate::target::Target;
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
            Self::LinkCut => "link-cut",
            Self::Kill => "kill",
        }
    }
}

/// Everything that a profile needs to run.
#[derive(Clone)]
pub struct Context {
    /// Which profile runs.
    pub profile: ProfileName,
    /// `gateway`, or a peer's name.
    pub subject: String,
    /// Where the load goes.
    pub target: Target,
    /// What is offered, and what counts as good.
    pub load: LoadSpec,
    /// Where progress goes.
    pub live: Live,
    /// Cancelled on ctrl-c: end early and tell what was measured.
    pub stop: CancellationToken,
    /// The lab's own gateway, agent and app (`--self`), if it has them.
    pub lab: Option<Arc<Lab>>,
    /// The subject's processes, if they run here: what they use in the measured time becomes the outcome's usage.
    pub trees: Option<Trees>,
}

impl Context {
    /// Makes an outcome of what a collector gathered. Figures, notes and usage can be added; then judge it with [`verdict::judge`].
    #[must_use]
    pub fn outcome(&self, parts: Parts) -> Outcome {
        let mut outcome = Outcome {
            profile: self.profile,
            subject: self.subject.clone(),
            started_unix_ms: millis(unix_time().saturating_sub(parts.measured)),
            machine: Machine::here(),
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
            verdict: verdict::Verdict::default(),
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
pub async fn run(name: ProfileName, context: &Context) -> anyhow::Result<Outcome> {
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
        ProfileName::LinkCut => link_cut::run(context).await,
        ProfileName::Kill => kill::run(context).await,
    }
}
