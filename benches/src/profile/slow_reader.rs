//! Many clients that ask for a large download and do not read it: their cost to the gateway and the agent, and their
//! effect on other users.
//!
//! Other users' requests are measured before, while the readers stand, and after they left. The change of their 99th
//! percentile is against the mean of before and after, so that a drift of the machine is not counted.
//!
//! The kernel's memory for TCP is shown beside the programs' memory: once it runs out, bytes of all users are dropped.
//!
//! Settings: `readers=1000`, `bytes_per_s=0` that each of them reads, `body_mib=64` that each asks for, `http=1` or `2`
//! as their protocol, `budget_mib` of the session (the gateway's default, unless the lab's configuration says
//! otherwise).

mod readers;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tunnel_proto::limit::SESSION_BUDGET_BYTES;

use self::readers::{HttpVersion, Readers, Want};
use crate::client::preflight;
use crate::clock::{float, micros};
use crate::lab::Lab;
use crate::lab::finding::{check, figure, judge_by};
use crate::lab::usage;
use crate::outcome::{Latency, RunOutcome};
use crate::profile::{Context, http};
use crate::stats::CollectedStats;
use crate::units::{self, ArrivalRate};

/// Variable that configures the session's budget.
const SESSION_BUDGET_VARIABLE: &str = "GATEWAY_TUNNEL__SESSION_BUDGET";

/// Largest memory above the budget: that of the program itself.
const OVER_BUDGET_MIB_MAX: f64 = 32.0;

/// Largest relative change of other users' 99th percentile.
const CHANGE_MAX: f64 = 0.10;

/// Requests of other users, a second, if the load asks for none.
const OTHERS_PER_SECOND: f64 = 200.0;

/// Payload of other users' requests.
const OTHERS_BYTES: u64 = 128;

/// Shortest and longest wait for the readers' effects to settle.
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// Processor use, of one processor, below which a gateway moves nothing any more.
const BUSY_MIN: f64 = 0.05;

/// The largest memory of both programs, in MiB.
#[derive(Clone, Copy, Debug)]
struct Peaks {
    gateway: f64,
    agent: f64,
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let readers: usize = context.load.setting("readers", 1000)?;
    let pace: u64 = context.load.setting("bytes_per_s", 0)?;
    let body: u64 = context.load.setting("body_mib", 64_u64)? << 20;
    let version = match context.load.setting("http", 1_u8)? {
        1 => HttpVersion::Http1,
        2 => HttpVersion::Http2,
        other => anyhow::bail!("--set http={other}: must be 1 or 2"),
    };
    let budget_mib = context.load.setting("budget_mib", configured_budget_mib(context.lab.as_deref()))?;
    preflight(&context.target, context.load.timeout).await?;
    let others = others(context);
    let lab = context.lab.as_deref();

    context.live.phase("other users alone");
    let before = Box::pin(http::run(&others)).await?;
    let idle = lab.map(peaks_from_now);
    context.live.phase("readers arrive");
    let want = Want { version, body, pace };
    let standing = Readers::start(&context.target, readers, want, context.load.timeout).await;
    settle(lab).await;
    context.live.phase("other users beside the readers");
    let mut outcome = beside(context, &others).await;
    let peaks = lab.map(peaks);
    let (held, gone, read) = (standing.held(), standing.gone(), standing.bytes());
    let metrics = match lab {
        Some(lab) => lab.metrics().await?,
        None => BTreeMap::new(),
    };
    let tcp = usage::tcp_memory().ok();
    standing.end().await;
    settle(lab).await;
    context.live.phase("other users after the readers left");
    let after = Box::pin(http::run(&others)).await?;

    outcome.load = context.load.clone();
    let base_p99 = (milliseconds(&before.latency) + milliseconds(&after.latency)) / 2.0;
    let during_p99 = milliseconds(&outcome.latency);
    for (key, value) in [
        ("readers_held", float(held as u64)),
        ("readers_gone", float(gone)),
        ("bytes_read", float(read)),
        ("p99_before_ms", milliseconds(&before.latency)),
        ("p99_during_ms", during_p99),
        ("p99_after_ms", milliseconds(&after.latency)),
        ("p99_change", during_p99 / base_p99.max(1e-6) - 1.0),
    ] {
        figure(&mut outcome, key, value);
    }
    if let (Some(idle), Some(peaks)) = (idle, peaks) {
        for (key, value) in [
            ("budget_mib", budget_mib),
            ("gateway_idle_mib", idle.gateway),
            ("gateway_peak_mib", peaks.gateway),
            ("agent_idle_mib", idle.agent),
            ("agent_peak_mib", peaks.agent),
            ("over_budget_mib", peaks.gateway.max(peaks.agent) - budget_mib),
        ] {
            figure(&mut outcome, key, value);
        }
    }
    counted(&mut outcome, &metrics, tcp);
    let outside = before.failed_total() + after.failed_total();
    judge(&mut outcome, readers, outside, lab.is_some());
    Ok(outcome)
}

