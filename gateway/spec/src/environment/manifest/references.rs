//! Refuses references to other namespaces, because the controller that acts on the object may have more rights than the
//! environment.

use serde_json::Value;

use super::kinds::ManifestKind;
use super::{ManifestCheck, RefusedCode, shape};
use crate::document::{push_index, push_key, show};

/// Fields that name a namespace, wherever they stand.
const FIELDS: [&str; 3] = ["namespace", "targetNamespace", "storageNamespace"];

/// Prefixes of service accounts as users, and of all accounts of a namespace as a group (Kubernetes documentation,
/// "Authenticating", service account tokens).
const ACCOUNT: &str = "system:serviceaccount:";
const ACCOUNTS: &str = "system:serviceaccounts:";

/// Checks all of an object but its own metadata.
pub(super) fn check(look: &mut ManifestCheck<'_>, shown: &str, kind: Option<ManifestKind>, object: &Value) {
    let Some(fields) = object.as_object() else {
        return;
    };
    for (key, value) in fields.iter().filter(|(key, _)| *key != "metadata") {
        if FIELDS.contains(&key.as_str()) {
            check_field(look, shown, key, value);
        }
        walk(look, shown, &push_key("", key), value);
    }
    if kind == Some(ManifestKind::RoleBinding) {
        check_subjects(look, shown, fields.get("subjects"));
    }
}

fn walk(look: &mut ManifestCheck<'_>, shown: &str, path: &str, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(look, shown, &push_index(path, index), item);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = push_key(path, key);
                if FIELDS.contains(&key.as_str()) {
                    check_field(look, shown, &path, value);
                }
                if key == "commonMetadata" {
                    check_common(look, shown, &path, value);
                }
                walk(look, shown, &path, value);
            }
        }
    }
}

/// Checks a field that names a namespace.
fn check_field(look: &mut ManifestCheck<'_>, shown: &str, path: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(namespace) => check_one(look, shown, path, namespace),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let message = format!("{path} must be text, the name of a namespace");
            look.refuse(RefusedCode::ObjectInvalid, shown, message);
        }
    }
}

fn check_one(look: &mut ManifestCheck<'_>, shown: &str, path: &str, namespace: &str) {
    if !namespace.is_empty() && !look.namespaces.contains(namespace) {
        let message = format!(
            "{path} must be a namespace that the template makes, or the default_namespace of the project's access entry; it is {}",
            show(namespace)
        );
        look.refuse(RefusedCode::NamespaceReference, shown, message);
    }
}

/// Checks labels and annotations that a controller of Flux puts on the objects it makes.
fn check_common(look: &mut ManifestCheck<'_>, shown: &str, path: &str, value: &Value) {
    for part in ["labels", "annotations"] {
        if let Some(fields) = value.get(part).and_then(Value::as_object) {
            shape::check_keys(look, shown, &push_key(path, part), fields);
        }
    }
}

/// Checks the subjects of a role binding: names of users and groups can be service accounts too.
fn check_subjects(look: &mut ManifestCheck<'_>, shown: &str, subjects: Option<&Value>) {
    for (index, subject) in subjects.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let path = format!("subjects[{index}].name");
        let Some(name) = shape::text(subject, "name") else {
            continue;
        };
        let namespace = match shape::text(subject, "kind") {
            Some(kind) if is_everybody(kind, name) => {
                look.refuse(
                    RefusedCode::NamespaceReference,
                    shown,
                    format!("{path} must not stand for everybody: name the users or groups that are meant"),
                );
                continue;
            }
            Some("User") => name.strip_prefix(ACCOUNT).map(|rest| rest.split(':').next().unwrap_or_default()),
            Some("Group") if name == "system:serviceaccounts" => {
                look.refuse(
                    RefusedCode::NamespaceReference,
                    shown,
                    format!("{path} must not be all service accounts of the cluster"),
                );
                continue;
            }
            Some("Group") => name.strip_prefix(ACCOUNTS),
            Some(_) | None => None,
        };
        if let Some(namespace) = namespace {
            check_one(look, shown, &path, namespace);
        }
    }
}

/// Returns whether a subject stands for every client of the API server, with a credential of the cluster's or without
/// any: so also the accounts of all other namespaces (Kubernetes documentation, "Default roles and role bindings").
fn is_everybody(kind: &str, name: &str) -> bool {
    matches!((kind, name), ("Group", "system:authenticated" | "system:unauthenticated") | ("User", "system:anonymous"))
}
