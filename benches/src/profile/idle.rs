//! Idle agents and WebSockets: the memory of each, and the processor time of all.
//!
//! Agents first: a fleet in this process, on workspaces that the lab has tokens for. Then the gateway is started anew,
//! so that memory that the fleet left behind is not mistaken for a WebSocket's, and WebSockets are held through the lab's
//! own agent, which is a process too.
//!
//! Settings: `agents` (10000), `websockets` (5000); naming one of the two leaves the other out. `settle` (2s): time for
//! memory to settle before it is read. The measured time is that for which the idle ones are watched.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

use crate::clock::float;
use crate::fleet::sockets::Sockets;
use crate::fleet::{Fleet, FleetOptions};
use crate::lab::Lab;
use crate::load::LoadSpec;
use crate::outcome::RunOutcome;
use crate::profile::Context;
use crate::stats::CollectedStats;
use crate::units;

/// Agents unless told otherwise.
const AGENTS: usize = 10_000;

/// WebSockets unless told otherwise.
const WEBSOCKETS: usize = 5_000;

/// Time limit for all agents to come up.
pub(super) const UP_DEADLINE: Duration = Duration::from_secs(120);

/// Time limit for agents to close their sessions.
pub(super) const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// WebSockets that are opened and closed before the first reading, so that what a program allocates once is not counted.
const FIRST: usize = 20;

/// Share of the session's budget for each WebSocket: most windows are much smaller once it fills.
const WINDOW_BYTES: u64 = 64 << 10;

/// File descriptors of this process for everything but its agents.
const FILES_SPARE: u64 = 256;

/// Numbers of idle agents and WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IdlePlan {
    agents: usize,
    websockets: usize,
    settle: Duration,
}

impl IdlePlan {
    fn of(load: &LoadSpec) -> anyhow::Result<Self> {
        let is_named = |key| load.settings.contains_key(key);
        let default = |own, other, count| if is_named(other) && !is_named(own) { 0 } else { count };
        let settle = load.settings.get("settle").map_or("2s", String::as_str);
        Ok(Self {
            agents: load.setting("agents", default("agents", "websockets", AGENTS))?,
            websockets: load.setting("websockets", default("websockets", "agents", WEBSOCKETS))?,
            settle: units::duration(settle).context("--set settle")?,
        })
    }
}

/// Returns the lab's needs for this load: workspaces, and settings of the gateway without which one workspace may not
/// have so many WebSockets.
///
/// # Errors
/// A setting cannot be read.
pub fn needs(load: &LoadSpec) -> anyhow::Result<(usize, BTreeMap<String, String>)> {
    let plan = IdlePlan::of(load)?;
    let sockets = plan.websockets + FIRST;
    let budget = (sockets as u64).saturating_mul(WINDOW_BYTES).max(64 << 20);
    let config = [
        ("GATEWAY_LIMITS__REQUESTS_PER_WORKSPACE", sockets.max(1024).to_string()),
        ("GATEWAY_TUNNEL__CHANNELS_PER_SESSION", sockets.max(4096).to_string()),
        ("GATEWAY_TUNNEL__SESSION_BUDGET", budget.to_string()),
        ("GATEWAY_TUNNEL__REPLICA_BUDGET", budget.saturating_mul(2).max(512 << 20).to_string()),
    ];
    Ok((plan.agents + 1, config.map(|(key, value)| (key.to_owned(), value)).into()))
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let lab = context.lab.as_deref().context("idle reads the gateway's memory: it needs --self")?;
    let plan = IdlePlan::of(&context.load)?;
    let mut run =
        IdleRun { context, lab, plan, parts: CollectedStats::default(), figures: BTreeMap::new(), notes: Vec::new() };
    let started = Instant::now();
    if plan.agents > 0 {
        run.agents().await?;
    }
    if plan.websockets > 0 && !context.stop.is_cancelled() {
        if plan.agents > 0 {
            lab.gateway().restart()?;
            lab.gateway_ready_within(UP_DEADLINE).await?;
            lab.working_within(UP_DEADLINE).await?;
        }
        run.websockets().await?;
    }
    run.parts.measured = started.elapsed();
    let mut outcome = context.outcome(run.parts);
    outcome.figures = run.figures;
    outcome.notes.append(&mut run.notes);
    Ok(outcome)
}

