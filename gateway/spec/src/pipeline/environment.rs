//! Environment of everything in a workspace, as a script that a shell reads before it becomes the process.
//!
//! The workspace's variables come first, then ours, then the devfile's, byte for byte. Values of secrets are read from
//! their files here, so that they are in no visible text and in no argument.

use super::{PipelineFacts, VariableName};
use crate::devfile::Component;
use crate::shell;
use crate::syntax::url_template;

/// Variable with the URL for the editor's list of ports.
const PROXY: &str = "VSCODE_PROXY_URI";

/// Variables that are ours in each workspace, by the words of the script that have their values.
const OWN: [(&str, &str); 4] = [
    ("PROJECTS_ROOT", "$gw_projects"),
    ("PROJECT_SOURCE", "$gw_source"),
    ("GW_FILES_DIR", "$gw_job/files"),
    ("GW_LOGS_DIR", "$gw_logs"),
];

/// Returns the script.
pub(super) fn script(main: &Component, facts: &PipelineFacts<'_>) -> String {
    let mut text = String::new();
    let secrets = || numbered(facts.variables).filter(|(_, variable)| !variable.is_file);
    // All are read before any is set: one of them may change how programs are found.
    for (number, _) in secrets() {
        text.push_str(&format!("gw_value_{number}=$(cat \"$gw_job/variables/{number}\"; echo x)\n"));
    }
    for (number, VariableName { name, .. }) in secrets() {
        text.push_str(&format!("{name}=${{gw_value_{number}%x}}\nexport {name}\n"));
    }
    for (name, value) in OWN {
        text.push_str(&format!("{name}={value}\nexport {name}\n"));
    }
    let template = url_template(facts.public_url, facts.workspace.as_str(), facts.zone.as_str());
    let proxy = template.replace("{port}", "{{port}}");
    for (name, value) in [("GW_WORKSPACE", facts.workspace.as_str()), ("GW_URL_TEMPLATE", &template), (PROXY, &proxy)] {
        text.push_str(&format!("{name}={}\nexport {name}\n", shell::word(value)));
    }
    for (name, value) in &main.env {
        text.push_str(&format!("{name}={}\nexport {name}\n", shell::word(value)));
    }
    text
}

/// Numbers the workspace's variables as the CI system has them.
pub(super) fn numbered(variables: &[VariableName]) -> impl Iterator<Item = (usize, &VariableName)> {
    variables.iter().enumerate().map(|(index, variable)| (index + 1, variable))
}
