//! Verdicts of profiles that check more than a rate and a percentile.

use crate::outcome::RunOutcome;
use crate::verdict::{Check, Finding, Judgement};

/// Makes a check of a bound with its measured value.
#[must_use]
pub fn check(name: &str, bound: impl Into<String>, measured: impl Into<String>, passed: bool) -> Check {
    Check { name: name.to_owned(), bound: bound.into(), measured: measured.into(), passed }
}

/// Judges an outcome by `checks` instead of by rate and percentile; warnings about doubtful figures stay.
pub fn judge_by(outcome: &mut RunOutcome, checks: Vec<Check>) {
    let passed = checks.iter().all(|check| check.passed);
    let judgement = if passed { Judgement::Passed } else { Judgement::Failed };
    outcome.verdict = Finding { judgement, checks, warnings: std::mem::take(&mut outcome.verdict.warnings) };
}

/// Sets a figure; the unit is in the key.
pub fn figure(outcome: &mut RunOutcome, key: &str, value: f64) {
    outcome.figures.insert(key.to_owned(), value);
}
