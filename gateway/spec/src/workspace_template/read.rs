//! Parses a file into a template, and finds references that mean nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::parameter::ParameterPattern;
use super::render::{self, parameter_of};
use super::{
    OPTIONS_MAX, PARAMETERS_MAX, Parameter, ParameterKind, ParameterValues, TEMPLATE_BYTES_MAX, WorkspaceTemplate,
    is_parameter_name,
};
use crate::devfile;
use crate::devfile::variables::{Piece, pieces};
use crate::document::{self, Location, MapFields, Node, Problem, Problems, Value, ValueAt, push_index, push_key, show};
use crate::project::{BadProject, PROJECTS_MAX, Project};
use gateway_types::IdleLimit;

/// Longest title of a template or parameter, in characters.
const TITLE_MAX: usize = 100;

/// Longest description, in characters.
const DESCRIPTION_MAX: usize = 1000;

/// Parses a template.
pub(super) fn template(bytes: &[u8]) -> Result<WorkspaceTemplate, Vec<Problem>> {
    let mut problems = Problems::default();
    let root = document::parse(bytes, TEMPLATE_BYTES_MAX, &mut problems);
    let template = root.and_then(|root| read(&root, &mut problems));
    let found = problems.finish();
    let Some(template) = template.filter(|_| found.is_empty()) else {
        return Err(found);
    };
    let found = trial(&template);
    if found.is_empty() { Ok(template) } else { Err(found) }
}

/// Reads the tree. `None` only with a problem noted; with problems, the result is incomplete.
fn read(root: &Node, problems: &mut Problems) -> Option<WorkspaceTemplate> {
    let mut fields = ValueAt::root(root).fields(problems)?;
    let title = fields.take("title").and_then(|at| shown(&at, TITLE_MAX, problems));
    let description = fields.take("description").and_then(|at| shown(&at, DESCRIPTION_MAX, problems));
    let written = fields.take("parameters").map(|at| parameters(&at, problems)).unwrap_or_default();
    let parameters: Vec<Parameter> = written.iter().map(|written| written.parameter.clone()).collect();
    let mut references = References { parameters: &parameters, used: BTreeSet::new(), problems };
    let devfile = fields.require("devfile", references.problems);
    if let Some(at) = &devfile {
        references.devfile(at);
    }
    let projects = fields.take("projects").map(|at| references.projects(&at)).unwrap_or_default();
    let References { used, .. } = references;
    for WrittenParameter { parameter: Parameter { name, .. }, path, place } in written {
        if !used.contains(&name) {
            let message = format!("is used nowhere: write {{{{parameters.{name}}}}} where its value belongs");
            problems.add(path, Some(place), message);
        }
    }
    let editor = fields.take("editor").and_then(|at| at.text(problems)).map(str::to_owned);
    let idle = fields.take("idle_minutes").map_or(IdleLimit::Inherited, |at| idle(&at, problems));
    fields.finish(problems);
    Some(WorkspaceTemplate {
        title,
        description,
        devfile: Arc::new(devfile?.node.clone()),
        projects,
        editor,
        idle,
        parameters,
    })
}

/// Returns the problems of the devfile with values that need no user, if each parameter has one.
fn trial(template: &WorkspaceTemplate) -> Vec<Problem> {
    let sample = |parameter: &Parameter| Some((parameter.name.clone(), parameter.sample()?.to_owned()));
    let Some(values) = template.parameters.iter().map(sample).collect::<Option<ParameterValues>>() else {
        return Vec::new();
    };
    let mut problems = Problems::default();
    // The tree knows its places in the file, which the rendered text does not.
    devfile::read(render::devfile(&template.devfile, &values), &mut problems);
    let inside = |problem: Problem| {
        let path = if problem.path.is_empty() { "devfile".to_owned() } else { format!("devfile.{}", problem.path) };
        Problem { path, ..problem }
    };
    problems.finish().into_iter().map(inside).collect()
}

