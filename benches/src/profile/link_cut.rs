//! The link between agent and gateway breaks again and again while WebSockets, a download and an upload go on.
//!
//! Nothing may be lost, repeated or reordered, and no user's connection may end. Breaks are drawn by seed: resets
//! (RST), ends (FIN), stalls, and paths that forget the connection (half-open; rare, since only keepalive notices
//! them). Each break waits until everything moves again, and a little longer.
//!
//! The time to resume is from the break to the first echo of a message that was sent after it. Stalls (from their end)
//! are counted apart, because no agent has to dial again, and so are half-open breaks, because they are noticed late by
//! design.
//!
//! Settings: `cuts=100`, `kinds=reset,close,stall,half-open` (all by default), `every_ms=10` between the messages of a
//! WebSocket, `mib_s=4` of each transfer, `redial_ms=1000` that a redial may take (its wait, which the agent chooses, and
//! its handshakes).

mod cuts;
mod sockets;
mod tally;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::cuts::{BreakKind, BreakRecord, Cutter};
use self::tally::CutTally;
use crate::client::preflight;
use crate::clock::float;
use crate::lab::finding::{check, figure, judge_by};
use crate::outcome::{Latency, RunOutcome};
use crate::profile::Context;
use crate::stats::{Collector, Window, histogram, record};

/// Longer than any run: the window ends when the last break is over.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Slack of the allowed time to resume, on top of redial and round trip.
const RESUME_SLACK_MS: f64 = 50.0;

/// Parameters that all parts of the load share.
#[derive(Clone, Copy, Debug)]
struct CutPlan {
    cuts: usize,
    sockets: usize,
    every: Duration,
    message_bytes: usize,
    transfer_bytes_per_s: u64,
    seed: u64,
    patience: Duration,
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all: without a lab and its link there is nothing to cut.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let missing = "link-cut needs the lab's own link: --self --link rate=100mbit,delay=10ms (or delay=0)";
    let lab = context.lab.as_ref().context(missing)?;
    anyhow::ensure!(lab.link().is_some(), missing);
    let load = &context.load;
    let plan = CutPlan {
        cuts: load.setting("cuts", 100)?,
        sockets: load.connections,
        every: Duration::from_millis(load.setting("every_ms", 10)?),
        message_bytes: usize::try_from(load.size)?.max(16),
        transfer_bytes_per_s: load.setting("mib_s", 4_u64)?.max(1) << 20,
        seed: load.seed,
        patience: load.timeout.max(Duration::from_secs(60)),
    };
    let redial_max_ms = load.setting("redial_ms", 1000.0)?;
    let kinds: cuts::Kinds = load.setting("kinds", cuts::Kinds::default())?;
    preflight(&context.target, load.timeout).await?;
    let begin = Instant::now();
    let collector = Collector::new(Window { begin, end: begin + FOREVER });
    let tally = Arc::new(CutTally::new(plan.sockets));
    let reading = context.trees.as_ref().map(|trees| (trees, trees.begin()));

    let mut parts = JoinSet::new();
    for number in 0..plan.sockets {
        parts.spawn(sockets::run(context.target.clone(), plan, number, Arc::clone(&tally), collector.recorder()));
    }
    parts.spawn(transfers::download(context.target.clone(), plan, Arc::clone(&tally), collector.recorder()));
    parts.spawn(transfers::upload(context.target.clone(), plan, Arc::clone(&tally), collector.recorder()));
    let cutter = Cutter { lab, tally: &tally, plan, kinds };
    let breaks = cutter.run(context).await;
    tally.end();
    while parts.join_next().await.is_some() {}

    let usage = reading.map(|(trees, reading)| trees.since(reading));
    let mut outcome = context.outcome(collector.finish(Instant::now()));
    outcome.usage = usage;
    let rtt_ms = lab.link().map_or(0.0, |link| (link.spec().delay * 2).as_secs_f64() * 1e3);
    report(&mut outcome, &tally, &breaks, CutLink { rtt_ms, tls: lab.spec().link_tls, redial_max_ms });
    Ok(outcome)
}

/// Facts of the link that determine the allowed times.
struct CutLink {
    rtt_ms: f64,
    tls: bool,
    redial_max_ms: f64,
}

