//! Rendered templates, and their conversion to JSON and YAML and back.

use serde_json::{Map, Value, json};

use super::{Deletion, RENDERED_BYTES_MAX, TemplateName, read};
use crate::document::Problem;
use crate::pipeline::Yaml;

/// The largest text that is read as a rendered template, in bytes: it may be written with more spaces than it was
/// counted with.
const TEXT_BYTES_MAX: usize = 4 * RENDERED_BYTES_MAX;

/// A template filled in for one environment. Nothing was refused yet, and nothing was added.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedTemplate {
    /// Name of the template.
    pub template: TemplateName,
    /// Time at which the objects are deleted.
    pub deletion: Deletion,
    /// The objects, as the template has them.
    pub objects: Vec<Value>,
}

impl RenderedTemplate {
    /// Parses a rendered template, YAML or JSON with the keys of a template. Nothing in it is an action: braces are
    /// text.
    ///
    /// # Errors
    /// All mistakes; never empty.
    pub fn parse(template: &TemplateName, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        read::rendered(template, bytes, TEXT_BYTES_MAX)
    }

    /// Serialises it as a JSON value with the keys of a template.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"objects": self.objects, "apply_resources": "on_start", "delete_resources": self.deletion.as_str()})
    }

    /// Serialises it as YAML that every parser reads alike.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let text = |text: &str| Yaml::text(text);
        Yaml::map([
            ("objects", Yaml::List(self.objects.iter().map(yaml).collect())),
            ("apply_resources", text("on_start")),
            ("delete_resources", text(self.deletion.as_str())),
        ])
        .to_text()
    }
}

fn yaml(value: &Value) -> Yaml {
    match value {
        Value::Null => Yaml::Null,
        Value::Bool(value) => Yaml::Bool(*value),
        Value::Number(number) => Yaml::Number(number.clone()),
        Value::String(text) => Yaml::text(text),
        Value::Array(items) => Yaml::List(items.iter().map(yaml).collect()),
        Value::Object(fields) => Yaml::map(entries(fields)),
    }
}

fn entries(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, Yaml)> {
    fields.iter().map(|(key, value)| (key, yaml(value)))
}
