//! Validates a frozen config, whatever its source: the only way to one leads through here.
//!
//! Checked are the list (order, roles, duplicates), the common parts of all objects (names, namespace, labels, owner),
//! and each object by its kind: unknown fields are refused, so a workspace has nothing that this version does not
//! understand.

mod kinds;
mod pod;
mod schema;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use self::schema::{Head, Metadata};
use super::FrozenProblem;
use super::names::{
    CLUSTER_LABEL, INVENTORY_ID_LABEL, OWNING_INVENTORY_ANNOTATION, ObjectNames, WORKSPACE_LABEL, unfit_for_kubernetes,
};
use super::role::{FrozenObject, Inventory, Owner, Role};
use crate::syntax::{is_annotation_key, is_dns_label, is_dns_subdomain, is_label_value};
use gateway_types::{ClusterName, WorkspaceName};

/// Most objects of a workspace: the fixed ones and its volumes.
const OBJECTS_MAX: usize = 128;

/// Most problems that are reported.
const PROBLEMS_MAX: usize = 50;

/// Values on which all objects of one config agree: those of its first one.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) names: ObjectNames,
    pub(super) namespace: String,
    cluster: String,
}

/// The problems so far.
#[derive(Debug, Default)]
pub(super) struct FrozenFindings(Vec<FrozenProblem>);

impl FrozenFindings {
    /// Notes a problem of an object, or of the whole for an empty place.
    pub(super) fn tell(&mut self, place: &str, message: impl Into<String>) {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(FrozenProblem::new(place.to_owned(), message));
        }
    }

    /// Notes a problem unless something holds.
    pub(super) fn require(&mut self, place: &str, holds: bool, message: impl Into<String>) {
        if !holds {
            self.tell(place, message);
        }
    }
}

/// Checks a list of objects and finds the role of each.
///
/// # Errors
/// All problems, up to a number that people read.
pub(super) fn objects(values: Vec<Value>) -> Result<Vec<FrozenObject>, Vec<FrozenProblem>> {
    let mut findings = FrozenFindings::default();
    if values.is_empty() || values.len() > OBJECTS_MAX {
        findings.tell("", format!("has {} objects; a workspace has 1 to {OBJECTS_MAX}", values.len()));
        return Err(findings.0);
    }
    let heads: Vec<_> = values.iter().map(Head::deserialize).collect();
    for (index, head) in heads.iter().enumerate() {
        if let Err(error) = head {
            findings.tell(&format!("object {index}"), error.to_string());
        }
    }
    let heads: Vec<Head> = heads.into_iter().flatten().collect();
    let common = heads.first().and_then(|first| common(first, &mut findings));
    let Some(common) = common.filter(|_| findings.0.is_empty()) else {
        return Err(findings.0);
    };
    let mut roles = Vec::new();
    for (head, value) in heads.iter().zip(&values) {
        let place = head.place();
        let nothing = nothing_in(value);
        findings.require(&place, nothing.is_none(), nothing.unwrap_or_default());
        match Role::of(&head.kind, &head.metadata.name, &common.names) {
            Some(role) => {
                metadata(role, head, &common, &mut findings);
                kinds::check(role, value, &place, &common, &mut findings);
                roles.push(role);
            }
            None => findings.tell(&place, "is not an object of this workspace"),
        }
    }
    order(&roles, &heads, &mut findings);
    pod::references(&values, &heads, &mut findings);
    if !findings.0.is_empty() {
        return Err(findings.0);
    }
    Ok(roles.into_iter().zip(values).map(|(role, value)| FrozenObject { role, value }).collect())
}

