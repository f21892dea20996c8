//! The job's script: one text, which puts files into a private folder and becomes the first of them.
//!
//! The files under `scripts/` are the same for every workspace. The others are made here. A user's text is in them as quoted
//! words or, for command lines, as a file of its own, byte for byte.

use std::collections::BTreeSet;

use tunnel_proto::terminal::TERMINAL_PORT;

use super::{Architecture, Editor, PipelineFacts, PipelineSettings, Proof, environment};
use crate::devfile::{Command, CommandKind, Component, Devfile, EDITOR_PORT, Exposure, PROJECTS_PATH};
use crate::project::{Project, folder_of};
use crate::shell;
use gateway_types::hexadecimal;

/// Files that are the same for every workspace. The first one is the one that runs.
const FIXED: [(&str, &str); 5] = [
    ("job.sh", include_str!("scripts/job.sh")),
    ("common.sh", include_str!("scripts/common.sh")),
    ("prepare.sh", include_str!("scripts/prepare.sh")),
    ("project.sh", include_str!("scripts/project.sh")),
    ("services.sh", include_str!("scripts/services.sh")),
];

/// `id_tokens` of a job. Each is good for one process of the agent, so that so many can follow each other.
pub(super) const ID_TOKENS: usize = 5;

/// A command that runs when the workspace has started.
struct Exec<'a> {
    id: &'a str,
    line: &'a str,
    folder: String,
}

/// Returns the text.
pub(super) fn text(devfile: &Devfile, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> String {
    // The first line is shown in the log, by programs that do not always quote it.
    let mut text = format!("# workspace {}, run {}\n", facts.workspace, facts.run);
    // Some CI systems clean this folder up after a job that was killed.
    text.push_str("[ -d \"${GW_PRIVATE_DIR:-}\" ] || GW_PRIVATE_DIR=${TMPDIR:-/tmp}\n");
    text.push_str("gw_job=$(mktemp -d \"$GW_PRIVATE_DIR/workspace.XXXXXX\") || exit 1\n");
    for (name, content) in files(devfile, settings, facts) {
        text.push_str(&format!("printf %s {} >\"$gw_job/{name}\"\n", shell::word(&content)));
    }
    text.push_str("exec /bin/sh \"$gw_job/job.sh\" \"$gw_job\" </dev/null\n");
    text
}

/// Returns the files with their names.
pub(super) fn files(
    devfile: &Devfile,
    settings: &PipelineSettings,
    facts: &PipelineFacts<'_>,
) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = FIXED.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let mut add = |name: &str, text: String| files.push((name.to_owned(), text));
    let main = devfile.components.iter().find(|component| component.is_main);
    let commands = commands(devfile);
    add("settings.sh", self::settings(main, settings, facts));
    add("agent.sh", agent(main, settings, facts));
    if let Some(main) = main {
        add("environment.sh", environment::script(main, facts));
        if let Some(script) = main_process(main) {
            add("main.sh", script);
        }
    }
    if let Some(certificates) = &settings.ca_pem {
        add("ca.pem", certificates.clone());
    }
    let mut script = String::new();
    for (number, Exec { id, line, folder }) in commands.iter().enumerate() {
        script.push_str(&format!("gw_folder_{number}() {{ cd -- {}; }}\n", shell::path(folder)));
        script.push_str(&format!("run_command {} {number}\n", shell::word(id)));
        add(&format!("command-{id}"), (*line).to_owned());
    }
    add("commands.sh", script);
    files
}

/// The commands that run when the workspace has started, in order.
fn commands(devfile: &Devfile) -> Vec<Exec<'_>> {
    let find = |id: &String| devfile.commands.iter().find(|command| command.id == *id);
    devfile.events.post_start.iter().filter_map(find).filter_map(exec).collect()
}

fn exec(command: &Command) -> Option<Exec<'_>> {
    match &command.kind {
        CommandKind::Exec { command_line, working_dir, .. } => {
            Some(Exec { id: &command.id, line: command_line, folder: folder(working_dir.as_deref()) })
        }
        CommandKind::Apply { .. } => None,
    }
}

/// Returns the working directory of a command. The folder of projects is elsewhere in a job than in a pod.
fn folder(said: Option<&str>) -> String {
    let Some(said) = said else { return "$PROJECT_SOURCE".to_owned() };
    match said.strip_prefix(PROJECTS_PATH) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("${{PROJECTS_ROOT}}{rest}"),
        Some(_) | None => said.to_owned(),
    }
}

