//! Chooses the objects of a frozen config to send, and fills in the parts that are not frozen. A cluster agent prunes
//! the objects that an inventory lists and a message leaves out, so the law is: an inventory travels with all the
//! objects that it owns, or not at all, and alone only to terminate. [`check_law`] guards the sender with code of its
//! own.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use thiserror::Error;

use gateway_store::{Variable, VariableKind};
use gateway_types::{DesiredState, Lifecycle};
use workspace_spec::frozen::{FrozenConfig, FrozenObject, Role};

/// Extent of a message about a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// Because something changed.
    Partial,
    /// Everything, secrets too.
    Full,
}

impl Cycle {
    /// Decides the extent: everything for a workspace that was never applied, because its pods wait for their secrets.
    #[must_use]
    pub fn of(in_round: bool, applied_generation: u64) -> Self {
        if in_round || applied_generation == 0 { Self::Full } else { Self::Partial }
    }
}

/// Returns the objects to send, in order, complete with the parts that are not frozen: number of pods, and data of
/// secrets.
#[must_use]
pub fn config_for(frozen: &FrozenConfig, cycle: Cycle, life: &Lifecycle, variables: &[Variable]) -> Vec<Value> {
    let sent = frozen.objects().iter().filter(|object| is_sent(object.role, cycle, life.desired));
    sent.map(|object| filled(object, life.desired, variables)).collect()
}

/// Table of the roles to send.
fn is_sent(role: Role, cycle: Cycle, desired: DesiredState) -> bool {
    match role {
        Role::CoreInventory => true,
        Role::SecretsInventory => desired == DesiredState::Terminated || cycle == Cycle::Full,
        Role::Deployment
        | Role::Service
        | Role::Volume
        | Role::ServiceAccount
        | Role::NetworkPolicy
        | Role::Scripts => desired != DesiredState::Terminated,
        Role::ResourceQuota | Role::EnvSecret | Role::FileSecret => {
            desired != DesiredState::Terminated && cycle == Cycle::Full
        }
    }
}

fn filled(object: &FrozenObject, desired: DesiredState, variables: &[Variable]) -> Value {
    let mut value = object.value.clone();
    match object.role {
        Role::Deployment => {
            if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("replicas".to_owned(), desired.replicas().into());
            }
        }
        Role::EnvSecret => fill(&mut value, variables, VariableKind::Env),
        Role::FileSecret => fill(&mut value, variables, VariableKind::File),
        Role::CoreInventory
        | Role::Service
        | Role::Volume
        | Role::ServiceAccount
        | Role::NetworkPolicy
        | Role::Scripts
        | Role::SecretsInventory
        | Role::ResourceQuota => {}
    }
    value
}

fn fill(secret: &mut Value, variables: &[Variable], kind: VariableKind) {
    let of_kind = variables.iter().filter(|variable| variable.kind == kind);
    let data: Map<String, Value> =
        of_kind.map(|variable| (variable.name.clone(), STANDARD.encode(variable.value.reveal()).into())).collect();
    if let Some(secret) = secret.as_object_mut() {
        secret.insert("data".to_owned(), data.into());
    }
}

/// Error of a message that would have made the cluster agent delete objects that are still needed, or keep others.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LawBroken {
    /// An inventory without something that it owns.
    #[error("the inventory {inventory} would travel without {object}, which it owns")]
    Incomplete {
        /// Its name.
        inventory: String,
        /// Kind and name of the missing object.
        object: String,
    },
    /// Something to apply without its inventory, or of one that is not frozen.
    #[error("{object} would travel without its inventory")]
    Orphan {
        /// Kind and name.
        object: String,
    },
    /// Something besides inventories, to terminate.
    #[error("{object} would be applied to a workspace that is to end")]
    NotAlone {
        /// Kind and name.
        object: String,
    },
    /// An inventory missing, to terminate: the objects that it lists would stay for ever.
    #[error("the workspace would end without the inventory {inventory}")]
    Missing {
        /// Its name.
        inventory: String,
    },
}

/// Checks the law for a message before it is sent. It looks at kinds, names and annotations, not at [`Role`]s, so that
/// a mistake in the table above is not made twice.
///
/// # Errors
/// [`LawBroken`], with the first object that breaks it.
pub fn check_law(sent: &[Value], frozen: &FrozenConfig, desired: DesiredState) -> Result<(), LawBroken> {
    let sent_names: BTreeSet<String> = sent.iter().map(name).collect();
    let inventories: BTreeSet<&str> = sent.iter().filter_map(inventory_id).collect();
    let all = || frozen.objects().iter().map(|object| &object.value);
    if desired == DesiredState::Terminated {
        if let Some(other) = sent.iter().find(|object| inventory_id(object).is_none()) {
            return Err(LawBroken::NotAlone { object: name(other) });
        }
        return match all().filter_map(inventory_id).find(|inventory| !inventories.contains(inventory)) {
            Some(missing) => Err(LawBroken::Missing { inventory: missing.to_owned() }),
            None => Ok(()),
        };
    }
    for object in sent.iter().filter(|object| inventory_id(object).is_none()) {
        if owner(object).is_none_or(|owner| !inventories.contains(owner)) {
            return Err(LawBroken::Orphan { object: name(object) });
        }
    }
    let owned = all().filter_map(|object| Some((owner(object)?, object)));
    for (inventory, object) in owned.filter(|(inventory, _)| inventories.contains(inventory)) {
        if !sent_names.contains(&name(object)) {
            return Err(LawBroken::Incomplete { inventory: inventory.to_owned(), object: name(object) });
        }
    }
    Ok(())
}

/// The label of an inventory (kubernetes-sigs/cli-utils).
fn inventory_id(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("labels")?.get("cli-utils.sigs.k8s.io/inventory-id")?.as_str()
}

/// The annotation of an object that an inventory owns (kubernetes-sigs/cli-utils).
fn owner(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get("config.k8s.io/owning-inventory")?.as_str()
}

fn name(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let metadata = object.get("metadata");
    format!("{} {}", text(object.get("kind")), text(metadata.and_then(|metadata| metadata.get("name"))))
}

#[cfg(test)]
mod tests;
