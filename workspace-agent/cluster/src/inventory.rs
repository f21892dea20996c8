//! Format of an inventory: the ConfigMap of kubernetes-sigs/cli-utils (`pkg/object`, `pkg/inventory`), whose data keys
//! name objects as `namespace_name_group_kind`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::object::{INVENTORY_LABEL, ObjectKey};

/// Longest key of a ConfigMap (Kubernetes, "ConfigMaps": a DNS subdomain's length).
const KEY_BYTES_MAX: usize = 253;

/// Group of the kinds whose names may hold colons, which keys of a ConfigMap may not.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Reason why an inventory cannot be read or written. Nothing is guessed: tracked objects would be forgotten or deleted
/// by mistake.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadInventory {
    /// A data key is in another format.
    #[error("the inventory tracks `{0}`, which names no object")]
    Key(String),
    /// An object's name does not fit into a data key.
    #[error("{0} cannot be tracked: its name does not fit into an inventory's key")]
    Object(ObjectKey),
    /// The ConfigMap of that name is no inventory, or another one.
    #[error("the ConfigMap {0} is there and is not this inventory")]
    Foreign(String),
}

/// Writes an object's data key.
///
/// # Errors
/// [`BadInventory::Object`] if the key would mean something else when it is read, or is too long.
pub(crate) fn encode(key: &ObjectKey) -> Result<String, BadInventory> {
    let ObjectKey { namespace, name, group, kind } = key;
    let written = if group == RBAC_GROUP { name.replace(':', "__") } else { name.clone() };
    let text = format!("{namespace}_{written}_{group}_{kind}");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = text.len() <= KEY_BYTES_MAX && text.bytes().all(is_plain);
    if fits && decode(&text).as_ref() == Ok(key) { Ok(text) } else { Err(BadInventory::Object(key.clone())) }
}

/// Reads a data key: the first `_` ends the namespace, the last one begins the kind, the one before that the group, and the
/// rest is the name.
///
/// # Errors
/// [`BadInventory::Key`].
pub(crate) fn decode(text: &str) -> Result<ObjectKey, BadInventory> {
    let read = || {
        let (namespace, rest) = text.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        let name = name.replace("__", ":");
        let is_named = !name.is_empty() && !kind.is_empty() && !name.contains('_');
        // A colon outside of RBAC would come from a name that this agent never wrote.
        let is_possible = group == RBAC_GROUP || !name.contains(':');
        (is_named && is_possible).then(|| ObjectKey {
            namespace: namespace.to_owned(),
            name,
            group: group.to_owned(),
            kind: kind.to_owned(),
        })
    };
    read().ok_or_else(|| BadInventory::Key(text.to_owned()))
}

/// Returns the objects that a live inventory tracks.
///
/// # Errors
/// [`BadInventory::Key`] names the first key that cannot be read.
pub(crate) fn tracked(inventory: &Value) -> Result<BTreeSet<ObjectKey>, BadInventory> {
    let data = inventory.get("data").and_then(Value::as_object);
    data.into_iter().flatten().map(|(key, _)| decode(key)).collect()
}

/// Checks that the live ConfigMap is the inventory of that id.
///
/// # Errors
/// [`BadInventory::Foreign`].
pub(crate) fn check(live: &Value, name: &str) -> Result<(), BadInventory> {
    let id = live.pointer("/metadata/labels").and_then(|labels| labels.get(INVENTORY_LABEL)).and_then(Value::as_str);
    if id == Some(name) { Ok(()) } else { Err(BadInventory::Foreign(name.to_owned())) }
}

/// Makes the ConfigMap to be written: the one that was sent, over what is live, tracking `keys`.
///
/// # Errors
/// [`BadInventory::Object`].
pub(crate) fn with_tracked(
    sent: &Value,
    live: Option<&Value>,
    keys: &BTreeSet<ObjectKey>,
) -> Result<Value, BadInventory> {
    let before = live.and_then(|live| live.get("data")).and_then(Value::as_object);
    let mut data = Map::new();
    for key in keys {
        let key = encode(key)?;
        // Other tools keep an object's status there.
        let value = before.and_then(|before| before.get(&key)).cloned().unwrap_or_else(|| json!(""));
        data.insert(key, value);
    }
    let mut written = live.unwrap_or(sent).clone();
    if let (Some(metadata), Some(wanted)) = (written.get_mut("metadata"), sent.get("metadata")) {
        for name in ["labels", "annotations"] {
            let Some(wanted) = wanted.get(name).and_then(Value::as_object) else { continue };
            match metadata.get_mut(name).and_then(Value::as_object_mut) {
                Some(map) => map.extend(wanted.clone()),
                None => merge_into(metadata, name, wanted),
            }
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    if let Some(object) = written.as_object_mut() {
        object.insert("data".to_owned(), Value::Object(data));
    }
    Ok(written)
}

fn merge_into(metadata: &mut Value, name: &str, map: &Map<String, Value>) {
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(name.to_owned(), Value::Object(map.clone()));
    }
}

/// Returns whether writing would change nothing that this agent writes.
pub(crate) fn is_same(live: &Value, written: &Value) -> bool {
    let empty = Map::new();
    let data = |value: &'_ Value| value.get("data").and_then(Value::as_object).unwrap_or(&empty).clone();
    let map = |value: &Value, name: &str| -> BTreeMap<String, Value> {
        let map = value.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_object);
        map.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let same = |name| map(live, name) == map(written, name);
    data(live) == data(written) && same("labels") && same("annotations")
}

#[cfg(test)]
mod tests;
