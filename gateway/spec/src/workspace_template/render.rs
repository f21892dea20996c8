//! Puts values into a template.

use super::read::parameters_in;
use super::{
    BadValue, PARAMETERS_MAX, ParameterFault, ParameterValues, RenderedWorkspace, VALUES_BYTES_MAX, WorkspaceTemplate,
};
use crate::devfile::variables::{Piece, VERBATIM, pieces};
use crate::devfile::{BOOLEAN_KEYS, NUMBER_KEYS};
use crate::document::{MapEntry, Node, Value, write};
use crate::project::{BadProject, Project};

/// What the name of a reference to a parameter begins with.
const PREFIX: &str = "parameters.";

/// Field of a devfile with its variables.
const VARIABLES: &str = "variables";

/// Returns the parameter that a reference is to, if it is one to a parameter.
pub(super) fn parameter_of(reference: &str) -> Option<&str> {
    reference.strip_prefix(PREFIX)
}

/// Renders a template.
pub(super) fn render(
    template: &WorkspaceTemplate,
    given: &ParameterValues,
) -> Result<RenderedWorkspace, Vec<ParameterFault>> {
    let (values, mut faults) = values(template, given);
    let projects = if faults.is_empty() { projects(&template.projects, &values, &mut faults) } else { Vec::new() };
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(RenderedWorkspace {
        devfile: write(&devfile(&template.devfile, &values)),
        projects,
        editor: template.editor.clone(),
        idle: template.idle,
        values,
    })
}

/// Checks what is given, and adds what is not.
fn values(template: &WorkspaceTemplate, given: &ParameterValues) -> (ParameterValues, Vec<ParameterFault>) {
    let (mut values, mut faults) = (ParameterValues::new(), Vec::new());
    for parameter in &template.parameters {
        let said = given.get(&parameter.name).map(String::as_str);
        // Nothing was said, unless an empty text takes the place of a default.
        let said = said.filter(|value| !value.is_empty() || parameter.default.is_some());
        let checked = match said.or_else(|| parameter.unsaid()) {
            Some(value) => parameter.check(value).map(|()| value),
            None => Err(BadValue::Missing),
        };
        match checked {
            Ok(value) => {
                values.insert(parameter.name.clone(), value.to_owned());
            }
            Err(fault) => faults.push(ParameterFault { parameter: parameter.name.clone(), fault }),
        }
    }
    let unknown = given.keys().filter(|name| !template.parameters.iter().any(|parameter| parameter.name == **name));
    let unknown = unknown.map(|name| ParameterFault { parameter: name.clone(), fault: BadValue::Unknown });
    faults.extend(unknown.take(PARAMETERS_MAX));
    if values.values().map(String::len).sum::<usize>() > VALUES_BYTES_MAX {
        faults.push(ParameterFault { parameter: String::new(), fault: BadValue::AllTooLong });
    }
    (values, faults)
}

/// Puts values into the projects. A project that cannot be cloned with them is the fault of each parameter in what is wrong of it.
fn projects(written: &[Project], values: &ParameterValues, faults: &mut Vec<ParameterFault>) -> Vec<Project> {
    let mut projects = Vec::with_capacity(written.len());
    for one in written {
        let project = Project {
            url: filled(&one.url, values),
            reference: one.reference.as_deref().map(|text| filled(text, values)).filter(|text| !text.is_empty()),
        };
        for problem in project.problems() {
            let text = match problem {
                BadProject::Url | BadProject::Credentials => one.url.as_str(),
                BadProject::Reference => one.reference.as_deref().unwrap_or_default(),
            };
            for name in parameters_in(text) {
                if !faults.iter().any(|fault| fault.parameter == name) {
                    faults.push(ParameterFault { parameter: name.to_owned(), fault: BadValue::Project(problem) });
                }
            }
        }
        projects.push(project);
    }
    projects
}

/// Makes the devfile: the template's, with a variable for each value.
pub(super) fn devfile(written: &Node, values: &ParameterValues) -> Node {
    let mut root = written.clone();
    let place = root.place;
    let Value::Map(entries) = &mut root.value else { return root };
    for entry in entries.iter_mut() {
        match VERBATIM.contains(&entry.key.as_str()) {
            true => fill(&mut entry.node, values),
            false => put_others(&entry.key, &mut entry.node, values),
        }
    }
    if values.is_empty() {
        return root;
    }
    let variable = |(name, value): (&String, &String)| MapEntry {
        key: format!("{PREFIX}{name}"),
        place,
        node: Node { place, value: Value::Text(value.clone()) },
    };
    let added = values.iter().map(variable);
    match entries.iter_mut().find(|entry| entry.key == VARIABLES) {
        Some(MapEntry { node: Node { value: Value::Map(variables), .. }, .. }) => variables.extend(added),
        Some(entry) => entry.node.value = Value::Map(added.collect()),
        None => {
            let node = Node { place, value: Value::Map(added.collect()) };
            entries.push(MapEntry { key: VARIABLES.to_owned(), place, node });
        }
    }
    root
}

/// Puts values into texts in which a devfile's variables are not. Descends; the tree is at most [`crate::document::DEPTH_MAX`] deep.
fn fill(node: &mut Node, values: &ParameterValues) {
    match &mut node.value {
        Value::Text(text) => *text = filled(text, values),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::List(nodes) => nodes.iter_mut().for_each(|node| fill(node, values)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| fill(&mut entry.node, values)),
    }
}

/// Puts values in where a devfile has no text, which no variable can be. Descends likewise.
fn put_others(key: &str, node: &mut Node, values: &ParameterValues) {
    match &mut node.value {
        Value::Text(text) => {
            if let Some(other) = other(key, text, values) {
                node.value = other;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::List(nodes) => nodes.iter_mut().for_each(|node| put_others("", node, values)),
        Value::Map(entries) => {
            entries.iter_mut().for_each(|entry| put_others(&entry.key, &mut entry.node, values));
        }
    }
}

/// Returns the number or truth that a text is where one is wanted, if it is one reference and nothing else.
fn other(key: &str, text: &str, values: &ParameterValues) -> Option<Value> {
    let [Piece::Reference { name, .. }] = *pieces(text) else { return None };
    let value = values.get(parameter_of(name)?)?;
    let is_whole = value.len() < 20 && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.as_str() {
        "true" | "false" if BOOLEAN_KEYS.contains(&key) => Some(Value::Bool(value == "true")),
        number if NUMBER_KEYS.contains(&key) && is_whole => Some(Value::Number(number.to_owned())),
        _ => None,
    }
}

/// Returns a text with values in place of references. They are not searched for references.
fn filled(text: &str, values: &ParameterValues) -> String {
    let piece = |piece: Piece<'_>| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Reference { name, written } => {
            parameter_of(name).and_then(|name| values.get(name)).map_or(written, String::as_str).to_owned()
        }
    };
    pieces(text).into_iter().map(piece).collect()
}
