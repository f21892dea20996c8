//! Comparison of several subjects under the same load, in turn, round by round, so that only figures of the same
//! minutes are compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::check::Checker;
use super::meter::{is_busy, wait_until_idle};
use super::subject::{StartedSubject, Subject, SubjectApp};
use super::wrk;
use crate::clock::float;
use crate::live::ProgressReporter;
use crate::load::LoadSpec;
use crate::outcome::{RunOutcome, Usage};
use crate::profile::{self, Context, ProfileName};
use crate::relay::LinkSpec;
use crate::results::book::Section;
use crate::results::spread::{Spread, figure};
use crate::verdict::Judgement;

/// Generator of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Generator {
    /// The lab itself.
    #[default]
    Lab,
    /// The program wrk, for requests in a closed loop; the lab for everything else.
    Wrk,
}

/// One load of a comparison.
#[derive(Debug, Clone)]
pub struct Work {
    /// The name of the load in tables.
    pub key: String,
    /// The profile.
    pub profile: ProfileName,
    /// Its load.
    pub load: LoadSpec,
}

/// A comparison.
#[derive(Clone)]
pub struct ComparePlan {
    /// Subjects to compare. Ratios are those of the first subject to each other one.
    pub subjects: Vec<Subject>,
    /// The loads, one after the other on each started subject.
    pub works: Vec<Work>,
    /// Number of rounds. Ratios need at least five to say something about their spread.
    pub rounds: u32,
    /// The link between the two halves of each subject.
    pub link: Option<LinkSpec>,
    /// Generator of the load.
    pub generator: Generator,
    /// Longest wait for an idle machine before each subject.
    pub patience: Duration,
    /// Destination of progress.
    pub live: ProgressReporter,
    /// Ends the comparison with the results so far.
    pub stop: CancellationToken,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The figures; command, date and conditions are the caller's to fill in.
    pub section: Section,
    /// Outcomes of the profiles.
    pub outcomes: Vec<RunOutcome>,
}

/// Runs a comparison.
///
/// A subject that does not start, or changes a byte, is left out of that round and named among the failures.
///
/// # Errors
/// Fails if the app cannot be started or no subject was measured at all.
pub async fn compare(plan: &ComparePlan) -> anyhow::Result<Comparison> {
    let folder = tempfile::Builder::new().prefix("loadlab-").tempdir()?;
    let app = SubjectApp::start(folder.path()).await?;
    let checker = Checker::new(app.address, plan.link.is_some()).await?;
    let mut found = Comparison::default();
    for subject in &plan.subjects {
        if let Subject::Peer(peer) = subject
            && !peer.programs.0.is_empty()
            && peer.missing().is_none()
        {
            found.section.versions.insert(peer.name.to_owned(), peer.version().await);
        }
    }
    for round in 0..plan.rounds {
        for index in order(plan.subjects.len(), round) {
            let Some(subject) = plan.subjects.get(index) else { continue };
            if plan.stop.is_cancelled() {
                break;
            }
            let place = folder.path().join(format!("{round}-{}", subject.name().replace('+', "-")));
            if let Err(error) = one(plan, subject, round, &app, &checker, &place, &mut found).await {
                let words = format!("{} in round {}: {error:#}", subject.name(), round + 1);
                plan.live.note(&words);
                found.section.failures.push(words);
            }
        }
    }
    app.stop().await;
    if plan.stop.is_cancelled() {
        found.section.notes.push("Interrupted: this is what was measured until then.".to_owned());
    }
    anyhow::ensure!(!found.section.samples.is_empty(), "nothing was measured: {}", found.section.failures.join("; "));
    Ok(found)
}

