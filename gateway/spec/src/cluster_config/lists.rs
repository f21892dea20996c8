//! Secrets for images, labels and annotations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::OWN_PREFIX;
use crate::document::{Location, Problems, ValueAt, show};
use crate::syntax::{is_annotation_key, is_dns_label, is_dns_subdomain, is_label_value};

/// Prefixes of keys that mark the owner of an object; with them, a user could have foreign objects deleted.
pub const RESERVED_PREFIXES: [&str; 3] = [OWN_PREFIX, "cli-utils.sigs.k8s.io", "config.k8s.io"];

/// Most annotations, in bytes with their keys. Kubernetes takes four times as many on one object, and ours come on top.
const ANNOTATIONS_BYTES_MAX: usize = 64 * 1024;

/// A secret of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
    /// The namespace that it is in.
    pub namespace: String,
}

/// Reads the secrets with which images are pulled.
pub(super) fn read_secrets(at: &ValueAt<'_>, shared: Option<&str>, problems: &mut Problems) -> Vec<SecretRef> {
    let mut seen: BTreeMap<String, Location> = BTreeMap::new();
    let mut secrets = Vec::new();
    for item in at.items(problems) {
        let Some(mut fields) = item.fields(problems) else {
            continue;
        };
        let name_at = fields.require("name", problems);
        let name = name_at.as_ref().and_then(|at| read_name(at, is_dns_subdomain, "secret", problems));
        let namespace_at = fields.require("namespace", problems);
        let namespace = namespace_at.as_ref().and_then(|at| read_name(at, is_dns_label, "namespace", problems));
        fields.finish(problems);
        if let (Some(at), Some(name)) = (&name_at, &name) {
            match seen.get(name) {
                Some(first) => {
                    at.object(problems, format!("is the name of another secret, on line {}", first.line));
                }
                None => {
                    seen.insert(name.clone(), at.node.place);
                }
            }
        }
        if let (Some(at), Some(namespace), Some(shared)) = (&namespace_at, &namespace, shared)
            && namespace != shared
        {
            at.object(problems, format!("must be {}, the shared_namespace: nothing is copied there", show(shared)));
        }
        if let (Some(name), Some(namespace)) = (name, namespace) {
            secrets.push(SecretRef { name, namespace });
        }
    }
    secrets
}

fn read_name(at: &ValueAt<'_>, is_good: fn(&str) -> bool, what: &str, problems: &mut Problems) -> Option<String> {
    let name = at.text(problems)?;
    if !is_good(name) {
        at.object(problems, format!("must be the name of a {what}: a-z, 0-9 and dashes inside; it is {}", show(name)));
        return None;
    }
    Some(name.to_owned())
}

/// Reads annotations.
pub(super) fn read_annotations(at: &ValueAt<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let annotations = read_map(at, problems, |_| true, "");
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        at.object(problems, format!("are {bytes} bytes, and must not be more than {ANNOTATIONS_BYTES_MAX}"));
    }
    annotations
}

/// Reads labels.
pub(super) fn read_labels(at: &ValueAt<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let rule = "must be a label's value: at most 63 letters, digits, and dashes, underscores and dots inside";
    read_map(at, problems, is_label_value, rule)
}

fn read_map(
    at: &ValueAt<'_>,
    problems: &mut Problems,
    is_good: fn(&str) -> bool,
    rule: &str,
) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for (key, place, at) in at.entries(problems).unwrap_or_default() {
        if !is_annotation_key(key) {
            let message =
                "must be a key such as name or example.com/name, the name with at most 63 letters and digits, and";
            let message = format!("{message} dashes, underscores and dots inside; it is {}", show(key));
            problems.add(at.path.clone(), Some(place), message);
        } else if let Some(reserved) = reserved_prefix(key, &RESERVED_PREFIXES) {
            problems.add(
                at.path.clone(),
                Some(place),
                format!("must not have the prefix {reserved}, which is reserved"),
            );
        }
        let Some(value) = at.text(problems) else {
            continue;
        };
        if !is_good(value) {
            at.object(problems, format!("{rule}; it is {}", show(value)));
        }
        map.insert(key.to_owned(), value.to_owned());
    }
    map
}

/// Returns the domain among `domains` that a key's prefix is, or is in.
#[must_use]
pub fn reserved_prefix(key: &str, domains: &[&'static str]) -> Option<&'static str> {
    let (prefix, _) = key.split_once('/')?;
    let is_in = |domain: &&str| prefix.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    domains.iter().copied().find(is_in)
}
