//! Verdict about a run: the objective's bounds, and whether the generator was itself the limit.

use serde::{Deserialize, Serialize};

use crate::clock::{float, micros};
use crate::outcome::RunOutcome;
use crate::units::show_micros;

/// Judgement about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Every bound is kept.
    Passed,
    /// A bound is not kept.
    #[default]
    Failed,
    /// A bound is not kept, and the generator was itself too slow: nothing is said about the subject.
    GeneratorLimited,
}

/// Bound with its measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Bounded quantity, in words.
    pub name: String,
    /// The bound, in words.
    pub bound: String,
    /// Measured value, in words.
    pub measured: String,
    /// Whether the bound is kept.
    pub passed: bool,
}

/// Judgement with its grounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Judgement about the run.
    pub judgement: Judgement,
    /// Each bound.
    pub checks: Vec<Check>,
    /// Reasons to doubt the figures.
    pub warnings: Vec<String>,
}

impl Finding {
    /// Returns whether the run passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        matches!(self.judgement, Judgement::Passed)
    }
}

/// Delay at the 99th percentile above which a generator is worth a warning.
const LATE_MICROS: u64 = 5_000;

/// Part of the time above which a worker thread that wants a processor has no reserve.
const BUSY: f64 = 0.95;

/// Judges a run by its own objective.
#[must_use]
pub fn judge(outcome: &RunOutcome) -> Finding {
    let slo = &outcome.load.slo;
    let mut checks = Vec::new();
    if outcome.carried == 0 && outcome.bytes_down + outcome.bytes_up == 0 {
        checks.push(Check {
            name: "something was carried".to_owned(),
            bound: "at least one exchange".to_owned(),
            measured: "nothing".to_owned(),
            passed: false,
        });
    }
    // In a closed loop every offered exchange is carried or failed.
    if outcome.load.rate.per_second().is_some() && outcome.offered > 0 {
        let carried = float(outcome.carried) / float(outcome.offered);
        checks.push(Check {
            name: "carried part of what was offered".to_owned(),
            bound: format!("at least {}", percent(slo.carried)),
            measured: percent(carried),
            passed: carried >= slo.carried,
        });
    }
    let (failed, ended) = (outcome.failed_total(), outcome.failed_total() + outcome.carried);
    if ended > 0 {
        let part = float(failed) / float(ended);
        checks.push(Check {
            name: "failed part of what ended".to_owned(),
            bound: format!("less than {}", percent(slo.failed)),
            measured: percent(part),
            // A bound of zero means: none may fail.
            passed: part < slo.failed || failed == 0,
        });
    }
    if let Some(bound) = slo.p99
        && outcome.latency.count > 0
    {
        checks.push(Check {
            name: "99th percentile of latency from intended start".to_owned(),
            bound: format!("at most {}", show_micros(float(micros(bound)))),
            measured: show_micros(float(outcome.latency.p99)),
            passed: outcome.latency.p99 <= micros(bound),
        });
    }
    let warnings = warnings(outcome);
    let judgement = if checks.iter().all(|check| check.passed) {
        Judgement::Passed
    } else if is_generator_limited(outcome) {
        Judgement::GeneratorLimited
    } else {
        Judgement::Failed
    };
    Finding { judgement, checks, warnings }
}

/// Returns whether the generator itself was so late that most of the latency is its own.
fn is_late(outcome: &RunOutcome) -> bool {
    let late = outcome.generator_late.p99;
    late > LATE_MICROS && late > outcome.latency.p99 / 2
}

/// Returns whether a failed bound says more about the generator than about the subject.
fn is_generator_limited(outcome: &RunOutcome) -> bool {
    let is_open = outcome.load.rate.per_second().is_some();
    is_open && (is_late(outcome) || outcome.generator_busy > BUSY)
}

fn warnings(outcome: &RunOutcome) -> Vec<String> {
    let mut warnings = Vec::new();
    let late = outcome.generator_late.p99;
    if late > LATE_MICROS {
        warnings.push(format!(
            "The generator itself was late by {} at the 99th percentile; latency from intended start has this in it. \
             Offer less, give it more --workers, or run it on another machine.",
            show_micros(float(late))
        ));
    }
    if outcome.generator_busy > BUSY {
        let busy = percent(outcome.generator_busy);
        warnings.push(if outcome.load.rate.per_second().is_some() {
            format!(
                "The busiest worker thread ran or waited for a processor {busy} of the time: it could not offer more. \
                 Give it more --workers, or run it on another machine."
            )
        } else {
            format!(
                "The busiest worker thread ran or waited for a processor {busy} of the time: the subject may be able \
                 to carry more than this."
            )
        });
    }
    warnings
}

