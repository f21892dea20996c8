//! The scripts of a workspace: programs that its containers run besides the devfile's.
//!
//! The files under `scripts/` are the same for every workspace. The others are made here: the start of the agent, the
//! commands that run once a container has started, and the devfile's command lines, each in a file of its own, byte for
//! byte.

use std::collections::{BTreeMap, BTreeSet};

use super::generate::ObjectPlan;
use super::names::{AGENT_TOKEN_FILE, FILES_DIR, SCRIPTS_DIR, TOOLS_DIR};
use crate::devfile::{Component, EDITOR_PORT, Exposure};
use crate::shell;

/// Read by the others.
const COMMON: &str = include_str!("scripts/common.sh");

/// Supervises the agent and the editor.
const SERVICES: &str = include_str!("scripts/services.sh");

/// Starts the editor.
const EDITOR: &str = include_str!("scripts/editor.sh");

/// Waits.
const KEEP_ALIVE: &str = include_str!("scripts/keep-alive.sh");

/// Returns the files, by name.
pub(super) fn files(plan: &ObjectPlan<'_>) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = [
        ("common.sh", COMMON.to_owned()),
        ("services.sh", SERVICES.to_owned()),
        ("editor.sh", EDITOR.to_owned()),
        ("keep-alive.sh", KEEP_ALIVE.to_owned()),
        ("agent.sh", agent(plan)),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into();
    for component in &plan.containers {
        if let Some(text) = start(plan, component) {
            files.insert(start_file(component), text);
        }
        for command in plan.post_start_of(component) {
            files.insert(command_file(command.id), command.line.to_owned());
        }
    }
    files
}

/// Returns the command of a container that only has to stay: the services in the main one, else a script that waits.
pub(super) fn first_process(component: &Component) -> Vec<String> {
    let file = if component.is_main { "services.sh" } else { "keep-alive.sh" };
    vec!["/bin/sh".to_owned(), format!("{SCRIPTS_DIR}/{file}")]
}

/// Returns the command that Kubernetes runs once a container has started, if there is one. It ends at once and with
/// success: while it runs, the container does not count as running, and one whose hook fails is killed.
pub(super) fn hook(plan: &ObjectPlan<'_>, component: &Component) -> Option<Vec<String>> {
    start(plan, component)?;
    let file = shell::word(&format!("{SCRIPTS_DIR}/{}", start_file(component)));
    let line = format!("/bin/sh {file} </dev/null >/dev/null 2>&1 & exit 0");
    Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), line])
}

fn start_file(component: &Component) -> String {
    format!("start-{}.sh", component.name)
}

fn command_file(id: &str) -> String {
    format!("command-{id}")
}

/// Returns the script that runs once a container has started; `None` for nothing.
fn start(plan: &ObjectPlan<'_>, component: &Component) -> Option<String> {
    let commands = plan.post_start_of(component);
    let has_services = component.is_main && !component.override_command;
    if commands.is_empty() && !has_services {
        return None;
    }
    let mut text = format!(". {SCRIPTS_DIR}/common.sh\n");
    if has_services {
        text.push_str(&format!("/bin/sh {SCRIPTS_DIR}/services.sh &\n"));
    }
    if !commands.is_empty() {
        text.push_str("events=$(fresh_log post-start)\n");
    }
    for command in commands {
        text.push_str(&format!("run {} {}\n", shell::word(command.id), shell::path(command.folder)));
    }
    Some(text)
}

fn agent(plan: &ObjectPlan<'_>) -> String {
    let mut text = format!(
        "export NO_COLOR=1\nexec {TOOLS_DIR}/bin/workspace-agent run --gateway {} --token-file {FILES_DIR}/{AGENT_TOKEN_FILE} \\\n  \
         --default-port {EDITOR_PORT}",
        shell::word(plan.gateway_url()),
    );
    for port in reachable_ports(plan) {
        text.push_str(&format!(" --port {port}"));
    }
    text.push('\n');
    text
}

/// Returns the editor's port and the endpoints', except those for their own pod only and those that TCP does not carry.
fn reachable_ports(plan: &ObjectPlan<'_>) -> BTreeSet<u16> {
    let endpoints = plan.containers.iter().flat_map(|component| &component.endpoints);
    let is_reachable = |exposure| matches!(exposure, Exposure::Public | Exposure::Internal);
    let reachable = endpoints.filter(|endpoint| is_reachable(endpoint.exposure) && endpoint.protocol != "udp");
    reachable.map(|endpoint| endpoint.target_port).chain([EDITOR_PORT]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::names::LOGS_DIR;
    use super::*;
    use crate::devfile::PROJECTS_PATH;

    #[test]
    fn fixed_scripts_name_the_places_that_the_pod_has() {
        for (text, place) in [
            (COMMON, format!("scripts={SCRIPTS_DIR}\n")),
            (SERVICES, format!(". {SCRIPTS_DIR}/common.sh\n")),
            (KEEP_ALIVE, format!(". {SCRIPTS_DIR}/common.sh\n")),
            (EDITOR, format!("exec {TOOLS_DIR}/bin/code-server --bind-addr 127.0.0.1:{EDITOR_PORT} --auth none")),
            (EDITOR, format!("data={PROJECTS_PATH}/")),
        ] {
            assert!(text.contains(&place), "{place}");
        }
        assert!(LOGS_DIR.starts_with(PROJECTS_PATH));
    }

    #[test]
    fn fixed_scripts_are_small() {
        // Each workspace carries them, and a cluster has thousands of workspaces.
        let bytes = [COMMON, SERVICES, EDITOR, KEEP_ALIVE].map(str::len).into_iter().sum::<usize>();
        assert!(bytes < 5000, "{bytes}");
    }
}
