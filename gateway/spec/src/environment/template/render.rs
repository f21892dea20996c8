//! Fills values into scalars: the structure of the tree stays as it is.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use super::language::Action;
use super::{RENDERED_BYTES_MAX, RenderedTemplate, SCALAR_BYTES_MAX, Template, mask, scalar};
use crate::document::{Location, Node, Problem, Problems, Value, push_index, push_key};
use crate::environment::facts::TemplateVars;

/// The value of each action.
#[derive(Default)]
pub(super) struct Values<'a> {
    actions: &'a [Action],
    values: Vec<Cow<'a, str>>,
}

/// Fills facts into a template.
pub(super) fn render(template: &Template, info: &TemplateVars) -> Result<RenderedTemplate, Vec<Problem>> {
    let mut problems = Problems::default();
    let mut values = Vec::with_capacity(template.actions.len());
    for action in template.actions.iter() {
        match action.variable.value(info) {
            Some(value) => values.push(value),
            None => {
                let message = format!("{} has no value here", action.variable.name());
                problems.add("", Some(action.place), message);
            }
        }
    }
    let problems = problems.finish();
    if !problems.is_empty() {
        return Err(problems);
    }
    let objects = objects(&template.body.objects, &Values { actions: &template.actions, values })?;
    Ok(RenderedTemplate { template: template.name.clone(), deletion: template.body.deletion, objects })
}

/// Fills values into objects.
pub(super) fn objects(nodes: &[Node], values: &Values<'_>) -> Result<Vec<Json>, Vec<Problem>> {
    let mut render = Render { values, left: RENDERED_BYTES_MAX, is_full: false, problems: Problems::default() };
    let one = |(index, node)| render.value(&push_index("objects", index), node);
    let objects = nodes.iter().enumerate().map(one).collect();
    let mut problems = render.problems.finish();
    for problem in &mut problems {
        problem.path = mask::unmask(&problem.path, values.actions);
    }
    if problems.is_empty() { Ok(objects) } else { Err(problems) }
}

struct Render<'a> {
    values: &'a Values<'a>,
    /// Bytes of text that may still be made.
    left: usize,
    is_full: bool,
    problems: Problems,
}

impl Render<'_> {
    fn value(&mut self, path: &str, node: &Node) -> Json {
        if self.is_full {
            return Json::Null;
        }
        match &node.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(text) => {
                let text = self.text(path, node.place, text);
                // Go, too, takes more digits than any number has as text.
                scalar::number(&text).map_or(Json::String(text), Json::Number)
            }
            Value::Text(text) => Json::String(self.text(path, node.place, text)),
            Value::List(nodes) => {
                let one = |(index, node)| self.value(&push_index(path, index), node);
                Json::Array(nodes.iter().enumerate().map(one).collect())
            }
            Value::Map(entries) => {
                let mut fields = Map::new();
                for entry in entries {
                    let path = push_key(path, &entry.key);
                    let key = self.text(&path, entry.place, &entry.key);
                    let value = self.value(&path, &entry.node);
                    if self.is_full {
                        break;
                    }
                    if fields.insert(key, value).is_some() {
                        self.problems.add(path, Some(entry.place), "is there twice, now that the values are in");
                    }
                }
                Json::Object(fields)
            }
        }
    }

    /// Returns a text with its values.
    fn text(&mut self, path: &str, place: Location, text: &str) -> String {
        let most = SCALAR_BYTES_MAX.min(self.left);
        let mut made = String::with_capacity(text.len());
        for letter in text.chars() {
            match self.values.of(letter) {
                Some(value) => made.push_str(value),
                None => made.push(letter),
            }
            if made.len() > most {
                self.is_full = true;
                let limit = if most == SCALAR_BYTES_MAX {
                    format!("is more than {} KiB", SCALAR_BYTES_MAX / 1024)
                } else {
                    format!("is more than {} KiB with all before it", RENDERED_BYTES_MAX / 1024)
                };
                self.problems.add(path, Some(place), format!("{limit}, now that the values are in"));
                return String::new();
            }
        }
        self.left -= made.len();
        made
    }
}

impl Values<'_> {
    /// Returns the value of the action that a character stands for.
    fn of(&self, letter: char) -> Option<&str> {
        self.values.get(mask::index(letter)?).map(AsRef::as_ref)
    }
}