/// Adds the figures of the gateway and the kernel.
fn counted(outcome: &mut RunOutcome, metrics: &BTreeMap<String, f64>, tcp: Option<usage::TcpMemory>) {
    for (key, name) in [("windows_mib", "gateway_tunnel_window_bytes"), ("lent_mib", "gateway_tunnel_lent_bytes")] {
        if let Some(bytes) = metrics.get(name) {
            figure(outcome, key, bytes / 1_048_576.0);
        }
    }
    if let Some(tcp) = tcp {
        figure(outcome, "kernel_tcp_mib", float(tcp.used) / 1_048_576.0);
        if tcp.used >= tcp.pressure {
            let words =
                "The kernel was short of memory for TCP while the readers stood, and then it drops what arrives.";
            outcome.notes.push(words.to_owned());
        }
    }
}

/// Measures other users beside the readers. If all of them are refused, there is nothing to measure, and that is the
/// finding: then each of them counts as one that took the whole timeout.
async fn beside(context: &Context, others: &Context) -> RunOutcome {
    match Box::pin(http::run(others)).await {
        Ok(outcome) => outcome,
        Err(error) => {
            context.live.note(&format!("{error:#}"));
            let mut outcome = others.outcome(CollectedStats::default());
            outcome.latency.p99 = micros(context.load.timeout);
            outcome.failed.insert("refused_beside_readers".to_owned(), 1);
            let words = "Other users were refused while the readers stood; their latency is given as the timeout.";
            outcome.notes.push(format!("{words} ({error:#})"));
            outcome
        }
    }
}

fn judge(outcome: &mut RunOutcome, readers: usize, failed_outside: u64, has_lab: bool) {
    let value = |key: &str| outcome.figures.get(key).copied().unwrap_or(f64::NAN);
    let (held, change, over) = (value("readers_held"), value("p99_change"), value("over_budget_mib"));
    let failed = outcome.failed_total() + failed_outside;
    let mut checks = vec![
        check("readers that stand", format!("all {readers}"), format!("{held:.0}"), held >= float(readers as u64)),
        check(
            "change of other users' 99th percentile",
            "at most 10 %",
            format!("{:+.0} %", change * 100.0),
            change.abs() <= CHANGE_MAX,
        ),
        check("failed requests of other users", "none", failed.to_string(), failed == 0),
    ];
    if has_lab {
        let passed = over <= OVER_BUDGET_MIB_MAX;
        checks.push(check("memory over the session's budget", "at most 32 MiB", format!("{over:.1} MiB"), passed));
    } else {
        outcome.notes.push("Memory is not known: the gateway is not the lab's own.".to_owned());
    }
    judge_by(outcome, checks);
}

/// Returns the context of the other users' requests: a third of the time each time.
fn others(context: &Context) -> Context {
    let mut others = context.clone();
    others.load.size = OTHERS_BYTES;
    others.load.duration = context.load.duration / 3;
    if others.load.rate.per_second().is_none() {
        others.load.rate = ArrivalRate::PerSecond(OTHERS_PER_SECOND);
        others.load.connections = others.load.connections.max(8);
        others.load.workers = 1;
    }
    others
}

fn configured_budget_mib(lab: Option<&Lab>) -> f64 {
    let configured = lab.and_then(|lab| lab.spec().config.get(SESSION_BUDGET_VARIABLE));
    let bytes = configured.and_then(|text| units::size(text).ok());
    float(bytes.unwrap_or(SESSION_BUDGET_BYTES)) / 1_048_576.0
}

/// Waits until the readers are served to where they stopped, so that other users are measured beside readers that stand
/// and not beside a gateway that fills the kernel's buffers.
async fn settle(lab: Option<&Lab>) {
    sleep(SETTLE).await;
    let Some(lab) = lab else { return };
    let used = || usage::cpu_seconds(lab.gateway().pid()).unwrap_or_default();
    let until = Instant::now() + SETTLE_MAX - SETTLE;
    let mut before = used();
    while Instant::now() < until {
        sleep(Duration::from_secs(1)).await;
        let now = used();
        if now - before < BUSY_MIN {
            return;
        }
        before = now;
    }
}

/// Returns the memory of both programs now, and resets their peaks.
fn peaks_from_now(lab: &Lab) -> Peaks {
    for process in [lab.gateway(), lab.agent()] {
        if let Err(error) = usage::reset_peak(process.pid()) {
            tracing::debug!(%error, "the peak of a process's memory could not be reset");
        }
    }
    peaks(lab)
}

fn peaks(lab: &Lab) -> Peaks {
    let mib = |process: &crate::lab::LabProcess| {
        float(process.memory().map(|memory| memory.peak).unwrap_or_default()) / 1_048_576.0
    };
    Peaks { gateway: mib(lab.gateway()), agent: mib(lab.agent()) }
}

fn milliseconds(latency: &Latency) -> f64 {
    float(latency.p99) / 1e3
}
