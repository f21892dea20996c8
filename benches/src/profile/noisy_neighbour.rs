//! Quiet WebSocket with a message every 100 ms, alone and beside bulk transfers that fill the link.
//!
//! Figures are the quiet channel's round trips. `link_queue_ms` is the part of the added time that may be the link's
//! own queue: bulk transfers fill it whatever the tunnel does, and each round trip passes it in one direction. With the
//! lab's own link, the same load then goes through a tunnel without a scheduler ([`Fifo`]), for comparison.
//!
//! Settings: `downloads=8`, `uploads=0`, `every_ms=100`, `fifo=1`.

mod bulk;
mod quiet;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::bulk::Bulk;
use crate::client::preflight;
use crate::clock::{float, micros};
use crate::lab::fifo::Fifo;
use crate::lab::finding::{check, figure, judge_by};
use crate::outcome::RunOutcome;
use crate::profile::Context;
use crate::stats::{CollectedStats, Collector, Window};
use crate::target::LoadTarget;

/// Largest added round trip that counts as good, in milliseconds.
const ADDED_MS_MAX: f64 = 10.0;

/// Shortest time for which the quiet channel is measured alone.
const ALONE_MIN: Duration = Duration::from_secs(3);

/// Results of the quiet channel alone and beside the bulk transfers, and the rate of these.
struct NeighbourFigures {
    alone: CollectedStats,
    beside: CollectedStats,
    bulk_mbit_s: f64,
}

/// Numbers of transfers, and the interval of the quiet channel.
#[derive(Clone, Copy)]
struct Mix {
    downloads: usize,
    uploads: usize,
    every: Duration,
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let mix = Mix {
        downloads: context.load.setting("downloads", 8)?,
        uploads: context.load.setting("uploads", 0)?,
        every: Duration::from_millis(context.load.setting("every_ms", 100)?),
    };
    let fifo: u8 = context.load.setting("fifo", 1)?;
    preflight(&context.target, context.load.timeout).await?;
    let begin = context.trees.as_ref().map(|trees| (trees, trees.begin()));
    let found = measure(context, &context.target, mix).await?;
    let usage = begin.map(|(trees, reading)| trees.since(reading));
    let alone_ms = milliseconds(found.alone.latency.p50);
    let link = context.lab.as_ref().and_then(|lab| lab.link()).map(crate::relay::Handle::spec);
    // The link's own round trip if it is known; elsewhere that of the quiet channel alone.
    let base_ms = link.map_or(alone_ms, |link| (link.delay * 2).as_secs_f64() * 1e3);
    let (p50, p99) = (milliseconds(found.beside.latency.p50), milliseconds(found.beside.latency.p99));
    let alone_p99 = milliseconds(found.alone.latency.p99);
    let mut outcome = context.outcome(found.beside);
    outcome.usage = usage;
    for (key, value) in [
        ("link_rtt_ms", base_ms),
        ("alone_p50_ms", alone_ms),
        ("alone_p99_ms", alone_p99),
        ("beside_p50_ms", p50),
        ("beside_p99_ms", p99),
        ("added_p99_ms", p99 - base_ms),
        ("bulk_mbit_s", found.bulk_mbit_s),
    ] {
        figure(&mut outcome, key, value);
    }
    if let Some(queue) = link.and_then(|link| link.full_queue()) {
        figure(&mut outcome, "link_queue_ms", queue.as_secs_f64() * 1e3);
    }
    if let Some(rate) = link.and_then(|link| link.rate_bits) {
        figure(&mut outcome, "bulk_share_of_link", found.bulk_mbit_s * 1e6 / float(rate));
    }
    if let (Some(lab), Some(spec), false) = (&context.lab, link, fifo == 0 || context.stop.is_cancelled()) {
        context.live.phase("the same without a scheduler");
        let fifo = Fifo::start(lab.app_address(), spec).await?;
        let found = measure(context, &fifo.target(), mix).await?;
        let p99 = milliseconds(found.beside.latency.p99);
        figure(&mut outcome, "fifo_alone_p50_ms", milliseconds(found.alone.latency.p50));
        figure(&mut outcome, "fifo_beside_p50_ms", milliseconds(found.beside.latency.p50));
        figure(&mut outcome, "fifo_added_p99_ms", p99 - base_ms);
        figure(&mut outcome, "fifo_bulk_mbit_s", found.bulk_mbit_s);
        outcome.notes.push("fifo_…: the same load through one TCP connection, first in, first out.".to_owned());
    }
    judge(&mut outcome);
    Ok(outcome)
}

fn judge(outcome: &mut RunOutcome) {
    let added = outcome.figures.get("added_p99_ms").copied().unwrap_or(f64::INFINITY);
    let measured = format!("{added:.1} ms");
    let added = check("added p99 of the quiet channel", "at most 10 ms", measured, added <= ADDED_MS_MAX);
    let lost = outcome.offered.saturating_sub(outcome.carried);
    let lost = check("lost messages of the quiet channel", "none", lost.to_string(), lost == 0);
    let moved = outcome.figures.get("bulk_mbit_s").copied().unwrap_or(0.0);
    let moved = check("bulk transfers moved", "more than nothing", format!("{moved:.1} Mbit/s"), moved > 0.0);
    judge_by(outcome, vec![added, lost, moved]);
}

fn milliseconds(micros: u64) -> f64 {
    float(micros) / 1e3
}

/// Measures the quiet channel alone, then beside the bulk transfers.
async fn measure(context: &Context, target: &LoadTarget, mix: Mix) -> anyhow::Result<NeighbourFigures> {
    let load = &context.load;
    context.live.phase("the quiet channel alone");
    let alone_for = (load.duration / 4).max(ALONE_MIN);
    let alone = quiet_for(context, target, mix.every, Duration::from_millis(500), alone_for).await?;
    context.live.phase("beside bulk transfers");
    let stop = context.stop.child_token();
    let bulk = Bulk::start(target, mix.downloads, mix.uploads, &stop);
    sleep(load.warm_up.max(Duration::from_secs(1))).await;
    let (moved, since) = (bulk.bytes(), Instant::now());
    let beside = quiet_for(context, target, mix.every, Duration::ZERO, load.duration).await;
    let (moved, took) = (bulk.bytes() - moved, since.elapsed());
    stop.cancel();
    bulk.end().await;
    let bulk_mbit_s = float(moved) * 8.0 / float(micros(took).max(1));
    Ok(NeighbourFigures { alone, beside: beside?, bulk_mbit_s })
}

async fn quiet_for(
    context: &Context,
    target: &LoadTarget,
    every: Duration,
    warm_up: Duration,
    lasts: Duration,
) -> anyhow::Result<CollectedStats> {
    // Opening the channel is not measured; beside bulk transfers it may take long.
    let stop: CancellationToken = context.stop.clone();
    let socket = quiet::open(target, context.load.timeout).await?;
    let begin = Instant::now() + warm_up + every;
    let collector = Collector::new(Window { begin, end: begin + lasts });
    quiet::talk(socket, &collector, every, context.load.size, context.load.timeout, &stop).await;
    Ok(collector.finish(Instant::now().min(begin + lasts)))
}