/// Returns the order of a round: shifted by one each time and turned round every other time, so that no subject always
/// runs after the same one.
fn order(subjects: usize, round: u32) -> Vec<usize> {
    let shift = usize::try_from(round).unwrap_or(0) % subjects.max(1);
    let mut order: Vec<usize> = (shift..subjects).chain(0..shift).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Starts a subject, checks it, and puts every load on it.
async fn one(
    plan: &ComparePlan,
    subject: &Subject,
    round: u32,
    app: &SubjectApp,
    checker: &Checker,
    place: &Path,
    found: &mut Comparison,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(place)?;
    let started = subject.start(app, place, plan.link.as_ref()).await?;
    let result = match checker.verify(&started.target()).await {
        Ok(()) => loads(plan, subject.name(), round, &started, place, found).await,
        Err(error) => Err(error.context("it does not return what was sent; not measured")),
    };
    started.stop().await;
    result
}

async fn loads(
    plan: &ComparePlan,
    name: &str,
    round: u32,
    started: &StartedSubject,
    place: &Path,
    found: &mut Comparison,
) -> anyhow::Result<()> {
    let busy = wait_until_idle(plan.patience).await;
    if is_busy(busy) {
        let percent = figure(busy * 100.0);
        found.section.notes.push(format!("Round {}, {name}: the machine was {percent} % busy before it.", round + 1));
    }
    for work in plan.works.iter().take_while(|_| !plan.stop.is_cancelled()) {
        plan.live.note(&format!("round {} of {}, {name}, {}", round + 1, plan.rounds, work.key));
        if plan.generator == Generator::Wrk && wrk::can(work) {
            let values = wrk_values(work, started, place).await?;
            found.section.add(round, name, &work.key, values);
            continue;
        }
        let outcome = measure(work, name, started, plan).await?;
        if matches!(outcome.verdict.judgement, Judgement::GeneratorLimited) {
            found.section.notes.push(format!(
                "Round {}, {name}, {}: the generator was the limit.",
                round + 1,
                work.key
            ));
        }
        for note in &outcome.notes {
            // A profile repeats its notes about itself in each round.
            if !found.section.notes.iter().any(|known| known.ends_with(note)) {
                found.section.notes.push(format!("Round {}, {name}, {}: {note}", round + 1, work.key));
            }
        }
        found.section.add(round, name, &work.key, values(&outcome));
        found.outcomes.push(outcome);
    }
    Ok(())
}

/// Runs one load on a started subject, with what its processes use in the measured time.
///
/// # Errors
/// Fails if the profile could not be run.
pub async fn measure(
    work: &Work,
    name: &str,
    started: &StartedSubject,
    plan: &ComparePlan,
) -> anyhow::Result<RunOutcome> {
    let trees = started.trees();
    let context = Context {
        profile: work.profile,
        subject: name.to_owned(),
        target: started.target(),
        load: work.load.clone(),
        live: plan.live.clone(),
        stop: plan.stop.clone(),
        lab: started.lab(),
        trees: Some(trees.clone()),
    };
    let begin = trees.begin();
    let mut outcome = Box::pin(profile::run(work.profile, &context)).await?;
    // Profiles with a load of their own making may have no usage; then the whole run counts.
    outcome.usage.get_or_insert_with(|| trees.since(begin));
    Ok(outcome)
}

async fn wrk_values(work: &Work, started: &StartedSubject, place: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let trees = started.trees();
    let target = started.target();
    wrk::run(work, &target, Duration::from_secs(1), place).await?;
    let begin = trees.begin();
    let run = wrk::run(work, &target, work.load.duration, place).await?;
    let mut values = BTreeMap::from([
        ("per_s".to_owned(), run.requests / run.seconds),
        ("p50_us".to_owned(), run.p50_us),
        ("p99_us".to_owned(), run.p99_us),
        ("failed".to_owned(), run.errors),
    ]);
    cpu_values(&trees.since(begin), run.requests, 0.0, &mut values);
    Ok(values)
}

/// Picks the figures of a run for tables.
#[must_use]
pub fn values(outcome: &RunOutcome) -> BTreeMap<String, f64> {
    // The other figures of these profiles repeat the columns.
    let plain =
        is_bulk(outcome.profile) || matches!(outcome.profile, ProfileName::Http | ProfileName::Churn | ProfileName::Ws);
    let mut values = if plain { BTreeMap::new() } else { outcome.figures.clone() };
    let mut put = |key: &str, value: f64| {
        values.insert(key.to_owned(), value);
    };
    put("failed", float(outcome.failed_total()));
    let mut bytes = 0.0;
    if is_bulk(outcome.profile) {
        put("mb_s", outcome.bytes_per_second() / 1e6);
        bytes = float(outcome.bytes_down + outcome.bytes_up);
    } else if outcome.latency.count > 0 {
        put("per_s", outcome.carried_per_second());
        put("p50_us", float(outcome.latency.p50));
        put("p99_us", float(outcome.latency.p99));
    }
    // Profiles of faults restart processes, whose usage says nothing about a piece of work.
    if let (Some(usage), true) = (&outcome.usage, plain) {
        cpu_values(usage, float(outcome.carried), bytes, &mut values);
    }
    values
}

fn cpu_values(usage: &Usage, carried: f64, bytes: f64, values: &mut BTreeMap<String, f64>) {
    const GIB: f64 = 1_073_741_824.0;
    let seconds = usage.gateway_cpu_s + usage.agent_cpu_s;
    if bytes > 0.0 {
        values.insert("cpu_s_per_gib".to_owned(), seconds / bytes * GIB);
    } else if carried > 0.0 {
        values.insert("cpu_s_per_100k".to_owned(), seconds / carried * 1e5);
    }
}

const fn is_bulk(profile: ProfileName) -> bool {
    matches!(profile, ProfileName::Download | ProfileName::Upload)
}

impl Comparison {
    /// Writes a plain table for each load: the figures of each subject, and the first one's ratio to it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for load in self.section.loads() {
            let subjects = self.section.subjects(load);
            let Some(first) = subjects.first() else { continue };
            let main = if self.section.spread(load, first, "mb_s").is_some() { "mb_s" } else { "per_s" };
            // Writing to a string does not fail.
            writeln!(text, "{load}").ok();
            for subject in &subjects {
                let number = |key: &str| self.section.spread(load, subject, key).map_or("–".to_owned(), show);
                writeln!(
                    text,
                    "  {subject:<20} {main} {:<26} p50_us {:<22} p99_us {}",
                    number(main),
                    number("p50_us"),
                    number("p99_us")
                )
                .ok();
            }
            for other in subjects.iter().skip(1) {
                let ratio = |key| self.section.ratio(load, key, [first, other]).map_or("–".to_owned(), show);
                let pair = format!("{first} / {other}");
                let cpu = if main == "mb_s" { "cpu_s_per_gib" } else { "cpu_s_per_100k" };
                writeln!(
                    text,
                    "  {pair:<34} {main} ×{}  p50 ×{}  p99 ×{}  CPU ×{}",
                    ratio(main),
                    ratio("p50_us"),
                    ratio("p99_us"),
                    ratio(cpu)
                )
                .ok();
            }
        }
        for (word, lines) in [("note", &self.section.notes), ("not measured", &self.section.failures)] {
            for line in lines {
                writeln!(text, "{word}: {line}").ok();
            }
        }
        text
    }
}