/// Reads a text for people.
fn shown(at: &ValueAt<'_>, chars_max: usize, problems: &mut Problems) -> Option<String> {
    let text = at.text(problems)?;
    if text.chars().count() > chars_max || text.contains(|letter: char| letter.is_control() && letter != '\n') {
        at.object(problems, format!("must be text of at most {chars_max} characters"));
    }
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn idle(at: &ValueAt<'_>, problems: &mut Problems) -> IdleLimit {
    let minutes = match &at.node.value {
        Value::Number(text) => text.parse::<f64>().ok(),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    };
    minutes.and_then(|minutes| IdleLimit::of_minutes(minutes).ok()).unwrap_or_else(|| {
        at.object(problems, "must be a number of minutes, 0 for no idle stop");
        IdleLimit::Inherited
    })
}

/// A parameter, and where it is defined.
struct WrittenParameter {
    parameter: Parameter,
    path: String,
    place: Location,
}

fn parameters(at: &ValueAt<'_>, problems: &mut Problems) -> Vec<WrittenParameter> {
    let items = at.items(problems);
    if items.len() > PARAMETERS_MAX {
        at.object(problems, format!("are {}, and a template has at most {PARAMETERS_MAX} parameters", items.len()));
    }
    let mut found: Vec<WrittenParameter> = Vec::new();
    for item in items.iter().take(PARAMETERS_MAX) {
        let Some(mut fields) = item.fields(problems) else { continue };
        let Some(parameter) = parameter(&mut fields, problems) else { continue };
        fields.finish(problems);
        if found.iter().any(|other| other.parameter.name == parameter.name) {
            let message = format!("is there twice: {}", show(&parameter.name));
            problems.add(push_key(&item.path, "name"), Some(item.node.place), message);
            continue;
        }
        found.push(WrittenParameter { parameter, path: item.path.clone(), place: item.node.place });
    }
    found
}

/// Reads a parameter; `None` only with a problem noted.
fn parameter(fields: &mut MapFields<'_>, problems: &mut Problems) -> Option<Parameter> {
    let name_at = fields.require("name", problems);
    let name = name_at.as_ref().and_then(|at| at.text(problems));
    if let (Some(at), Some(name)) = (&name_at, name)
        && !is_parameter_name(name)
    {
        let message = "must begin with a letter and have at most 63 letters, digits, dashes and underscores";
        at.object(problems, format!("{message}; it is {}", show(name)));
    }
    let title = fields.take("title").and_then(|at| shown(&at, TITLE_MAX, problems));
    let description = fields.take("description").and_then(|at| shown(&at, DESCRIPTION_MAX, problems));
    let kind = kind(fields, problems);
    let default_at = fields.take("default");
    let default = default_at.as_ref().and_then(|at| scalar(at, problems));
    let required = fields.take("required").and_then(|at| at.boolean(problems));
    let is_required = required.unwrap_or(default.is_none() && kind != ParameterKind::Boolean);
    let parameter = Parameter { name: name?.to_owned(), title, description, default, kind, is_required };
    if let (Some(at), Some(default)) = (&default_at, &parameter.default)
        && let Err(wrong) = parameter.check(default)
    {
        at.object(problems, format!("cannot be the default: it {wrong}"));
    }
    Some(parameter)
}

/// Reads which values a parameter takes.
fn kind(fields: &mut MapFields<'_>, problems: &mut Problems) -> ParameterKind {
    let (kind, pattern, options) = (fields.take("kind"), fields.take("pattern"), fields.take("options"));
    let named = kind.as_ref().and_then(|at| Some((at, at.text(problems)?)));
    let kind = match named {
        None | Some((_, "text")) => ParameterKind::Text,
        Some((_, "number")) => ParameterKind::Number,
        Some((_, "boolean")) => ParameterKind::Boolean,
        Some((at, other)) => {
            at.object(problems, format!("must be text, number or boolean, not {}", show(other)));
            ParameterKind::Text
        }
    };
    match (kind, pattern, options) {
        (kind, None, None) => kind,
        (ParameterKind::Text, Some(at), None) => {
            let pattern = at.text(problems).map(ParameterPattern::new);
            match pattern {
                Some(Ok(pattern)) => ParameterKind::Pattern(pattern),
                Some(Err(wrong)) => {
                    at.object(problems, wrong);
                    ParameterKind::Text
                }
                None => ParameterKind::Text,
            }
        }
        (ParameterKind::Text, None, Some(at)) => self::options(&at, problems),
        (kind, pattern, options) => {
            for at in [pattern, options].into_iter().flatten() {
                at.object(problems, "does not go with another rule: a parameter has a kind, a pattern or options");
            }
            kind
        }
    }
}

fn options(at: &ValueAt<'_>, problems: &mut Problems) -> ParameterKind {
    let items = at.items(problems);
    if items.is_empty() || items.len() > OPTIONS_MAX {
        at.object(problems, format!("must be 1 to {OPTIONS_MAX} texts"));
    }
    let mut options: Vec<String> = Vec::new();
    for item in items.iter().take(OPTIONS_MAX) {
        let Some(option) = scalar(item, problems) else { continue };
        if option.is_empty() || option.contains(char::is_control) || option.chars().count() > TITLE_MAX {
            item.object(problems, format!("must be one line of 1 to {TITLE_MAX} characters"));
        } else if options.contains(&option) {
            item.object(problems, format!("is there twice: {}", show(&option)));
        } else {
            options.push(option);
        }
    }
    if options.is_empty() { ParameterKind::Text } else { ParameterKind::Options(options) }
}

/// Reads a value of a parameter, which may be written as the number or truth that it is.
fn scalar(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    match &at.node.value {
        Value::Number(text) | Value::Text(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => at.text(problems).map(str::to_owned),
    }
}

/// The references of a file to its parameters.
struct References<'t, 'p> {
    parameters: &'t [Parameter],
    used: BTreeSet<String>,
    problems: &'p mut Problems,
}

impl References<'_, '_> {
    fn devfile(&mut self, at: &ValueAt<'_>) {
        let Some(entries) = at.entries(self.problems) else { return };
        for (key, place, value) in entries {
            if key == "variables" {
                for (name, place, at) in value.entries(self.problems).unwrap_or_default() {
                    if parameter_of(name).is_some() {
                        self.problems.add(
                            at.path,
                            Some(place),
                            "must not begin with parameters., as references to parameters do",
                        );
                    }
                }
            }
            self.key(key, ValueAt { path: value.path.clone(), node: value.node }, place);
            self.value(&value);
        }
    }

    /// Descends; the tree is at most [`crate::document::DEPTH_MAX`] deep.
    fn value(&mut self, at: &ValueAt<'_>) {
        match &at.node.value {
            Value::Text(text) => self.text(at, text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    self.value(&ValueAt { path: push_index(&at.path, index), node });
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let inner = ValueAt { path: push_key(&at.path, &entry.key), node: &entry.node };
                    self.key(&entry.key, inner.clone(), entry.place);
                    self.value(&inner);
                }
            }
        }
    }

    fn key(&mut self, key: &str, at: ValueAt<'_>, place: Location) {
        if !parameters_in(key).is_empty() {
            self.problems.add(at.path, Some(place), "a key cannot hold a parameter, only a value can");
        }
    }

    fn text(&mut self, at: &ValueAt<'_>, text: &str) {
        for name in parameters_in(text) {
            match self.parameters.iter().any(|parameter| parameter.name == name) {
                true => {
                    self.used.insert(name.to_owned());
                }
                false => {
                    at.object(self.problems, format!("refers to the parameter {}, which there is not", show(name)))
                }
            }
        }
        if is_misspelt(text) {
            at.object(self.problems, "has a reference to a parameter that is none: it is written {{parameters.NAME}}");
        }
    }

    /// Reads the projects, whose texts may have references.
    fn projects(&mut self, at: &ValueAt<'_>) -> Vec<Project> {
        let items = at.items(self.problems);
        if items.len() > PROJECTS_MAX {
            at.object(self.problems, format!("are {}, and a workspace has at most {PROJECTS_MAX}", items.len()));
        }
        let mut projects = Vec::new();
        for item in items.iter().take(PROJECTS_MAX) {
            let Some(mut fields) = item.fields(self.problems) else { continue };
            let (url, reference) = (fields.require("url", self.problems), fields.take("ref"));
            fields.finish(self.problems);
            let mut read = |at: &Option<ValueAt<'_>>| {
                let at = at.as_ref()?;
                let text = at.text(self.problems)?;
                self.text(at, text);
                Some(text.to_owned())
            };
            let (Some(url_text), reference_text) = (read(&url), read(&reference)) else { continue };
            let project = Project { url: url_text, reference: reference_text };
            for problem in project.problems() {
                let (at, text) = match problem {
                    BadProject::Url | BadProject::Credentials => (&url, Some(&project.url)),
                    BadProject::Reference => (&reference, project.reference.as_ref()),
                };
                // With a value in it, it may be another.
                if let (Some(at), true) = (at, text.is_some_and(|text| parameters_in(text).is_empty())) {
                    at.object(self.problems, problem.to_string());
                }
            }
            projects.push(project);
        }
        projects
    }
}

/// Returns the parameters that a text refers to.
pub(super) fn parameters_in(text: &str) -> Vec<&str> {
    pieces(text)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Reference { name, .. } => parameter_of(name),
        })
        .collect()
}

/// Returns whether a text has something that was meant as a reference to a parameter, and would reach the devfile as it is.
fn is_misspelt(text: &str) -> bool {
    let is_meant = |rest: &str| rest.trim_start().starts_with("parameters.");
    pieces(text).into_iter().any(|piece| match piece {
        Piece::Text(text) => text.split("{{").skip(1).any(is_meant),
        Piece::Reference { .. } => false,
    })
}
