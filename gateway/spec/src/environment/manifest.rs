//! Checks a rendered template: allowed kinds in the environment's own namespaces, without reserved keys; labels the
//! objects and sorts them into the order in which they are applied (GitLab documentation, "GitLab-managed Kubernetes
//! resources").
//!
//! Templates are written by an operator, but the values in them come from jobs, and operators make mistakes. So each
//! object is checked, after the values are filled in, as if a stranger had written it. All refusals are reported at
//! once, and nothing is applied if there is one.

mod kinds;
mod references;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;
use tunnel_proto::environments::{self as wire, INVENTORY_KEY_BYTES_MAX};

use self::kinds::ManifestKind;
use super::facts::{ObjectRef, TemplateVars};
use super::labels;
use super::template::{OBJECTS_MAX, RENDERED_BYTES_MAX, RenderedTemplate};

/// The objects of an environment, ready to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The objects with their labels, in the order in which they are applied.
    pub objects: Vec<Value>,
    /// References to the objects, in the same order.
    pub tracked: Vec<ObjectRef>,
}

/// Namespaces in which an environment's objects may be, besides those that its template makes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Border<'a> {
    /// The `default_namespace` of the project's access entry, which is also the namespace of objects that name none.
    pub default_namespace: Option<&'a str>,
    /// Those of all entries of the cluster's agent: no template makes them, for they would end with its environment.
    pub default_namespaces: &'a [String],
}

/// Reason for an object not to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedObject {
    /// Kind of reason.
    pub code: RefusedCode,
    /// The object, such as `RoleBinding namespace/name`, or `objects[2]` if it does not say what it is; empty for all
    /// of them.
    pub object: String,
    /// Description of the problem. Quoted parts of the object are shortened and escaped.
    pub message: String,
}

impl fmt::Display for RejectedObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.object.is_empty() { "" } else { ": " };
        write!(formatter, "{}{colon}{} ({})", self.object, self.message, self.code.as_str())
    }
}

/// Kind of reason for an object not to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedCode {
    /// Templates may not make objects of this kind.
    KindNotAllowed,
    /// The kind is another one in this group, or Kubernetes has no such version.
    ApiVersionNotAllowed,
    /// Kubernetes would not take the name.
    NameInvalid,
    /// The object would be in a namespace, or be one, that is not the environment's.
    NamespaceNotAllowed,
    /// The object refers to a namespace that is not the environment's.
    NamespaceReference,
    /// A label or annotation that only the gateway sets.
    ReservedKey,
    /// The same object is there twice.
    DuplicateObject,
    /// The objects are too large.
    TooLarge,
    /// There are too many objects.
    TooManyObjects,
    /// A field has a value that Kubernetes does not take, or that a template may not set.
    ObjectInvalid,
}

impl RefusedCode {
    /// Returns the stable name of the code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KindNotAllowed => "kind_not_allowed",
            Self::ApiVersionNotAllowed => "api_version_not_allowed",
            Self::NameInvalid => "name_invalid",
            Self::NamespaceNotAllowed => "namespace_not_allowed",
            Self::NamespaceReference => "namespace_reference",
            Self::ReservedKey => "reserved_key",
            Self::DuplicateObject => "duplicate_object",
            Self::TooLarge => "too_large",
            Self::TooManyObjects => "too_many_objects",
            Self::ObjectInvalid => "object_invalid",
        }
    }
}

/// State of a check: allowed namespaces and refusals so far.
struct ManifestCheck<'a> {
    /// Namespaces that the environment's objects may be in and refer to.
    namespaces: BTreeSet<&'a str>,
    border: Border<'a>,
    refused: Vec<RejectedObject>,
}

impl<'a> ManifestCheck<'a> {
    fn new(objects: &'a [Value], border: Border<'a>) -> Self {
        let namespaces = objects.iter().filter_map(namespace_made).chain(border.default_namespace).collect();
        Self { namespaces, border, refused: Vec::new() }
    }

    fn refuse(&mut self, code: RefusedCode, object: &str, message: impl Into<String>) {
        self.refused.push(RejectedObject { code, object: object.to_owned(), message: message.into() });
    }
}