/// Reads the workspace that all objects belong to from the first one.
fn common(first: &Head, findings: &mut FrozenFindings) -> Option<Common> {
    let place = first.place();
    let label = |key: &str| first.metadata.labels.get(key).map(String::as_str).unwrap_or_default();
    let workspace = match label(WORKSPACE_LABEL).parse::<WorkspaceName>() {
        Ok(name) => name,
        Err(error) => {
            findings.tell(&place, format!("label {WORKSPACE_LABEL}: {error}"));
            return None;
        }
    };
    if let Some(message) = unfit_for_kubernetes(&workspace) {
        findings.tell(&place, message);
    }
    let cluster = label(CLUSTER_LABEL);
    findings.require(&place, cluster.parse::<ClusterName>().is_ok(), format!("label {CLUSTER_LABEL} names no cluster"));
    let namespace = first.metadata.namespace.clone();
    findings.require(&place, is_dns_label(&namespace), "its namespace is no DNS label");
    Some(Common { names: ObjectNames::new(workspace.as_str()), namespace, cluster: cluster.to_owned() })
}

fn metadata(role: Role, head: &Head, common: &Common, findings: &mut FrozenFindings) {
    let place = head.place();
    let Metadata { name, namespace, labels, annotations } = &head.metadata;
    findings.require(&place, head.api_version == role.api_version(), format!("must be of {}", role.api_version()));
    findings.require(&place, is_dns_subdomain(name), "its name is no DNS name");
    findings.require(&place, *namespace == common.namespace, "is in another namespace than the first object");
    kinds::labels(labels, &place, findings);
    for key in annotations.keys().filter(|key| !is_annotation_key(key)) {
        findings.tell(&place, format!("{key:?} is no key of an annotation"));
    }
    for (key, value) in [(WORKSPACE_LABEL, &common.names.workspace), (CLUSTER_LABEL, &common.cluster)] {
        findings.require(&place, labels.get(key) == Some(value), format!("label {key} must be {value}"));
    }
    let owner = match role.owner() {
        Owner::IsInventory(_) => None,
        Owner::Core => Some(inventory(Inventory::Core, &common.names)),
        Owner::Secrets => Some(inventory(Inventory::Secrets, &common.names)),
    };
    let id = owner.is_none().then_some(name);
    let said = |text: Option<&String>| text.map_or("must be absent".to_owned(), |text| format!("must be {text}"));
    let owning = annotations.get(OWNING_INVENTORY_ANNOTATION);
    let wrong_owner = format!("annotation {OWNING_INVENTORY_ANNOTATION} {}", said(owner.as_ref()));
    findings.require(&place, owning == owner.as_ref(), wrong_owner);
    let wrong_id = format!("label {INVENTORY_ID_LABEL} {}", said(id));
    findings.require(&place, labels.get(INVENTORY_ID_LABEL) == id, wrong_id);
}

fn inventory(inventory: Inventory, names: &ObjectNames) -> String {
    match inventory {
        Inventory::Core => names.core_inventory(),
        Inventory::Secrets => names.secrets_inventory(),
    }
}

/// Checks that roles stand in their order, all but volumes at most once, and that those without which nothing runs are
/// there.
fn order(roles: &[Role], heads: &[Head], findings: &mut FrozenFindings) {
    findings.require("", roles.is_sorted(), "the objects are not in their order");
    for role in Role::ALL {
        let count = roles.iter().filter(|one| **one == role).count();
        findings.require("", count > 0 || !role.is_required(), format!("there is no {role:?}"));
        findings.require("", count <= 1 || role == Role::Volume, format!("there are {count} objects for {role:?}"));
    }
    let mut seen = BTreeSet::new();
    for head in heads {
        findings.require(&head.place(), seen.insert((&head.kind, &head.metadata.name)), "is there twice");
    }
}

/// Finds values that must be nowhere in an object: a program that applies them would own a field without meaning it,
/// and no program takes a NUL.
fn nothing_in(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => Some("has a null"),
        Value::Array(items) if items.is_empty() => Some("has an empty list"),
        Value::Array(items) => items.iter().find_map(nothing_in),
        Value::Object(members) => {
            let key = members.keys().any(|key| key.contains('\0')).then_some("has a NUL in a key");
            key.or_else(|| members.values().find_map(nothing_in))
        }
        Value::String(text) => text.contains('\0').then_some("has a NUL in a text"),
        Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns whether a text is a name of a Service (RFC 1035, section 2.3.1).
fn is_service_name(text: &str) -> bool {
    is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Returns whether a text is a label's value and not empty.
fn is_said(value: &str) -> bool {
    !value.is_empty() && is_label_value(value)
}