fn show(spread: Spread) -> String {
    spread.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_subject_once_in_another_order() {
        let orders: Vec<_> = (0..4).map(|round| order(3, round)).collect();
        assert_eq!(orders, [vec![0, 1, 2], vec![0, 2, 1], vec![2, 0, 1], vec![2, 1, 0]]);
        assert!(order(0, 1).is_empty());
    }

    #[test]
    fn ratios_of_the_first_subject_are_printed() {
        let mut comparison = Comparison::default();
        for (subject, per_s) in [("gateway", 30.0), ("nginx-nginx", 20.0)] {
            let values = BTreeMap::from([("per_s".to_owned(), per_s)]);
            comparison.section.add(0, subject, "http", values);
        }
        let text = comparison.text();
        assert!(text.contains("gateway / nginx-nginx") && text.contains("per_s ×1.50"), "{text}");
    }

    #[test]
    fn processor_time_is_told_per_piece_of_work() {
        let usage = Usage { gateway_cpu_s: 1.0, agent_cpu_s: 2.0, app_cpu_s: 9.0, ..Usage::default() };
        let mut values = BTreeMap::new();
        cpu_values(&usage, 200_000.0, 0.0, &mut values);
        cpu_values(&usage, 5.0, 2.0 * 1_073_741_824.0, &mut values);
        assert_eq!(values, BTreeMap::from([("cpu_s_per_100k".to_owned(), 1.5), ("cpu_s_per_gib".to_owned(), 1.5)]));
    }
}