/// Writes a part of a whole with three digits.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent == 0.0 || percent >= 99.995 {
        format!("{percent:.0} %")
    } else if percent < 1.0 {
        format!("{percent:.3} %")
    } else {
        format!("{percent:.2} %")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::load::Slo;
    use crate::machine::MachineFacts;
    use crate::outcome::Latency;
    use crate::profile::ProfileName;
    use crate::units::ArrivalRate;

    /// Makes an outcome that passes.
    pub(crate) fn good() -> RunOutcome {
        let mut load = ProfileName::Http.load();
        load.rate = ArrivalRate::PerSecond(100.0);
        load.slo = Slo { carried: 0.9, failed: 0.01, p99: Some(Duration::from_millis(500)) };
        let latency = Latency {
            count: 1000,
            p50: 800,
            p90: 900,
            p99: 2_000,
            p999: 3_000,
            max: 4_000,
            mean: 850.0,
            histogram: vec![(800, 500), (900, 400), (2_000, 90), (3_000, 9), (4_000, 1)],
        };
        RunOutcome {
            profile: ProfileName::Http,
            subject: "gateway".to_owned(),
            started_unix_ms: 1_790_000_000_000,
            machine: MachineFacts::default(),
            load,
            measured_s: 10.0,
            seconds: Vec::new(),
            service: latency.clone(),
            generator_late: Latency { count: 1000, p99: 40, ..Latency::default() },
            latency,
            generator_busy: 0.2,
            offered: 1000,
            carried: 1000,
            failed: BTreeMap::new(),
            bytes_down: 128_000,
            bytes_up: 0,
            usage: None,
            figures: BTreeMap::new(),
            notes: Vec::new(),
            verdict: Finding::default(),
        }
    }

    #[test]
    fn each_bound_decides_alone_and_only_when_it_is_crossed() {
        type Change = fn(&mut RunOutcome);
        let table: [(&str, Judgement, Change); 12] = [
            ("as it is", Judgement::Passed, |_| {}),
            ("90 % carried", Judgement::Passed, |outcome| outcome.carried = 900),
            ("less carried", Judgement::Failed, |outcome| outcome.carried = 899),
            ("1 % failed", Judgement::Failed, |outcome| {
                outcome.carried = 990;
                outcome.failed.insert("reset".to_owned(), 10);
            }),
            ("less failed", Judgement::Passed, |outcome| {
                outcome.carried = 991;
                outcome.failed.insert("reset".to_owned(), 9);
            }),
            ("none may fail and none did", Judgement::Passed, |outcome| outcome.load.slo.failed = 0.0),
            ("at the p99 bound", Judgement::Passed, |outcome| outcome.latency.p99 = 500_000),
            ("past the p99 bound", Judgement::Failed, |outcome| outcome.latency.p99 = 500_001),
            ("no p99 bound", Judgement::Passed, |outcome| {
                outcome.latency.p99 = 500_001;
                outcome.load.slo.p99 = None;
            }),
            ("a closed loop offers what it carries", Judgement::Passed, |outcome| {
                outcome.load.rate = ArrivalRate::Max;
                outcome.carried = 100;
            }),
            ("nothing carried", Judgement::Failed, |outcome| {
                (outcome.offered, outcome.carried, outcome.bytes_down) = (0, 0, 0);
            }),
            ("bytes of one long transfer", Judgement::Passed, |outcome| {
                (outcome.offered, outcome.carried) = (0, 0);
                outcome.latency = Latency::default();
            }),
        ];
        for (name, expected, change) in table {
            let mut outcome = good();
            change(&mut outcome);
            assert_eq!(judge(&outcome).judgement, expected, "{name}");
        }
    }

    #[test]
    fn overloaded_generator_is_told_and_a_failure_under_it_is_not_the_subjects() {
        let overloads: [fn(&mut RunOutcome); 2] = [
            |outcome| outcome.generator_busy = 0.99,
            |outcome| {
                outcome.generator_late.p99 = 600_000;
                outcome.latency.p99 = 700_000;
            },
        ];
        for overload in overloads {
            let mut outcome = good();
            overload(&mut outcome);
            assert_eq!(judge(&outcome).warnings.len(), 1);
            outcome.carried = 500;
            assert_eq!(judge(&outcome).judgement, Judgement::GeneratorLimited);
        }
        // A little late beside a subject that is much slower: the subject's failure.
        let mut outcome = good();
        (outcome.generator_late.p99, outcome.latency.p99) = (6_000, 900_000);
        let verdict = judge(&outcome);
        assert_eq!((verdict.judgement, verdict.warnings.len()), (Judgement::Failed, 1));
    }

    #[test]
    fn closed_loop_with_a_busy_generator_passes_with_a_warning() {
        let mut outcome = good();
        outcome.load.rate = ArrivalRate::Max;
        outcome.generator_busy = 1.0;
        let verdict = judge(&outcome);
        assert!(verdict.passed() && verdict.warnings.len() == 1, "{verdict:?}");
    }
}
