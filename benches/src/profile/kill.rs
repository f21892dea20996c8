//! The gateway is killed (SIGKILL) and started again on the same ports and store, while requests go on.
//!
//! Measures the time until a request passes again, and counts failures meanwhile. Nothing may fail outside of that
//! time.
//!
//! Settings: `kills=3`, `down_ms=1000` between the kill and the start, `back_s=10` as the time limit to come back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::preflight;
use crate::clock::float;
use crate::lab::Lab;
use crate::lab::finding::{check, figure, judge_by};
use crate::outcome::{RunOutcome, Second};
use crate::profile::{Context, http};

/// The pause between two attempts to reach the app.
const LOOK: Duration = Duration::from_millis(5);

/// Time limit for every step after a kill.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time after the gateway is back in which requests that were under way may still fail.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Lead of this profile's clock over the load's, whose connections are opened first.
const SKEW: Duration = Duration::from_millis(500);

/// A kill and its consequences, as times after the kill.
#[derive(Clone, Copy, Debug)]
struct Killed {
    at: Instant,
    started: Duration,
    /// Its listeners answer.
    ready: Option<Duration>,
    /// A request passes.
    back: Option<Duration>,
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all: without a lab there is no gateway to kill.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let lab = context.lab.as_ref().context("kill needs the lab's own gateway: --self")?;
    let kills: u32 = context.load.setting("kills", 3_u32)?.max(1);
    let down = Duration::from_millis(context.load.setting("down_ms", 1000)?);
    let back_s: f64 = context.load.setting("back_s", 10.0)?;
    preflight(&context.target, context.load.timeout).await?;
    let begin = Instant::now() + context.load.warm_up;
    // The processes' usage is left out: a killed process takes its count along.
    let load = Context { trees: None, ..context.clone() };
    let (outcome, killed) = tokio::join!(Box::pin(http::run(&load)), kill(context, lab, begin, kills, down));
    let (mut outcome, killed) = (outcome?, killed?);
    report(&mut outcome, begin, &killed, back_s);
    Ok(outcome)
}

/// Kills the gateway at even distances in the measured time.
async fn kill(
    context: &Context,
    lab: &Arc<Lab>,
    begin: Instant,
    kills: u32,
    down: Duration,
) -> anyhow::Result<Vec<Killed>> {
    let mut killed = Vec::new();
    let gap = context.load.duration / (kills + 1);
    for number in 1..=kills {
        if context.stop.run_until_cancelled(sleep_until(begin + gap * number)).await.is_none() {
            break;
        }
        let one = kill_once(lab, down).await?;
        let words =
            one.back.map_or("nothing passes".to_owned(), |back| format!("back after {:.0?}", back - one.started));
        context.live.note(&format!("kill {number} of {kills}: {words}"));
        killed.push(one);
    }
    Ok(killed)
}

async fn kill_once(lab: &Lab, down: Duration) -> anyhow::Result<Killed> {
    let at = Instant::now();
    lab.gateway().kill()?;
    sleep(down).await;
    lab.gateway().restart()?;
    let started = at.elapsed();
    let ready = lab.gateway_ready_within(PATIENCE).await.ok().map(|()| at.elapsed());
    let target = lab.target();
    let mut back = None;
    while back.is_none() && at.elapsed() < PATIENCE {
        match preflight(&target, PATIENCE).await {
            Ok(()) => back = Some(at.elapsed()),
            Err(_) => sleep(LOOK).await,
        }
    }
    Ok(Killed { at, started, ready, back })
}

fn report(outcome: &mut RunOutcome, begin: Instant, killed: &[Killed], back_s: f64) {
    let longest = |of: fn(&Killed) -> Option<Duration>| {
        killed.iter().map(|one| of(one).unwrap_or(PATIENCE).as_secs_f64()).fold(0.0, f64::max)
    };
    let ready_s = longest(|one| one.ready.map(|ready| ready.saturating_sub(one.started)));
    let back = longest(|one| one.back.map(|back| back.saturating_sub(one.started)));
    let outage_s = longest(|one| one.back);
    let outside =
        outcome.seconds.iter().filter(|second| !is_excused(second, begin, killed)).map(|second| second.failed);
    let outside: u64 = outside.sum();
    for (key, value) in [
        ("kills", float(killed.len() as u64)),
        ("ready_max_ms", ready_s * 1e3),
        ("back_max_ms", back * 1e3),
        ("outage_max_ms", outage_s * 1e3),
        ("failed_in_outages", float(outcome.failed_total().saturating_sub(outside))),
        ("failed_outside_outages", float(outside)),
    ] {
        figure(outcome, key, value);
    }
    outcome.notes.push("back: from the start of the program to the first request that passes, the longest.".to_owned());
    let checks = vec![
        check("back after a start", format!("at most {back_s} s"), format!("{back:.2} s"), back <= back_s),
        check("failures outside of outages", "none", outside.to_string(), outside == 0),
        check("kills", "at least one", killed.len().to_string(), !killed.is_empty()),
    ];
    judge_by(outcome, checks);
}

/// Tells whether requests may fail in that second: it overlaps an outage, or its aftermath.
fn is_excused(second: &Second, begin: Instant, killed: &[Killed]) -> bool {
    let from = begin + Duration::from_secs(second.at);
    // Latencies of waiting requests are counted in the second in which these ended.
    killed.iter().any(|one| {
        let over = one.at + one.back.unwrap_or(PATIENCE) + AFTERMATH;
        from + Duration::from_secs(1) + SKEW >= one.at && from <= over
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_seconds_of_an_outage_and_its_aftermath_excuse_failures() {
        let begin = Instant::now();
        let s = Duration::from_secs;
        let killed = Killed { at: begin + s(10), started: s(1), ready: Some(s(2)), back: Some(s(3)) };
        let excused: Vec<u64> =
            (0..30).filter(|at| is_excused(&Second { at: *at, ..Second::default() }, begin, &[killed])).collect();
        assert_eq!(excused, [9, 10, 11, 12, 13, 14]);
    }
}
