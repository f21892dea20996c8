//! Honest users beside an attack: a thousand hostile requests a second, of every kind that needs no account.
//!
//! Honest users' requests are measured before, beside the attack, and after it. On loopback the attackers come from many
//! addresses of this machine (127.0.0.0/8) and the honest users from another one, so the gateway's limits by address are in
//! force as they would be.
//!
//! Settings: `attacks_per_s=1000`, `addresses=16` that the attackers have, `only=KIND` for one kind of attack alone.

mod attack;
mod attackers;

use std::time::Duration;

use tokio::time::sleep;

use self::attack::AttackKind;
use self::attackers::{AttackPlan, Attackers};
use crate::client::preflight;
use crate::clock::{float, micros};
use crate::lab::Lab;
use crate::lab::finding::{check, figure, judge_by};
use crate::lab::usage;
use crate::outcome::RunOutcome;
use crate::profile::{Context, http};
use crate::stats::CollectedStats;

/// Largest 99th percentile of honest users beside the attack, as a multiple of the one without.
const FACTOR_MAX: f64 = 2.0;

/// Largest growth of the gateway's memory, in MiB: buffers of as many connections as are open at a time.
const GROWN_MIB_MAX: f64 = 64.0;

/// Smallest part of the planned attacks that has to be made, or the run was no attack.
const MADE_MIN: f64 = 0.9;

/// Time of the attack before its effects are measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// Time for the traces of an attack to go.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let plan = AttackPlan {
        per_second: context.load.setting("attacks_per_s", 1000)?,
        addresses: context.load.setting("addresses", 16)?,
        only: context.load.settings.get("only").map(|text| text.parse::<AttackKind>()).transpose()?,
    };
    preflight(&context.target, context.load.timeout).await?;
    let mut honest = context.clone();
    honest.load.duration = context.load.duration / 3;
    let lab = context.lab.as_deref();

    context.live.phase("honest users alone");
    let before = Box::pin(http::run(&honest)).await?;
    let idle_mib = lab.map(peak_from_now);
    context.live.phase("beside the attack");
    let attackers = Attackers::start(&context.target, &plan)?;
    sleep(WARM_UP).await;
    let mut outcome = beside(context, &honest).await;
    let told = attackers.end().await;
    let peak_mib = lab.map(peak);
    let limits = match lab {
        Some(lab) => lab.metrics().await?,
        None => Default::default(),
    };
    sleep(SETTLE).await;
    context.live.phase("honest users after the attack");
    let after = Box::pin(http::run(&honest)).await?;

    outcome.load = context.load.clone();
    let p99 = |outcome: &RunOutcome| float(outcome.latency.p99) / 1e3;
    let quiet = (p99(&before) + p99(&after)) / 2.0;
    for (key, value) in [
        ("p99_quiet_ms", quiet),
        ("p99_attacked_ms", p99(&outcome)),
        ("p99_factor", p99(&outcome) / quiet.max(1e-6)),
        ("attacks_per_s", told.per_second()),
        ("attacks_refused", float(told.refused())),
        ("attacks_cut", float(told.cut())),
        ("attacks_unmade", float(told.unmade())),
        ("attackers_connected_max", float(told.connected_max())),
    ] {
        figure(&mut outcome, key, value);
    }
    if let (Some(idle), Some(peak), Some(lab)) = (idle_mib, peak_mib, lab) {
        figure(&mut outcome, "gateway_idle_mib", idle);
        figure(&mut outcome, "gateway_peak_mib", peak);
        figure(&mut outcome, "gateway_after_mib", float(lab.gateway().rss().unwrap_or_default()) / 1_048_576.0);
        figure(&mut outcome, "gateway_grown_mib", peak - idle);
    }
    let counted =
        |name: &str| ["gateway_limits_reached", "gateway_failures"].iter().any(|start| name.starts_with(start));
    for (name, count) in limits.iter().filter(|(name, count)| counted(name) && **count > 0.0) {
        outcome.notes.push(format!("{name}: {count:.0}"));
    }
    let outside = before.failed_total() + after.failed_total();
    judge(&mut outcome, &plan, outside);
    Ok(outcome)
}

/// Measures honest users beside the attack. If all of them are refused, there is nothing to measure, and that is the
/// finding: then each of them counts as one that took the whole timeout.
async fn beside(context: &Context, honest: &Context) -> RunOutcome {
    match Box::pin(http::run(honest)).await {
        Ok(outcome) => outcome,
        Err(error) => {
            context.live.note(&format!("{error:#}"));
            let mut outcome = honest.outcome(CollectedStats::default());
            outcome.latency.p99 = micros(context.load.timeout);
            outcome.failed.insert("refused_beside_the_attack".to_owned(), 1);
            outcome
                .notes
                .push(format!("Honest users were refused; their latency is given as the timeout. ({error:#})"));
            outcome
        }
    }
}

fn judge(outcome: &mut RunOutcome, plan: &AttackPlan, failed_outside: u64) {
    let value = |key: &str| outcome.figures.get(key).copied();
    let factor = value("p99_factor").unwrap_or(f64::INFINITY);
    let made = value("attacks_per_s").unwrap_or_default();
    let failed = outcome.failed_total() + failed_outside;
    let lost = outcome.offered.saturating_sub(outcome.carried);
    let wanted = float(u64::from(plan.per_second));
    let mut checks = vec![
        check(
            "honest users' 99th percentile",
            "at most twice the quiet one",
            format!("{factor:.2}×"),
            factor <= FACTOR_MAX,
        ),
        check("failed requests of honest users", "none", failed.to_string(), failed == 0),
        check("honest requests not carried", "at most 1 %", lost.to_string(), lost * 100 <= outcome.offered),
        check(
            "attacks a second",
            format!("{wanted:.0}, nine tenths at least"),
            format!("{made:.0}"),
            made >= wanted * MADE_MIN,
        ),
    ];
    match value("gateway_grown_mib") {
        Some(grown) => {
            let passed = grown <= GROWN_MIB_MAX;
            checks.push(check("growth of the gateway's memory", "at most 64 MiB", format!("{grown:.1} MiB"), passed));
        }
        None => outcome.notes.push("Memory is not known: the gateway is not the lab's own.".to_owned()),
    }
    judge_by(outcome, checks);
}

/// Returns the gateway's memory now, in MiB, and resets its peak.
fn peak_from_now(lab: &Lab) -> f64 {
    if let Err(error) = usage::reset_peak(lab.gateway().pid()) {
        tracing::debug!(%error, "the peak of a process's memory could not be reset");
    }
    peak(lab)
}

fn peak(lab: &Lab) -> f64 {
    float(lab.gateway().memory().map(|memory| memory.peak).unwrap_or_default()) / 1_048_576.0
}
