//! Parses a file into a template: three keys, and objects that are maps.

use std::sync::Arc;

use super::render::{Values, objects};
use super::scalar::{self, Plain};
use super::{Deletion, OBJECTS_MAX, RenderedTemplate, TEMPLATE_BYTES_MAX, Template, TemplateName, language, mask};
use crate::document::{self, Node, Problem, Problems, Value, ValueAt, show};

/// Contents of a template.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// Maps, with placeholders for actions.
    pub(super) objects: Arc<[Node]>,
    pub(super) deletion: Deletion,
}

/// Parses a template.
pub(super) fn template(name: &TemplateName, bytes: &[u8]) -> Result<Template, Vec<Problem>> {
    let mut problems = Problems::default();
    let Some(text) = document::decode(bytes, TEMPLATE_BYTES_MAX, &mut problems) else {
        return Err(problems.finish());
    };
    let Some(scanned) = language::scan(text, &mut problems) else {
        return Err(problems.finish());
    };
    let root = document::parse_text(&scanned.text, TEMPLATE_BYTES_MAX, &scanned, &mut problems);
    let body = root.and_then(|root| body(&root, &mut problems));
    let mut problems = problems.finish();
    match body {
        Some(body) if problems.is_empty() => {
            Ok(Template { name: name.clone(), text: text.into(), actions: scanned.actions.into(), body })
        }
        Some(_) | None => {
            // Messages about a value that is known to be wrong are no further mistakes.
            let is_about = |text: &str| scanned.wrong.iter().any(|wrong| mask::is_in(*wrong, text));
            problems.retain(|problem| !is_about(&problem.path) && !is_about(&problem.message));
            for problem in &mut problems {
                problem.path = mask::unmask(&problem.path, &scanned.actions);
                problem.message = mask::unmask(&problem.message, &scanned.actions);
            }
            Err(problems)
        }
    }
}

/// Parses a rendered template.
pub(super) fn rendered(name: &TemplateName, bytes: &[u8], bytes_max: usize) -> Result<RenderedTemplate, Vec<Problem>> {
    let mut problems = Problems::default();
    let text = document::decode(bytes, bytes_max, &mut problems);
    let root = text.and_then(|text| document::parse_text(text, bytes_max, &Plain, &mut problems));
    let body = root.and_then(|root| body(&root, &mut problems));
    let problems = problems.finish();
    match body {
        Some(body) if problems.is_empty() => {
            let objects = objects(&body.objects, &Values::default())?;
            Ok(RenderedTemplate { template: name.clone(), deletion: body.deletion, objects })
        }
        Some(_) | None => Err(problems),
    }
}

/// Reads the keys of a template. `None` only with a problem noted.
fn body(root: &Node, problems: &mut Problems) -> Option<Body> {
    let mut fields = ValueAt::root(root).fields(problems)?;
    let listed = fields.require("objects", problems);
    let objects = listed.map(|at| read_objects(&at, problems)).unwrap_or_default();
    if let Some(at) = fields.take("apply_resources") {
        choice(&at, &["on_start"], problems);
    }
    let deletion = fields.take("delete_resources").and_then(|at| {
        let both = [Deletion::OnStop.as_str(), Deletion::Never.as_str()];
        choice(&at, &both, problems).and_then(Deletion::from_text)
    });
    fields.finish(problems);
    Some(Body { objects, deletion: deletion.unwrap_or_default() })
}

fn read_objects(at: &ValueAt<'_>, problems: &mut Problems) -> Arc<[Node]> {
    let items = at.items(problems);
    if items.len() > OBJECTS_MAX {
        at.object(problems, format!("has {} objects, and must not have more than {OBJECTS_MAX}", items.len()));
        return Arc::default();
    }
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        if item.entries(problems).is_some() {
            check_numbers(&item.path, item.node, problems);
            objects.push(item.node.clone());
        }
    }
    objects.into()
}

/// Reads one of the allowed texts.
fn choice<'n>(at: &ValueAt<'n>, allowed: &[&str], problems: &mut Problems) -> Option<&'n str> {
    let text = at.text(problems)?;
    if !allowed.contains(&text) {
        at.object(problems, format!("must be {}; it is {}", allowed.join(" or "), show(text)));
        return None;
    }
    Some(text)
}

/// Notes numbers that JSON does not have.
fn check_numbers(path: &str, node: &Node, problems: &mut Problems) {
    match &node.value {
        Value::Number(text) if !text.contains(mask::is_mask) && scalar::number(text).is_none() => {
            problems.add(path, Some(node.place), format!("is no number that Kubernetes takes: {}", show(text)));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                check_numbers(&document::push_index(path, index), item, problems);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                check_numbers(&document::push_key(path, &entry.key), &entry.node, problems);
            }
        }
    }
}
