//! `commands`.

use std::collections::BTreeMap;

use super::components::{ComponentKind, Declared};
use super::{Command, CommandKind, names};
use crate::document::{Location, MapFields, Problems, ValueAt, show};

/// Longest working directory, in bytes: the limit of Linux for a path.
const PATH_MAX: usize = 4095;

/// Types of commands that the schema has and workspaces have not.
const OTHER_TYPES: [&str; 5] = ["composite", "vscodeTask", "vscodeLaunch", "custom", "plugin"];

const OTHER_TYPE: &str = "is not supported: a command is an exec or an apply";

/// Options of both types that the schema has and workspaces have not.
const GROUP: (&str, &str) = ("group", "is not supported: commands run by events alone");

/// The commands of a file, as events refer to them.
#[derive(Debug, Default)]
pub(super) struct Commands {
    pub(super) found: Vec<Command>,
    /// Kind of the command with each id; `None` for a command with problems.
    pub(super) ids: BTreeMap<String, Option<CommandKind>>,
    /// The main component's name.
    pub(super) main: Option<String>,
}

/// Reads the list.
pub(super) fn read(at: &ValueAt<'_>, declared: &Declared, problems: &mut Problems) -> Commands {
    let mut commands = Commands { main: declared.main.clone(), ..Commands::default() };
    let mut places: BTreeMap<String, Location> = BTreeMap::new();
    for item in at.items(problems) {
        let Some(mut fields) = item.fields(problems) else {
            continue;
        };
        let id_at = fields.require("id", problems);
        let id = id_at.as_ref().and_then(|at| names::label(at, problems));
        let kind = read_kind(&item, &mut fields, declared, problems);
        fields.take("attributes");
        fields.finish(problems);
        let (Some(id_at), Some(id)) = (id_at, id) else {
            continue;
        };
        if let Some(first) = places.get(id) {
            id_at.object(problems, format!("is the id of another command, on line {}", first.line));
            continue;
        }
        places.insert(id.to_owned(), id_at.node.place);
        commands.ids.insert(id.to_owned(), kind.clone());
        commands.found.extend(kind.map(|kind| Command { id: id.to_owned(), kind }));
    }
    commands
}

fn read_kind(
    at: &ValueAt<'_>,
    fields: &mut MapFields<'_>,
    declared: &Declared,
    problems: &mut Problems,
) -> Option<CommandKind> {
    let (exec, apply) = (fields.take("exec"), fields.take("apply"));
    let refused = fields.refuse(&OTHER_TYPES.map(|name| (name, OTHER_TYPE)), problems);
    match (exec, apply) {
        (Some(exec), None) => read_exec(&exec, declared, problems),
        (None, Some(apply)) => read_apply(&apply, declared, problems),
        (Some(_), Some(_)) => {
            at.object(problems, "is an exec and an apply: it can be one of them");
            None
        }
        (None, None) => {
            if refused == 0 {
                at.object(problems, "has no type: it must have an exec or an apply");
            }
            None
        }
    }
}

fn read_exec(at: &ValueAt<'_>, declared: &Declared, problems: &mut Problems) -> Option<CommandKind> {
    let mut fields = at.fields(problems)?;
    let component = read_component(&mut fields, declared, problems);
    let line_at = fields.require("commandLine", problems);
    let command_line = line_at.as_ref().and_then(|at| at.text(problems));
    if let Some(at) = line_at
        && command_line == Some("")
    {
        at.object(problems, "is empty");
    }
    let label = read_label(&mut fields, problems);
    let working_dir = fields.take("workingDir").and_then(|at| read_working_dir(&at, problems));
    if let Some(at) = fields.take("hotReloadCapable")
        && at.boolean(problems) == Some(true)
    {
        at.object(problems, "must be false: nothing here starts a command again");
    }
    fields.refuse(&[GROUP, ("env", "is not supported: set variables in the container, or in the line")], problems);
    fields.finish(problems);
    Some(CommandKind::Exec { component: component?, command_line: command_line?.to_owned(), label, working_dir })
}

fn read_apply(at: &ValueAt<'_>, declared: &Declared, problems: &mut Problems) -> Option<CommandKind> {
    let mut fields = at.fields(problems)?;
    let component = read_component(&mut fields, declared, problems);
    let label = read_label(&mut fields, problems);
    fields.refuse(&[GROUP], problems);
    fields.finish(problems);
    Some(CommandKind::Apply { component: component?, label })
}

/// Reads the container of a command. `None` only with a problem noted.
fn read_component(fields: &mut MapFields<'_>, declared: &Declared, problems: &mut Problems) -> Option<String> {
    let at = fields.require("component", problems)?;
    let name = at.text(problems)?;
    if names::refuse_reserved(name, &at, problems) {
        return None;
    }
    match declared.kinds.get(name) {
        Some(ComponentKind::Container | ComponentKind::Unclear) => return Some(name.to_owned()),
        Some(ComponentKind::Volume) => at.object(problems, format!("{} is a volume, not a container", show(name))),
        None => at.object(problems, format!("no component has the name {}", show(name))),
    }
    None
}

fn read_label(fields: &mut MapFields<'_>, problems: &mut Problems) -> Option<String> {
    let at = fields.take("label")?;
    let label = names::shown(&at, problems)?;
    names::refuse_reserved(&label, &at, problems);
    Some(label)
}

fn read_working_dir(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    let path = at.text(problems)?;
    if path.is_empty() || path.len() > PATH_MAX || path.contains(char::is_control) {
        at.object(problems, format!("must be a path of one line and at most {PATH_MAX} bytes"));
    }
    Some(path.to_owned())
}
