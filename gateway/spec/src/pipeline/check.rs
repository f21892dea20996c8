//! Checks for requests of a devfile that CI cannot fulfil. Problems of settings and facts are in [`input`].

mod input;

use super::job::OF_SERVICE;
use super::{PipelineFacts, PipelineProblem, PipelineSettings};
use crate::devfile::{Command, CommandKind, Component, Devfile, Exposure};

/// Most problems that are reported.
const PROBLEMS_MAX: usize = 100;

/// Longest environment variable with its name: the limit of Linux for one text (`MAX_ARG_STRLEN`), with its NUL.
const VARIABLE_BYTES_MAX: usize = 128 * 1024;

/// Names that some shells do not let a script set, or not to every value.
const NOT_TO_SET: [&str; 7] = ["BASHOPTS", "BASH_VERSINFO", "EUID", "OPTIND", "PPID", "SHELLOPTS", "UID"];

/// The problems so far.
#[derive(Debug, Default)]
struct PipelineFindings(Vec<PipelineProblem>);

impl PipelineFindings {
    fn tell(&mut self, place: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(PipelineProblem::new(place, message));
        }
    }

    fn require(&mut self, place: &str, holds: bool, message: &str) {
        if !holds {
            self.tell(place, message);
        }
    }
}

/// Returns all problems.
pub(super) fn problems(
    devfile: &Devfile,
    settings: &PipelineSettings,
    facts: &PipelineFacts<'_>,
) -> Vec<PipelineProblem> {
    let mut findings = PipelineFindings::default();
    input::settings(settings, &mut findings);
    input::facts(facts, settings, &mut findings);
    for component in &devfile.components {
        let place = format!("component {}", component.name);
        any_component(component, &place, &mut findings);
        if component.is_main {
            main(component, &place, &mut findings);
        } else {
            side(devfile, component, &place, &mut findings);
        }
    }
    commands(devfile, &mut findings);
    findings.0
}

/// Checks the rules for each container.
fn any_component(component: &Component, place: &str, findings: &mut PipelineFindings) {
    for mount in &component.volume_mounts {
        let message = format!(
            "mounts the volume {} at {}, and a CI job keeps files in one folder only: have the program use a folder below \
             $PROJECTS_ROOT",
            mount.name,
            mount.mount_path()
        );
        findings.tell(place, message);
    }
    for (name, value) in &component.env {
        let place = format!("{place}, variable {name}");
        fits(name, value.len(), &place, findings);
    }
}

/// Checks whether programs can be started with a variable.
fn fits(name: &str, value_bytes: usize, place: &str, findings: &mut PipelineFindings) {
    // With the sign between them, and the NUL behind.
    let bytes = name.len().saturating_add(value_bytes).saturating_add(2);
    let message = "is longer than 128 KiB with its name, and no program can be started with it";
    findings.require(place, bytes <= VARIABLE_BYTES_MAX, message);
}

/// Checks the container that the job's script runs in.
fn main(component: &Component, place: &str, findings: &mut PipelineFindings) {
    if !component.override_command && component.command.is_empty() {
        let message = "keeps its image's entry point (overrideCommand: false), and a CI job replaces it with its script: say \
                       what to run in command and args, or leave overrideCommand out";
        findings.tell(place, message);
    }
    for (name, _) in &component.env {
        findings.require(&format!("{place}, variable {name}"), may_be_set(name), "is read-only in some shells");
    }
}

/// Checks a container that becomes a service: it starts with the job, is reached over the network, and cannot be
/// entered.
fn side(devfile: &Devfile, component: &Component, place: &str, findings: &mut PipelineFindings) {
    // A component that preStart applies is reported there.
    if component.override_command && !applied_before(devfile, component) {
        let message = "only waits (overrideCommand: true), and nothing can be run in a service of a CI job: move what it is for \
                       into the main component, or let it run its own command";
        findings.tell(place, message);
    }
    for endpoint in component.endpoints.iter().filter(|endpoint| endpoint.exposure != Exposure::None) {
        let message = format!(
            "endpoint {} is to be reached from outside, and services of a CI job are not on the loopback interface: say \
             `exposure: none`, and reach it from the main component as {}:{}",
            endpoint.name, component.name, endpoint.target_port
        );
        findings.tell(place, message);
    }
    for (name, _) in component.env.iter().filter(|(name, _)| OF_SERVICE.contains(&name.as_str())) {
        let message = "is how a runner is told what a service asks for and may take: say cpuRequest, cpuLimit, memoryRequest or \
                       memoryLimit";
        findings.tell(format!("{place}, variable {name}"), message);
    }
    let words = component.command.iter().chain(&component.args).map(|word| (place.to_owned(), word));
    let values = component.env.iter().map(|(name, value)| (format!("{place}, variable {name}"), value));
    for (place, text) in words.chain(values).filter(|(_, text)| !is_plain(text)) {
        let message = format!(
            "{} has a quote, $, `, \\ or control character, which CI systems read in different ways in a service",
            shown(text)
        );
        findings.tell(place, message);
    }
}

fn commands(devfile: &Devfile, findings: &mut PipelineFindings) {
    for id in &devfile.events.pre_start {
        let message = "runs before the start (preStart), and the services of a CI job start together with it, once: run it in \
                       the main component after the start (postStart)";
        findings.tell(format!("command {id}"), message);
    }
    let main = devfile.components.iter().find(|component| component.is_main).map(|main| main.name.as_str());
    for command in devfile.commands.iter().filter(|command| devfile.events.post_start.contains(&command.id)) {
        let CommandKind::Exec { component, .. } = &command.kind else { continue };
        let place = format!("command {}", command.id);
        if Some(component.as_str()) != main {
            let message = format!("runs in the component {component}, and nothing can be run in a service of a CI job");
            findings.tell(&place, message);
        }
    }
}

fn applied_before(devfile: &Devfile, component: &Component) -> bool {
    let applies = |command: &&Command| match &command.kind {
        CommandKind::Apply { component: applied, .. } => *applied == component.name,
        CommandKind::Exec { .. } => false,
    };
    let mut applying = devfile.commands.iter().filter(applies);
    applying.any(|command| devfile.events.pre_start.contains(&command.id))
}

/// Returns whether a variable can be set to anything in every shell.
fn may_be_set(name: &str) -> bool {
    !NOT_TO_SET.contains(&name)
}

/// Returns whether a text is read alike with and without quotes around it, whatever reads it.
fn is_plain(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() || matches!(letter, '$' | '`' | '"' | '\'' | '\\'))
}

/// Makes a text fit for a message.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("{start:?}")
}