/// Returns the settings that the fixed scripts read.
fn settings(main: Option<&Component>, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> String {
    let mut text = String::new();
    let mut set = |name: &str, value: &str| text.push_str(&format!("gw_{name}={}\n", shell::word(value)));
    set("workspace", facts.workspace.as_str());
    set("run", &facts.run.to_string());
    set("folder", &folder_name(facts.cache_key));
    set("inherit", &settings.inherit_variables.join(" "));
    set("seconds", &settings.job_time().script_end().as_secs().to_string());
    let Project { url, reference } = facts.project.cloned().unwrap_or(Project { url: String::new(), reference: None });
    set("project_folder", &folder_of(&url));
    set("project_url", &url);
    set("project_reference", &reference.unwrap_or_default());
    let (editor, url, sha256) = match &settings.editor {
        Editor::None => ("none", "", String::new()),
        Editor::Installed => ("installed", "", String::new()),
        Editor::Archive { url, sha256 } => ("archive", url.as_str(), hexadecimal(sha256)),
    };
    set("editor", editor);
    set("editor_url", url);
    set("editor_sha256", &sha256);
    set("editor_port", &EDITOR_PORT.to_string());
    let (tokens, single_use) = match &settings.proof {
        Proof::IdToken { .. } => (ID_TOKENS, "yes"),
        Proof::FileVariable => (1, "no"),
    };
    set("tokens", &tokens.to_string());
    set("single_use", single_use);
    text.push_str(&functions(main, settings, facts));
    text
}

fn functions(main: Option<&Component>, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> String {
    let mut text = "agent_for() {\n  case $1 in\n".to_owned();
    for agent in &settings.agents {
        let names = match agent.architecture {
            Architecture::Amd64 => "x86_64 | amd64",
            Architecture::Arm64 => "aarch64 | arm64",
        };
        let (url, sha256) = (shell::word(&agent.url), hexadecimal(&agent.sha256));
        text.push_str(&format!("    {names}) gw_agent_url={url} gw_agent_sha256={sha256} ;;\n"));
    }
    text.push_str("    *) return 1 ;;\n  esac\n}\ntake_proof() {\n");
    match &settings.proof {
        Proof::IdToken { .. } => {
            for number in 1..=ID_TOKENS {
                text.push_str(&format!("  printf %s \"$GW_ID_TOKEN_{number}\" >\"$gw_job/token-{number}\"\n"));
            }
        }
        Proof::FileVariable => {
            text.push_str("  keep \"${WORKSPACE_AGENT_TOKEN_FILE:-}\" \"$gw_job/token-1\" 'the token of the agent'\n");
        }
    }
    text.push_str("}\ntake_variables() {\n  :\n");
    for (number, variable) in environment::numbered(facts.variables) {
        let to = if variable.is_file { format!("files/{}", variable.name) } else { format!("variables/{number}") };
        let what = shell::word(&format!("the variable {}", variable.name));
        text.push_str(&format!("  keep_value \"${{GW_VAR_{number}-?}}\" \"$gw_job/{to}\" {what}\n"));
    }
    text.push_str("}\nrun_main() {\n");
    let stays = main.and_then(main_process).is_some();
    text.push_str(if stays { "  supervise main /bin/sh \"$gw_job/main.sh\"\n}\n" } else { "  :\n}\n" });
    text
}

/// Returns the process that the main container runs beside ours; `None` for nothing.
fn main_process(main: &Component) -> Option<String> {
    if main.override_command || main.command.is_empty() {
        return None;
    }
    let words = main.command.iter().chain(&main.args).map(|word| shell::word(word));
    Some(format!("exec {}\n", words.collect::<Vec<_>>().join(" ")))
}

fn agent(main: Option<&Component>, settings: &PipelineSettings, facts: &PipelineFacts<'_>) -> String {
    let mut text = format!(
        "exec \"$gw_job/workspace-agent\" run --gateway {} --token-file \"$gw_job/token-$gw_token\" --terminal",
        shell::word(facts.agents_url)
    );
    let default = match settings.editor {
        Editor::None => TERMINAL_PORT,
        Editor::Installed | Editor::Archive { .. } => EDITOR_PORT,
    };
    text.push_str(&format!(" --default-port {default}"));
    // Named, all of them but the terminal's, which is the agent's own. With none named, all would be reachable, and on
    // some runners the loopback interface has ports that are no business of a workspace.
    let endpoints = main.map(|main| main.endpoints.as_slice()).unwrap_or_default();
    let reachable = endpoints.iter().filter(|one| one.exposure != Exposure::None && one.protocol != "udp");
    let asked = facts.ports.iter().map(|port| port.get());
    let ports: BTreeSet<u16> = reachable.map(|one| one.target_port).chain(asked).chain([EDITOR_PORT]).collect();
    for port in ports {
        text.push_str(&format!(" --port {port}"));
    }
    if settings.ca_pem.is_some() {
        text.push_str(" --ca-file \"$gw_job/ca.pem\"");
    }
    text.push('\n');
    text
}

/// Names the folder that one job leaves to the next one. Some programs make sockets in it, whose paths cannot be long.
pub(super) fn folder_name(cache_key: &str) -> String {
    let end = cache_key.len().saturating_sub(8);
    format!("workspace-{}", cache_key.get(end..).unwrap_or_default())
}
