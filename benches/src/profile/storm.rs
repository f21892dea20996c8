//! Storm of many agents: the gateway goes away, and all of them dial at once when it is back.
//!
//! A fleet comes up in this process; a prober asks its workspaces for a while; then the gateway is killed, or told to
//! drain, and started again on the same ports and the same store. Until all agents are back the prober asks workspaces
//! that are back already.
//!
//! Settings: `agents` (10000, or as many as the lab has workspaces for), `way` (`kill` or `drain`), `patience` (120s)
//! as the longest wait for the last one. The prober asks for the warm-up's time before the storm.

mod prober;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use self::prober::{GO_ON, Order, Prober};
use super::idle::{STOP_DEADLINE, UP_DEADLINE, start_fleet};
use crate::clock::float;
use crate::fleet::{Fleet, per_second};
use crate::lab::Lab;
use crate::outcome::{Latency, RunOutcome, Usage};
use crate::profile::Context;
use crate::stats::{Collector, Window};
use crate::target::LoadTarget;
use crate::units;

/// Agents unless told otherwise.
const AGENTS: usize = 10_000;

/// Interval of readings of processor time: the peak is that of the busiest one.
const SAMPLE: Duration = Duration::from_millis(250);

/// Interval of checks whether a draining gateway has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Way in which the gateway goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownWay {
    /// SIGKILL.
    Kill,
    /// SIGTERM: it drains.
    Drain,
}

impl std::str::FromStr for ShutdownWay {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kill" => Ok(Self::Kill),
            "drain" => Ok(Self::Drain),
            _ => Err("it is kill or drain"),
        }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let lab = context.lab.as_deref().context("storm restarts the gateway: it needs --self")?;
    let agents = context.load.setting("agents", AGENTS.min(lab.spare_tokens().len()))?;
    let way = context.load.setting("way", ShutdownWay::Kill)?;
    let patience = context.load.settings.get("patience").map_or(Ok(UP_DEADLINE), |text| units::duration(text))?;
    let bare_rss = lab.gateway().rss()?;
    let fleet = Arc::new(start_fleet(lab, agents)?);
    context.live.phase(&format!("{agents} agents dial"));
    if !fleet.wait_up(agents, UP_DEADLINE).await {
        anyhow::bail!("only {} of {agents} agents came up: {:?}", fleet.up(), fleet.counts());
    }
    context.live.note(&format!("{agents} agents up"));
    let storm = Storm { context, lab, fleet: fleet.clone(), targets: targets(&context.target, agents), bare_rss };
    let mut figures = BTreeMap::new();
    let before = storm.calm().await?;
    figures.insert("before_p99_ms".to_owned(), float(before.p99) / 1e3);
    let outcome = storm.blow(way, patience, figures).await?;
    drop(storm);
    if let Some(fleet) = Arc::into_inner(fleet) {
        fleet.stop(STOP_DEADLINE).await;
    }
    Ok(outcome)
}

/// Returns the target of each agent's workspace. None with TLS: a connection is for one name there, and the prober
/// keeps its connections.
fn targets(target: &LoadTarget, agents: usize) -> Arc<[LoadTarget]> {
    if target.tls.is_some() {
        return Arc::new([]);
    }
    let own = format!("-{}.", Lab::workspace_name(0));
    let host = |agent| target.host.replacen(&own, &format!("-{}.", Lab::workspace_name(agent + 1)), 1);
    (0..agents).map(|agent| LoadTarget { host: host(agent), ..target.clone() }).collect()
}

struct Storm<'a> {
    context: &'a Context,
    lab: &'a Lab,
    fleet: Arc<Fleet>,
    targets: Arc<[LoadTarget]>,
    /// The gateway's memory without agents.
    bare_rss: u64,
}

/// Times of the gateway's end and start, and its processor use meanwhile.
#[derive(Default)]
struct Weather {
    exited: Duration,
    ready: Duration,
    /// Processors in use at the busiest moment.
    cpu_peak: f64,
    cpu_s: f64,
}

