//! Checks and how they went, for people and for programs. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::finding::{Finding, Severity};

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well; what was seen.
    Passed(String),
    /// It does not apply or cannot be made here; the reason. It never counts as passed.
    Skipped(String),
    /// Something is wrong.
    Found(Vec<Finding>),
}

impl Outcome {
    /// Makes the outcome of a check that found these: it passed if there are none.
    #[must_use]
    pub fn of(found: Vec<Finding>, seen: impl Into<String>) -> Self {
        if found.is_empty() { Self::Passed(seen.into()) } else { Self::Found(found) }
    }
}

impl From<Finding> for Outcome {
    fn from(found: Finding) -> Self {
        Self::Found(vec![found])
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// Result.
    pub outcome: Outcome,
}

impl Check {
    /// Makes a check.
    #[must_use]
    pub fn new(name: impl Into<String>, outcome: impl Into<Outcome>) -> Self {
        Self { name: name.into(), outcome: outcome.into() }
    }

    /// Makes a check that was left out.
    #[must_use]
    pub fn skipped(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(name, Outcome::Skipped(why.into()))
    }

    /// Returns whether it found an error.
    #[must_use]
    pub fn has_error(&self) -> bool {
        matches!(&self.outcome, Outcome::Found(found) if found.iter().any(|one| one.severity == Severity::Error))
    }
}

/// All checks of a run, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// Returns the number of findings of a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings().filter(|found| found.severity == severity).count()
    }

    /// Returns whether nothing is wrong; when `strict`, warnings count too.
    #[must_use]
    pub fn is_good(&self, strict: bool) -> bool {
        self.count(Severity::Error) == 0 && (!strict || self.count(Severity::Warning) == 0)
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.checks.iter().flat_map(|check| match &check.outcome {
            Outcome::Found(found) => found.as_slice(),
            Outcome::Passed(_) | Outcome::Skipped(_) => &[],
        })
    }

    /// Returns the numbers of checks that passed, and that were left out.
    fn counts(&self) -> [usize; 2] {
        let count = |is: fn(&Outcome) -> bool| self.checks.iter().filter(|check| is(&check.outcome)).count();
        [count(|it| matches!(it, Outcome::Passed(_))), count(|it| matches!(it, Outcome::Skipped(_)))]
    }

    /// Writes it for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        for Check { name, outcome } in &self.checks {
            match outcome {
                Outcome::Passed(seen) => writeln!(text, "ok       {name}: {seen}").unwrap_or_default(),
                Outcome::Skipped(why) => writeln!(text, "skipped  {name}: {why}").unwrap_or_default(),
                Outcome::Found(found) => {
                    for Finding { id, severity, what } in found {
                        writeln!(
                            text,
                            "{:<8} {name}: {id}\n         what: {what}\n         why:  {}\n         mend: {}",
                            severity.as_str(),
                            id.why(),
                            id.mend()
                        )
                        .unwrap_or_default();
                    }
                }
            }
        }
        let [passed, skipped] = self.counts();
        let [errors, warnings] = [Severity::Error, Severity::Warning].map(|severity| self.count(severity));
        let found = match (errors, warnings) {
            (0, 0) => "nothing is wrong".to_owned(),
            (_, _) => format!("{} and {}", counted(errors, "error"), counted(warnings, "warning")),
        };
        write!(text, "{found}; {} passed, {skipped} left out", counted(passed, "check")).unwrap_or_default();
        text
    }

    /// Writes it for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(check_json).collect();
        let [passed, skipped] = self.counts();
        json!({
            "checks": checks,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "passed": passed,
            "skipped": skipped,
        })
    }
}

fn check_json(check: &Check) -> Value {
    let name = &check.name;
    match &check.outcome {
        Outcome::Passed(seen) => json!({"check": name, "result": "ok", "seen": seen}),
        Outcome::Skipped(why) => json!({"check": name, "result": "skipped", "reason": why}),
        Outcome::Found(found) => {
            let found: Vec<Value> = found
                .iter()
                .map(|Finding { id, severity, what }| {
                    json!({
                        "id": id.as_str(), "severity": severity.as_str(), "what": what, "why": id.why(), "mend": id.mend(),
                    })
                })
                .collect();
            json!({"check": name, "result": "found", "findings": found})
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use crate::finding::FindingId;

    use super::*;

    fn report() -> Report {
        let found = vec![
            Finding::new(FindingId::StoreSlow, "it took 90 ms"),
            Finding::new(FindingId::ClockOff, "it is 12 min ahead"),
        ];
        Report {
            checks: vec![
                Check::new("configuration", Outcome::of(Vec::new(), "gateway.toml")),
                Check::new("database", Outcome::of(found, "")),
                Check::skipped("identity provider", "auth.mode is dev"),
            ],
        }
    }

    #[test]
    fn text_has_a_line_for_what_passed_and_four_for_a_finding() {
        insta::assert_snapshot!(report().text(), @r"
        ok       configuration: gateway.toml
        warning  database: store_slow
                 what: it took 90 ms
                 why:  Each sign-in, and each workspace that is opened first, waits for it several times.
                 mend: Put the database into the same region as the gateway, and look at its load.
        error    database: clock_off
                 what: it is 12 min ahead
                 why:  Tokens, certificates, leases of replicas and one-time codes are judged by time: sign-ins fail above a minute.
                 mend: Let chrony or systemd-timesyncd set the clock, on both machines.
        skipped  identity provider: auth.mode is dev
        1 error and 1 warning; 1 check passed, 1 left out
        ");
    }

    #[test]
    fn json_has_the_words_and_the_counts() {
        let json = report().json();
        assert_eq!(json.pointer("/checks/1/findings/1/id"), Some(&json!("clock_off")));
        assert_eq!(json.pointer("/checks/2/result"), Some(&json!("skipped")));
        let counts = ["errors", "warnings", "passed", "skipped"].map(|name| json[name].as_u64());
        assert_eq!(counts, [Some(1); 4]);
    }

    #[test]
    fn warnings_count_only_for_the_strict() {
        let mut report = report();
        assert!(!report.is_good(false), "an error is one");
        let Some(Check { outcome: Outcome::Found(found), .. }) = report.checks.get_mut(1) else { panic!("no finding") };
        found.truncate(1);
        assert_eq!((report.is_good(false), report.is_good(true)), (true, false));
        report.checks.remove(1);
        assert!(report.is_good(true), "what was left out is no finding");
        assert!(report.text().ends_with("nothing is wrong; 1 check passed, 1 left out"));
    }
}
