//! Checks an object's name, namespace and metadata, and whether Kubernetes would take them.

use serde_json::{Map, Value};

use super::kinds::ManifestKind;
use super::{Border, ManifestCheck, RefusedCode};
use crate::document::show;
use crate::environment::labels::reserved;
use crate::syntax::{is_annotation_key, is_dns_label, is_dns_subdomain, is_label_value};

/// Most levels of lists and maps in an object: more than templates have.
const DEPTH_MAX: usize = 64;

/// Longest name of a role binding, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// Fields that a template may set under `metadata`; the rest is set by the cluster or by controllers.
const METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// The service account that Kubernetes makes in every namespace (Kubernetes documentation, "Service Accounts").
const KUBERNETES_ACCOUNT: &str = "default";

/// Returns a field that is text.
pub(super) fn text<'v>(object: &'v Value, field: &str) -> Option<&'v str> {
    object.get(field)?.as_str()
}

/// Returns the display name of an object for refusals: kind and name if it has them, or else its number.
pub(super) fn shown(index: usize, object: &Value) -> String {
    let metadata = object.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| text(metadata, name));
    let is_short = |text: &&str| is_path_segment(text);
    match (text(object, "kind").filter(is_short), field("name").filter(is_short), field("namespace").filter(is_short)) {
        (Some(kind), Some(name), Some(namespace)) => format!("{kind} {namespace}/{name}"),
        (Some(kind), Some(name), None) => format!("{kind} {name}"),
        (None, ..) | (_, None, _) => format!("objects[{index}]"),
    }
}

/// Takes the size of a value from a budget of bytes; returns whether there was enough, and it is not too deep.
pub(super) fn is_within(value: &Value, budget: &mut usize) -> bool {
    is_within_from(value, budget, 0)
}

fn is_within_from(value: &Value, budget: &mut usize, depth: usize) -> bool {
    let mut take = |bytes: usize| match budget.checked_sub(bytes) {
        Some(left) => {
            *budget = left;
            true
        }
        None => false,
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => take(1),
        Value::String(text) => take(text.len()),
        Value::Array(items) => {
            depth < DEPTH_MAX && take(1) && items.iter().all(|item| is_within_from(item, budget, depth + 1))
        }
        Value::Object(fields) => {
            depth < DEPTH_MAX
                && fields.keys().all(|key| take(key.len()))
                && fields.values().all(|item| is_within_from(item, budget, depth + 1))
        }
    }
}

/// Returns whether a namespace is one of Kubernetes' own.
pub(super) fn is_kubernetes_own(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Returns the name of an object, unless Kubernetes would not take it, or the agent could not record it.
pub(super) fn check_name<'v>(
    look: &mut ManifestCheck<'_>,
    shown: &str,
    kind: Option<ManifestKind>,
    object: &'v Value,
) -> Option<&'v str> {
    let Some(metadata) = object.get("metadata").filter(|metadata| metadata.is_object()) else {
        look.refuse(RefusedCode::ObjectInvalid, shown, "has no metadata");
        return None;
    };
    let Some(name) = text(metadata, "name") else {
        let message = match metadata.get("name") {
            None | Some(Value::Null) => "has no metadata.name",
            Some(_) => "metadata.name must be text: put it in quotes",
        };
        look.refuse(RefusedCode::NameInvalid, shown, message);
        return None;
    };
    let (is_good, rule) = match kind? {
        ManifestKind::Namespace => (is_dns_label(name), "must be a DNS label: at most 63 of a-z, 0-9 and inner dashes"),
        // Kubernetes would take underscores, but no inventory holds them.
        ManifestKind::RoleBinding => {
            let is_good = is_path_segment(name) && !name.contains('_');
            (is_good, "must have 1 to 253 letters, digits, dashes, dots and colons, and no underscores")
        }
        // A race decides which of the two is first, and an account that already exists is never the environment's.
        ManifestKind::ServiceAccount if name == KUBERNETES_ACCOUNT => {
            (false, "must be another one: Kubernetes makes that account itself, in every namespace")
        }
        ManifestKind::ServiceAccount
        | ManifestKind::GitRepository
        | ManifestKind::HelmRepository
        | ManifestKind::Bucket
        | ManifestKind::OciRepository
        | ManifestKind::HelmChart
        | ManifestKind::Kustomization
        | ManifestKind::HelmRelease
        | ManifestKind::Provider
        | ManifestKind::Alert
        | ManifestKind::Receiver => {
            (is_dns_subdomain(name), "must be DNS labels (a-z, 0-9 and inner dashes) with dots between them")
        }
    };
    if !is_good {
        look.refuse(RefusedCode::NameInvalid, shown, format!("metadata.name {rule}; it is {}", show(name)));
    }
    is_good.then_some(name)
}

/// Returns whether a text can be a name that stands in a path (Kubernetes documentation, "Object Names and IDs", path
/// segment names), and has only characters of such names.
fn is_path_segment(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(inner) && !matches!(text, "." | "..")
}