impl Storm<'_> {
    /// Probes while nothing happens; returns the latency.
    async fn calm(&self) -> anyhow::Result<Latency> {
        self.context.live.phase("probing before the storm");
        let begin = Instant::now();
        let window = Window { begin, end: begin + self.context.load.warm_up };
        let collector = Collector::new(window);
        let prober = self.probe(&collector, begin.checked_sub(UP_DEADLINE * 2).unwrap_or(begin))?;
        self.context.stop.run_until_cancelled(tokio::time::sleep_until(window.end)).await.unwrap_or_default();
        if let Some(prober) = prober {
            prober.stop().await?;
        }
        Ok(collector.finish(Instant::now()).latency)
    }

    fn probe(&self, collector: &Collector, since: Instant) -> anyhow::Result<Option<Prober>> {
        if self.targets.is_empty() {
            return Ok(None);
        }
        let order = Order {
            fleet: self.fleet.clone(),
            targets: self.targets.clone(),
            load: self.context.load.clone(),
            collector: collector.clone(),
            since,
        };
        Prober::start(order).map(Some)
    }

    async fn blow(
        &self,
        way: ShutdownWay,
        patience: Duration,
        figures: BTreeMap<String, f64>,
    ) -> anyhow::Result<RunOutcome> {
        let begin = Instant::now();
        let collector = Collector::new(Window { begin, end: begin + patience + GO_ON });
        let prober = self.probe(&collector, begin)?;
        let mut weather = self.restart(way, begin).await?;
        self.until_back(begin, patience, &mut weather).await?;
        if let Some(prober) = prober {
            sleep(GO_ON).await;
            prober.stop().await?;
        }
        self.outcome(&collector, begin, &weather, figures)
    }

    /// Ends the gateway and starts it again, at once.
    async fn restart(&self, way: ShutdownWay, begin: Instant) -> anyhow::Result<Weather> {
        let gateway = self.lab.gateway();
        self.context.live.phase("the gateway goes");
        match way {
            ShutdownWay::Kill => gateway.kill()?,
            ShutdownWay::Drain => {
                let pid =
                    i32::try_from(gateway.pid()).ok().and_then(Pid::from_raw).context("the gateway's process id")?;
                kill_process(pid, Signal::TERM)?;
                while gateway.is_running() {
                    anyhow::ensure!(
                        begin.elapsed() < UP_DEADLINE,
                        "the gateway does not end: {}",
                        gateway.last_words()
                    );
                    sleep(LOOK_AGAIN).await;
                }
            }
        }
        let exited = begin.elapsed();
        gateway.restart()?;
        self.lab.gateway_ready_within(UP_DEADLINE).await?;
        Ok(Weather { exited, ready: begin.elapsed(), ..Weather::default() })
    }

    /// Waits until all agents are back, and watches the gateway meanwhile.
    async fn until_back(&self, begin: Instant, patience: Duration, weather: &mut Weather) -> anyhow::Result<()> {
        let (gateway, agents) = (self.lab.gateway(), self.fleet.len());
        let (mut cpu, mut read, mut told) = (gateway.cpu()?, Instant::now(), begin);
        loop {
            let back = self.fleet.ups_since(begin).len();
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                self.context
                    .live
                    .phase(&format!("{back} of {agents} back after {:.1} s", begin.elapsed().as_secs_f64()));
            }
            let is_over = back >= agents || begin.elapsed() > patience || self.context.stop.is_cancelled();
            if !is_over {
                sleep(SAMPLE).await;
            }
            let (now, took) = (gateway.cpu()?, read.elapsed());
            // A short last sample would mostly be the clock's tick.
            if took >= SAMPLE {
                weather.cpu_peak = weather.cpu_peak.max((now - cpu) / took.as_secs_f64());
                (cpu, read) = (now, Instant::now());
            }
            if is_over {
                weather.cpu_s = now;
                return Ok(());
            }
        }
    }

    fn outcome(
        &self,
        collector: &Collector,
        begin: Instant,
        weather: &Weather,
        mut figures: BTreeMap<String, f64>,
    ) -> anyhow::Result<RunOutcome> {
        let (agents, ups) = (self.fleet.len(), self.fleet.ups_since(begin));
        let mut parts = collector.finish(Instant::now());
        if ups.len() < agents {
            let missing = (agents - ups.len()) as u64;
            parts.offered += missing;
            parts.failed.insert("agent_not_back".to_owned(), missing);
        }
        let memory = self.lab.gateway().memory()?;
        let counts = self.fleet.counts();
        for (part, name) in [(0.5, "back_50_s"), (0.9, "back_90_s"), (0.99, "back_99_s"), (1.0, "all_back_s")] {
            if let Some(up) = time_of(&ups, agents, part) {
                figures.insert(name.to_owned(), up.as_secs_f64());
            }
        }
        let curve = per_second(&ups);
        let more = [
            ("agents", float(agents as u64)),
            ("agents_back", float(ups.len() as u64)),
            ("sessions_per_s_peak", float(curve.iter().copied().max().unwrap_or_default())),
            ("served_p50_ms", float(parts.latency.p50) / 1e3),
            ("served_p99_ms", float(parts.latency.p99) / 1e3),
            ("gateway_exit_s", weather.exited.as_secs_f64()),
            ("gateway_ready_s", weather.ready.as_secs_f64()),
            ("gateway_cpu_peak", weather.cpu_peak),
            ("gateway_cpu_until_all_back_s", weather.cpu_s),
            ("gateway_kib_each", (float(memory.rss) - float(self.bare_rss)) / 1024.0 / float(agents.max(1) as u64)),
            ("redials", float(counts.redials)),
        ];
        figures.extend(more.map(|(name, value)| (name.to_owned(), value)));
        let mut notes = vec![format!("Sessions that came up in each second after the signal: {curve:?}.")];
        if self.targets.is_empty() {
            notes
                .push("Nothing was asked meanwhile: with TLS each workspace needs a connection of its own.".to_owned());
        }
        let mut outcome = self.context.outcome(parts);
        outcome.usage = Some(Usage {
            gateway_cpu_s: weather.cpu_s,
            gateway_rss_bytes: memory.rss,
            gateway_pss_bytes: memory.pss,
            gateway_rss_peak_bytes: memory.peak,
            ..Usage::default()
        });
        outcome.figures = figures;
        outcome.notes.extend(notes);
        Ok(outcome)
    }
}

/// Returns when a part of all agents was back; `None` if it never was.
fn time_of(ups: &[Duration], agents: usize, part: f64) -> Option<Duration> {
    let wanted = (0..=agents).find(|count| float(*count as u64) >= part * float(agents as u64))?;
    ups.get(wanted.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_part_is_that_of_its_last_agent() {
        let ups = [1, 2, 3, 4].map(Duration::from_secs);
        assert_eq!(time_of(&ups, 4, 0.5), Some(Duration::from_secs(2)));
        assert_eq!(time_of(&ups, 4, 1.0), Some(Duration::from_secs(4)));
        assert_eq!(time_of(&ups, 5, 1.0), None, "one never came back");
        assert_eq!(time_of(&[], 0, 1.0), None);
    }
}