/// Checks and labels the objects of a rendered template.
///
/// # Errors
/// All that is refused, object by object in the order of the template; never empty.
pub fn manifest(
    rendered: &RenderedTemplate,
    info: &TemplateVars,
    border: Border<'_>,
) -> Result<Manifest, Vec<RejectedObject>> {
    let mut look = ManifestCheck::new(&rendered.objects, border);
    let mut budget = RENDERED_BYTES_MAX;
    if rendered.objects.len() > OBJECTS_MAX {
        let message = format!("there are {} objects, and must not be more than {OBJECTS_MAX}", rendered.objects.len());
        look.refuse(RefusedCode::TooManyObjects, "", message);
    } else if !rendered.objects.iter().all(|object| shape::is_within(object, &mut budget)) {
        let message = format!("the objects are more than {} KiB together, or nest too deep", RENDERED_BYTES_MAX / 1024);
        look.refuse(RefusedCode::TooLarge, "", message);
    }
    if !look.refused.is_empty() {
        return Err(look.refused);
    }
    let mut checked = Vec::with_capacity(rendered.objects.len());
    let mut seen: BTreeMap<ObjectRef, usize> = BTreeMap::new();
    for (index, object) in rendered.objects.iter().enumerate() {
        let Some((kind, reference)) = check(&mut look, index, object) else { continue };
        // Versions are views of one object.
        let one = ObjectRef { version: String::new(), ..reference.clone() };
        if let Some(first) = seen.get(&one) {
            let message = format!("is there twice: objects[{first}] is the same");
            look.refuse(RefusedCode::DuplicateObject, &reference.to_string(), message);
            continue;
        }
        seen.insert(one, index);
        checked.push((kind, reference, object));
    }
    if !look.refused.is_empty() {
        return Err(look.refused);
    }
    checked.sort_by_key(|(kind, ..)| kind.order());
    let labels = labels::Labels::new(info, &rendered.template);
    let objects = checked.iter().map(|(_, reference, object)| labels.put_on(object, &reference.namespace)).collect();
    Ok(Manifest { objects, tracked: checked.into_iter().map(|(_, reference, _)| reference).collect() })
}

/// Returns whether objects that were allowed once are within a border, which may have changed since.
pub fn is_within(objects: &[Value], border: Border<'_>) -> bool {
    let mut look = ManifestCheck::new(objects, border);
    for (index, object) in objects.iter().enumerate() {
        let shown = shape::shown(index, object);
        let kind = kinds::of(&mut look, &shown, object);
        shape::check_namespace(&mut look, &shown, kind, object);
        references::check(&mut look, &shown, kind, object);
    }
    look.refused.is_empty()
}

/// Returns the namespace that an object creates, if a template may create it.
fn namespace_made(object: &Value) -> Option<&str> {
    let is_one = shape::text(object, "kind") == Some("Namespace") && shape::text(object, "apiVersion") == Some("v1");
    object.get("metadata").filter(|_| is_one)?.get("name")?.as_str().filter(|name| !shape::is_kubernetes_own(name))
}

/// Checks one object; `None` if it does not say what it is.
fn check<'v>(look: &mut ManifestCheck<'v>, index: usize, object: &'v Value) -> Option<(ManifestKind, ObjectRef)> {
    let shown = shape::shown(index, object);
    let kind = kinds::of(look, &shown, object);
    let name = shape::check_name(look, &shown, kind, object);
    let namespace = shape::check_namespace(look, &shown, kind, object);
    shape::check_metadata(look, &shown, object);
    references::check(look, &shown, kind, object);
    let (kind, name) = (kind?, name?);
    let (group, version) = kinds::split(shape::text(object, "apiVersion")?);
    let reference = ObjectRef {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.as_str().to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.to_owned(),
        uid: String::new(),
    };
    let ObjectRef { group, version, kind: named, namespace, name, uid } = reference.clone();
    if !(wire::ObjectRef { group, version, kind: named, namespace, name, uid }).is_trackable() {
        let message = format!(
            "metadata.name is too long: with its namespace, group and kind it must have at most {} bytes, and a colon counts twice",
            INVENTORY_KEY_BYTES_MAX - 3
        );
        look.refuse(RefusedCode::NameInvalid, &shown, message);
        return None;
    }
    Some((kind, reference))
}

#[cfg(test)]
mod tests;