/// Returns the namespace that an object is in, if it is in one and may be there.
pub(super) fn check_namespace<'v>(
    look: &mut ManifestCheck<'v>,
    shown: &str,
    kind: Option<ManifestKind>,
    object: &'v Value,
) -> Option<&'v str> {
    let kind = kind?;
    let metadata = object.get("metadata").filter(|metadata| metadata.is_object())?;
    let said = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(said)) if said.is_empty() => None,
        Some(Value::String(said)) => Some(said.as_str()),
        Some(_) => {
            look.refuse(RefusedCode::ObjectInvalid, shown, "metadata.namespace must be text: put it in quotes");
            return None;
        }
    };
    if kind == ManifestKind::Namespace {
        check_own(look, shown, said, metadata);
        return None;
    }
    match said.or(look.border.default_namespace) {
        Some(namespace) if look.namespaces.contains(namespace) => Some(namespace),
        Some(namespace) => {
            let message = format!(
                "metadata.namespace must be one that the template makes, or the default_namespace of the project's access \
                 entry; it is {}",
                show(namespace)
            );
            look.refuse(RefusedCode::NamespaceNotAllowed, shown, message);
            None
        }
        None => {
            let message = "names no namespace, and the project's access entry has no default_namespace";
            look.refuse(RefusedCode::NamespaceNotAllowed, shown, message);
            None
        }
    }
}

/// Checks a namespace that would be created.
fn check_own(look: &mut ManifestCheck<'_>, shown: &str, said: Option<&str>, metadata: &Value) {
    if said.is_some() {
        look.refuse(
            RefusedCode::ObjectInvalid,
            shown,
            "a Namespace is in no namespace: metadata.namespace must be left out",
        );
    }
    let Some(name) = text(metadata, "name") else {
        return;
    };
    if is_kubernetes_own(name) {
        let message = format!("the namespace {} is Kubernetes' own, and no environment's", show(name));
        look.refuse(RefusedCode::NamespaceNotAllowed, shown, message);
    }
    let Border { default_namespace, default_namespaces } = look.border;
    if default_namespace.into_iter().chain(default_namespaces.iter().map(String::as_str)).any(|shared| shared == name) {
        let message = format!(
            "the namespace {} is the default_namespace of an access entry, and no environment's: what others have in it would be \
             deleted with it",
            show(name)
        );
        look.refuse(RefusedCode::NamespaceNotAllowed, shown, message);
    }
}

/// Checks an object's metadata besides its name.
pub(super) fn check_metadata(look: &mut ManifestCheck<'_>, shown: &str, object: &Value) {
    if object.get("status").is_some_and(|status| !status.is_null()) {
        look.refuse(RefusedCode::ObjectInvalid, shown, "status is not a template's to say");
    }
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else {
        return;
    };
    for (key, value) in metadata {
        if !METADATA.contains(&key.as_str()) && !value.is_null() {
            let message =
                format!("metadata.{} is not a template's to say; known here: {}", show(key), METADATA.join(", "));
            look.refuse(RefusedCode::ObjectInvalid, shown, message);
        }
    }
    check_texts(look, shown, "metadata.labels", metadata.get("labels"), true);
    check_texts(look, shown, "metadata.annotations", metadata.get("annotations"), false);
    let finalizers = metadata.get("finalizers").filter(|value| !value.is_null());
    let is_list = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    if finalizers.is_some_and(|value| !is_list(value)) {
        look.refuse(RefusedCode::ObjectInvalid, shown, "metadata.finalizers must be a list of texts");
    }
}

/// Checks labels or annotations.
fn check_texts(look: &mut ManifestCheck<'_>, shown: &str, path: &str, value: Option<&Value>, is_labels: bool) {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return;
    };
    let Some(fields) = value.as_object() else {
        look.refuse(RefusedCode::ObjectInvalid, shown, format!("{path} must be a map of texts"));
        return;
    };
    check_keys(look, shown, path, fields);
    for (key, value) in fields {
        let Some(text) = value.as_str() else {
            let message = format!("{path}.{} must be text: put it in quotes", show(key));
            look.refuse(RefusedCode::ObjectInvalid, shown, message);
            continue;
        };
        if is_labels && !is_label_value(text) {
            let rule = "must be at most 63 letters, digits, and dashes, underscores and dots inside";
            look.refuse(
                RefusedCode::ObjectInvalid,
                shown,
                format!("{path}.{} {rule}; it is {}", show(key), show(text)),
            );
        }
    }
}

/// Checks the keys of labels or annotations.
pub(super) fn check_keys(look: &mut ManifestCheck<'_>, shown: &str, path: &str, fields: &Map<String, Value>) {
    for key in fields.keys() {
        if let Some(domain) = reserved(key) {
            let message = format!("{path}.{} has the prefix {domain}, which only the gateway sets", show(key));
            look.refuse(RefusedCode::ReservedKey, shown, message);
        } else if !is_annotation_key(key) {
            let message = format!("{path}.{} must be a key such as name or example.com/name", show(key));
            look.refuse(RefusedCode::ObjectInvalid, shown, message);
        }
    }
}
