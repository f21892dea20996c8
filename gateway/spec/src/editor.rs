//! Editors of workspaces: those that an operator offers in a cluster, and the one that a user chose among them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::document::{Location, Problems, ValueAt, show};
use crate::syntax::is_dns_label;

/// The editor that the tools image brings, which needs no command. Offered where the configuration names no editors.
pub const CODE_SERVER: &str = "code-server";

/// Name of the choice of no editor at all.
pub const NO_EDITOR: &str = "none";

/// Most editors of a cluster.
const EDITORS_MAX: usize = 16;

/// Longest command, in bytes.
const COMMAND_BYTES_MAX: usize = 4096;

/// An editor that a cluster offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Editor {
    /// Its name, a DNS label.
    pub name: String,
    /// Line for the shell that starts it in the main container; `None` for the one of the tools image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// The editor of one workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Chosen<'c> {
    /// That of the tools image.
    #[default]
    CodeServer,
    /// A program that this line of shell starts.
    Command(&'c str),
    /// None at all.
    None,
}

/// A name that no editor of the cluster has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("is no editor of this cluster: {offered}")]
pub struct NoSuchEditor {
    /// What can be chosen, in words.
    offered: String,
}

/// Finds the editor of a name among those that a cluster offers; the first one if there is no name.
///
/// # Errors
/// [`NoSuchEditor`] says what there is.
pub fn choose<'c>(editors: &'c [Editor], name: Option<&str>) -> Result<Chosen<'c>, NoSuchEditor> {
    let start = |editor: &'c Editor| editor.command.as_deref().map_or(Chosen::CodeServer, Chosen::Command);
    match name {
        Some(NO_EDITOR) => Ok(Chosen::None),
        None => Ok(editors.first().map(start).unwrap_or_default()),
        Some(CODE_SERVER) if editors.is_empty() => Ok(Chosen::CodeServer),
        Some(name) => editors.iter().find(|editor| editor.name == name).map(start).ok_or_else(|| {
            let mut names: Vec<&str> = editors.iter().map(|editor| editor.name.as_str()).collect();
            if names.is_empty() {
                names.push(CODE_SERVER);
            }
            NoSuchEditor { offered: format!("{} or {NO_EDITOR}", names.join(", ")) }
        }),
    }
}

/// Reads the editors of a cluster's configuration.
pub(crate) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> Vec<Editor> {
    let mut editors: Vec<(Editor, Location)> = Vec::new();
    for item in at.items(problems) {
        let Some(mut fields) = item.fields(problems) else {
            continue;
        };
        let name_at = fields.require("name", problems);
        let name = name_at.as_ref().and_then(|at| Some((read_name(at, problems)?, at.node.place)));
        let command_at = fields.take("command");
        let is_said = command_at.is_some();
        let command = command_at.and_then(|at| read_command(&at, problems));
        fields.finish(problems);
        let (Some((name, place)), Some(at)) = (name, name_at) else {
            continue;
        };
        if let Some((_, first)) = editors.iter().find(|(editor, _)| editor.name == name) {
            at.object(problems, format!("is the name of another editor, on line {}", first.line));
        } else if !is_said && name != CODE_SERVER {
            at.object(problems, format!("needs a command: only {CODE_SERVER} is in the tools image"));
        } else {
            editors.push((Editor { name, command }, place));
        }
    }
    if editors.len() > EDITORS_MAX {
        at.object(problems, format!("are {}, and must not be more than {EDITORS_MAX}", editors.len()));
    }
    editors.into_iter().map(|(editor, _)| editor).collect()
}

fn read_name(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    let name = at.text(problems)?;
    if !is_dns_label(name) || name == NO_EDITOR {
        let message = format!("must be a-z, 0-9 and dashes inside, and not {NO_EDITOR}; it is {}", show(name));
        at.object(problems, message);
        return None;
    }
    Some(name.to_owned())
}

fn read_command(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    let command = at.text(problems)?;
    if command.trim().is_empty() || command.len() > COMMAND_BYTES_MAX || command.contains('\0') {
        at.object(problems, format!("must be a line for the shell, of at most {COMMAND_BYTES_MAX} bytes"));
        return None;
    }
    Some(command.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn editor(name: &str, command: Option<&str>) -> Editor {
        Editor { name: name.to_owned(), command: command.map(str::to_owned) }
    }

    #[test]
    fn first_editor_is_the_default_and_names_choose_among_those_of_the_cluster() {
        let (own, several) = ([], [editor("lab", Some("lab --here")), editor(CODE_SERVER, None)]);
        assert_eq!(choose(&own, None), Ok(Chosen::CodeServer));
        assert_eq!(choose(&own, Some(CODE_SERVER)), Ok(Chosen::CodeServer));
        assert_eq!(choose(&several, None), Ok(Chosen::Command("lab --here")));
        assert_eq!(choose(&several, Some(CODE_SERVER)), Ok(Chosen::CodeServer));
        assert_eq!(choose(&several, Some("lab")), Ok(Chosen::Command("lab --here")));
        for editors in [&own[..], &several] {
            assert_eq!(choose(editors, Some(NO_EDITOR)), Ok(Chosen::None));
        }
        let told = |editors, name| choose(editors, Some(name)).unwrap_err().to_string();
        assert_eq!(told(&own, "lab"), "is no editor of this cluster: code-server or none");
        assert_eq!(told(&several, "vi"), "is no editor of this cluster: lab, code-server or none");
        assert_eq!(told(&several[..1], CODE_SERVER), "is no editor of this cluster: lab or none");
    }
}
