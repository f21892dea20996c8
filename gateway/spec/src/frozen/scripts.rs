//! The scripts of a workspace: programs that its containers run besides the devfile's.
//!
//! The files under `scripts/` are the same for every workspace. The others are made here: the start of the agent, the
//! commands that run once a container has started, and the devfile's command lines, each in a file of its own, byte for
//! byte.

mod git;

use std::collections::{BTreeMap, BTreeSet};

use super::generate::{ObjectPlan, ProjectClone, pod};
use super::names::{AGENT_TOKEN_FILE, FILES_DIR, HOME_DIR, LOGS_DIR, SCRIPTS_DIR, TOOLS_DIR, USER_NAME};
use crate::devfile::{Component, EDITOR_PORT, Exposure};
use crate::editor::Chosen;
use crate::shell;

/// Read by the others.
const COMMON: &str = include_str!("scripts/common.sh");

/// Supervises the agent and the editor.
const SERVICES: &str = include_str!("scripts/services.sh");

/// Starts the editor of the tools image.
const EDITOR: &str = include_str!("scripts/editor.sh");

/// Starts another editor, whose command is a file of its own.
const CHOSEN_EDITOR: &str = include_str!("scripts/chosen-editor.sh");

/// Copies the tools and makes the folders of the volume.
const PREPARE: &str = include_str!("scripts/prepare.sh");

/// Clones a project.
const CLONE: &str = include_str!("scripts/clone.sh");

/// Says whether the agent has been connected.
const STARTED: &str = include_str!("scripts/started.sh");

/// Configuration of git.
pub(super) const GIT_CONFIG: &str = "gitconfig";

/// Waits.
const KEEP_ALIVE: &str = include_str!("scripts/keep-alive.sh");

/// Returns the files, by name.
pub(super) fn files(plan: &ObjectPlan<'_>) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = [
        ("common.sh", COMMON.to_owned()),
        ("services.sh", SERVICES.to_owned()),
        ("keep-alive.sh", KEEP_ALIVE.to_owned()),
        ("prepare.sh", PREPARE.to_owned()),
        ("started.sh", STARTED.to_owned()),
        ("agent.sh", agent(plan)),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into();
    let editor = match plan.facts.editor {
        Chosen::CodeServer => Some(EDITOR),
        Chosen::Command(line) => {
            files.insert("editor-command".to_owned(), line.to_owned());
            Some(CHOSEN_EDITOR)
        }
        Chosen::None => None,
    };
    files.extend(editor.map(|script| ("editor.sh".to_owned(), script.to_owned())));
    files.insert(GIT_CONFIG.to_owned(), git::config(plan));
    if !plan.clones.is_empty() {
        let line = |ProjectClone { id, folder, project }: &ProjectClone<'_>| {
            let reference = project.reference.as_deref().unwrap_or_default();
            let [folder, url, reference] = [folder, &project.url, reference].map(shell::word);
            format!("clone {id} {folder} {url} {reference}\n")
        };
        files.insert("clone.sh".to_owned(), CLONE.to_owned());
        let lines: String = plan.clones.iter().map(line).collect();
        files.insert("clone-projects.sh".to_owned(), format!(". {SCRIPTS_DIR}/clone.sh\n{lines}exit 0\n"));
    }
    if pod::has_own_users(plan) {
        files.insert("passwd".to_owned(), passwd());
    }
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

/// Names of users that programs and files of images have, by number. Ours is the last.
const USERS: [(&str, u32, &str); 13] = [
    ("root", 0, "/root"),
    ("daemon", 1, "/usr/sbin"),
    ("bin", 2, "/bin"),
    ("sys", 3, "/dev"),
    ("sync", 4, "/bin"),
    ("games", 5, "/usr/games"),
    ("man", 6, "/var/cache/man"),
    ("lp", 7, "/var/spool/lpd"),
    ("mail", 8, "/var/mail"),
    ("www-data", 33, "/var/www"),
    ("_apt", 42, "/nonexistent"),
    ("node", 1000, "/home/node"),
    ("nobody", 65534, "/nonexistent"),
];