fn report(outcome: &mut RunOutcome, tally: &CutTally, breaks: &[BreakRecord], link: CutLink) {
    let CutLink { rtt_ms, tls, redial_max_ms } = link;
    let noticed = |broken: &&BreakRecord| matches!(broken.kind, BreakKind::Reset | BreakKind::Close);
    let resumed = |kind: BreakKind| breaks.iter().filter(move |broken| broken.kind == kind);
    let resume = distribution(breaks.iter().filter(noticed).filter_map(|broken| broken.resumed_after));
    let redial = distribution(breaks.iter().filter(noticed).filter_map(|broken| broken.redialed_after));
    let silent = distribution(resumed(BreakKind::HalfOpen).filter_map(|broken| broken.resumed_after));
    let stalled = distribution(resumed(BreakKind::Stall).filter_map(|broken| broken.resumed_after));
    let never = breaks.iter().filter(|broken| broken.resumed_after.is_none()).count();
    // A dial is answered after one round trip (the link's handshake), with TLS after another; then Hello and Welcome.
    let handshakes = if tls { 2.0 } else { 1.0 };
    let redial_ms = redial.p99_ms() + handshakes * rtt_ms;
    let allowed_ms = redial_ms + rtt_ms + RESUME_SLACK_MS;
    let wrong = tally.lost_bytes() + tally.repeated_bytes() + tally.changed_bytes();
    for (key, value) in [
        ("cuts", breaks.len() as f64),
        ("cuts_not_resumed", never as f64),
        ("bytes_wrong", float(wrong)),
        ("bytes_lost", float(tally.lost_bytes())),
        ("bytes_repeated", float(tally.repeated_bytes())),
        ("bytes_changed", float(tally.changed_bytes())),
        ("connections_dropped", float(tally.dropped())),
        ("transfers_completed", float(tally.completed())),
        ("download_gap_max_ms", tally.download_gap().as_secs_f64() * 1e3),
        ("redial_p99_ms", redial_ms),
        ("resume_p50_ms", resume.p50_ms()),
        ("resume_p99_ms", resume.p99_ms()),
        ("resume_max_ms", resume.max_ms()),
        ("resume_allowed_ms", allowed_ms),
    ] {
        figure(outcome, key, value);
    }
    if silent.0.count > 0 {
        figure(outcome, "resume_half_open_max_ms", silent.max_ms());
    }
    if stalled.0.count > 0 {
        figure(outcome, "resume_stall_p99_ms", stalled.p99_ms());
    }
    for kind in BreakKind::ALL {
        let count = breaks.iter().filter(|broken| broken.kind == kind).count();
        figure(outcome, &format!("cuts_{}", kind.as_str().replace('-', "_")), count as f64);
    }
    outcome.notes.push(format!(
        "Allowed to resume: {redial_ms:.0} ms for the redial (p99 at the link, and its handshakes), one round trip of \
         {rtt_ms:.0} ms, 50 ms."
    ));
    for (why, count) in tally.reasons() {
        outcome.notes.push(format!("Connections dropped because of {why}: {count}."));
    }
    let dropped = tally.dropped();
    let p99 = resume.p99_ms();
    let mut checks = vec![
        check("bytes lost, repeated or changed", "none", wrong.to_string(), wrong == 0),
        check("connections dropped", "none", dropped.to_string(), dropped == 0),
        check("breaks after which nothing came back", "none", never.to_string(), never == 0),
        check("breaks", "at least one", breaks.len().to_string(), !breaks.is_empty()),
    ];
    if resume.0.count > 0 {
        let bound = |ms: f64| format!("at most {ms:.0} ms");
        let (redialed, resumed) = (format!("{redial_ms:.0} ms"), format!("{p99:.0} ms"));
        let in_time = redial_ms <= redial_max_ms;
        checks.push(check("99th percentile of the redial", bound(redial_max_ms), redialed, in_time));
        checks.push(check("99th percentile of the time to resume", bound(allowed_ms), resumed, p99 <= allowed_ms));
    }
    judge_by(outcome, checks);
}

/// A distribution of durations.
struct Distribution(Latency);

impl Distribution {
    fn p50_ms(&self) -> f64 {
        float(self.0.p50) / 1e3
    }

    fn p99_ms(&self) -> f64 {
        float(self.0.p99) / 1e3
    }

    fn max_ms(&self) -> f64 {
        float(self.0.max) / 1e3
    }
}

fn distribution(durations: impl Iterator<Item = Duration>) -> Distribution {
    let mut all = histogram();
    for duration in durations {
        record(&mut all, duration);
    }
    Distribution(Latency::of(&all))
}
