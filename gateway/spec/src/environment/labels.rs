//! Labels and the annotation that tie an object to its environment (GitLab documentation, "GitLab-managed Kubernetes
//! resources", labels and annotations), and keys that a template may not set.

use serde_json::{Map, Value, json};

use super::facts::TemplateVars;
use super::template::TemplateName;
use crate::cluster_config::{RESERVED_PREFIXES, reserved_prefix};

/// Prefix of the keys that tie an object to an environment.
pub const PREFIX: &str = "agent.gitlab.com";

/// Returns the reserved domain that a key's prefix equals or lies in.
#[must_use]
pub fn reserved(key: &str) -> Option<&'static str> {
    reserved_prefix(key, &[PREFIX]).or_else(|| reserved_prefix(key, &RESERVED_PREFIXES))
}

/// The labels and the annotation of all objects of an environment.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    labels: Vec<String>,
    annotation: (String, String),
}

impl Labels {
    pub(super) fn new(info: &TemplateVars, template: &TemplateName) -> Self {
        let (key, slug) = (info.key(), &info.environment.slug);
        let labels = vec![
            format!("{PREFIX}/id-{}", info.agent.id),
            format!("{PREFIX}/project_id-{}", info.project.id),
            format!("{PREFIX}/env-{key}"),
            format!("{PREFIX}/environment_slug-{slug}"),
        ];
        let mut told = json!({
            "environment_id": info.environment.id,
            "environment_name": info.environment.name,
            "environment_slug": slug,
            "environment_page_url": info.environment.page_url,
            "agent_id": info.agent.id,
            "agent_name": info.agent.name,
            "agent_url": info.agent.url,
            "project_id": info.project.id,
            "project_slug": info.project.slug,
            "project_path": info.project.path,
            "project_url": info.project.url,
            "template_name": template.as_str(),
        });
        let optional = [("environment_url", &info.environment.url), ("environment_tier", &info.environment.tier)];
        for (name, value) in optional {
            if let (Some(fields), Some(value)) = (told.as_object_mut(), value) {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        Self { labels, annotation: (format!("{PREFIX}/env-{key}"), told.to_string()) }
    }

    /// Returns an object with the labels and the annotation, in its namespace if it has one.
    pub(super) fn put_on(&self, object: &Value, namespace: &str) -> Value {
        let mut object = object.clone();
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return object;
        };
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        let labels = self.labels.iter().map(|key| (key.clone(), json!("")));
        put_in(metadata, "labels", labels);
        let (key, told) = &self.annotation;
        put_in(metadata, "annotations", [(key.clone(), json!(told))]);
        object
    }
}

/// Adds to a map in a map, which may be missing or null.
fn put_in(fields: &mut Map<String, Value>, name: &str, entries: impl IntoIterator<Item = (String, Value)>) {
    let inner = fields.entry(name).or_insert(Value::Null);
    if inner.is_null() {
        *inner = json!({});
    }
    if let Some(inner) = inner.as_object_mut() {
        inner.extend(entries);
    }
}