/// Writes the list of users (passwd(5)). `ssh`, `git` and `whoami` need a name for the one that runs them, and no image has a line for
/// ours.
fn passwd() -> String {
    let line = |(name, number, home): (&str, u32, &str)| format!("{name}:x:{number}:0:{name}:{home}:/bin/sh\n");
    USERS.into_iter().chain([(USER_NAME, pod::USER, HOME_DIR)]).map(line).collect()
}

/// Writes the start of the agent. Options that an older agent of a tools image does not know are variables, which it ignores.
fn agent(plan: &ObjectPlan<'_>) -> String {
    let mut text = format!(
        "export WORKSPACE_AGENT_TERMINAL=true WORKSPACE_AGENT_READY_FILE=\"$GW_READY_FILE\" \\\n  \
         WORKSPACE_AGENT_LOGS_DIR={LOGS_DIR} WORKSPACE_AGENT_SSH_SERVER={TOOLS_DIR}/ssh \\\n  \
         WORKSPACE_AGENT_SSH_KEYS={HOME_DIR}/.local/share/workspace-gateway\n\
         exec {TOOLS_DIR}/bin/workspace-agent run --gateway {} --token-file {FILES_DIR}/{AGENT_TOKEN_FILE} \\\n  \
         --default-port {EDITOR_PORT}",
        shell::word(plan.gateway_url()),
    );
    for port in closed_ports(plan) {
        text.push_str(&format!(" --deny-port {port}"));
    }
    text.push('\n');
    text
}

/// Returns the endpoints' ports that are for their own pod alone. Every other port that a program opens is its owner's.
fn closed_ports(plan: &ObjectPlan<'_>) -> BTreeSet<u16> {
    let endpoints = plan.containers.iter().flat_map(|component| &component.endpoints);
    endpoints.filter(|endpoint| endpoint.exposure == Exposure::None).map(|endpoint| endpoint.target_port).collect()
}

#[cfg(test)]
mod tests {
    use super::super::names::{TOOLS_IMAGE_DIR, VOLUME_DIR};
    use super::*;
    use crate::devfile::PROJECTS_PATH;

    #[test]
    fn fixed_scripts_name_the_places_that_the_pod_has() {
        for (text, place) in [
            (COMMON, format!("scripts={SCRIPTS_DIR}\n")),
            (SERVICES, format!(". {SCRIPTS_DIR}/common.sh\n")),
            (KEEP_ALIVE, format!(". {SCRIPTS_DIR}/common.sh\n")),
            (EDITOR, format!("exec {TOOLS_DIR}/bin/code-server --bind-addr 127.0.0.1:{EDITOR_PORT} --auth none")),
            (EDITOR, format!("override \"${{PROJECT_SOURCE:-{PROJECTS_PATH}}}\"\n")),
            (CLONE, format!("target={PROJECTS_PATH}/$2\n")),
            (PREPARE, format!("cp -Rf {TOOLS_IMAGE_DIR}/. {TOOLS_DIR}/\ncd {VOLUME_DIR}\n")),
            (STARTED, format!(". {SCRIPTS_DIR}/common.sh\n")),
        ] {
            assert!(text.contains(&place), "{place}");
        }
    }

    #[test]
    fn users_have_names_and_numbers_of_their_own() {
        let passwd = passwd();
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = passwd.lines().map(fields).collect();
        assert!(lines.iter().all(|fields| fields.len() == 7), "{passwd}");
        let distinct = |field: usize| lines.iter().map(|fields| fields[field].as_str()).collect::<BTreeSet<_>>().len();
        assert_eq!((distinct(0), distinct(2)), (lines.len(), lines.len()));
        assert!(passwd.ends_with("\nworkspace:x:5001:0:workspace:/home/workspace:/bin/sh\n"), "{passwd}");
    }

    #[test]
    fn fixed_scripts_are_small() {
        // Each workspace carries them, and a cluster has thousands of workspaces.
        let bytes = [COMMON, SERVICES, EDITOR, KEEP_ALIVE, PREPARE, STARTED].map(str::len).into_iter().sum::<usize>();
        assert!(bytes < 7000, "{bytes}");
    }
}