struct IdleRun<'a> {
    context: &'a Context,
    lab: &'a Lab,
    plan: IdlePlan,
    parts: CollectedStats,
    figures: BTreeMap<String, f64>,
    notes: Vec<String>,
}

impl IdleRun<'_> {
    async fn agents(&mut self) -> anyhow::Result<()> {
        let count = self.plan.agents;
        let gateway = self.lab.gateway();
        let (rss, cpu) = (gateway.rss()?, gateway.cpu()?);
        self.context.live.phase(&format!("{count} agents dial"));
        let began = Instant::now();
        let fleet = start_fleet(self.lab, count)?;
        let waited = self.context.stop.run_until_cancelled(fleet.wait_up(count, UP_DEADLINE)).await;
        let took = began.elapsed();
        let up_cpu = gateway.cpu()? - cpu;
        self.pause(self.plan.settle).await;
        let (up, each) = (fleet.up(), self.each_kib(gateway.rss()?, rss, fleet.up()));
        self.context
            .live
            .note(&format!("{up} of {count} agents up after {:.2} s, {each:.1} KiB each", took.as_secs_f64()));
        if waited == Some(true) {
            self.figure("agents_all_up_s", took.as_secs_f64());
        }
        self.figure("agents_up", float(up as u64));
        self.figure("agents_up_gateway_cpu_s", up_cpu);
        self.figure("gateway_kib_each", each);
        let (idle_cpu, idle) = self.watch().await?;
        self.figure("agents_idle_gateway_cpu_ms_per_s", idle_cpu);
        self.figure("gateway_kib_each_after_idling", self.each_kib(gateway.rss()?, rss, fleet.up()));
        let counts = fleet.counts();
        if counts.redials > 0 {
            self.notes.push(format!("{} dials failed or links ended, {:.0} s idle included.", counts.redials, idle));
        }
        self.count(count, fleet.up(), &counts.ended, "agent_not_up");
        fleet.stop(STOP_DEADLINE).await;
        Ok(())
    }

    async fn websockets(&mut self) -> anyhow::Result<()> {
        let count = self.plan.websockets;
        let (gateway, agent) = (self.lab.gateway(), self.lab.agent());
        drop(Sockets::open(&self.context.target, FIRST.min(count)).await);
        self.pause(self.plan.settle).await;
        let before = (gateway.rss()?, agent.rss()?);
        self.context.live.phase(&format!("{count} WebSockets open"));
        let began = Instant::now();
        let mut sockets = Sockets::open(&self.context.target, count).await;
        let took = began.elapsed();
        self.pause(self.plan.settle).await;
        let opened = sockets.len();
        let (at_gateway, at_agent) =
            (self.each_kib(gateway.rss()?, before.0, opened), self.each_kib(agent.rss()?, before.1, opened));
        self.context.live.note(&format!(
            "{opened} of {count} WebSockets open after {:.2} s, {at_gateway:.1} KiB each at the gateway, {at_agent:.1} at the agent",
            took.as_secs_f64()
        ));
        self.figure("websockets_open", float(opened as u64));
        self.figure("websockets_open_s", took.as_secs_f64());
        self.figure("gateway_kib_each_websocket", at_gateway);
        self.figure("agent_kib_each_websocket", at_agent);
        let (idle_cpu, _) = self.watch().await?;
        self.figure("websockets_idle_gateway_cpu_ms_per_s", idle_cpu);
        let ended = sockets.drop_ended();
        self.figure("websockets_ended", float(ended as u64));
        if ended > 0 {
            self.notes.push(format!("{ended} idle WebSockets were ended by the other side."));
        }
        self.count(count, opened - ended, &sockets.failed, "websocket_ended");
        Ok(())
    }

    /// Watches the idle ones; returns the gateway's processor time in milliseconds a second, and the seconds watched.
    async fn watch(&self) -> anyhow::Result<(f64, f64)> {
        self.context.live.phase("watching everybody doing nothing");
        let (cpu, began) = (self.lab.gateway().cpu()?, Instant::now());
        self.pause(self.context.load.duration).await;
        let seconds = began.elapsed().as_secs_f64();
        Ok(((self.lab.gateway().cpu()? - cpu) * 1e3 / seconds.max(1e-3), seconds))
    }

    async fn pause(&self, time: Duration) {
        self.context.stop.run_until_cancelled(tokio::time::sleep(time)).await.unwrap_or_default();
    }

    /// Returns the memory that each of `count` added, in KiB.
    fn each_kib(&self, after: u64, before: u64, count: usize) -> f64 {
        (float(after) - float(before)) / 1024.0 / float(count.max(1) as u64)
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Counts the requested ones, those that are up, and the reasons of the failed rest.
    fn count(&mut self, asked: usize, there: usize, failed: &BTreeMap<String, u64>, otherwise: &str) {
        let (asked, there) = (asked as u64, there as u64);
        self.parts.offered += asked;
        self.parts.carried += there;
        let named: u64 = failed.values().sum();
        for (why, count) in failed {
            *self.parts.failed.entry(why.clone()).or_default() += count;
        }
        let rest = asked.saturating_sub(there).saturating_sub(named);
        if rest > 0 {
            *self.parts.failed.entry(otherwise.to_owned()).or_default() += rest;
        }
    }
}

