//! The configuration: its mistakes, and advice about it.

use doctor::{Check, Finding, FindingId, Outcome};

use gateway_cli::{check_agents_dir, preflight};
use gateway_config::{BadConfig, Config, ConfigProblem, advice};

const NAME: &str = "configuration";

/// Keys whose places are looked at more closely elsewhere.
const OTHERS: [&str; 5] = ["store.url", "audit.path", "tls.acme.folder", "tls.public.cert", "tls.agents.cert"];

/// Makes the check of a configuration that cannot be used.
pub(crate) fn unread(bad: &BadConfig) -> Check {
    let found = bad.problems.iter().map(|problem| Finding::new(FindingId::ConfigInvalid, problem.to_string()));
    Check::new(NAME, Outcome::Found(found.collect()))
}

/// Opens what it names, as `serve` does at its start.
pub(crate) fn look(config: &Config) -> Check {
    let looked = preflight::look(config);
    let is_here = |problem: &&ConfigProblem| !problem.key.as_deref().is_some_and(|key| OTHERS.contains(&key));
    let problems = looked.problems.iter().filter(|problem| is_here(problem) || is_mistake(problem));
    let problems = problems.chain(&looked.later).map(ToString::to_string).chain(check_agents_dir(config));
    let warnings = looked.warnings.iter().filter(is_here).map(ToString::to_string).chain(advice(config));
    let found: Vec<_> = problems
        .map(|what| Finding::new(FindingId::ConfigInvalid, what))
        .chain(warnings.map(|what| Finding::new(FindingId::ConfigAdvice, what)))
        .collect();
    let file = config.file().map_or_else(|| "defaults, no file".to_owned(), |file| file.display().to_string());
    Check::new(NAME, Outcome::of(found, format!("{file}, {} files and folders opened", looked.opened)))
}

/// Returns whether a problem with a certificate's file keeps `serve` from starting: then it is one of the configuration, not of the
/// certificate.
fn is_mistake(problem: &ConfigProblem) -> bool {
    problem.key.as_deref().is_some_and(|key| key.ends_with(".cert"))
}
