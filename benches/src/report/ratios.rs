//! Ratios of runs of the same load against several subjects.

use crate::clock::float;
use crate::outcome::RunOutcome;

/// A ratio with its spread over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// Sums values up; none if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let rounds = values.len();
        let (min, max) = (*values.first()?, *values.last()?);
        let (left, right) = (values.get((rounds - 1) / 2)?, values.get(rounds / 2)?);
        Some(Self { median: f64::midpoint(*left, *right), min, max, rounds })
    }
}

/// Figures of the first subject, divided by those of another in the same round.
#[derive(Clone, Debug, PartialEq)]
pub struct RatioRow {
    /// Profile of the runs.
    pub profile: &'static str,
    /// The first subject.
    pub subject: String,
    /// The other one.
    pub other: String,
    /// Exchanges per second.
    pub carried: Option<Spread>,
    /// Payload bytes per second.
    pub bytes: Option<Spread>,
    /// Median latency.
    pub p50: Option<Spread>,
    /// 99th percentile of latency.
    pub p99: Option<Spread>,
    /// Processor time per exchange, of both sides.
    pub cpu: Option<Spread>,
}

/// Compares the first subject of each load with all others of the same load.
#[must_use]
pub fn rows(outcomes: &[RunOutcome]) -> Vec<RatioRow> {
    let mut rows = Vec::new();
    let mut groups: Vec<Vec<&RunOutcome>> = Vec::new();
    for outcome in outcomes {
        let same = |group: &&mut Vec<&RunOutcome>| {
            group.first().is_some_and(|first| first.profile == outcome.profile && first.load == outcome.load)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    for group in groups {
        let mut subjects: Vec<&str> = Vec::new();
        for outcome in &group {
            if !subjects.contains(&outcome.subject.as_str()) {
                subjects.push(&outcome.subject);
            }
        }
        // The gateway is the base of all comparisons, whichever subject came first in the first round.
        subjects.sort_by_key(|subject| !subject.starts_with("gateway"));
        let Some((base, others)) = subjects.split_first() else { continue };
        rows.extend(others.iter().map(|other| row(&group, base, other)));
    }
    rows
}

fn row(group: &[&RunOutcome], base: &str, other: &str) -> RatioRow {
    let of = |subject: &str| group.iter().filter(|outcome| outcome.subject == subject).copied().collect::<Vec<_>>();
    let (bases, others) = (of(base), of(other));
    let ratio = |value: fn(&RunOutcome) -> f64| {
        Spread::of(bases.iter().zip(&others).map(|(base, other)| value(base) / value(other)).collect())
    };
    RatioRow {
        profile: bases.first().map_or("", |outcome| outcome.profile.as_str()),
        subject: base.to_owned(),
        other: other.to_owned(),
        carried: ratio(RunOutcome::carried_per_second),
        bytes: ratio(RunOutcome::bytes_per_second),
        p50: ratio(|outcome| float(outcome.latency.p50)),
        p99: ratio(|outcome| float(outcome.latency.p99)),
        cpu: ratio(|outcome| match &outcome.usage {
            Some(usage) if outcome.carried > 0 => (usage.gateway_cpu_s + usage.agent_cpu_s) / float(outcome.carried),
            Some(_) | None => f64::NAN,
        }),
    }
}

/// Writes a ratio: `1.02 (0.98–1.07)`.
#[must_use]
pub fn show(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |spread| {
            if spread.rounds > 1 {
                format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max)
            } else {
                format!("{:.2}", spread.median)
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::good;

    #[test]
    fn rounds_are_paired_and_the_middle_ratio_counts() {
        let run = |subject: &str, carried| RunOutcome { subject: subject.to_owned(), carried, ..good() };
        // Order rotates between rounds.
        let outcomes = [
            run("nginx", 100),
            run("gateway", 100),
            run("gateway", 120),
            run("nginx", 100),
            run("nginx", 100),
            run("gateway", 300),
        ];
        let rows = rows(&outcomes);
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.subject.as_str(), row.other.as_str()), ("gateway", "nginx"));
        assert_eq!(show(row.carried), "1.20 (1.00–3.00)");
        assert_eq!(show(row.cpu), "–");
    }

    #[test]
    fn another_load_is_not_compared() {
        let mut other = RunOutcome { subject: "nginx".to_owned(), ..good() };
        other.load.size = 10_240;
        assert_eq!(rows(&[good(), other]), []);
    }

    #[test]
    fn middle_of_an_even_number_is_between() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(vec![f64::NAN, f64::INFINITY]), None);
    }
}