/// Starts agents on the lab's workspaces that have none, all at once.
///
/// # Errors
/// There are fewer workspaces than agents, or this process may not open as many files.
pub(super) fn start_fleet(lab: &Lab, count: usize) -> anyhow::Result<Fleet> {
    let spare = lab.spare_tokens();
    ensure!(count <= spare.len(), "{count} agents need as many workspaces, and the lab has {}", spare.len());
    ensure_files(count)?;
    let options = FleetOptions { ca_file: lab.ca_file().map(Into::into), ..FleetOptions::default() };
    Fleet::start(&lab.agents_url_over_link(), spare.iter().take(count).cloned().collect(), &options)
}

/// Checks that this process may have a connection for each of so many agents.
///
/// # Errors
/// The limit on open files is too low.
pub fn ensure_files(agents: usize) -> anyhow::Result<()> {
    let (files, needed) = (getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), agents as u64 + FILES_SPARE);
    ensure!(
        needed <= files,
        "{agents} agents in one process need {needed} open files, and the limit is {files} (ulimit -n)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileName;

    fn plan(settings: &[(&str, &str)]) -> anyhow::Result<IdlePlan> {
        let mut load = ProfileName::Idle.load();
        load.settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        IdlePlan::of(&load)
    }

    #[test]
    fn naming_one_of_the_two_leaves_the_other_out() {
        let counts = |settings| plan(settings).map(|plan| (plan.agents, plan.websockets)).unwrap();
        assert_eq!(counts(&[]), (AGENTS, WEBSOCKETS));
        assert_eq!(counts(&[("agents", "7")]), (7, 0));
        assert_eq!(counts(&[("websockets", "8")]), (0, 8));
        assert_eq!(counts(&[("agents", "7"), ("websockets", "8")]), (7, 8));
        assert!(plan(&[("agents", "many")]).is_err() && plan(&[("settle", "2")]).is_err());
    }

    #[test]
    fn lab_gets_a_workspace_for_each_agent_and_room_for_the_websockets() {
        let mut load = ProfileName::Idle.load();
        load.settings.insert("websockets".into(), "5000".into());
        let (workspaces, config) = needs(&load).unwrap();
        assert_eq!(workspaces, 1);
        let room = ["GATEWAY_LIMITS__REQUESTS_PER_WORKSPACE", "GATEWAY_TUNNEL__CHANNELS_PER_SESSION"];
        assert!(room.iter().all(|key| config.get(*key).is_some_and(|room| room == "5020")), "{config:?}");
    }
}
