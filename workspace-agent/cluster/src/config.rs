//! Configuration of an intent: objects to apply, each in the inventory that owns it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use thiserror::Error;

use crate::inventory::{BadInventory, encode};
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, OWNER_ANNOTATION, ObjectKey, SentObject, WORKSPACE_LABEL};
use crate::order::sort_to_apply;

/// Workspace that objects are for, and its cluster and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) cluster: String,
    pub(crate) workspace: String,
    pub(crate) namespace: String,
}

/// Inventory and the objects that it owns, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) inventory: SentObject,
    pub(crate) objects: Vec<SentObject>,
}

/// Reason why a configuration cannot be applied. Each text names the object and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ConfigError {
    /// Not a JSON array.
    #[error("the configuration is not a JSON array of objects: {0}")]
    Json(String),
    /// An object lacks a field that names it.
    #[error("object {0} of the configuration has no apiVersion, kind or name")]
    Unnamed(usize),
    /// An object is in another namespace than the workspace's, or in none.
    #[error("{key} is not in the workspace's namespace {namespace}")]
    Namespace {
        /// The object.
        key: ObjectKey,
        /// The namespace it should be in.
        namespace: String,
    },
    /// An object does not say that it is of this workspace and cluster.
    #[error("{key} has not the label {label} of its workspace")]
    Label {
        /// The object.
        key: ObjectKey,
        /// The label.
        label: &'static str,
    },
    /// An object does not say which inventory it is in, or names one that was not sent.
    #[error("{0} is in no inventory of the configuration")]
    Owner(ObjectKey),
    /// The same object twice.
    #[error("{0} is in the configuration twice")]
    Twice(ObjectKey),
    /// An inventory without its objects, and the workspace is not to be terminated: all of them would be deleted.
    #[error("the inventory {0} came without the objects that it owns")]
    Bare(String),
    /// Objects for a workspace that is to be terminated.
    #[error("{0} came for a workspace that is to be terminated")]
    Terminated(ObjectKey),
    /// An inventory or an object cannot be tracked.
    #[error(transparent)]
    Inventory(#[from] BadInventory),
}

impl Group {
    /// Returns the inventory's name.
    pub(crate) fn name(&self) -> &str {
        &self.inventory.key.name
    }

    /// Returns the keys that the inventory is to track.
    pub(crate) fn keys(&self) -> BTreeSet<ObjectKey> {
        self.objects.iter().map(|object| object.key.clone()).collect()
    }
}

/// Reads a configuration, by inventory. An empty text has none.
///
/// # Errors
/// [`ConfigError`] for the first thing that is wrong: then nothing is applied.
pub(crate) fn parse(bytes: &[u8], scope: &Scope, is_terminated: bool) -> Result<Vec<Group>, ConfigError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<Value> = serde_json::from_slice(bytes).map_err(|error| ConfigError::Json(error.to_string()))?;
    let mut seen = BTreeSet::new();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut owned = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let object = SentObject::read(value).ok_or(ConfigError::Unnamed(index))?;
        check(&object, scope)?;
        if !seen.insert(object.key.clone()) {
            return Err(ConfigError::Twice(object.key));
        }
        if is_inventory(&object) {
            groups.insert(object.key.name.clone(), Group { inventory: object, objects: Vec::new() });
        } else {
            owned.push(object);
        }
    }
    for object in owned {
        if is_terminated {
            return Err(ConfigError::Terminated(object.key));
        }
        let owner = object.annotation(OWNER_ANNOTATION).and_then(|owner| groups.get_mut(owner));
        match owner {
            Some(group) => group.objects.push(object),
            None => return Err(ConfigError::Owner(object.key)),
        }
    }
    for group in groups.values_mut() {
        if group.objects.is_empty() && !is_terminated {
            return Err(ConfigError::Bare(group.inventory.key.name.clone()));
        }
        sort_to_apply(&mut group.objects, |object| &object.key);
    }
    Ok(groups.into_values().collect())
}

fn is_inventory(object: &SentObject) -> bool {
    object.key.kind == "ConfigMap"
        && object.key.group.is_empty()
        && object.label(INVENTORY_LABEL) == Some(&object.key.name)
}

fn check(object: &SentObject, scope: &Scope) -> Result<(), ConfigError> {
    let key = || object.key.clone();
    if object.key.namespace != scope.namespace {
        return Err(ConfigError::Namespace { key: key(), namespace: scope.namespace.clone() });
    }
    for (label, value) in [(WORKSPACE_LABEL, &scope.workspace), (CLUSTER_LABEL, &scope.cluster)] {
        if object.label(label) != Some(value) {
            return Err(ConfigError::Label { key: key(), label });
        }
    }
    if !is_path_segment(&object.key.name) {
        return Err(ConfigError::Inventory(BadInventory::Object(key())));
    }
    encode(&object.key)?;
    Ok(())
}

/// Returns whether a name can stand in a path as it is; the API server has the same rule for names.
fn is_path_segment(name: &str) -> bool {
    name != "." && name != ".." && !name.contains(['/', '%', '?', '#'])
}

#[cfg(test)]
mod tests;
