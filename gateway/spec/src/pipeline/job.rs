//! The definition: one job that stays (GitLab documentation, "CI/CD YAML syntax reference").

use std::time::Duration;

use super::yaml::Yaml;
use super::{PipelineFacts, PipelineSettings, Proof, script};
use crate::devfile::{Component, Devfile};

/// The job's name, and its stage's.
const JOB: &str = "workspace";

/// Variables that tell a runner on Kubernetes the requests and limits of a container.
type RunnerVariables = [&'static str; 4];

/// Those of the job's container.
const OF_JOB: RunnerVariables =
    ["KUBERNETES_CPU_REQUEST", "KUBERNETES_CPU_LIMIT", "KUBERNETES_MEMORY_REQUEST", "KUBERNETES_MEMORY_LIMIT"];

/// Those of a service, among its own variables, which therefore cannot have these names.
pub(super) const OF_SERVICE: RunnerVariables = [
    "KUBERNETES_SERVICE_CPU_REQUEST",
    "KUBERNETES_SERVICE_CPU_LIMIT",
    "KUBERNETES_SERVICE_MEMORY_REQUEST",
    "KUBERNETES_SERVICE_MEMORY_LIMIT",
];

/// Returns the definition.
pub(super) fn definition(devfile: &Devfile, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> Yaml {
    let name = format!("Workspace {}, run {}", facts.workspace, facts.run);
    let workflow = Yaml::map([("name", Yaml::text(name)), ("rules", rules("always"))]);
    Yaml::map([("workflow", workflow), ("stages", Yaml::texts([JOB])), (JOB, job(devfile, settings, facts))])
}

fn job(devfile: &Devfile, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> Yaml {
    let mut entries = vec![("stage", Yaml::text(JOB))];
    let main = devfile.components.iter().find(|component| component.is_main);
    if let Some(main) = main {
        // The shell that reads the script takes the place of its entry point.
        entries.push(("image", Yaml::map([("name", Yaml::text(&main.image)), ("entrypoint", Yaml::texts([""]))])));
    }
    let services: Vec<_> = devfile.components.iter().filter(|component| !component.is_main).map(service).collect();
    if !services.is_empty() {
        entries.push(("services", Yaml::List(services)));
    }
    let tags = if facts.tags.is_empty() { &settings.tags } else { facts.tags };
    if !tags.is_empty() {
        entries.push(("tags", Yaml::texts(tags)));
    }
    entries.push(("rules", rules("on_success")));
    // A user who wants it runs it again, under another number.
    entries.push(("retry", Yaml::Whole(0)));
    entries.push(("interruptible", Yaml::Bool(false)));
    // Two jobs of one workspace would overwrite each other's files.
    entries.push(("resource_group", Yaml::text(format!("workspace/{}", facts.workspace))));
    entries.push(("timeout", Yaml::text(format!("{} minutes", minutes(settings.job_time().end())))));
    entries.push(("variables", variables(main, settings)));
    if let Proof::IdToken { audience } = &settings.proof {
        let token = |number| (format!("GW_ID_TOKEN_{number}"), Yaml::map([("aud", Yaml::text(audience))]));
        entries.push(("id_tokens", Yaml::map((1..=script::ID_TOKENS).map(token))));
    }
    entries.push(("cache", cache(facts)));
    entries.push(("script", Yaml::texts([script::text(devfile, settings, facts)])));
    Yaml::map(entries)
}

fn rules(when: &str) -> Yaml {
    Yaml::List(vec![Yaml::map([("when", Yaml::text(when))])])
}

fn minutes(time: Duration) -> u64 {
    time.as_secs() / 60
}

/// Returns the variables for the runner. The project is not the runner's to fetch: it would throw away a person's
/// changes.
fn variables(main: Option<&Component>, settings: &PipelineSettings) -> Yaml {
    // In seconds: cut to minutes, it could come before the script's own end.
    let script_seconds = settings.job_time().script_kill().as_secs();
    let mut variables = vec![
        ("GIT_STRATEGY", Yaml::text("none")),
        ("RUNNER_SCRIPT_TIMEOUT", Yaml::text(format!("{script_seconds}s"))),
        ("CACHE_COMPRESSION_LEVEL", Yaml::text("fast")),
    ];
    if let Some(main) = main {
        variables.extend(amounts(main, OF_JOB));
    }
    Yaml::map(variables)
}

/// Returns the requests and limits of a container, for runners on Kubernetes that accept them. With others, tags choose
/// the machine.
fn amounts(
    component: &Component,
    [cpu_request, cpu_limit, memory_request, memory_limit]: RunnerVariables,
) -> Vec<(&'static str, Yaml)> {
    let said = [
        (cpu_request, &component.cpu_request),
        (cpu_limit, &component.cpu_limit),
        (memory_request, &component.memory_request),
        (memory_limit, &component.memory_limit),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name, Yaml::text(value.as_ref()?)))).collect()
}

/// A side container, which other containers reach by its name.
fn service(component: &Component) -> Yaml {
    let mut entries = vec![("name", Yaml::text(&component.image)), ("alias", Yaml::text(&component.name))];
    if !component.command.is_empty() {
        entries.push(("entrypoint", Yaml::texts(&component.command)));
    }
    if !component.args.is_empty() {
        entries.push(("command", Yaml::texts(&component.args)));
    }
    let env = component.env.iter().map(|(name, value)| (name.as_str(), Yaml::text(value)));
    let variables: Vec<_> = env.chain(amounts(component, OF_SERVICE)).collect();
    if !variables.is_empty() {
        entries.push(("variables", Yaml::map(variables)));
    }
    Yaml::map(entries)
}

/// Returns the cache. The key is all that keeps one workspace from another's files; it cannot be guessed.
fn cache(facts: &PipelineFacts<'_>) -> Yaml {
    Yaml::map([
        ("key", Yaml::text(facts.cache_key)),
        ("paths", Yaml::texts([format!("{}/", script::folder_name(facts.cache_key))])),
        ("policy", Yaml::text("pull-push")),
        ("when", Yaml::text("always")),
    ])
}
